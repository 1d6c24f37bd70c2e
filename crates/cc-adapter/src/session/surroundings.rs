//! What this process was started with.

use std::path::PathBuf;

use peerbus_adapter::inbox::SocketToken;
use peerbus_adapter::mailbox::WakeList;
use peerbus_adapter::paths::Paths;
use peerbus_agents::claude_code::config_dir;
use peerbus_os::process::{self, Process};

/// How many processes up the session's own is looked for: shells and wrappers may stand between.
const ANCESTORS_MAX: usize = 6;

/// Where this adapter runs.
#[derive(Debug, Clone, Default)]
pub struct ClaudeSurroundings {
    /// The client's directory, `~/.claude` by default.
    pub config_dir: Option<PathBuf>,
    /// Our parent, its parent, and so on.
    pub ancestors: Vec<Process>,
    /// The session's id as it was when we were started.
    pub session_id: Option<String>,
    /// The socket at which the session takes messages.
    pub socket: Option<PathBuf>,
    /// What that socket wants to hear first.
    pub token: Option<SocketToken>,
    /// The project's directory.
    pub project: Option<PathBuf>,
    /// Which ways of waking the session may be used.
    pub wake: WakeList,
    /// Where hooks find this adapter; `None`: nowhere.
    pub hooks: Option<Paths>,
}

impl ClaudeSurroundings {
    /// Reads the environment and the process table. `wake`: which ways of waking may be used.
    #[must_use]
    pub fn from_env(wake: WakeList) -> Self {
        let text = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        Self {
            config_dir: config_dir(),
            ancestors: ancestors(std::process::id()),
            session_id: text("CLAUDE_CODE_SESSION_ID"),
            socket: path("CLAUDE_CODE_MESSAGING_SOCKET"),
            token: text("CLAUDE_CODE_MESSAGING_TOKEN").map(SocketToken::new),
            project: path("CLAUDE_PROJECT_DIR").or_else(|| std::env::current_dir().ok()),
            wake,
            hooks: Paths::find().ok(),
        }
    }

    /// Looks for the session's own process among these, nearest first.
    #[cfg(test)]
    pub(super) fn with_ancestors(mut self, ids: &[u32]) -> Self {
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
    process::ancestors(of, ANCESTORS_MAX).collect()
}
