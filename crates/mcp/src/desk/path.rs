//! Ways to reach the agent.

use std::pin::Pin;

use peerbus_adapter::wake::{Outcome, Path};

use super::letter::Letter;

/// A future that borrows what it needs.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A way by which an adapter can put text before an agent that asked for nothing.
pub trait WakePath: Send + Sync {
    /// Which one.
    fn path(&self) -> Path;

    /// What it needs: a sentence for people.
    fn needs(&self) -> &'static str;

    /// What counts as evidence that the model got what it shows: a sentence for people.
    fn evidence(&self) -> &'static str;

    /// Whether it can be used now; `Err` says why not. Asked when the client is ready, before each
    /// use, and again while it cannot be used and something waits. Cheap.
    fn probe(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Shows the letter. Must end soon, and be true: [`Outcome::Failed`] only if nothing of it can
    /// have been shown. What the client says later goes to [`Desk::told`](super::Desk::told).
    fn wake<'a>(&'a self, letter: &'a Letter) -> BoxFuture<'a, Outcome>;

    /// Tells the session its own name, after each registration, before anything else that this
    /// registration brings. A path that cannot do this without starting a turn does nothing.
    fn announce<'a>(&'a self, name: &'a str) -> BoxFuture<'a, ()> {
        let _ = name;
        Box::pin(async {})
    }
}
