//! The last hop: when a message is shown to the agent, over which path, and what proves that the
//! model got it.
//!
//! Drive a [`Ladder`] like the other state machines of this crate: one input with the time, then
//! drain [`Ladder::poll_action`], then look at [`Ladder::poll_timeout`].
//!
//! What holds, whatever happens:
//!
//! - an entry is shown as new once; every later showing of it is marked as a repeat;
//! - at most one showing of an entry waits for its outcome at a time;
//! - first showings over waking paths are in order of arrival; quiet entries go along with what is
//!   shown, and start nothing;
//! - an entry is settled as seen only with evidence, as the policy says otherwise, once;
//! - what the user denied is not shown again by any path.

mod types;

use peerbus_wire::How;

pub use types::{
    Action, Activity, Entry, EntryId, Item, Limit, Outcome, Parcel, ParcelId, Path, PathState,
    Policy, Priority, Reason, Step,
};

/// What is shown and not proven, and what comes next.
#[derive(Debug)]
pub struct Ladder {
    policy: Policy,
}

#[expect(clippy::unimplemented, unused_variables, reason = "signatures first")]
impl Ladder {
    /// Makes an empty one. Every path is absent.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { policy }
    }

    /// Something arrived.
    pub fn arrive(&mut self, now_ms: u64, entry: Entry) {
        unimplemented!()
    }

    /// A waking path can be used, or cannot any more.
    pub fn set_path(&mut self, now_ms: u64, path: Path, state: PathState) {
        unimplemented!()
    }

    /// The session does something else now.
    pub fn set_activity(&mut self, now_ms: u64, activity: Activity) {
        unimplemented!()
    }

    /// Whether the session's transcript can be read: whether an answer would be noticed.
    pub fn set_evidence(&mut self, now_ms: u64, readable: bool) {
        unimplemented!()
    }

    /// Whether what is held nearly fills the broker's window.
    pub fn set_crowded(&mut self, now_ms: u64, crowded: bool) {
        unimplemented!()
    }

    /// Gives unseen entries to something that shows them anyway (a hook, the result of a tool):
    /// those that were never shown, then those whose evidence is overdue and that this path has
    /// not shown. Each goes at most once over each of these paths. Say what came of it by
    /// [`Ladder::told`].
    pub fn hand_over(&mut self, now_ms: u64, path: Path, limit: Limit) -> Option<Parcel> {
        unimplemented!()
    }

    /// Gives unseen entries to the agent that asked for them, oldest first, shown before or not:
    /// all of them within `limit`, or those in `only`. When it is told to be written they are
    /// settled as seen.
    pub fn read(&mut self, now_ms: u64, path: Path, only: Option<&[EntryId]>, limit: Limit) -> Option<Parcel> {
        unimplemented!()
    }

    /// What came of a parcel. Of a parcel that is not known any more it says nothing new.
    pub fn told(&mut self, now_ms: u64, parcel: ParcelId, outcome: Outcome) {
        unimplemented!()
    }

    /// The parcel's text stands in the session's conversation.
    pub fn presented(&mut self, now_ms: u64, parcel: ParcelId) {
        unimplemented!()
    }

    /// The model answered after the parcel's text.
    pub fn answered(&mut self, now_ms: u64, parcel: ParcelId) {
        unimplemented!()
    }

    /// A tool call of the agent names the entry: it has seen it.
    pub fn named(&mut self, now_ms: u64, entry: EntryId) {
        unimplemented!()
    }

    /// The agent called a tool, whichever.
    pub fn called(&mut self, now_ms: u64) {
        unimplemented!()
    }

    /// A deadline has passed.
    pub fn handle_timeout(&mut self, now_ms: u64) {
        unimplemented!()
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        unimplemented!()
    }

    /// When to call [`Ladder::handle_timeout`], on the same clock, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(u64, Reason)> {
        unimplemented!()
    }

    /// Parcels whose evidence would still be of use. Nobody needs to look when there are none.
    pub fn watched(&self) -> impl Iterator<Item = ParcelId> + '_ {
        std::iter::empty()
    }

    /// Unseen entries.
    #[must_use]
    pub fn waiting(&self) -> usize {
        unimplemented!()
    }

    /// Asserts what must hold between inputs.
    pub fn check(&self) {
        unimplemented!()
    }
}
