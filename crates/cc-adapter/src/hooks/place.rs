//! Where the sockets are: `RUNTIME/sessions/CLIENT.ADAPTER.sock`, one for each adapter, by the
//! numbers of the two processes.

use std::fs::{DirBuilder, Permissions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use peerbus_adapter::paths::Paths;

use super::process;

/// The directories in which a hook looks: its environment may lack what the adapter's had.
pub(super) fn directories(paths: &Paths) -> Vec<PathBuf> {
    let mut dirs = vec![
        paths.runtime_dir.join(DIRECTORY),
        paths.state_dir.join(DIRECTORY),
    ];
    dirs.dedup();
    dirs
}

const DIRECTORY: &str = "sessions";

/// A listening socket, removed when dropped.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
}

impl Place {
    /// Listens for the hooks of the session whose process is `client`. Only this user can connect.
    pub(super) fn bind(paths: &Paths, client: u32) -> Result<(Self, UnixListener)> {
        let dir = paths.runtime_dir.join(DIRECTORY);
        private(&dir)?;
        sweep(&dir);
        let path = dir.join(format!("{client}.{}.sock", std::process::id()));
        // An adapter of this number ended without removing it.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        let place = Self { path };
        std::fs::set_permissions(&place.path, Permissions::from_mode(0o600))?;
        Ok((place, listener))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // There is nothing to be done about one that cannot be removed: the next adapter tries.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Makes a directory that only this user can enter.
fn private(dir: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let found = std::fs::metadata(dir)?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        let why = format!("{} belongs to another user", dir.display());
        return Err(Error::new(ErrorKind::PermissionDenied, why));
    }
    if found.mode() & 0o077 != 0 {
        std::fs::set_permissions(dir, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// The numbers in a socket's name.
fn numbers(path: &Path) -> Option<(u32, u32)> {
    let name = path.file_name()?.to_str()?.strip_suffix(".sock")?;
    let (client, adapter) = name.split_once('.')?;
    Some((client.parse().ok()?, adapter.parse().ok()?))
}

fn sockets(dir: &Path) -> impl Iterator<Item = (PathBuf, u32, u32)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let path = entry.path();
        let (client, adapter) = numbers(&path)?;
        Some((path, client, adapter))
    })
}

/// Removes the sockets of adapters that were killed. Of a process that is not there and a socket
/// that nobody answers, neither alone would do: processes elsewhere have numbers of their own, and
/// a socket is bound before it listens.
pub(super) fn sweep(dir: &Path) {
    for (path, _, adapter) in sockets(dir) {
        let refused = |error: Error| error.kind() == ErrorKind::ConnectionRefused;
        if !process::exists(adapter) && UnixStream::connect(&path).is_err_and(refused) {
            // Another adapter may have been faster.
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// A hook's way to the adapter of its session.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) stream: UnixStream,
    /// The process whose session it is.
    pub(super) client: u32,
}

/// Connects to the adapter of the nearest session above this process. A session without an
/// adapter ends the search: the one around it is not meant.
pub(super) fn find(dirs: &[PathBuf]) -> Option<Found> {
    let own = rustix::process::geteuid().as_raw();
    let trusted = |dir: &&PathBuf| std::fs::metadata(dir).is_ok_and(|found| found.uid() == own);
    let mut all: Vec<_> = dirs
        .iter()
        .filter(trusted)
        .flat_map(|dir| sockets(dir))
        .collect();
    // Of several adapters the one that started last, as far as numbers tell.
    all.sort_by_key(|(_, _, adapter)| std::cmp::Reverse(*adapter));
    for above in process::ancestors() {
        let of_client = all.iter().filter(|(_, of, _)| *of == above.pid);
        let connected = of_client.filter_map(|(path, _, _)| UnixStream::connect(path).ok());
        if let Some(stream) = { connected }.next() {
            let client = above.pid;
            return Some(Found { stream, client });
        }
        if above.session {
            return None;
        }
    }
    None
}
