//! Everything that peerbus keeps for a user, taken away.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use peerbus_adapter::Failure;
use peerbus_adapter::hooks::directories;
use peerbus_adapter::paths::Paths;
use peerbus_os::socket::{is_listening, is_socket};
use peerbus_os::user::owns;

/// What peerbus keeps beside its credentials.
const CONFIGURATION: [&str; 8] = [
    "credentials.toml",
    "tokens.toml",
    "web.toml",
    "sessions.toml",
    "invitations.toml",
    "broker.crt",
    "broker.key",
    "bridge-token",
];
/// What stands behind the database's name in those of its files.
const DATABASE: [&str; 7] = [
    "",
    "-wal",
    "-shm",
    ".audit-key",
    ".witness",
    ".lock",
    ".reserve",
];
/// What else is in the state directory, and the directories there.
const STATE: [&str; 7] = [
    "installed.json",
    "sessions.json",
    "broker.log",
    "broker.log.1",
    "start.lock",
    "stopped",
    "web.html",
];
const STATE_DIRECTORIES: [&str; 2] = ["projects", "runs"];
/// What is beside the sockets of sessions.
const LISTS: [&str; 2] = ["index.json", "index.lock"];

/// Deletes what peerbus made, where no broker and no session runs. Gives what else is in its
/// directories, and stays.
///
/// # Errors
///
/// What cannot be deleted, and why.
pub fn purge(paths: &Paths) -> Result<Vec<PathBuf>, Failure> {
    for sessions in directories(paths) {
        let dir = sessions.parent().unwrap_or(&sessions).to_owned();
        sweep(&sessions, &LISTS)?;
        sweep(&dir, &[])?;
        if dir != paths.state_dir {
            // Below /tmp it stands in another one of ours.
            let above = dir.parent().filter(|above| {
                let name = above.file_name().unwrap_or_default();
                name.to_string_lossy().starts_with("peerbus-")
            });
            above.map(goes_if_empty).transpose()?;
        }
    }
    let (state, config) = (&paths.state_dir, &paths.config_dir);
    let database = |suffix| paths.database.with_extension(format!("db{suffix}"));
    let files = DATABASE.iter().map(database);
    let files = files.chain(STATE.iter().map(|name| state.join(name)));
    let files = files.chain(CONFIGURATION.iter().map(|name| config.join(name)));
    for file in files {
        goes(&file, fs::remove_file(&file))?;
    }
    for dir in STATE_DIRECTORIES.map(|name| state.join(name)) {
        goes(&dir, fs::remove_dir_all(&dir))?;
    }
    let sessions = directories(paths).into_iter();
    let sockets = sessions.flat_map(|dir| [dir.clone(), dir.parent().unwrap_or(&dir).to_owned()]);
    let dirs: BTreeSet<_> = sockets.chain([state.clone(), config.clone()]).collect();
    let mut left = Vec::new();
    // What is below comes first.
    for dir in dirs.iter().rev().filter(|dir| owns(dir)) {
        goes_if_empty(dir)?;
        let others = fs::read_dir(dir).into_iter().flatten().flatten();
        left.extend(others.map(|entry| entry.path()));
    }
    left.retain(|path| !dirs.contains(path));
    left.sort();
    Ok(left)
}

/// Deletes the sockets of a directory at which nobody listens, and these lists of them; and it if nothing
/// else is in it.
fn sweep(dir: &Path, lists: &[&str]) -> Result<(), Failure> {
    if !owns(dir) {
        return Ok(());
    }
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut lives = false;
    for path in entries.map(|entry| entry.path()) {
        let is_named = path.extension().is_some_and(|end| end == "sock");
        if !is_named || !is_socket(&path).unwrap_or(false) {
            continue;
        }
        match is_listening(&path) {
            Ok(false) => goes(&path, fs::remove_file(&path))?,
            _ => lives = true,
        }
    }
    for name in lists.iter().filter(|_| !lives) {
        goes(&dir.join(name), fs::remove_file(dir.join(name)))?;
    }
    goes_if_empty(dir)
}

fn goes_if_empty(dir: &Path) -> Result<(), Failure> {
    match fs::remove_dir(dir) {
        // What is in it, or in its place, is another's.
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(()),
        done => goes(dir, done),
    }
}

fn goes(path: &Path, removed: io::Result<()>) -> Result<(), Failure> {
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            let path = path.display();
            Err(Failure::failed(format!("cannot delete {path}: {error}")))
        }
        _ => Ok(()),
    }
}
