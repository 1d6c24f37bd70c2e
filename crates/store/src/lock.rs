//! One broker per database.
//!
//! The lock is on a file of its own: SQLite's locks on the database would keep readers out, or let
//! a second writer in between two transactions.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use peerbus_os::file;

use crate::files;

/// Held as long as the value lives, and no longer than the process.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

/// Why there is no lock.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Another process has it; its number, if it was legible.
    Held(Option<u32>),
    /// The file cannot be used.
    Io(io::Error),
}

impl Lock {
    /// The lock file of the database at `db`.
    pub(crate) fn path(db: &Path) -> PathBuf {
        files::beside(db, ".lock")
    }

    /// Takes the lock and writes this process' number into the file.
    pub(crate) fn take(db: &Path) -> Result<Self, LockError> {
        let mut file = file::open_private(&Self::path(db)).map_err(LockError::Io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LockError::Held(holder(&mut file))),
            Err(TryLockError::Error(error)) => return Err(LockError::Io(error)),
        }
        if let Err(error) = write_pid(&mut file) {
            // It only helps those who ask who it is: no reason not to serve on a full disk.
            tracing::warn!(%error, "the process number is not in the lock file");
        }
        Ok(Self { file })
    }
}

impl Drop for Lock {
    /// Gives the lock up. The file stays: removing it would race with a process that has opened
    /// it and is about to lock it.
    fn drop(&mut self) {
        // A number that stays behind is read only while somebody holds the lock.
        let _ = self.file.set_len(0);
        // Not left to the closing of the file: a child that this process is just starting may
        // have inherited it, and would hold the lock until it executes its program.
        let _ = self.file.unlock();
    }
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
