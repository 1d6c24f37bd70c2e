//! Claude Code run headless as a peer: one process, one name, one mailbox.
//!
//! The client is a child process that speaks JSON lines, over its standard streams or a WebSocket. Messages from
//! the bus become turns of it; it gets the bus tools from here, over the same stream, from the same
//! server that adapters are. `docs/DRIVER.md` says what users are told.

mod below;
mod claude;
mod life;
mod process;
mod protocol;
mod session;
mod tools;
mod turns;

use std::ffi::OsString;
use std::time::Duration;

use peerbus_adapter::paths::Paths;

pub use below::{Below, below};
pub use claude::{ClientOptions, Transport};
pub use life::{RunEnd, run};
pub use session::STREAM;

/// The name of the bus among the client's MCP servers.
const SERVER: &str = "peerbus";

/// Longest sentence of the client's that is repeated, in characters.
const WHY_CHARS: usize = 300;

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
    /// What is put before the program to start it, such as a program that ends it with its parent.
    pub before: Vec<OsString>,
    /// How long a request to use a tool waits where somebody may allow it.
    pub approval: Duration,
    /// Where the sockets of sessions are, and who may do what to them.
    pub places: Paths,
}
