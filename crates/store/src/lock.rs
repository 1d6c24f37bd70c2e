//! One broker per database.
//!
//! The lock is on a file of its own: SQLite's locks on the database would keep readers out, or let
//! a second writer in between two transactions.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use peerbus_os::file;

use crate::files;

/// Held as long as the value lives, and no longer than the process.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Lock {
    /// The lock file of the database at `db`.
    pub(crate) fn path(db: &Path) -> PathBuf {
        files::beside(db, ".lock")
    }

    /// Takes the lock of this lock file and writes this process' number into it. `Err` inside: another
    /// process has it, this one if the file says so.
    pub(crate) fn take(path: &Path) -> io::Result<Result<Self, Option<u32>>> {
        let mut file = file::open_private(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Err(holder(&mut file))),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let cleared = file.set_len(0).and_then(|()| file.rewind());
        if let Err(error) = cleared.and_then(|()| writeln!(file, "{}", std::process::id())) {
            // It only helps those who ask who it is: no reason not to serve on a full disk.
            tracing::warn!(%error, "the process number is not in the lock file");
        }
        Ok(Ok(Self { file }))
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

fn holder(file: &mut File) -> Option<u32> {
    let mut text = Vec::new();
    file.take(32).read_to_end(&mut text).ok()?;
    let line = text.split(|byte| *byte == b'\n').next()?;
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

/// Writes into the lock file of the database at `db`, which this process has open, where its broker
/// is reached: clients find it there, whatever their environment says.
///
/// # Errors
///
/// When the file cannot be written, or no line can hold the path.
pub fn name_socket(db: &Path, socket: &Path) -> io::Result<()> {
    let socket = std::path::absolute(socket)?;
    let path = socket.as_os_str().as_bytes();
    if path.contains(&b'\n') {
        let why = "the socket's path has a line break";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut text = format!("{}\n", std::process::id()).into_bytes();
    text.extend_from_slice(path);
    text.push(b'\n');
    // The lock is on this file and stays: it is another opening that is closed here.
    let mut file = File::options().write(true).open(Lock::path(db))?;
    file.write_all(&text)?;
    file.set_len(text.len() as u64)
}
