//! `peerbus install` and `peerbus uninstall`.

use crate::args::{Install, Uninstall};
use crate::failure::Failure;

/// Puts peerbus into a client's configuration.
pub(crate) fn run(verb: &Install) -> Result<(), Failure> {
    Err(Failure::failed(format!("{:?}: not yet", verb.client)))
}

/// Takes peerbus out of it again.
pub(crate) fn undo(verb: &Uninstall) -> Result<(), Failure> {
    Err(Failure::failed(format!("{:?}: not yet", verb.client)))
}
