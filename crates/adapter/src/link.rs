//! The driver.

use std::fmt;
use std::time::Instant;

use crate::bus::Bus;
use crate::config::Config;

/// Drives the connection of a [`Bus`].
#[derive(Debug)]
pub struct Link {}

/// How a link ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEnd {
    /// The broker was told; every ack was flushed.
    Goodbye,
    /// There was no connection at the end, or it did not take the goodbye in time. What was not
    /// acked is delivered again.
    Cut,
}

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
        write!(f, "{self:?}")
    }
}

/// Makes a bus and the link that drives it. No I/O happens before [`Link::run`].
#[must_use]
pub fn connect(config: Config) -> (Bus, Link) {
    unimplemented!("{config:?}")
}

impl Link {
    /// Runs until every [`Bus`] handle is dropped or [`Bus::close`] was called.
    pub async fn run(self) -> LinkEnd {
        unimplemented!()
    }
}
