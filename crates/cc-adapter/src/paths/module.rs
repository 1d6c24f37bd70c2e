//! Our module in the client, for a session without a socket: it appends a text to the turn while a tool runs, and else
//! begins a turn with it.
//!
//! What the client says to that comes by itself: that it dropped a text, for the user has stopped the session, or
//! that it stands in a request.

use peerbus_adapter::mailbox::{BoxFuture, Outcome, Path, Push, WakePath};

use crate::session::ClaudeSession;
use crate::waking::MODULE;

pub(crate) struct Module {
    pub(crate) session: ClaudeSession,
    /// Whether the socket may be used, where there is one.
    pub(crate) has_socket: bool,
}

impl WakePath for Module {
    fn spec(&self) -> Path {
        &MODULE
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        let why_not = match (self.session.is_linked(), self.session.socket()) {
            (false, _) => Some("no module is linked"),
            // The user may hold what comes there, and sees whose words it has.
            (true, Some(_)) if self.has_socket => Some("the session has a socket"),
            (true, _) => None,
        };
        Box::pin(async move { why_not.map_or(Ok(()), |why| Err(why.to_owned())) })
    }

    fn wake<'a>(&'a self, push: &'a Push) -> BoxFuture<'a, Outcome> {
        let sent = self.session.texts().send(push.text().into());
        Box::pin(async move {
            match sent {
                Ok(_) => Outcome::Written,
                // There is no link.
                Err(_) => Outcome::Failed,
            }
        })
    }
}
