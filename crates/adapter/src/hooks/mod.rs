//! Hooks: commands that an agent's client runs at events of a session, and that talk to the
//! session's adapter over a local socket. What the events mean is the agent's own: here is how the
//! two ends find each other, and how a text changes hands.
//!
//! The two ends are always of one program; the lines between them are no interface for others. The
//! same socket serves programs of the user's that speak JSON-RPC: the first line tells.

mod caller;
mod deadline;
mod line;
mod listener;
mod place;
mod watch;

pub use caller::Caller;
pub use deadline::{Deadline, TimedInput};
pub use line::{ASK_MAX, Ask};
pub use listener::{Connection, Hook, Peer, SessionSocket};
pub use place::{
    Ancestor, INDEX, directories, directory, is_below_an_agent, is_of_an_agent, sweep,
};
pub use watch::{DirectoryWatch, Watched};
