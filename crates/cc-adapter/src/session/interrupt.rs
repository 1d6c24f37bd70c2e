//! Ending a turn from outside: our module in the client does it at once; without one there is the hook
//! that runs after a tool.

use std::time::Duration;

use peerbus_adapter::mailbox::{Activity, BoxFuture, SessionSource as _};
use peerbus_node::Control;
use peerbus_os::sync::lock;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::time::timeout;

use super::ClaudeSession;

/// What a session that its user runs in a terminal does not take from elsewhere.
const OF_DRIVEN_SESSIONS: &str =
    "this session runs in its user's terminal: only sessions of `peerbus run` can be ";
/// A text that makes the turn end is given to the client so much later, if the turn does not end
/// before: where the hook of a tool has run already, the client would show the text in the very turn.
const ASIDE: Duration = Duration::from_secs(1);

impl ClaudeSession {
    /// Whether the next tool of the turn is to be its last.
    pub(crate) fn ends_turn(&self) -> bool {
        *self.ends_turn.borrow()
    }

    /// The turn has ended, or there is another one.
    pub(crate) fn turn_is_over(&self) {
        self.ends_turn.send_if_modified(std::mem::take);
    }

    /// Whether it is to end, as that changes.
    pub(crate) fn wishes(&self) -> watch::Receiver<bool> {
        self.ends_turn.subscribe()
    }

    async fn end_turn(&self) -> Result<(), String> {
        if !lock(&self.known).hooked && !self.is_linked() {
            return Err(
                "this session cannot be interrupted: no hook of it has spoken so far \
                 (`peerbus install claude-code` adds the hooks, for sessions that start afterwards)"
                    .into(),
            );
        }
        if self.snapshot().activity == Some(Activity::Idle) {
            return Err("nothing is under way in this session: it is idle".into());
        }
        self.ends_turn.send_replace(true);
        let mut ends = self.ends_turn.subscribe();
        // A tool can take long.
        let _ = timeout(ASIDE, ends.wait_for(|ends| !ends)).await;
        Ok(())
    }
}

impl Control for ClaudeSession {
    fn interrupt(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.end_turn())
    }

    fn control(
        &self,
        _subtype: &str,
        _params: Map<String, Value>,
    ) -> BoxFuture<'_, Result<Value, String>> {
        let why = format!("{OF_DRIVEN_SESSIONS}controlled");
        Box::pin(std::future::ready(Err(why)))
    }

    fn stop(&self) -> Result<(), String> {
        Err(format!("{OF_DRIVEN_SESSIONS}ended"))
    }
}
