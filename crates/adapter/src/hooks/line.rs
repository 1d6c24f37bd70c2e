//! What the processes that a session's client runs ask at its socket. The first request says what a
//! connection is: one that begins with one of these is served below the session's client only.

use serde::{Deserialize, Serialize};

/// A hook's first request, with [`Ask`]: it is answered with [`Offer`], at once, or where it waits as
/// soon as there is something to show.
pub const HOOK: &str = "hook";
/// A hook's second request: it has the text. It shows that when this is answered, so that whoever
/// gives up before leaves no doubt at the other end.
pub(super) const TOOK: &str = "hook/took";
/// The first request of a program of ours that runs in an agent, or beside it.
pub const ATTACH: &str = "session/attach";
/// The first request of an adapter below a driver, with [`AskTools`]: it is answered with [`Role`].
pub const TOOLS: &str = "session/tools";

/// Longest first line of a hook, in bytes: the input of a tool stands in it as a text.
pub const ASK_MAX: usize = 128 * 1024;
/// Longest line of any other program, in bytes: it may have images.
pub const RPC_MAX: usize = 4 * 1024 * 1024;
/// Longest line of an adapter, in bytes.
pub(super) const OFFER_MAX: usize = 4 * 1024 * 1024;

/// The question of a hook.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask<T> {
    /// It waits for something to show. Otherwise it wants an answer at once.
    pub wait: bool,
    /// What happened, as its agent's adapter understands it.
    pub on: T,
}

/// A text for a hook to show, or none.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offer {
    pub(super) text: Option<String>,
}

/// What an adapter asks that found a driver above it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AskTools {
    /// Who its client says it is (`clientInfo`).
    pub client: Introduced,
    /// What it was given to show that it is the agent's.
    pub token: Option<String>,
}

/// Who a client of MCP says it is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Introduced {
    /// Its own word.
    pub name: String,
    /// Its own word.
    pub version: String,
}

/// What an adapter below a driver is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A relay: from here on the connection carries lines of MCP, and nothing else.
    Relay,
    /// Nothing: its agent has the bus tools already.
    Nothing,
    /// A peer of its own: its agent is another one than the driver's.
    Peer,
}
