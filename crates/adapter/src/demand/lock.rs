//! Who has the database, and whose turn it is to start a broker.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use peerbus_os::{dir, file, process};

use crate::paths::DATABASE;
use crate::stopped::stopped;

/// More than a lock file has: a number and a path, a line each.
const LOCK_BYTES_MAX: u64 = 8_192;
/// Between two attempts to get the turn.
const AGAIN: Duration = Duration::from_millis(15);

fn beside(database: &Path) -> PathBuf {
    let mut lock = database.to_owned().into_os_string();
    lock.push(".lock");
    lock.into()
}

/// Whether a broker has a database, and its process if that is legible. `None`: nobody has it, as
/// far as can be seen.
#[must_use]
pub fn holder(database: &Path) -> Option<Option<u32>> {
    let file = file::open_regular(&beside(database)).ok()?;
    // Shared and for this moment only.
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {}
        _ => return None,
    }
    Some(lines(file).and_then(|(pid, _)| pid))
}

/// The process that has a database, if the system shows that it is the one.
#[must_use]
pub fn known_holder(database: &Path) -> Option<u32> {
    let pid = holder(database)??;
    process::has_open(pid, &beside(database)).then_some(pid)
}

/// Tells the process that has a database, and is reached at no socket, to end. Gives its number;
/// `None`: the system does not show which one it is.
///
/// # Errors
///
/// Why it will not end, and what helps.
#[must_use]
pub fn end_holder(database: &Path) -> Option<Result<u32, String>> {
    let pid = known_holder(database)?;
    Some(match stopped(pid) {
        Some(why) => Err(format!("the broker does not answer: {why}")),
        None => process::terminate(pid).map(|()| pid).map_err(|error| {
            let database = database.display();
            format!("process {pid} has {database} open, and cannot be told to end: {error}")
        }),
    })
}

/// What a broker wrote into its lock file: its process and its socket.
fn lines(file: File) -> Option<(Option<u32>, Option<PathBuf>)> {
    let mut bytes = Vec::new();
    file.take(LOCK_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let pid = lines.next().and_then(|line| std::str::from_utf8(line).ok());
    let socket = lines
        .next()
        .map(|line| PathBuf::from(OsStr::from_bytes(line)));
    let pid = pid.and_then(|line| line.trim().parse().ok());
    Some((pid, socket.filter(|path| path.is_absolute())))
}

/// The sockets at which a client looks: of a user's usual ones, that which the lock file of the
/// broker in the state directory names comes first. A single one is meant as it is.
#[must_use]
pub fn with_named(sockets: &[PathBuf]) -> Vec<PathBuf> {
    let mut all = sockets.to_owned();
    if sockets.len() < 2 {
        return all;
    }
    let named = sockets.iter().find_map(|socket| {
        let lock = beside(&socket.with_file_name(DATABASE));
        // After a kill it names a socket at which nobody listens any more: then others are tried.
        lines(file::open_regular(&lock).ok()?)?.1
    });
    if let Some(named) = named {
        all.retain(|socket| *socket != named);
        all.insert(0, named);
    }
    all
}

/// Whoever has this file locked has the turn to start a broker.
pub(super) fn turn_file(state_dir: &Path) -> PathBuf {
    state_dir.join("start.lock")
}

/// Takes the turn to start a broker, if nobody else has it; it lasts until the file is dropped.
pub(super) fn try_turn(state_dir: &Path) -> io::Result<Option<File>> {
    dir::create_private(state_dir).map_err(|error| unwritable(state_dir, error))?;
    let path = turn_file(state_dir);
    let lock = file::open_private(&path).map_err(|error| unwritable(&path, error))?;
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

/// The same of something in the state directory, with what helps where that is the cause.
pub(super) fn unwritable(path: &Path, error: io::Error) -> io::Error {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::NotADirectory => {
            "; make its directory one that you can write, or set HOME or XDG_STATE_HOME to another"
        }
        _ => "",
    };
    io::Error::new(error.kind(), format!("{}: {error}{remedy}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_that_a_lock_file_names_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join(DATABASE);
        let usual = ["/r/peerbus.sock".into(), dir.path().join("peerbus.sock")];
        assert_eq!(with_named(&usual), usual, "there is none");
        for (text, named) in [
            ("7\n/elsewhere/s.sock\n", Some("/elsewhere/s.sock")),
            ("7\n/r/peerbus.sock\n", Some("/r/peerbus.sock")),
            ("7\nrelative.sock\n", None),
            ("7\n", None),
            ("", None),
        ] {
            std::fs::write(beside(&database), text).unwrap();
            let mut expected = usual.to_vec();
            if let Some(named) = named.map(PathBuf::from) {
                expected.retain(|path| *path != named);
                expected.insert(0, named);
            }
            assert_eq!(with_named(&usual), expected, "{text:?}");
        }
        std::fs::write(beside(&database), "7\n/elsewhere/s.sock\n").unwrap();
        assert_eq!(with_named(&usual[1..]), usual[1..], "one is meant as it is");
        assert_eq!(holder(&database), None, "nobody has it");
        let lock = File::open(beside(&database)).unwrap();
        lock.lock().unwrap();
        assert_eq!(holder(&database), Some(Some(7)));
        assert_eq!(known_holder(&database), None, "process 7 does not have it");
        std::fs::write(beside(&database), format!("{}\n", std::process::id())).unwrap();
        assert_eq!(known_holder(&database), Some(std::process::id()));
    }
}
