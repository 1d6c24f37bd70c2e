//! `peerbus doctor`.

use crate::args::Doctor;
use crate::failure::Failure;

/// Checks everything.
pub(crate) fn run(verb: &Doctor) -> Result<(), Failure> {
    Err(Failure::failed(format!("{}: not yet", verb.json)))
}
