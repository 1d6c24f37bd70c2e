//! `peerbus names`.

use peerbus_wire::PeerName;

use crate::args::{Names, NamesRelease};
use crate::failure::Failure;
use crate::{operator, output};

/// Runs a `names` verb.
pub(crate) fn run(verb: Names) -> Result<(), Failure> {
    match verb {
        Names::Release(verb) => release(&verb),
    }
}

fn release(verb: &NamesRelease) -> Result<(), Failure> {
    let name = PeerName::parse(&verb.name).map_err(Failure::config)?;
    let target = format!("/names/release?name={name}");
    operator::request(verb.socket.as_ref(), "POST", &target)?.ok()?;
    output::line(&format!(
        "the broker was told to free {name}: if it knows the name, the next token that registers it owns it"
    ))?;
    Ok(())
}
