//! The desk: everything that waits for the agent, and the way it goes.
//!
//! It owns the bus's events, the mail that is not seen yet, the [`Ladder`] that decides when
//! something is shown over which path, and the [`Governor`] that keeps conversations from running
//! away. It executes what these decide.

mod letter;
mod path;

use peerbus_adapter::wake::{Activity, Outcome, ParcelId, Path, PathState};
use peerbus_wire::{Conversation, MessageId};

pub use letter::{Letter, Mail, Shown, What};
pub use path::{BoxFuture, WakePath};

/// The desk of a session. Clones share it.
#[derive(Clone)]
pub struct Desk {}

/// Text that something shows anyway. Dropped before it is confirmed, it was not shown.
pub struct Handed {
    /// The showing.
    pub parcel: ParcelId,
    /// What to show; holds the mark of the showing.
    pub text: String,
}

/// A message that can be replied to.
#[derive(Debug, Clone)]
pub(crate) struct Parent {
    pub(crate) id: MessageId,
    pub(crate) from: String,
    pub(crate) talk: Conversation,
}

/// A question that waits for its answer. Dropped, the answer is ordinary mail again.
pub(crate) struct Expected {}

#[expect(
    clippy::unimplemented,
    unused_variables,
    dead_code,
    reason = "signatures first"
)]
impl Desk {
    pub(crate) fn new(bus: peerbus_adapter::Bus, profile: &crate::Profile, options: &crate::Options) -> Self {
        Self {}
    }

    /// Runs it until the bus is closed.
    pub(crate) async fn serve(&self, host: crate::Host, paths: Vec<Box<dyn WakePath>>) {
        std::future::pending::<()>().await;
    }

    /// The session's own name on the bus.
    #[must_use]
    pub fn name(&self) -> String {
        unimplemented!()
    }

    /// The session does something else now. Peers are told.
    pub fn activity(&self, activity: Activity) {
        unimplemented!()
    }

    /// A waking path can be used, or cannot any more. Peers are told of those that can.
    pub fn set_path(&self, path: Path, state: PathState) {
        unimplemented!()
    }

    /// Asks every waking path anew whether it can be used.
    pub fn probe(&self) {
        unimplemented!()
    }

    /// Whether the session's transcript can be read. Peers are told.
    pub fn set_evidence(&self, readable: bool) {
        unimplemented!()
    }

    /// What came of a showing, after [`WakePath::wake`] has answered.
    pub fn told(&self, parcel: ParcelId, outcome: Outcome) {
        unimplemented!()
    }

    /// The text that identifies a showing in a transcript. Peers cannot guess it.
    #[must_use]
    pub fn mark(&self, parcel: ParcelId) -> String {
        unimplemented!()
    }

    /// A line with this mark stands in the transcript.
    pub fn presented(&self, mark: &str) {
        unimplemented!()
    }

    /// The model answered after the line with this mark.
    pub fn answered(&self, mark: &str) {
        unimplemented!()
    }

    /// The marks to look for. Nobody needs to look when there are none.
    #[must_use]
    pub fn watched(&self) -> Vec<String> {
        unimplemented!()
    }

    /// Waits until there are marks to look for.
    pub async fn watching(&self) {
        std::future::pending::<()>().await;
    }

    /// Waits until there are no marks to look for.
    pub async fn unwatched(&self) {
        std::future::pending::<()>().await;
    }

    /// Gives what is unseen to a hook, which shows it anyway.
    #[must_use]
    pub fn hand_over(&self, path: Path) -> Option<Handed> {
        unimplemented!()
    }

    /// Something waits that no path has shown yet.
    #[must_use]
    pub fn has_unseen(&self) -> bool {
        unimplemented!()
    }

    /// Sets a member of how this session describes itself to peers; `null` removes it.
    pub fn describe(&self, key: &str, value: serde_json::Value) {
        unimplemented!()
    }

    /// A message that this session was shown lately or still holds, by its sender's id.
    pub(crate) fn parent(&self, id: &str) -> Option<Parent> {
        unimplemented!()
    }

    /// A tool call names this message: the agent has seen it. Whether it was unseen.
    pub(crate) fn named(&self, id: &str) -> bool {
        unimplemented!()
    }

    /// The agent sent something to this peer.
    pub(crate) fn sent(&self, to: &str, thread: Option<&str>) {
        unimplemented!()
    }

    /// From now on the message from `from` that replies to `question` goes to the caller.
    pub(crate) fn expect(&self, question: &MessageId, from: &str) -> Expected {
        unimplemented!()
    }
}

impl Handed {
    /// It was shown, as far as its path can tell.
    pub fn confirm(self) {}
}

#[expect(
    clippy::unimplemented,
    clippy::unused_async,
    dead_code,
    reason = "signatures first"
)]
impl Expected {
    /// Waits for the answer. It is acked when what is returned is confirmed, and ordinary mail
    /// again when that is dropped.
    pub(crate) async fn arrived(&mut self) -> crate::inbox::Taken {
        unimplemented!()
    }
}
