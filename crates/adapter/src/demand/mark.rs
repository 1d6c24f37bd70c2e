//! The mark that `peerbus stop` leaves: who runs already starts no broker while it is there.

use std::fs;
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};

use peerbus_os::{dir, file};

const BYTES_MAX: u64 = 64;

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("stopped")
}

/// What the mark says, which no other mark does; `None`: there is none.
pub(super) fn read(state_dir: &Path) -> Option<String> {
    file::read_small(&path(state_dir), BYTES_MAX)
}

/// Leaves a mark, in place of one that is there.
///
/// # Errors
///
/// When it cannot be written.
pub fn leave_mark(state_dir: &Path) -> Result<()> {
    dir::create_private(state_dir)?;
    let text = format!("{:016x}\n", rand::random::<u64>());
    file::replace_private(&path(state_dir), text.as_bytes())
}

/// Takes the mark away, if there is one.
///
/// # Errors
///
/// When it is there and cannot be removed.
pub fn take_mark_away(state_dir: &Path) -> Result<()> {
    match fs::remove_file(path(state_dir)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
