//! Who has the database, and whose turn it is to start a broker.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _};
use std::path::Path;
use std::time::{Duration, Instant};

use peerbus_os::{dir, file};

/// Longest number of a process, in bytes.
const PID_BYTES_MAX: u64 = 20;
/// Between two attempts to get the turn.
const AGAIN: Duration = Duration::from_millis(15);

/// Whether a broker has a database, and its process if that is legible. `None`: nobody has it, as
/// far as can be seen.
#[must_use]
pub fn holder(database: &Path) -> Option<Option<u32>> {
    let mut lock = database.to_owned().into_os_string();
    lock.push(".lock");
    let mut file = file::open_regular(Path::new(&lock)).ok()?;
    // Shared and for this moment only.
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {}
        _ => return None,
    }
    let mut text = String::new();
    let read = file.by_ref().take(PID_BYTES_MAX).read_to_string(&mut text);
    Some(read.ok().and_then(|_| text.trim().parse().ok()))
}

/// Takes the turn to start a broker, if nobody else has it; it lasts until the file is dropped.
pub(super) fn try_turn(state_dir: &Path) -> io::Result<Option<File>> {
    dir::create_private(state_dir).map_err(|error| named(state_dir, error))?;
    let path = state_dir.join("start.lock");
    let lock = file::open_private(&path).map_err(|error| named(&path, error))?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(named(&path, error)),
    }
}

/// Waits for the turn to start a broker; it lasts until the file is dropped.
///
/// # Errors
///
/// When it cannot be had, or not until the deadline.
pub fn turn(state_dir: &Path, deadline: Instant) -> io::Result<File> {
    loop {
        if let Some(turn) = try_turn(state_dir)? {
            return Ok(turn);
        }
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(AGAIN);
    }
}

/// An error with the path that it is about.
pub(super) fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
