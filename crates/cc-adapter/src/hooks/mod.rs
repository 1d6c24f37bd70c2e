//! Hooks of Claude Code: commands that it runs at events of a session, and that talk to the
//! session's adapter over a local socket.
//!
//! `peerbus hook wait` waits in the background until the adapter has something to show, prints it
//! and rewakes its session. `peerbus hook` adds what is still unseen to the turn under way. Both
//! tell the adapter what the session does. A hook that finds no adapter says nothing.
//!
//! The two ends are always of one program; the lines between them are no interface for others.

mod client;
mod line;
mod place;
mod process;
mod rewake;
mod server;

pub use client::{Said, context, ignore, wait};
pub use place::directory as socket_directory;
pub use rewake::Rewake;
pub(crate) use server::start;
