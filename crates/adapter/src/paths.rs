//! Where things are on this machine.

use std::path::PathBuf;

use crate::error::ConfigError;

/// The directories and files of one user's bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// `$XDG_CONFIG_HOME/peerbus`: what a person may edit or copy.
    pub config_dir: PathBuf,
    /// `$XDG_STATE_HOME/peerbus`: what the broker keeps.
    pub state_dir: PathBuf,
    /// `$XDG_RUNTIME_DIR/peerbus`, or `state_dir` when that variable is not set.
    pub runtime_dir: PathBuf,
    /// `config_dir/credentials.toml`.
    pub credentials: PathBuf,
    /// `state_dir/peerbus.db`.
    pub database: PathBuf,
    /// `runtime_dir/peerbus.sock`: where `serve` listens.
    pub socket: PathBuf,
    /// Where a client looks for the socket: `socket`, then `state_dir/peerbus.sock` (a broker
    /// that was started without `XDG_RUNTIME_DIR`).
    pub sockets: Vec<PathBuf>,
}

impl Paths {
    /// Finds the directories of this process's user. Makes none.
    ///
    /// # Errors
    ///
    /// When there is no home directory.
    pub fn find() -> Result<Self, ConfigError> {
        unimplemented!()
    }
}
