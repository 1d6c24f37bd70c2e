//! `peerbus inbox`.

use peerbus_adapter::{Failure, groups, wall_ms};
use peerbus_view::{MessageText, span, spoken};
use peerbus_wire::{PeerName, escape};

use crate::args::Inbox;
use crate::here::{self, Here};
use crate::{output, send, told};

/// Longest text that is shown, in characters.
const TEXT_CHARS: usize = 300;

pub(crate) fn run(verb: &Inbox) -> Result<(), Failure> {
    if verb.name.starts_with('#') {
        let group = groups::read(&verb.name).map_err(Failure::config)?;
        return Err(Failure::config(format!(
            "an inbox is a peer's, and {group} is a group: `peerbus history '{group}'` shows what was sent to it"
        )));
    }
    let name = PeerName::parse(&verb.name).map_err(Failure::config)?;
    let secret = told::secret(verb.shown.credentials.as_deref());
    let socket = verb.shown.socket.as_ref();
    let name = here::present(socket, &name);
    let (mut found, more) = told::newest(socket, &format!("&owed={name}"), verb.limit, None)?;
    let peers = here::peers(socket)?;
    if found.is_empty() && !peers.iter().any(|peer| is(&peer.name, &name)) {
        let names: Vec<String> = peers.into_iter().map(|peer| peer.name).collect();
        return Err(Failure::failed(send::nobody(name.as_str(), &names)));
    }
    if found.is_empty() && !verb.shown.json {
        output::line(&format!("nothing waits for {name}"))?;
    }
    let all = found.iter_mut();
    all.for_each(|message| message.tell_stopped(&peers, here::audience()));
    for message in found.iter().rev() {
        let said = message.content(secret.as_ref());
        if verb.shown.json {
            let mut told = message.json(secret.as_ref());
            told["state"] = message.state.as_str().into();
            told["bytes"] = said.bytes.into();
            output::json(&told)?;
            continue;
        }
        output::wrapped(&format!(
            "{} from {}  {} ago  {}  {}",
            told::time(message.at),
            told::name(&message.from),
            span(wall_ms().saturating_sub(message.at) / 1_000),
            message.state,
            told::name(&message.id),
        ))?;
        output::wrapped(&match &said.text {
            MessageText::Signed(body) => format!("    \"{}\"", escape(&spoken(body), TEXT_CHARS)),
            MessageText::Hidden(why) => format!("    (not shown: {why})"),
        })?;
        // More has happened to it than that it waits.
        let waits = |state: &str| matches!(state, "accepted" | "queued");
        if message.steps.iter().any(|step| !waits(&step.state)) {
            output::wrapped(&format!("    {}", message.note))?;
        }
    }
    if !verb.shown.json {
        let here = Here::of(peers.iter().filter(|peer| is(&peer.name, &name)));
        here.ways().try_for_each(|way| output::wrapped(&way))?;
        let senders = found.iter().map(|message| message.from.as_str());
        here::say_where(senders.chain([name.as_str()]), &peers, socket);
    }
    if more {
        output::say(&format!(
            "these are the newest {}; older ones wait too: --limit N",
            found.len()
        ));
    }
    Ok(())
}

fn is(peer: &str, name: &PeerName) -> bool {
    peer.eq_ignore_ascii_case(name.as_str())
}
