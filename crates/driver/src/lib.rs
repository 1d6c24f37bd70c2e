//! An agent run headless as a peer: one process, one name, one mailbox.
//!
//! The agent is a child process that speaks JSON lines: Claude Code its own, over its standard streams or a
//! WebSocket, any other those of ACP. Messages from the bus become turns of it; it gets the bus tools from here.
//! `docs/DRIVER.md` says what users are told.

mod acp;
mod claude;
mod guard;
mod life;
mod process;
mod protocol;
mod session;
mod turns;

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use peerbus_adapter::paths::Paths;

pub use acp::{ACP, AcpAgent};
pub use claude::{ClientOptions, STREAM, Transport};
pub use guard::guard;
pub use life::{RunEnd, run};

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

/// An agent that is driven, and what its user chose for it.
#[derive(Debug, Clone)]
pub enum DrivenAgent {
    /// Claude Code, by its own stream.
    Claude {
        /// Its program, as its directory or the search path has it.
        program: OsString,
        /// What the user chose for it.
        choice: ClientOptions,
        /// What carries the stream.
        transport: Transport,
    },
    /// Any other, over ACP.
    Acp(AcpAgent),
}

impl DrivenAgent {
    /// How it is called where MCP servers are told.
    fn client(&self) -> &str {
        match self {
            Self::Claude { .. } => "claude-code",
            Self::Acp(agent) => &agent.word,
        }
    }

    fn resume(&self) -> Option<String> {
        match self {
            Self::Claude { choice, .. } => choice.resume.clone(),
            Self::Acp(agent) => agent.resume.clone(),
        }
    }

    fn program(&self) -> &OsStr {
        match self {
            Self::Claude { program, .. } => program,
            Self::Acp(agent) => agent.command.first().map_or(OsStr::new(""), |it| it),
        }
    }

    /// What carries the words with it, for the log.
    fn carrier(&self) -> String {
        match self {
            Self::Claude { transport, .. } => transport.to_string(),
            Self::Acp(_) => "acp".to_owned(),
        }
    }
}

/// How a client is run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which.
    pub agent: DrivenAgent,
    /// The first turn.
    pub prompt: Option<String>,
    /// What is put before the program to start it: a program that calls [`guard`].
    pub before: Vec<OsString>,
    /// How long a request to use a tool waits where somebody may allow it.
    pub approval: Duration,
    /// Where the sockets of sessions are, and who may do what to them.
    pub places: Paths,
}
