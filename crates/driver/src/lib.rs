//! Claude Code run headless as a peer: one process, one name, one mailbox.
//!
//! The client is a child process that speaks JSON lines, over its standard streams or a WebSocket. Messages from
//! the bus become turns of it; it gets the bus tools from here, over the same stream, from the same
//! server that adapters are. `docs/DRIVER.md` says what users are told.

mod claude;
mod guard;
mod life;
mod process;
mod protocol;
mod session;
mod turns;

use std::ffi::OsString;
use std::time::Duration;

use peerbus_adapter::paths::Paths;

pub use claude::{ClientOptions, Transport};
pub use guard::guard;
pub use life::{RunEnd, run};
pub use session::STREAM;

/// The name of the bus among the client's MCP servers.
const SERVER: &str = "peerbus";

/// Longest sentence of the client's that is repeated, in characters.
const WHY_CHARS: usize = 300;

/// The variable in which a client's children read which process drives it.
const DRIVER_VARIABLE: &str = "PEERBUS_DRIVER";

/// Whether the client that started this process is driven: an adapter that its configuration names
/// has nothing to do there, and would be a second peer for one session. Agents further down are
/// peers of their own.
#[must_use]
pub fn is_driven() -> bool {
    let driver = std::env::var(DRIVER_VARIABLE).ok();
    let driver = driver.and_then(|driver| driver.parse().ok());
    // The client, its guard, the driver.
    let above = peerbus_os::process::ancestors(std::process::id(), 3);
    driver.is_some_and(|driver: u32| above.get(2).is_some_and(|process| process.id == driver))
}

/// How a client is run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What the user chose for it.
    pub choice: ClientOptions,
    /// What carries the stream.
    pub transport: Transport,
    /// The first turn.
    pub prompt: Option<String>,
    /// The client's program, as its directory or the search path has it.
    pub program: OsString,
    /// What is put before the program to start it: a program that calls [`guard`].
    pub before: Vec<OsString>,
    /// How long a request to use a tool waits where somebody may allow it.
    pub approval: Duration,
    /// Where the sockets of sessions are, and who may do what to them.
    pub places: Paths,
}
