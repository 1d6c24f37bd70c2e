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

    /// Tells it from other agents, which may count their sessions as it does. Where it is not known it is its
    /// whole command, with each file that this names: an interpreter runs many.
    pub(crate) fn identity(&self) -> String {
        let whole = |word: &OsString| std::fs::canonicalize(word).unwrap_or_else(|_| word.into());
        let command = || {
            let words = self.command.iter().map(whole);
            let words = words.map(|word| word.to_string_lossy().into_owned());
            serde_json::json!(words.collect::<Vec<_>>()).to_string()
        };
        self.agent.acp.map_or_else(command, |_| self.word.clone())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_that_one_interpreter_runs_are_told_apart() {
        let agent = |agent: &'static Agent, command: &[&str]| AcpAgent {
            agent,
            word: "node".into(),
            title: "node".into(),
            command: command.iter().map(OsString::from).collect(),
            resume: None,
            model: None,
            mode: None,
        };
        let of = |command: &[&str]| agent(&Agent::UNKNOWN, command).identity();
        assert_ne!(of(&["node", "a.js"]), of(&["node", "b.js"]));
        assert_ne!(of(&["node", "a b"]), of(&["node", "a", "b"]));
        assert_eq!(of(&["node", "a.js"]), of(&["node", "a.js"]));
        let here = std::env::current_dir().unwrap();
        let whole = here.join("Cargo.toml");
        assert_eq!(
            of(&["node", "Cargo.toml"]),
            of(&["node", whole.to_str().unwrap()])
        );
        let known = peerbus_adapter::agents::ALL;
        let known = known.into_iter().find(|it| it.acp.is_some()).unwrap();
        assert_eq!(agent(known, &["x", "--verbose"]).identity(), "node");
    }
}
