//! Where the connection stands, for people and agents.

use std::fmt;
use std::time::Instant;

/// Where the connection stands. `Display` is a sentence for an agent or a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkState {
    /// Not connected, and trying.
    Connecting {
        /// Since when.
        since: Instant,
        /// Why the last attempt failed.
        last_error: Option<String>,
    },
    /// Registered.
    Online {
        /// Under this name.
        name: String,
        /// The broker speaks our extension; `false`: v1.
        ext: bool,
    },
    /// The broker turned the registration down. Tried again, slowly.
    Refused {
        /// Who was refused, what was found and the remedy.
        sentence: String,
    },
    /// There are no credentials. Looked for again.
    NeedCredentials {
        /// Where they were looked for, and what would make them.
        looked: String,
    },
    /// The bus was closed.
    Closed,
}

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connecting {
                last_error: None, ..
            } => f.write_str("connecting to the broker"),
            Self::Connecting {
                last_error: Some(why),
                ..
            } => {
                write!(f, "not connected, trying again: {why}")
            }
            Self::Online { name, ext: true } => write!(f, "connected as {name}"),
            Self::Online { name, ext: false } => {
                write!(
                    f,
                    "connected as {name} to a v1 broker, which gives no receipts"
                )
            }
            Self::Refused { sentence } => f.write_str(sentence),
            Self::NeedCredentials { looked } => f.write_str(looked),
            Self::Closed => f.write_str("the bus is closed"),
        }
    }
}
