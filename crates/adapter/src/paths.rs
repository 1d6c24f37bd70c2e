//! Where things are on this machine.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use peerbus_os::{dir, socket, user};

use crate::error::ConfigError;

pub(crate) const DATABASE: &str = "peerbus.db";
const SOCKET: &str = "peerbus.sock";
/// As long as a socket's path gets below a directory, on Linux (`proc(5)`, pid_max).
const LONGEST_SOCKET: &str = "sessions/4194304.4194304.sock";

/// The directories and files of one user's bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// `$XDG_CONFIG_HOME/peerbus`: what a person may edit or copy.
    pub config_dir: PathBuf,
    /// `$XDG_STATE_HOME/peerbus`: what the broker keeps.
    pub state_dir: PathBuf,
    /// The first of these in which this user can listen: `$XDG_RUNTIME_DIR/peerbus`,
    /// `/run/user/UID/peerbus`, `state_dir`, and a short directory below `/tmp`.
    pub runtime_dir: PathBuf,
    /// `config_dir/credentials.toml`.
    pub credentials: PathBuf,
    /// `config_dir/sessions.toml`: what others may do to a session.
    pub gates: PathBuf,
    /// `config_dir/tokens.toml`: more tokens than that of the credentials.
    pub tokens: PathBuf,
    /// `state_dir/peerbus.db`.
    pub database: PathBuf,
    /// `runtime_dir/peerbus.sock`: where `serve` listens.
    pub socket: PathBuf,
    /// Where a client looks for the socket: `socket`, then in the other directories in which a
    /// broker with another environment listens.
    pub sockets: Vec<PathBuf>,
}

impl Paths {
    /// Finds the directories of this process's user. Makes none.
    ///
    /// # Errors
    ///
    /// When there is no home directory.
    pub fn find() -> Result<Self, ConfigError> {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
        Self::by(variable, etcetera::home_dir().ok()).ok_or_else(|| {
            ConfigError("no home directory: set HOME, or XDG_CONFIG_HOME and XDG_STATE_HOME".into())
        })
    }

    /// The directories as a process with this environment (`NAME=VALUE`, a 0 behind each) finds them.
    pub(crate) fn of_environment(all: &[u8]) -> Option<Self> {
        let variable = |name: &str| -> Option<PathBuf> {
            let mut all = all.split(|byte| *byte == 0);
            let value = all.find_map(|one| one.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
            Some(OsStr::from_bytes(value?).into())
        };
        Self::by(variable, variable("HOME"))
    }

    fn by(variable: impl Fn(&str) -> Option<PathBuf>, home: Option<PathBuf>) -> Option<Self> {
        let dir = |name| variable(name).filter(|dir| dir.is_absolute());
        let below = |rest| Some(home.as_ref()?.join(rest));
        let config = dir("XDG_CONFIG_HOME").or_else(|| below(".config"))?;
        let state = dir("XDG_STATE_HOME").or_else(|| below(".local/state"))?;
        let runtime = [dir("XDG_RUNTIME_DIR"), user::runtime_dir()];
        let runtime: Vec<_> = runtime.into_iter().flatten().collect();
        Some(Self::under(config, state, &runtime))
    }

    /// `state_dir/broker.log`: the log of a broker that was started on demand.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.state_dir.join("broker.log")
    }

    /// Where a broker listens when `socket` cannot be used.
    #[must_use]
    pub fn other_sockets(&self) -> Vec<PathBuf> {
        let others = self.sockets.iter().skip(1);
        others.filter(|path| is_closed(path)).cloned().collect()
    }

    /// The database of this user's that is used without `XDG_STATE_HOME`, if it is there and another
    /// one: mail in it is delivered by its own broker alone.
    #[must_use]
    pub fn other_database(&self) -> Option<PathBuf> {
        let usual = peerbus_agents::home()?
            .join(".local/state/peerbus")
            .join(DATABASE);
        (usual != self.database && usual.exists()).then_some(usual)
    }

    /// The credentials file of this user's that is used without `XDG_CONFIG_HOME`, if it is there
    /// and another one.
    #[must_use]
    pub fn other_credentials(&self) -> Option<PathBuf> {
        let usual = peerbus_agents::home()?.join(".config/peerbus/credentials.toml");
        (usual != self.credentials && usual.exists()).then_some(usual)
    }

    pub(crate) fn under(config: PathBuf, state: PathBuf, runtime: &[PathBuf]) -> Self {
        let config_dir = config.join("peerbus");
        let state_dir = state.join("peerbus");
        let dirs = directories(&state_dir, runtime);
        let can_listen = |dir: &&PathBuf| {
            socket::fits(&dir.join(LONGEST_SOCKET)) && is_closed(dir) && dir::is_usable(dir)
        };
        let runtime_dir = dirs.iter().find(can_listen).unwrap_or(&state_dir).clone();
        let socket = runtime_dir.join(SOCKET);
        let others = dirs.iter().map(|dir| dir.join(SOCKET));
        let others = others.filter(|other| *other != socket);
        let sockets = std::iter::once(socket.clone()).chain(others).collect();
        Self {
            credentials: config_dir.join("credentials.toml"),
            gates: config_dir.join("sessions.toml"),
            tokens: config_dir.join("tokens.toml"),
            database: state_dir.join(DATABASE),
            config_dir,
            state_dir,
            runtime_dir,
            socket,
            sockets,
        }
    }
}

/// Where sockets may be, best first. A runtime directory of another user's is none.
fn directories(state_dir: &Path, runtime: &[PathBuf]) -> Vec<PathBuf> {
    let own = runtime
        .iter()
        .filter(|dir| !dir.exists() || user::owns(dir));
    let mut dirs: Vec<_> = own.map(|dir| dir.join("peerbus")).collect();
    dirs.push(state_dir.to_owned());
    dirs.push(short(state_dir));
    let mut known = BTreeSet::new();
    dirs.retain(|dir| known.insert(dir.clone()));
    dirs
}

/// A directory whose path is short, one for each state directory.
fn short(state_dir: &Path) -> PathBuf {
    let hash = blake3::hash(state_dir.as_os_str().as_bytes());
    short_root().join(&hash.to_hex()[..16])
}

fn short_root() -> PathBuf {
    PathBuf::from(format!("/tmp/peerbus-{}", user::id()))
}

/// Whether nobody else can put something in the place of a directory of ours: below `/tmp` whoever
/// is first has the name.
pub(crate) fn is_closed(dir: &Path) -> bool {
    let root = short_root();
    !dir.starts_with(&root) || dir::is_private_or_missing(&root)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths below a directory, with such a runtime directory.
    fn with(dir: &Path, runtime: &[PathBuf]) -> Paths {
        Paths::under(dir.join("c"), dir.join("s"), runtime)
    }

    #[test]
    fn the_socket_lies_in_the_first_directory_that_can_be_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let paths = with(dir.path(), &[path("r")]);
        assert_eq!(paths.credentials, path("c/peerbus/credentials.toml"));
        let (runtime, state) = (
            path("r/peerbus/peerbus.sock"),
            path("s/peerbus/peerbus.sock"),
        );
        assert_eq!(paths.socket, runtime);
        assert_eq!(paths.sockets[..2], [runtime, state.clone()]);

        std::fs::write(path("file"), "").unwrap();
        let long = path(&"x".repeat(80));
        for unusable in [path("file"), path("file/below"), long] {
            let paths = with(dir.path(), std::slice::from_ref(&unusable));
            assert_eq!(paths.socket, state, "{unusable:?}");
            // A broker that could use it is looked for.
            let there = unusable.join("peerbus/peerbus.sock");
            assert!(paths.sockets.contains(&there), "{unusable:?}");
        }
        let next = with(dir.path(), &[path("file"), path("r")]);
        assert_eq!(next.runtime_dir, path("r/peerbus"));
        assert_eq!(with(dir.path(), &[]).socket, state);
    }

    #[test]
    fn where_every_path_is_too_long_a_short_one_is_taken_by_all() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("x".repeat(90));
        let paths = with(&long, &[long.join("r")]);
        let id = user::id();
        let short = format!("/tmp/peerbus-{id}/");
        assert!(paths.runtime_dir.starts_with(&short), "{paths:?}");
        assert!(socket::fits(&paths.runtime_dir.join(LONGEST_SOCKET)));
        assert_eq!(with(&long, &[]).socket, paths.socket);
        let other = with(&long.join("other"), &[]);
        assert_ne!(other.socket, paths.socket, "each state has its own");
        assert!(with(dir.path(), &[]).sockets.len() == 2);
    }
}
