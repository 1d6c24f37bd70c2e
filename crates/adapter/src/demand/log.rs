//! The log of a broker that nobody started by hand.

use std::fs::{self, File};
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};

use peerbus_os::{dir, file};

/// A log has at most so many bytes, and one line; and so has the one before it, which is kept.
pub const LOG_BYTES_MAX: u64 = 1_048_576;

/// Opens a log to write behind what stands in it. One that is full becomes the one before it.
///
/// # Errors
///
/// When it cannot be opened or made.
pub fn open_log(path: &Path) -> Result<File> {
    if let Some(parent) = path.parent() {
        dir::create_private(parent)?;
    }
    let log = file::append_private(path)?;
    match log.metadata()?.len() < LOG_BYTES_MAX {
        true => Ok(log),
        false => turn_log(path),
    }
}

/// Makes a log that is not there, in a directory that is this user's alone.
///
/// # Errors
///
/// When it is there or cannot be made, or the directory is a link or another user's.
pub fn begin_log(path: &Path) -> Result<File> {
    if let Some(parent) = path.parent() {
        dir::ensure_private_itself(parent)?;
    }
    file::create_private(path)
}

/// Makes a log the one before it, and begins another.
///
/// # Errors
///
/// When that cannot be done.
pub fn turn_log(path: &Path) -> Result<File> {
    let mut before = path.to_owned().into_os_string();
    before.push(".1");
    match fs::rename(path, PathBuf::from(before)) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    file::append_private(path)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_full_log_becomes_the_one_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/broker.log");
        for _ in 0..3 {
            open_log(&path).unwrap().write_all(b"line\n").unwrap();
        }
        assert_eq!(fs::read(&path).unwrap(), b"line\nline\nline\n");
        let full = usize::try_from(LOG_BYTES_MAX).unwrap();
        fs::write(&path, vec![b'x'; full]).unwrap();
        open_log(&path).unwrap().write_all(b"new\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new\n");
        let before = dir.path().join("a/broker.log.1");
        assert_eq!(fs::read(before).unwrap().len(), full);
    }
}
