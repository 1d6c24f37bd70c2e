//! `peerbus names`.

use std::path::PathBuf;

use peerbus_adapter::Failure;
use peerbus_wire::PeerName;
use serde_json::json;

use crate::args::Names;
use crate::here::{self, Here};
use crate::{operator, output, peers, table};

pub(crate) fn run(verb: &Names) -> Result<(), Failure> {
    match verb {
        Names::List { wide, json, socket } => list(*wide, *json, socket.as_ref()),
        Names::Release { name, socket } => release(name, socket.as_ref()),
        Names::Retire { name, to, socket } => retire(name, to.as_deref(), socket.as_ref()),
    }
}

fn list(wide: bool, json: bool, socket: Option<&PathBuf>) -> Result<(), Failure> {
    let peers = here::peers(socket)?;
    let here = Here::of(peers.iter());
    if json {
        return output::json(&json!({ "names": here.json() }));
    }
    let all = here.peers;
    if all.is_empty() {
        return output::line("no names");
    }
    table::write(&peers::COLUMNS, all.iter().map(peers::row), wide)
}

fn release(name: &str, socket: Option<&PathBuf>) -> Result<(), Failure> {
    here::for_people("give a name to another token")?;
    let name = PeerName::parse(name).map_err(Failure::config)?;
    let target = format!("/names/release?name={name}");
    operator::ask(socket, "POST", &target)?;
    output::line(&format!(
        "{name} is free: the next token that registers it owns it"
    ))
}

fn retire(name: &str, to: Option<&str>, socket: Option<&PathBuf>) -> Result<(), Failure> {
    here::for_people("end a name, or give its mail to another")?;
    let name = PeerName::parse(name).map_err(Failure::config)?;
    let successor = to.map(PeerName::parse).transpose();
    let successor = successor.map_err(Failure::config)?;
    let to = successor.as_ref().map(|to| format!("&to={to}"));
    let target = format!("/names/retire?name={name}{}", to.unwrap_or_default());
    operator::ask(socket, "POST", &target)?;
    output::line(&match successor {
        Some(to) => format!(
            "{name} has ended: its unseen mail, and mail for it, goes to {to}. A session that was connected \
             under that name is off the bus until it is started anew"
        ),
        None => format!(
            "{name} has ended: whoever sent it mail that it has not seen is told. A session that was \
             connected under that name is off the bus until it is started anew"
        ),
    })
}
