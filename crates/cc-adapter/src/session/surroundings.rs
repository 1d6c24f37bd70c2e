//! What this process was started with.

use std::fmt;
use std::path::PathBuf;

use peerbus_adapter::paths::Paths;
use peerbus_agents::claude_code::config_dir;
use peerbus_os::process::{self, Process};

use crate::wake_list::WakeList;

/// How many processes up the session's own is looked for: shells and wrappers may stand between.
const ANCESTORS_MAX: usize = 6;

/// Where this adapter runs.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// The client's directory, `~/.claude` by default.
    pub config_dir: Option<PathBuf>,
    /// Our parent, its parent, and so on.
    pub ancestors: Vec<Process>,
    /// The session's id as it was when we were started.
    pub session_id: Option<String>,
    /// The socket at which the session takes messages.
    pub socket: Option<PathBuf>,
    /// What that socket wants to hear first.
    pub token: Option<Token>,
    /// The project's directory.
    pub project: Option<PathBuf>,
    /// Which ways of waking the session may be used.
    pub wake: WakeList,
    /// Where hooks find this adapter; `None`: nowhere.
    pub hooks: Option<Paths>,
}

/// The socket's credential. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Wraps the text.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text)
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Surroundings {
    /// Reads the environment and the process table.
    ///
    /// # Errors
    ///
    /// A sentence about `PEERBUS_WAKE` when it names what there is not.
    pub fn from_env() -> Result<Self, String> {
        let text = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let wake = text("PEERBUS_WAKE").map_or(Ok(WakeList::default()), |list| list.parse())?;
        Ok(Self {
            config_dir: config_dir(),
            ancestors: ancestors(std::process::id()),
            session_id: text("CLAUDE_CODE_SESSION_ID"),
            socket: path("CLAUDE_CODE_MESSAGING_SOCKET"),
            token: text("CLAUDE_CODE_MESSAGING_TOKEN").map(Token::new),
            project: path("CLAUDE_PROJECT_DIR").or_else(|| std::env::current_dir().ok()),
            wake,
            hooks: Paths::find().ok(),
        })
    }

    /// Looks for the session's own process among these, nearest first.
    #[must_use]
    pub fn with_ancestors(mut self, ids: &[u32]) -> Self {
        self.ancestors = ids.iter().map(|id| process::find(*id)).collect();
        self
    }
}

/// An absolute path in the environment.
fn path(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

/// The ancestors of a process as far as `/proc` tells.
pub(crate) fn ancestors(of: u32) -> Vec<Process> {
    process::ancestors(of, ANCESTORS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_shown() {
        let around = Surroundings {
            token: Some(Token::new("sesame".into())),
            ..Surroundings::default()
        };
        assert!(!format!("{around:?}").contains("sesame"));
    }
}
