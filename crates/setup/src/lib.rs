//! `peerbus install`, `uninstall` and `doctor`: peerbus in the configurations of agents, and a look
//! at every part of the way from one agent to another.
//!
//! What is known of an agent is in `peerbus-agents`; this crate edits and reads.

pub mod doctor;
mod error;
mod install;
mod purge;
mod text;

#[cfg(feature = "fuzzing")]
pub use install::fuzz;
pub use install::{
    FoundAgent, InstallLine, InstallRequest, asking_token, check_joinable, found, has_joined,
    install, join, leave, not_let_in, turned_out, uninstall, uninstall_all,
};
pub use purge::purge;
