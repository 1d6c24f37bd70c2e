//! Where things are on this machine.

use std::path::PathBuf;

use etcetera::BaseStrategy;

use crate::error::ConfigError;

/// The directories and files of one user's bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// `$XDG_CONFIG_HOME/peerbus`: what a person may edit or copy.
    pub config_dir: PathBuf,
    /// `$XDG_STATE_HOME/peerbus`: what the broker keeps.
    pub state_dir: PathBuf,
    /// `$XDG_RUNTIME_DIR/peerbus`; when that variable is not set, `/run/user/UID/peerbus`, or
    /// `state_dir` where there is no such directory of this user's.
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
    /// Where a client looks for the socket: `socket`, then `state_dir/peerbus.sock` (a broker
    /// that was started without a runtime directory).
    pub sockets: Vec<PathBuf>,
}

impl Paths {
    /// Finds the directories of this process's user. Makes none.
    ///
    /// # Errors
    ///
    /// When there is no home directory.
    pub fn find() -> Result<Self, ConfigError> {
        let base = etcetera::choose_base_strategy().map_err(|_| {
            ConfigError("no home directory: set HOME, or XDG_CONFIG_HOME and XDG_STATE_HOME".into())
        })?;
        let state = base.state_dir().unwrap_or_else(|| base.data_dir());
        let runtime = base.runtime_dir().or_else(peerbus_os::user::runtime_dir);
        Ok(Self::under(base.config_dir(), state, runtime))
    }

    /// `state_dir/broker.log`: the log of a broker that was started on demand.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.state_dir.join("broker.log")
    }

    pub(crate) fn under(config: PathBuf, state: PathBuf, runtime: Option<PathBuf>) -> Self {
        const SOCKET: &str = "peerbus.sock";
        let config_dir = config.join("peerbus");
        let state_dir = state.join("peerbus");
        let runtime_dir = runtime.map_or_else(|| state_dir.clone(), |dir| dir.join("peerbus"));
        let socket = runtime_dir.join(SOCKET);
        let mut sockets = vec![socket.clone(), state_dir.join(SOCKET)];
        sockets.dedup();
        Self {
            credentials: config_dir.join("credentials.toml"),
            gates: config_dir.join("sessions.toml"),
            tokens: config_dir.join("tokens.toml"),
            database: state_dir.join("peerbus.db"),
            config_dir,
            state_dir,
            runtime_dir,
            socket,
            sockets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_runtime_directory_the_socket_lies_with_the_state() {
        let paths = Paths::under("/c".into(), "/s".into(), Some("/r".into()));
        assert_eq!(
            paths.credentials,
            PathBuf::from("/c/peerbus/credentials.toml")
        );
        assert_eq!(paths.socket, PathBuf::from("/r/peerbus/peerbus.sock"));
        let other = PathBuf::from("/s/peerbus/peerbus.sock");
        assert_eq!(paths.sockets, [paths.socket.clone(), other.clone()]);

        let paths = Paths::under("/c".into(), "/s".into(), None);
        assert_eq!((paths.socket, paths.sockets), (other.clone(), vec![other]));
    }
}
