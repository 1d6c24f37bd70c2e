//! Hooks: commands that an agent's client runs at events of a session, and that talk to the
//! session's adapter over a local socket. What the events mean is the agent's own: here is how the
//! two ends find each other, and how a text changes hands.
//!
//! Everybody speaks JSON-RPC at that socket. What hooks ask, and programs of ours in agents, is no
//! interface for others; both ends are of one version, or have nothing to say to each other.

mod agents;
mod caller;
mod line;
mod listener;
mod place;

pub use crate::deadline::{Deadline, TimedInput};
pub use agents::{is_an_agents, is_below_an_agent, is_of_session};
pub use caller::{Caller, ask_driver};
pub use line::{ASK_MAX, ATTACH, Ask, AskTools, HOOK, Introduced, RPC_MAX, Role, TOOLS};
pub use listener::{Connection, HookConnection, Peer, SessionSocket};
pub use place::{Ancestor, INDEX, directories, directory, sweep};

/// The processes by which a socket is called: the client's, or 0, and the adapter's.
#[must_use]
pub fn processes_of(socket: &std::path::Path) -> Option<[u32; 2]> {
    let (client, adapter, _) = place::numbers(socket)?;
    Some([client, adapter])
}
