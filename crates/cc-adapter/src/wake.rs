//! Ways to reach the agent, best first.

use std::pin::Pin;

use peerbus_adapter::How;
use peerbus_mcp::Host;

use crate::push::Push;

/// A future of one wake attempt.
pub(crate) type Attempt<'a> = Pin<Box<dyn Future<Output = Option<How>> + Send + 'a>>;

/// A way to put a push before the agent.
pub(crate) trait WakePath: Send + Sync {
    /// Tries it. What is returned is what can be claimed afterwards; `None`: it did not get
    /// there.
    fn wake<'a>(&'a self, push: &'a Push) -> Attempt<'a>;
}

/// The paths of a session, tried in order.
pub(crate) struct Ladder(Vec<Box<dyn WakePath>>);

impl Ladder {
    /// The paths that a channel client offers.
    pub(crate) fn new(host: Host) -> Self {
        Self(vec![Box::new(Channel(host))])
    }

    /// Wakes the agent. `None`: no path took the push.
    pub(crate) async fn wake(&self, push: &Push) -> Option<How> {
        for path in &self.0 {
            let how = path.wake(push).await;
            if how.is_some() {
                return how;
            }
        }
        None
    }
}

/// `notifications/claude/channel`. The client never answers one, and drops those that it does
/// not want without a word: written is all that can be claimed.
struct Channel(Host);

impl WakePath for Channel {
    fn wake<'a>(&'a self, push: &'a Push) -> Attempt<'a> {
        Box::pin(async move {
            let sent = self
                .0
                .notify("notifications/claude/channel", push.params())
                .await;
            sent.ok().map(|()| How::Pushed {
                path: "channel".into(),
            })
        })
    }
}
