//! What an agent's client offers its mailbox: ways to reach the agent, what its session does, and
//! what shows that its model got something. For a client: any number of paths, at most one of each
//! other.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use peerbus_peer::mailbox::{Activity, Outcome, Path};

use super::Push;

/// A future that borrows what it needs.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A way to put text before an agent that asked for nothing.
pub trait WakePath: Send + Sync {
    /// Which one, as data.
    fn spec(&self) -> Path;

    /// Whether it can be used now; `Err` says why not. Asked when the client is ready, before each
    /// use, and again while it cannot be used and something waits. Cheap.
    fn probe(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Shows the push. Must end soon, and be true: [`Outcome::Failed`] only if nothing of it can
    /// have been shown. What the client says later goes to [`Mailbox::outcome`](super::Mailbox::outcome).
    fn wake<'a>(&'a self, push: &'a Push) -> BoxFuture<'a, Outcome>;

    /// Tells the session its own name, after each registration, before anything else that this
    /// registration brings. A path that cannot do this without starting a turn does nothing.
    fn announce<'a>(&'a self, name: &'a str) -> BoxFuture<'a, ()> {
        let _ = name;
        Box::pin(async {})
    }
}

/// What is known of the agent's session at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The client's own id for it.
    pub id: Option<String>,
    /// Its directory.
    pub cwd: Option<PathBuf>,
    /// What it does, if the client says so.
    pub activity: Option<Activity>,
    /// The file with its conversation, where somebody told it.
    pub transcript: Option<PathBuf>,
}

/// Tells which session of the client this is, and what it does.
pub trait SessionSource: Send + Sync {
    /// What is known now.
    fn snapshot(&self) -> Snapshot;

    /// The id by which the session that was looked at finds its name again, and whether it has only
    /// just begun: such a one has no name of before.
    fn binding(&self, looked: &Snapshot) -> Option<(String, bool)> {
        looked.id.clone().map(|id| (id, false))
    }

    /// Waits until something may have changed. Need not notice everything: the mailbox looks from
    /// time to time besides.
    fn changed(&self) -> BoxFuture<'_, ()>;
}

/// What is found of a mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// The mark's text stands in the conversation.
    Presented(String),
    /// The model answered after the mark's text.
    Answered(String),
    /// A program in the client says that a request has the mark's text.
    Requested(String),
    /// It says that such a request was answered.
    Called(String),
    /// The turn that had the mark's text failed: it is shown again, as a repeat.
    Doubtful(String),
    /// Somebody stopped the turn that had the mark's text.
    Stopped(String),
    /// The mark's text was never put into the conversation: it is shown again.
    Unshown(String),
    /// The turn that had the mark's text ended well, and nothing shows whether the model answered.
    Unproven(String),
    /// The mark stands in the conversation, and not all of its text: the client cut that.
    Cut(String),
    /// The same in the result of a tool, where no text stands that a hook carried: a tool can run as one.
    InResult(Box<Self>),
    /// The same in a file of lines, outside of each tool's result: no text stands there that one carried. With it
    /// comes each of the line's texts that have the mark, up to it.
    Beside(Box<Self>, Vec<String>),
    /// The conversation goes on without what stood before: a summary stands in its place, or the user went back.
    Anew,
}

impl Evidence {
    /// Of which mark; empty: of none.
    #[must_use]
    pub fn mark(&self) -> &str {
        match self {
            Self::Presented(mark)
            | Self::Answered(mark)
            | Self::Requested(mark)
            | Self::Called(mark)
            | Self::Doubtful(mark)
            | Self::Stopped(mark)
            | Self::Unshown(mark)
            | Self::Unproven(mark)
            | Self::Cut(mark) => mark,
            Self::InResult(found) | Self::Beside(found, _) => found.mark(),
            Self::Anew => "",
        }
    }

    /// Whether the model answered.
    #[must_use]
    pub fn is_answer(&self) -> bool {
        match self {
            Self::InResult(found) | Self::Beside(found, _) => found.is_answer(),
            found => matches!(found, Self::Answered(_)),
        }
    }
}

/// Whether a session's conversation can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readable {
    /// It is there.
    Now,
    /// It is not there, and will be where a conversation begins.
    Expected,
    /// It is not there.
    No,
}

/// Reads the conversation of a session for marks.
pub trait EvidenceSource: Send {
    /// Whether there is something to read.
    fn readable(&self, session: &Snapshot) -> Readable;

    /// From now on only what is added counts, and a little of what stands there.
    fn begin(&mut self, session: &Snapshot);

    /// Reads what was added and says what it shows of these marks. Whether anything was added.
    fn watch(
        &mut self,
        session: &Snapshot,
        marks: &[String],
        found: &mut dyn FnMut(Evidence),
    ) -> bool;
}

/// All of it for one session. The default is an agent that nothing wakes and nothing observes.
#[derive(Default)]
pub struct AgentLink {
    /// Ways to wake the agent.
    pub paths: Vec<Box<dyn WakePath>>,
    /// Its session.
    pub session: Option<Arc<dyn SessionSource>>,
    /// Its conversation.
    pub evidence: Option<Box<dyn EvidenceSource>>,
    /// Why nothing wakes the agent, where there are no paths; empty: nobody has to be told.
    pub asleep: String,
    /// What runs beside the session, and is dropped at its end.
    pub beside: Vec<BoxFuture<'static, ()>>,
}

impl std::fmt::Debug for AgentLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = self.paths.iter().map(|path| path.spec().word);
        f.debug_list().entries(words).finish()
    }
}
