//! Where the sockets are: `RUNTIME/sessions/CLIENT.ADAPTER.sock` (or below the state, where that is
//! too long), one for each adapter, by the numbers of the two processes, and of the session if it has several.

use std::io::{Error, ErrorKind, Result};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use peerbus_os as os;
use peerbus_os::socket::SocketFile;

use crate::demand::with_named;
use crate::paths::{Paths, is_closed};

/// The directories in which a hook looks: its environment may lack what the adapter's had.
#[must_use]
pub fn directories(paths: &Paths) -> Vec<PathBuf> {
    let own = [paths.runtime_dir.as_path(), paths.state_dir.as_path()];
    let sockets = with_named(&paths.sockets);
    let others = sockets.iter().filter_map(|socket| socket.parent());
    let mut dirs = Vec::new();
    for dir in own.into_iter().chain(others) {
        let dir = dir.join(DIRECTORY);
        if !dirs.contains(&dir) {
            dirs.push(dir);
        }
    }
    dirs
}

pub(super) const DIRECTORY: &str = "sessions";
/// The list of live sessions, beside their sockets.
pub const INDEX: &str = "index.json";
/// As long as a socket's name gets on Linux (`proc(5)`, pid_max).
const LONGEST: &str = "4194304.4194304.9999.sock";

/// The directory of the adapters' sockets: with the runtime files, or another one where that path is
/// too long for a socket. `None`: all are.
#[must_use]
pub fn directory(paths: &Paths) -> Option<PathBuf> {
    fitting(paths).next()
}

fn fitting(paths: &Paths) -> impl Iterator<Item = PathBuf> {
    let dirs = directories(paths).into_iter();
    dirs.filter(|dir| os::socket::fits(&dir.join(LONGEST)) && is_closed(dir))
}

fn too_long(paths: &Paths) -> Error {
    let dir = paths.runtime_dir.join(DIRECTORY);
    let why = format!(
        "{} is too long a path for a socket: set XDG_RUNTIME_DIR to a shorter one",
        dir.display()
    );
    Error::new(ErrorKind::InvalidInput, why)
}

/// Listens for the hooks of the session whose process is `client`, in the first directory in which that
/// can be. Only this user can connect. `nth`: 0, or which of this process's sessions it is.
pub(super) fn bind(paths: &Paths, client: u32, nth: u64) -> Result<(SocketFile, UnixListener)> {
    let mut first = None;
    for dir in fitting(paths) {
        match os::dir::ensure_private(&dir) {
            Ok(()) => return bind_in(&dir, client, nth),
            Err(error) => _ = first.get_or_insert(error),
        }
    }
    Err(first.unwrap_or_else(|| too_long(paths)))
}

fn bind_in(dir: &Path, client: u32, nth: u64) -> Result<(SocketFile, UnixListener)> {
    sweep(dir);
    let own = std::process::id();
    let path = dir.join(match nth {
        0 => format!("{client}.{own}.sock"),
        nth => format!("{client}.{own}.{nth}.sock"),
    });
    // One of these numbers in another container, which shares the directory, is alive.
    if os::socket::is_listening(&path).is_ok_and(|listening| listening) {
        let why = format!(
            "another process listens at {}: give this container an XDG_RUNTIME_DIR of its own",
            path.display()
        );
        return Err(Error::new(ErrorKind::AddrInUse, why));
    }
    // An adapter of this number ended without removing it.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path)?;
    listener.set_nonblocking(true)?;
    Ok((SocketFile::private(&path)?, listener))
}

/// The numbers in a socket's name.
pub(super) fn numbers(path: &Path) -> Option<(u32, u32, u64)> {
    let name = path.file_name()?.to_str()?.strip_suffix(".sock")?;
    let (client, adapter) = name.split_once('.')?;
    let (adapter, nth) = adapter.split_once('.').unwrap_or((adapter, "0"));
    let numbers = (client.parse(), adapter.parse(), nth.parse());
    Some((numbers.0.ok()?, numbers.1.ok()?, numbers.2.ok()?))
}

pub(super) fn sockets(dir: &Path) -> impl Iterator<Item = (PathBuf, u32, u32)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let path = entry.path();
        let (client, adapter, _) = numbers(&path)?;
        Some((path, client, adapter))
    })
}

/// Removes the sockets of adapters that were killed. Of a process that is not there and a socket
/// that nobody answers, neither alone would do: processes elsewhere have numbers of their own, and
/// a socket is bound before it listens.
pub fn sweep(dir: &Path) {
    for (path, _, adapter) in sockets(dir) {
        let refused = || os::socket::is_listening(&path).is_ok_and(|listening| !listening);
        if !os::process::exists(adapter) && refused() {
            // Another adapter may have been faster.
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Where sessions are for this process, and for another one as it was started.
#[must_use]
pub(super) fn directories_of(process: u32) -> Vec<PathBuf> {
    let own = Paths::find().ok();
    let all = os::process::environment(process).ok();
    let theirs = all.and_then(|all| Paths::of_environment(&all));
    own.iter().chain(&theirs).flat_map(directories).collect()
}

/// A process above a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ancestor {
    /// Its number.
    pub pid: u32,
    /// It is known to be a session's client.
    pub session: bool,
}

/// Connects to the adapter of the nearest session among `above`, nearest first, and gives the process
/// whose session it is. A session without an adapter ends the search: the one around it is not meant.
pub(super) fn find(dirs: &[PathBuf], above: &[Ancestor]) -> Option<(UnixStream, u32)> {
    for above in above {
        let connected = connected(dirs, above.pid);
        if let Some(stream) = { connected }.next() {
            return Some((stream, above.pid));
        }
        if above.session {
            return None;
        }
    }
    None
}

/// Connects to the adapters of a process's sessions. Of several the one that started last comes first,
/// as far as numbers tell.
pub(super) fn connected(dirs: &[PathBuf], client: u32) -> impl Iterator<Item = UnixStream> {
    let trusted = dirs.iter().filter(|dir| os::user::owns(dir));
    let mut all: Vec<_> = trusted.flat_map(|dir| sockets(dir)).collect();
    all.retain(|(_, of, _)| *of == client);
    all.sort_by_key(|(path, ..)| std::cmp::Reverse(numbers(path)));
    all.into_iter().filter_map(|(path, ..)| {
        let stream = os::socket::connect(&path).ok()?;
        os::socket::check_listener(&stream)
            .is_ok()
            .then_some(stream)
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use peerbus_test_support::socket::end;

    use super::*;

    /// Above any number that Linux gives to a process (`proc(5)`, pid_max).
    const NOBODY: u32 = 4_194_305;

    pub(in crate::hooks) fn paths(dir: &Path) -> Paths {
        Paths {
            config_dir: dir.to_owned(),
            state_dir: dir.join("state"),
            runtime_dir: dir.join("run"),
            credentials: dir.join("credentials.toml"),
            gates: dir.join("sessions.toml"),
            tokens: PathBuf::new(),
            database: dir.join("peerbus.db"),
            socket: dir.join("peerbus.sock"),
            sockets: Vec::new(),
        }
    }

    fn ancestors() -> Vec<Ancestor> {
        let above = os::process::ancestors(std::process::id(), 64);
        let plain = |process: os::process::Process| Ancestor {
            pid: process.id,
            session: false,
        };
        above.map(plain).collect()
    }

    fn left(dir: &Path) -> Vec<PathBuf> {
        sockets(dir).map(|(path, _, _)| path).collect()
    }

    #[test]
    fn only_this_user_gets_to_a_socket_and_it_goes_with_its_adapter() {
        let home = tempfile::tempdir().unwrap();
        let paths = paths(home.path());
        let dir = paths.runtime_dir.join(DIRECTORY);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
        let (place, listener) = bind(&paths, 7, 0).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&dir), mode(place.path())), (0o700, 0o600));
        let own = dir.join(format!("7.{}.sock", std::process::id()));
        assert_eq!(left(&dir), [own]);
        drop((place, listener));
        assert_eq!(left(&dir), Vec::<PathBuf>::new());
    }

    #[test]
    fn anothers_socket_of_the_same_name_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let paths = paths(home.path());
        let dir = paths.runtime_dir.join(DIRECTORY);
        let (place, listener) = bind(&paths, 7, 0).unwrap();
        let why = bind(&paths, 7, 0).unwrap_err();
        assert_eq!(why.kind(), ErrorKind::AddrInUse);
        assert!(why.to_string().contains("XDG_RUNTIME_DIR"), "{why}");
        // What nobody listens at any more gives way, and takes nothing along when it goes.
        end(listener);
        let (next, _listener) = bind(&paths, 7, 0).unwrap();
        drop(place);
        assert_eq!(left(&dir).len(), 1);
        drop(next);
        assert_eq!(left(&dir).len(), 0);
    }

    #[test]
    fn where_a_path_is_too_long_for_a_socket_both_ends_take_the_other() {
        let home = tempfile::tempdir().unwrap();
        let mut paths = paths(home.path());
        paths.runtime_dir = home.path().join("r".repeat(90));
        let above = ancestors()[0].pid;
        let (_own, _listener) = bind(&paths, above, 0).unwrap();
        assert_eq!(left(&paths.state_dir.join(DIRECTORY)).len(), 1);
        let found = find(&directories(&paths), &ancestors());
        assert_eq!(found.map(|(_, client)| client), Some(above));

        paths.state_dir = home.path().join("s".repeat(90));
        assert_eq!(directory(&paths), None);
        let why = bind(&paths, above, 0).unwrap_err().to_string();
        assert!(
            why.contains("rrr/sessions") && why.contains("XDG_RUNTIME_DIR"),
            "{why}"
        );
    }

    #[test]
    fn a_killed_adapters_socket_is_swept_and_a_live_ones_stays() {
        let home = tempfile::tempdir().unwrap();
        let paths = paths(home.path());
        let dir = paths.runtime_dir.join(DIRECTORY);
        std::fs::create_dir_all(&dir).unwrap();
        let dead = dir.join(format!("1.{NOBODY}.sock"));
        end(UnixListener::bind(&dead).unwrap());
        // A process elsewhere, whose number means nothing here.
        let elsewhere = dir.join(format!("2.{NOBODY}.sock"));
        let _listening = UnixListener::bind(&elsewhere).unwrap();
        // One that is about to listen.
        let starting = dir.join(format!("3.{}.sock", std::os::unix::process::parent_id()));
        end(UnixListener::bind(&starting).unwrap());
        std::fs::write(dir.join("notes.txt"), "not ours").unwrap();
        sweep(&dir);
        let mut found = left(&dir);
        found.sort();
        assert_eq!(found, [elsewhere, starting]);
        assert!(dir.join("notes.txt").exists());
    }

    #[test]
    fn a_hook_waits_for_no_adapter_that_takes_no_connections() {
        let home = tempfile::tempdir().unwrap();
        let paths = paths(home.path());
        let (place, _listener) = bind(&paths, ancestors()[0].pid, 0).unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = os::socket::connect(place.path()) {
            waiting.push(stream);
        }
        let (found, finds) = std::sync::mpsc::sync_channel(1);
        std::thread::spawn(move || found.send(find(&directories(&paths), &ancestors()).is_some()));
        let found = finds.recv_timeout(std::time::Duration::from_secs(30));
        assert_eq!(found, Ok(false));
    }

    #[test]
    fn a_hook_finds_the_adapter_of_the_nearest_process_above_it() {
        let home = tempfile::tempdir().unwrap();
        let paths = paths(home.path());
        let dirs = directories(&paths);
        assert!(find(&dirs, &ancestors()).is_none());
        let above: Vec<u32> = ancestors().iter().map(|a| a.pid).collect();
        let (_stranger, _) = bind(&paths, NOBODY, 0).unwrap();
        assert!(find(&dirs, &ancestors()).is_none());
        for client in above.iter().rev() {
            // Of an adapter that was killed there is only the file.
            let old = dirs[0].join(format!("{client}.{NOBODY}.sock"));
            end(UnixListener::bind(old).unwrap());
        }
        assert!(find(&dirs, &ancestors()).is_none());
        let (_own, _listener) = bind(&paths, above[0], 0).unwrap();
        assert_eq!(
            find(&dirs, &ancestors()).map(|(_, client)| client),
            Some(above[0])
        );
    }
}
