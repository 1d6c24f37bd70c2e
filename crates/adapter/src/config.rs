//! Where the settings come from: flag, then environment, then file, then default.

use std::path::PathBuf;

use peerbus_wire::{PeerName, Secret, Token, Window};
use serde_json::{Map, Value};

use crate::error::ConfigError;
use crate::url::Url;

/// Settings given on a command line. Whatever is `None` comes from the environment
/// (`PEERBUS_URL`, `PEERBUS_NAME`, `PEERBUS_TOKEN`, `PEERBUS_HMAC_SECRET`), then from the
/// credentials file, then from a default. An empty text counts as not given.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// `ws://host:port[/path]` or `unix:/path/to.sock`.
    pub url: Option<String>,
    /// The name, verbatim.
    pub name: Option<String>,
    /// Another credentials file than the one of [`crate::paths`].
    pub credentials: Option<PathBuf>,
}

/// Which name to register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Naming {
    /// This one and no other.
    Verbatim(PeerName),
    /// `<adjective>-<noun>-<3 base36>`; another one when it is taken.
    Generated,
}

/// What [`connect`](crate::connect) needs to know.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the broker is; `None`: the file's `url`, else the Unix socket of [`crate::paths`] if
    /// it is there, else [`crate::url::DEFAULT_URL`].
    pub url: Option<Url>,
    /// Which name to register.
    pub naming: Naming,
    /// The token; `None`: the file's, read before each attempt.
    pub token: Option<Token>,
    /// The HMAC secret; `None`: the file's, read before each attempt.
    pub secret: Option<Secret>,
    /// The credentials file.
    pub credentials: PathBuf,
    /// Be forgotten at close: unique name, no queue, not in broadcasts.
    pub ephemeral: bool,
    /// How much may be held unacked.
    pub window: Window,
    /// How this peer describes itself at first.
    pub presence: Option<Map<String, Value>>,
}

impl Config {
    /// Resolves the settings with this process's environment.
    ///
    /// # Errors
    ///
    /// Names the setting, what was found and the rule.
    pub fn resolve(flags: &Flags) -> Result<Self, ConfigError> {
        unimplemented!("{flags:?}")
    }

    /// Resolves the settings with `env` in place of the process's environment.
    ///
    /// # Errors
    ///
    /// As for [`Config::resolve`].
    pub fn resolve_with(
        flags: &Flags,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        unimplemented!("{flags:?}{:?}", env(""))
    }
}
