//! An agent run headless as a peer: one process, one name, one mailbox.
//!
//! The agent is a child process that speaks JSON lines: Claude Code its own, over its standard streams or a
//! WebSocket, any other those of ACP. Messages from the bus become turns of it; it gets the bus tools from here.
//! `docs/DRIVER.md` says what users are told.

mod acp;
mod below;
mod claude;
mod editor;
mod guard;
mod life;
mod process;
mod protocol;
mod session;
mod tools;
mod turns;

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::time::Duration;

use peerbus_adapter::agents::claude_code;
use peerbus_adapter::paths::Paths;

use crate::acp::Seat;
use crate::tools::{Relays, Tools};

pub use acp::{ACP, AcpAgent};
pub use below::{Below, below};
pub use claude::{ClientOptions, Initialize, STREAM, Transport};
pub use editor::{Join, edit};
pub use guard::guard;
pub use life::{RunEnd, run};
pub use peerbus_os::process::end_with_parent;

/// The name of the bus among the client's MCP servers.
const SERVER: &str = "peerbus";

/// Longest sentence of the client's that is repeated, in characters.
const WHY_CHARS: usize = 300;

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

    /// Which adapters get the bus tools from its driver.
    fn relays(&self, tools: &Arc<Tools>, seat: Option<&Seat>) -> Arc<Relays> {
        match self {
            Self::Claude { .. } => Relays::new(Arc::clone(tools), &claude_code::AGENT, true, None),
            Self::Acp(agent) => {
                let seats = seat.map(|seat| Arc::clone(&seat.all));
                Relays::new(Arc::clone(tools), agent.agent, false, seats)
            }
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
