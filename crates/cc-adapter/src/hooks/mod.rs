//! Hooks of Claude Code: what its events mean, and what each is answered.
//!
//! `peerbus hook wait` waits in the background until the adapter has something to show, prints it
//! and rewakes its session. `peerbus hook` adds what is still unseen to the turn under way. Both
//! tell the adapter what the session does. A hook that finds no adapter says nothing.

mod client;
mod module;
mod occasion;
mod permission;
mod rewake;
mod server;

pub use client::{HookOutput, context, ignore, link, wait};
#[cfg(feature = "fuzzing")]
pub use occasion::fuzz;
pub use rewake::Rewake;
pub(crate) use server::server;

/// What the hook after a tool says so that its client ends the turn. Its user reads the reason.
const ENDS_TURN: &str = concat!(
    r#"{"continue":false,"#,
    r#""stopReason":"a program of your user's interrupted this turn (peerbus session interrupt)"}"#
);
