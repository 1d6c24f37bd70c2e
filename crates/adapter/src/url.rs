//! Where a broker is.

use std::fmt;
use std::path::PathBuf;

use crate::error::ConfigError;

/// The broker's address when nothing says otherwise.
pub const DEFAULT_URL: &str = "ws://127.0.0.1:47821";

/// A broker's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Url {
    /// `ws://host:port[/path]`.
    Tcp {
        /// Name or address, without brackets.
        host: String,
        /// Port; 80 when the URL names none.
        port: u16,
        /// Path and query, beginning with `/`.
        path: String,
    },
    /// `unix:/path/to.sock`.
    Unix(PathBuf),
}

impl Url {
    /// Reads a URL.
    ///
    /// # Errors
    ///
    /// Says what was found and which forms there are.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        unimplemented!("{text}")
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
