//! `peerbus names`.

use peerbus_wire::PeerName;

use crate::args::{Names, NamesRelease, NamesRetire};
use crate::failure::Failure;
use crate::{operator, output};

/// Runs a `names` verb.
pub(crate) fn run(verb: Names) -> Result<(), Failure> {
    match verb {
        Names::Release(verb) => release(&verb),
        Names::Retire(verb) => retire(&verb),
    }
}

fn release(verb: &NamesRelease) -> Result<(), Failure> {
    let name = PeerName::parse(&verb.name).map_err(Failure::config)?;
    let target = format!("/names/release?name={name}");
    operator::request(verb.socket.as_ref(), "POST", &target)?.ok()?;
    output::line(&format!(
        "{name} is free: the next token that registers it owns it"
    ))?;
    Ok(())
}

fn retire(verb: &NamesRetire) -> Result<(), Failure> {
    let name = PeerName::parse(&verb.name).map_err(Failure::config)?;
    let successor = verb.to.as_deref().map(PeerName::parse).transpose();
    let successor = successor.map_err(Failure::config)?;
    let to = successor.as_ref().map(|to| format!("&to={to}"));
    let target = format!("/names/retire?name={name}{}", to.unwrap_or_default());
    operator::request(verb.socket.as_ref(), "POST", &target)?.ok()?;
    output::line(&match successor {
        Some(to) => format!("{name} has ended: its unseen mail, and mail for it, goes to {to}"),
        None => format!("{name} has ended: whoever sent it mail that it has not seen is told"),
    })?;
    Ok(())
}
