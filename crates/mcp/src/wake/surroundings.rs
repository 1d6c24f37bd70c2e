//! What this process was started with.

use std::path::PathBuf;
use std::sync::Arc;

use peerbus_adapter::mailbox::WakeList;
use peerbus_adapter::paths::Paths;
use peerbus_os::process::{self, Process};

/// How many processes up the session's own is looked for: shells and wrappers may stand between.
const ANCESTORS_MAX: usize = 6;

type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Where this adapter runs.
#[derive(Clone)]
pub struct Surroundings {
    /// Looks up an environment variable; agents tell of their sessions there.
    pub variables: Variables,
    /// The user's home.
    pub home: Option<PathBuf>,
    /// Our own directory: that of the project, with most agents.
    pub cwd: Option<PathBuf>,
    /// Our parent, its parent, and so on.
    pub ancestors: Vec<Process>,
    /// Which ways of waking the session may be used.
    pub wake: WakeList,
    /// Where things of ours are: a directory for notes on what is made in a client's, and for the
    /// sockets at which programs of ours find this adapter that run in an agent's process.
    pub paths: Option<Paths>,
}

impl Surroundings {
    /// Reads the process table. `wake`: which ways of waking may be used.
    #[must_use]
    pub fn from_env(wake: WakeList) -> Self {
        Self {
            variables: Arc::new(|name| std::env::var(name).ok()),
            home: peerbus_agents::home(),
            cwd: std::env::current_dir().ok(),
            ancestors: process::ancestors(std::process::id(), ANCESTORS_MAX).collect(),
            wake,
            paths: Paths::find().ok(),
        }
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        (self.variables)(name).filter(|text| !text.is_empty())
    }

    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        self.text(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    }

    /// A directory of the user's: the one that a variable names, else one below the home.
    pub(crate) fn directory(&self, variable: &str, below_home: &str) -> Option<PathBuf> {
        self.path(variable)
            .or_else(|| Some(self.home.as_ref()?.join(below_home)))
    }
}
