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
//!   shown, and start nothing; what a client gave back unshown goes again when it comes back;
//! - an entry is settled as seen only with evidence, as the policy says otherwise, once;
//! - what the user denied is not shown again by any path.
//!
//! What it holds is bounded by what its host gives it: the host keeps to the broker's window.

mod check;
mod climb;
mod clock;
mod entries;
mod hand;
mod mutation;
mod outcome;
mod paths;
mod push;
#[cfg(test)]
mod tests;
mod transcript;
mod types;

use std::collections::{BTreeMap, VecDeque};

use clock::IdleClock;
use entries::{Cause, Sent, Unseen};
#[cfg(feature = "mutations")]
pub use mutation::Mutation;
use mutation::Mutations;
use paths::Paths;
use transcript::Transcript;
pub use types::{
    Action, Activity, Entry, EntryId, Item, Limit, Outcome, Parcel, ParcelId, Path, PathState,
    Policy, Priority, Reason, Step,
};

/// Text of an entry, in bytes, up to which all of it is shown where the agent did not ask for it.
pub const WHOLE_BYTES_MAX: usize = 16_384;

/// After so long of it a crowd is said again.
const CROWD_AGAIN_MS: u64 = 600_000;

/// What is shown and not proven, and what comes next.
#[derive(Debug)]
pub struct Ladder {
    policy: Policy,
    /// What is not settled, in order of arrival.
    unseen: BTreeMap<EntryId, Unseen>,
    /// Parcels with something unsettled in them.
    parcels: BTreeMap<ParcelId, Sent>,
    next_parcel: u64,
    latest: Option<EntryId>,
    paths: Paths,
    activity: Activity,
    clock: IdleClock,
    /// As `clock`, but it runs while a dialog is open.
    dialogs: IdleClock,
    transcript: Transcript,
    /// The transcript does not show answers any more: what nobody can prove may go.
    lost_sight: bool,
    crowded: bool,
    /// So many are held back by the host, besides.
    held_back: usize,
    /// While it is crowded: when to say so, on the clock that stands still while the session works.
    crowd_at_ms: Option<u64>,
    /// When the last pushes were made.
    recent_ms: VecDeque<u64>,
    /// What the session's socket took last, and when.
    last_socket: Option<(ParcelId, u64)>,
    /// Before this, what is new waits for more to come.
    digest_at_ms: u64,
    /// When a path is free for what waits.
    gap_at_ms: Option<u64>,
    actions: VecDeque<Action>,
    mutations: Mutations,
}

impl Ladder {
    /// Makes an empty one. Every path is absent, and the transcript cannot be read.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            unseen: BTreeMap::new(),
            parcels: BTreeMap::new(),
            next_parcel: 1,
            latest: None,
            paths: Paths::default(),
            activity: Activity::Unknown,
            clock: IdleClock::new(),
            dialogs: IdleClock::new(),
            transcript: Transcript::default(),
            lost_sight: false,
            crowded: false,
            held_back: 0,
            crowd_at_ms: None,
            recent_ms: VecDeque::new(),
            last_socket: None,
            digest_at_ms: 0,
            gap_at_ms: None,
            actions: VecDeque::new(),
            mutations: Mutations::default(),
        }
    }

    /// Something arrived. What is not newer than everything before is ignored.
    pub fn arrive(&mut self, now_ms: u64, entry: Entry) {
        self.advance(now_ms);
        if self.latest.is_none_or(|latest| latest < entry.id) {
            self.latest = Some(entry.id);
            self.unseen.insert(entry.id, Unseen::new(entry));
        }
        self.finish(now_ms);
    }

    /// A waking path can be used, or cannot any more. A push that failed makes it absent, and so
    /// does any push over [`Path::Rewake`], until this says that it is ready again.
    pub fn set_path(&mut self, now_ms: u64, path: Path, state: PathState) {
        self.advance(now_ms);
        if self.paths.set(path, state) {
            // What its client would not show before, it may show now.
            for unseen in self.unseen.values_mut() {
                unseen.dropped.remove(path);
            }
        }
        self.finish(now_ms);
    }

    /// The session does something else now.
    pub fn set_activity(&mut self, now_ms: u64, activity: Activity) {
        self.advance(now_ms);
        self.activity = activity;
        let runs = matches!(activity, Activity::Idle | Activity::Unknown);
        self.clock.run(now_ms, runs);
        self.dialogs.run(now_ms, activity != Activity::Busy);
        self.finish(now_ms);
    }

    /// Whether the session's transcript can be read: whether an answer would be noticed.
    pub fn set_evidence(&mut self, now_ms: u64, readable: bool) {
        self.advance(now_ms);
        self.transcript.set(readable, ParcelId(self.next_parcel));
        self.relieve();
        self.finish(now_ms);
    }

    /// Whether an answer would be noticed: the transcript can be read, and of the last pushes one at
    /// least left its mark there.
    #[must_use]
    pub fn evidence(&self) -> bool {
        self.transcript.shows()
    }

    /// Whether what is held nearly fills the broker's window. It is said at once if anything waits,
    /// and again after ten idle minutes of it.
    pub fn set_crowded(&mut self, now_ms: u64, crowded: bool) {
        self.advance(now_ms);
        let was = std::mem::replace(&mut self.crowded, crowded);
        if crowded != was {
            self.crowd_at_ms = crowded.then(|| self.clock.at(now_ms));
        }
        self.relieve();
        self.finish(now_ms);
    }

    /// So many entries are held back by the host and not given to this ladder: they fill the
    /// window, too.
    pub fn set_held_back(&mut self, now_ms: u64, held_back: usize) {
        self.advance(now_ms);
        self.held_back = held_back;
        self.finish(now_ms);
    }

    /// Says that it is crowded, if that is due.
    fn say_crowded(&mut self, now_ms: u64) {
        let idle_ms = self.clock.at(now_ms);
        let waiting = self.waiting() + self.held_back;
        if waiting > 0 && self.crowd_at_ms.is_some_and(|at| at <= idle_ms) {
            self.crowd_at_ms = Some(idle_ms + CROWD_AGAIN_MS);
            self.actions.push_back(Action::Crowded { waiting });
        }
    }

    /// A deadline has passed.
    pub fn handle_timeout(&mut self, now_ms: u64) {
        self.advance(now_ms);
        self.finish(now_ms);
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When to call [`Ladder::handle_timeout`], on the same clock, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(u64, Reason)> {
        let gap = self.gap_at_ms.map(|at| (at, Reason::Gap));
        let climb = self.climb_at().map(|at| (at, Reason::Climb));
        let waits = self.waiting() + self.held_back > 0;
        let crowd = self.crowd_at_ms.filter(|_| waits);
        let crowd = crowd.and_then(|at| Some((self.clock.when(at)?, Reason::Crowd)));
        gap.into_iter().chain(climb).chain(crowd).min()
    }

    /// Parcels whose evidence would still be of use. Nobody needs to look when there are none.
    pub fn watched(&self) -> impl Iterator<Item = ParcelId> + '_ {
        let useful = |sent: &Sent| {
            let whole = sent
                .items
                .iter()
                .any(|&(id, whole)| whole && self.unseen.contains_key(&id));
            sent.cause != Cause::Read && (whole || !sent.presented)
        };
        let watched = self.parcels.iter().filter(move |(_, sent)| useful(sent));
        watched.map(|(id, _)| *id)
    }

    /// Unseen entries.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.unseen.len()
    }
}
