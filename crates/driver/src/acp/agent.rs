//! An agent that speaks ACP, and the place of one in an editor.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use peerbus_adapter::agents::{Acp as Facts, Agent};

use crate::process::Process;

/// An agent, and what its user chose for it.
#[derive(Debug, Clone)]
pub struct AcpAgent {
    /// What is known of it.
    pub agent: &'static Agent,
    /// The word for it, as install has it; the program's name where it is not known.
    pub word: String,
    /// Its name for people.
    pub title: String,
    /// Its program and arguments.
    pub command: Vec<OsString>,
    /// The session to go on with.
    pub resume: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The mode at the start, instead of the one in which it asks.
    pub mode: Option<String>,
}

impl AcpAgent {
    pub(super) fn facts(&self) -> &'static Facts {
        self.agent.acp.unwrap_or(&Facts::UNKNOWN)
    }
}

/// A session of an agent that an editor has.
pub(crate) struct Seat {
    /// The way to it.
    pub(crate) process: Process,
    /// Which of them it is, from 1.
    pub(crate) nth: u64,
    /// Its directory.
    pub(crate) cwd: PathBuf,
    /// All of them, and the editor's end, hold one of these.
    pub(crate) all: Arc<()>,
}
