//! The desk: everything that waits for the agent, and the way it goes.
//!
//! It owns the bus's events, the mail that is not seen yet, the ladder that decides when something
//! is shown over which path (`peerbus_core::wake`), and the governor that keeps conversations from
//! running away (`peerbus_core::governor`). It executes what these decide.

mod act;
mod expected;
mod letter;
mod look;
mod path;
pub(crate) mod quote;
mod recent;
mod sent;
mod serve;
mod state;
mod taken;

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use peerbus_adapter::Bus;
use peerbus_adapter::governor::Governor;
use peerbus_adapter::wake::{
    Activity, Limit, Outcome, Parcel, ParcelId, Path, PathState, Priority,
};
use peerbus_wire::{Conversation, MessageId, PeerName};
use serde_json::{Map, Value};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::options::{Budget, Options};
use crate::presence::About;
use crate::reply::Receipt;
pub(crate) use expected::Expected;
pub use letter::{Letter, Mail, Shown, What};
pub(crate) use look::{Looked, Named};
pub use path::{BoxFuture, WakePath};
pub(crate) use recent::Parent;
use state::State;
pub use taken::Handed;
pub(crate) use taken::{Read, Taken};

/// What goes along with the result of a tool.
const PIGGYBACK: Limit = Limit {
    entries: 5,
    bytes: 8 * 1024,
};
/// What goes along with a hook. Clients cut the text of one after 10,000 characters.
const HOOK: Limit = Limit {
    entries: 10,
    bytes: 8 * 1024,
};

/// The desk of a session. Clones share it.
#[derive(Clone)]
pub struct Desk {
    shared: Arc<Shared>,
}

struct Shared {
    bus: Bus,
    state: Mutex<State>,
    start: Instant,
    /// Makes marks that nobody else can.
    marks: RandomState,
    /// There may be something to push.
    work: Notify,
    /// The next deadline may be another one.
    deadline: Notify,
    watched: watch::Sender<bool>,
}

impl Desk {
    pub(crate) fn new(bus: Bus, options: &Options) -> Self {
        let governor = match options.budget {
            Budget::Exchanges(exchanges) => Some(Governor::new(Some(exchanges))),
            Budget::Off => None,
        };
        let about = About::new(options.ack);
        let shared = Shared {
            state: Mutex::new(State::new(bus.clone(), options.ack, governor, about)),
            bus,
            start: Instant::now(),
            marks: RandomState::new(),
            work: Notify::new(),
            deadline: Notify::new(),
            watched: watch::Sender::new(false),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// This is the client's session now: its name goes with it, see [`Bus::bind_session`].
    pub fn serves(&self, session: &str) {
        self.shared.bus.bind_session(session);
    }

    /// The session does something else now. Peers are told.
    pub fn activity(&self, activity: Activity) {
        self.with(|state, now_ms| {
            state.ladder.set_activity(now_ms, activity);
            state.about.set_activity(&state.bus, activity);
        });
    }

    /// A waking path can be used, or cannot any more. Peers are told of those that can.
    pub fn set_path(&self, path: Path, path_state: PathState) {
        self.with(|state, now_ms| state.set_path(now_ms, path, path_state));
    }

    /// Whether the session's transcript can be read. Peers are told whether an answer would be
    /// noticed: not, if the marks of the last pushes are not in it.
    pub fn set_evidence(&self, readable: bool) {
        self.with(|state, now_ms| state.ladder.set_evidence(now_ms, readable));
    }

    /// What came of a showing, after [`WakePath::wake`] has answered.
    pub fn told(&self, parcel: ParcelId, outcome: Outcome) {
        self.with(|state, now_ms| state.told(now_ms, parcel, outcome));
    }

    /// The text that identifies a showing in a transcript. Peers cannot guess it.
    #[must_use]
    pub fn mark(&self, parcel: ParcelId) -> String {
        let secret = self.shared.marks.hash_one(parcel.0) & 0xffff_ffff;
        format!("pb-{secret:08x}-{}", parcel.0)
    }

    /// The showing with this mark.
    fn parcel(&self, mark: &str) -> Option<ParcelId> {
        let number = mark.rsplit('-').next()?.parse().ok()?;
        let parcel = ParcelId(number);
        (self.mark(parcel) == mark).then_some(parcel)
    }

    /// A line with this mark stands in the transcript.
    pub fn presented(&self, mark: &str) {
        if let Some(parcel) = self.parcel(mark) {
            self.with(|state, now_ms| state.ladder.presented(now_ms, parcel));
        }
    }

    /// The model answered after the line with this mark.
    pub fn answered(&self, mark: &str) {
        if let Some(parcel) = self.parcel(mark) {
            self.with(|state, now_ms| state.ladder.answered(now_ms, parcel));
        }
    }

    /// The marks to look for. Nobody needs to look when there are none.
    #[must_use]
    pub fn watched(&self) -> Vec<String> {
        let parcels: Vec<ParcelId> = self.with(|state, _| state.ladder.watched().collect());
        parcels
            .into_iter()
            .map(|parcel| self.mark(parcel))
            .collect()
    }

    /// Waits until there are marks to look for.
    pub async fn watching(&self) {
        // The sender lives as long as self: waiting cannot fail.
        let _ = self.shared.watched.subscribe().wait_for(|any| *any).await;
    }

    /// Waits until there are no marks to look for.
    pub async fn unwatched(&self) {
        let _ = self.shared.watched.subscribe().wait_for(|any| !*any).await;
    }

    /// Gives what is unseen to a hook, which shows it anyway.
    #[must_use]
    pub fn hand_over(&self, path: Path) -> Option<Handed> {
        let letter = self.letter_along(path, HOOK)?;
        Some(Handed::new(self.clone(), letter.parcel, letter.text()))
    }

    /// What goes along with the result of a tool that was called for something else: its text, and
    /// what to confirm.
    pub(crate) fn piggyback(&self) -> Option<(String, Box<dyn Receipt>)> {
        let letter = self.letter_along(Path::Piggyback, PIGGYBACK)?;
        let taken = Taken::along(self.clone(), letter.parcel);
        Some((letter.text(), Box::new(taken)))
    }

    fn letter_along(&self, path: Path, limit: Limit) -> Option<Letter> {
        let parcel = self.with(|state, now_ms| state.hand_over(now_ms, path, limit))?;
        Some(self.letter(&parcel))
    }

    fn letter(&self, parcel: &Parcel) -> Letter {
        let (items, held) = self.with(|state, _| (state.shown(parcel), state.held.len()));
        Letter {
            parcel: parcel.id,
            mark: self.mark(parcel.id),
            items,
            rest: parcel.rest,
            held,
        }
    }

    /// Something waits that may start a turn and that no path has shown yet.
    #[must_use]
    pub fn has_unseen(&self) -> bool {
        self.with(|state, _| {
            let fresh = |waiting: &state::Waiting| {
                !waiting.shown && waiting.out.is_none() && waiting.priority != Priority::Quiet
            };
            state.waiting.values().any(fresh)
        })
    }

    /// Sets a member of how this session describes itself to peers; `null` removes it.
    pub fn describe(&self, key: &str, value: Value) {
        self.with(|state, _| state.about.describe(&state.bus, key, value));
    }

    /// The client introduced itself.
    pub(crate) fn met(&self, client: Map<String, Value>) {
        self.with(|state, _| state.about.met(&state.bus, client));
    }

    /// A message that this session was shown lately or still holds, by its sender's id. `None` as
    /// well when several senders used that id: nobody can divert a reply by using another's.
    pub(crate) fn parent(&self, id: &str) -> Option<Parent> {
        self.with(|state, _| {
            let waiting = state.waiting.values().filter_map(|w| w.content.mail());
            let held = state.held.values().map(|held| &*held.mail);
            let here = waiting.chain(held).filter(|mail| mail.inbound.id == id);
            let mut found = here.filter_map(Parent::of).chain(state.recent.get(id));
            let first = found.next()?;
            found.all(|other| other.from == first.from).then_some(first)
        })
    }

    /// A tool call names this message: the agent has seen it, if it was shown it.
    pub(crate) fn named(&self, id: &str) -> Named {
        self.with(|state, now_ms| state.named(now_ms, id))
    }

    /// The agent called a tool.
    pub(crate) fn called(&self) {
        self.with(|state, now_ms| state.ladder.called(now_ms));
    }

    /// The agent sent the message `id` to this peer.
    pub(crate) fn sent(&self, to: &str, id: &str, thread: Option<&str>) {
        let Ok(to) = PeerName::parse(to) else { return };
        self.with(|state, now_ms| state.sent(now_ms, &to.key(), id, thread));
    }

    /// The agent sent something to everybody.
    pub(crate) fn sent_to_all(&self, thread: Option<&str>) {
        self.with(|state, now_ms| {
            if let Some(governor) = &mut state.governor {
                governor.sent_to_all(now_ms, thread);
            }
        });
    }

    /// From now on the message from `from` that replies to `question` goes to the caller.
    pub(crate) fn expect(&self, question: &MessageId, from: &str) -> Expected {
        Expected::new(self.clone(), question, from)
    }

    /// Runs `f`, then does what the ladder decides.
    fn with<T>(&self, f: impl FnOnce(&mut State, u64) -> T) -> T {
        let shared = &self.shared;
        let now_ms = u64::try_from(shared.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.ladder.poll_timeout();
        let result = f(&mut state, now_ms);
        state.act(now_ms);
        let watched = state.ladder.watched().next().is_some();
        let other_deadline = state.ladder.poll_timeout() != before;
        let work = state.has_work();
        drop(state);
        if work {
            shared.work.notify_one();
        }
        if other_deadline {
            shared.deadline.notify_one();
        }
        let changed = |any: &mut bool| std::mem::replace(any, watched) != watched;
        shared.watched.send_if_modified(changed);
        result
    }
}

/// How soon a message wants to be seen.
fn priority(talk: &Conversation) -> Priority {
    match talk.priority {
        peerbus_wire::Priority::Quiet => Priority::Quiet,
        peerbus_wire::Priority::Next => Priority::Next,
        peerbus_wire::Priority::Now => Priority::Now,
    }
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}
