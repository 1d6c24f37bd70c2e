//! What a desk knows, behind its lock, and what comes of each thing that it is told.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use peerbus_adapter::governor::{Arrival, Governor, Verdict};
use peerbus_adapter::wake::{
    Entry, EntryId, Ladder, Limit, Outcome, Parcel, ParcelId, Path, PathState, Policy, Priority,
};
use peerbus_adapter::{Bus, Event, Inbound, NoticeId, PeerName, Stage};
use peerbus_wire::NameKey;

use super::expected::Waiters;
use super::letter::{Mail, Shown, What};
use super::quote::{self, Showing};
use super::recent::Recent;
use super::sent::SentMail;
use crate::presence::About;
use crate::text;

/// Notices that wait although the broker does not keep them; of these the oldest go first.
const PASSING_MAX: usize = 64;

/// Messages of one peer that are held, and their bodies in bytes.
const HELD_MAX: usize = 32;
const HELD_BYTES_MAX: usize = 128 * 1024;

/// After so long the agent is told again that a peer holds its mail.
const TELL_AGAIN_MS: u64 = 600_000;

/// The state.
pub(super) struct State {
    pub(super) bus: Bus,
    pub(super) ladder: Ladder,
    pub(super) governor: Option<Governor>,
    pub(super) sent: SentMail,
    pub(super) about: About,
    /// What is in the ladder.
    pub(super) waiting: BTreeMap<EntryId, Waiting>,
    /// What the governor keeps out of it.
    pub(super) held: BTreeMap<EntryId, HeldBack>,
    /// Showings of which something may still be told.
    parcels: BTreeMap<ParcelId, Vec<EntryId>>,
    pub(super) recent: Recent,
    pub(super) waiters: Waiters,
    last: u64,
    /// What is to be pushed, in order.
    pub(super) pushes: VecDeque<Parcel>,
    /// The name that is to be announced.
    pub(super) registered: Option<String>,
    /// The client takes pushes.
    ready: bool,
    /// The waking paths as they were found.
    pub(super) paths: BTreeMap<Path, PathState>,
    pub(super) probe: Probe,
    pub(super) crowded: bool,
    /// How many are held, as the ladder was told.
    pub(super) held_back: usize,
    /// The last notice that it is crowded.
    pub(super) crowd_notice: Option<EntryId>,
    /// Peers that hold mail of this session, and when that was told.
    held_there: BTreeMap<String, u64>,
}

/// Which paths to ask whether they can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Probe {
    None,
    /// Those that could not be used.
    Absent,
    All,
}

/// Something in the ladder.
pub(super) struct Waiting {
    pub(super) content: Content,
    pub(super) priority: Priority,
    /// Its place among what arrived; kept when it comes back.
    pub(super) order: u64,
    /// It was shown.
    pub(super) shown: bool,
    /// The agent was told of it when it looked.
    pub(super) listed: bool,
    /// It is being shown.
    pub(super) out: Option<(ParcelId, Path)>,
    /// The client keeps it until its user decides: nobody else may show it.
    pub(super) kept: Option<ParcelId>,
}

impl Waiting {
    /// The agent can know of it: it was shown, may have been, or is being shown.
    pub(super) fn is_known(&self) -> bool {
        self.shown || self.listed || self.out.is_some()
    }

    /// The agent may read it, and is not being given it just now.
    pub(super) fn is_free(&self) -> bool {
        self.kept.is_none() && !self.out.is_some_and(|(_, path)| path.reads())
    }
}

/// What is shown.
#[derive(Clone)]
pub(super) enum Content {
    Message(Arc<Mail>),
    Notice {
        sentence: Arc<str>,
        /// The broker keeps it until it is told. There are only so many of these untold.
        token: Option<NoticeId>,
    },
}

impl Content {
    pub(super) fn mail(&self) -> Option<&Mail> {
        match self {
            Self::Message(mail) => Some(mail),
            Self::Notice { .. } => None,
        }
    }
}

/// A message that the governor holds.
pub(super) struct HeldBack {
    pub(super) mail: Arc<Mail>,
    pub(super) reason: String,
    /// It may have been shown before.
    pub(super) again: bool,
    /// The agent was told of it when it looked.
    pub(super) listed: bool,
}

impl State {
    pub(super) fn new(bus: Bus, policy: Policy, governor: Option<Governor>, about: About) -> Self {
        Self {
            bus,
            ladder: Ladder::new(policy),
            governor,
            sent: SentMail::default(),
            about,
            waiting: BTreeMap::new(),
            held: BTreeMap::new(),
            parcels: BTreeMap::new(),
            recent: Recent::default(),
            waiters: Waiters::default(),
            last: 0,
            pushes: VecDeque::new(),
            registered: None,
            ready: false,
            paths: BTreeMap::new(),
            probe: Probe::None,
            crowded: false,
            held_back: 0,
            crowd_notice: None,
            held_there: BTreeMap::new(),
        }
    }

    /// Something came from the bus.
    pub(super) fn put(&mut self, now_ms: u64, event: Event) {
        let sentence = text::notice(&event);
        if let Event::Notice { receipt, .. } = &event {
            self.got(now_ms, receipt);
        }
        match event {
            Event::Registered { name, .. } => self.registered = Some(name),
            Event::Message(inbound) => self.message(now_ms, inbound),
            event => {
                let token = match &event {
                    Event::Notice { id, .. } => *id,
                    _ => None,
                };
                match (sentence, token) {
                    (Some(sentence), token) if self.is_news(now_ms, &event) => {
                        let priority = text::priority(&event);
                        self.notice(now_ms, &sentence, token, priority);
                    }
                    // It is no news: nothing is to be told.
                    (_, Some(token)) => self.bus.ack_notice(token),
                    (_, None) => {}
                }
            }
        }
    }

    /// That a peer holds mail back is told once in a while, not for each message.
    fn is_news(&mut self, now_ms: u64, event: &Event) -> bool {
        let Event::Notice { receipt, .. } = event else {
            return true;
        };
        let (Stage::Held { .. }, Some(to)) = (&receipt.stage, &receipt.to) else {
            return true;
        };
        self.held_there
            .retain(|_, told_ms| *told_ms + TELL_AGAIN_MS > now_ms);
        self.held_there.insert(to.clone(), now_ms).is_none()
    }

    fn message(&mut self, now_ms: u64, inbound: Inbound) {
        let mail = Arc::new(Mail::new(inbound));
        let Some(mail) = self.waiters.offer(mail) else {
            return;
        };
        let from = PeerName::parse(&mail.inbound.from).ok().map(|n| n.key());
        match self.judge(now_ms, &mail, from.as_ref()) {
            Verdict::Pass => {
                if let Some(from) = &from {
                    self.release(now_ms, from);
                }
                let priority = super::priority(&mail.talk);
                let again = mail.inbound.again;
                self.arrive(now_ms, Content::Message(mail), priority, None, again);
            }
            Verdict::Hold { reason, tell } => self.hold(now_ms, mail, reason, tell),
        }
    }

    fn judge(&mut self, now_ms: u64, mail: &Mail, from: Option<&NameKey>) -> Verdict {
        let (Some(governor), Some(from)) = (&mut self.governor, from) else {
            return Verdict::Pass;
        };
        let arrival = Arrival {
            from,
            thread: mail.talk.thread.as_deref(),
            hops: mail.talk.hops,
            text: &quote::said(&mail.inbound.body),
        };
        governor.judge(now_ms, &arrival)
    }

    /// Keeps a message out of the agent's sight, and tells all three parties, once.
    fn hold(&mut self, now_ms: u64, mail: Arc<Mail>, reason: String, tell: bool) {
        if tell {
            let from = quote::plain(&mail.inbound.from);
            tracing::warn!(%from, %reason, "mail is held back");
            let sentence = format!("mail of {from} is {reason}; the bus inbox tool reads it");
            self.notice(now_ms, &sentence, None, Priority::Quiet);
        }
        let stage = Stage::Held {
            why: reason.clone(),
        };
        self.bus.progress(&mail.inbound.key, &stage);
        let id = self.next_id();
        let held = HeldBack {
            again: mail.inbound.again,
            mail,
            reason,
            listed: false,
        };
        self.held.insert(id, held);
        self.bound_held(now_ms, id);
    }

    /// A peer whose mail is held fills so much of the window and no more: what is older goes along
    /// with what is shown next.
    fn bound_held(&mut self, now_ms: u64, newest: EntryId) {
        let Some(newest) = self.held.get(&newest) else {
            return;
        };
        let from = newest.mail.inbound.from.clone();
        let of_them = |held: &HeldBack| held.mail.inbound.from.eq_ignore_ascii_case(&from);
        let (mut count, mut bytes) = (0, 0);
        let mut over = Vec::new();
        for (id, held) in self.held.iter().rev().filter(|(_, held)| of_them(held)) {
            count += 1;
            bytes += held.mail.inbound.body.len();
            if count > HELD_MAX || bytes > HELD_BYTES_MAX {
                over.push(*id);
            }
        }
        for id in over.into_iter().rev() {
            if let Some(held) = self.held.remove(&id) {
                self.let_go(now_ms, id, held);
            }
        }
    }

    /// What is held of a peer goes along with what is shown next.
    fn release(&mut self, now_ms: u64, from: &NameKey) {
        let of_them = |held: &HeldBack| {
            PeerName::parse(&held.mail.inbound.from).is_ok_and(|name| name.key() == *from)
        };
        let found = self.held.extract_if(.., |_, held| of_them(held));
        let released: Vec<_> = found.collect();
        for (id, held) in released {
            self.let_go(now_ms, id, held);
        }
    }

    /// What was held goes into the ladder, as quiet.
    fn let_go(&mut self, now_ms: u64, id: EntryId, held: HeldBack) {
        let content = Content::Message(held.mail);
        let entry = self.arrive(now_ms, content, Priority::Quiet, Some(id.0), held.again);
        if let Some(waiting) = self.waiting.get_mut(&entry) {
            waiting.listed = held.listed;
        }
    }

    /// A sentence of the bus itself. It holds no peer's text that is not neutralised and in quotes.
    pub(super) fn notice(
        &mut self,
        now_ms: u64,
        sentence: &str,
        token: Option<NoticeId>,
        priority: Priority,
    ) -> EntryId {
        let sentence = sentence.into();
        let notice = Content::Notice { sentence, token };
        let id = self.arrive(now_ms, notice, priority, None, false);
        let passing =
            |waiting: &&Waiting| matches!(waiting.content, Content::Notice { token: None, .. });
        if self.waiting.values().filter(passing).count() > PASSING_MAX
            && let Some((oldest, _)) = self.waiting.iter().find(|(_, w)| passing(w))
        {
            // Nothing is owed for it: it counts as seen.
            self.ladder.named(now_ms, *oldest);
        }
        id
    }

    /// Puts something into the ladder; `order` is its place if it was here before, `again`: it may
    /// have been shown before.
    pub(super) fn arrive(
        &mut self,
        now_ms: u64,
        content: Content,
        priority: Priority,
        order: Option<u64>,
        again: bool,
    ) -> EntryId {
        let id = self.next_id();
        let bytes = match &content {
            Content::Message(mail) => {
                let line = quote::line(mail, Showing::default()).len();
                line.max(mail.inbound.body.len())
            }
            Content::Notice { sentence, .. } => sentence.len(),
        };
        let waiting = Waiting {
            content,
            priority,
            order: order.unwrap_or(id.0),
            shown: again,
            listed: false,
            out: None,
            kept: None,
        };
        self.waiting.insert(id, waiting);
        let entry = Entry {
            id,
            priority,
            bytes,
            again,
        };
        self.ladder.arrive(now_ms, entry);
        self.look_for_paths();
        id
    }

    /// A path that could not be used may be there by now.
    pub(super) fn look_for_paths(&mut self) {
        let absent = |state: &PathState| *state == PathState::Absent;
        if self.ready && self.paths.values().any(absent) {
            self.probe = self.probe.max(Probe::Absent);
        }
    }

    fn next_id(&mut self) -> EntryId {
        self.last += 1;
        EntryId(self.last)
    }

    /// The client takes pushes from now on.
    pub(super) fn open(&mut self, now_ms: u64) {
        self.ready = true;
        self.probe = Probe::All;
        for (path, state) in self.paths.clone() {
            self.ladder.set_path(now_ms, path, state);
        }
    }

    /// A waking path can be used, or cannot any more. The ladder is told in any case: it takes a
    /// path that failed or was used up for absent by itself.
    pub(super) fn set_path(&mut self, now_ms: u64, path: Path, state: PathState) {
        if self.ready {
            self.ladder.set_path(now_ms, path, state);
        }
        self.found(path, state);
    }

    fn found(&mut self, path: Path, state: PathState) {
        if self.paths.insert(path, state) != Some(state) {
            let works = self.paths.iter().filter(|(_, s)| **s == PathState::Ready);
            let words = works.map(|(path, _)| path.as_str()).collect();
            self.about.set_wake(&self.bus, words);
        }
    }

    /// A path did not take a push: it is asked whether it is still there.
    pub(super) fn doubt(&mut self, path: Path) {
        self.found(path, PathState::Absent);
        self.probe = self.probe.max(Probe::Absent);
    }

    /// What came of a showing.
    pub(super) fn told(&mut self, now_ms: u64, parcel: ParcelId, outcome: Outcome) {
        let shown = matches!(
            outcome,
            Outcome::Written | Outcome::Held | Outcome::Doubtful
        );
        for entry in self.parcels.get(&parcel).into_iter().flatten() {
            if let Some(waiting) = self.waiting.get_mut(entry) {
                waiting.out.take_if(|(of, _)| *of == parcel);
                waiting.shown |= shown;
                if outcome == Outcome::Held {
                    waiting.kept = Some(parcel);
                } else {
                    waiting.kept.take_if(|by| *by == parcel);
                }
            }
        }
        let waiting = &self.waiting;
        self.parcels
            .retain(|_, entries| entries.iter().any(|entry| waiting.contains_key(entry)));
        self.ladder.told(now_ms, parcel, outcome);
    }

    /// What is unseen goes along with something that is shown anyway.
    pub(super) fn hand_over(&mut self, now_ms: u64, path: Path, limit: Limit) -> Option<Parcel> {
        let parcel = self.ladder.hand_over(now_ms, path, limit)?;
        self.note(&parcel);
        Some(parcel)
    }

    /// The agent asked for these.
    pub(super) fn read(
        &mut self,
        now_ms: u64,
        path: Path,
        only: &[EntryId],
        limit: Limit,
    ) -> Option<Parcel> {
        if only.is_empty() || limit.entries == 0 {
            return None;
        }
        let parcel = self.ladder.read(now_ms, path, Some(only), limit)?;
        self.note(&parcel);
        Some(parcel)
    }

    /// A showing begins.
    pub(super) fn note(&mut self, parcel: &Parcel) {
        let entries: Vec<EntryId> = parcel.items.iter().map(|item| item.entry).collect();
        for entry in &entries {
            if let Some(waiting) = self.waiting.get_mut(entry) {
                waiting.out = Some((parcel.id, parcel.path));
            }
        }
        self.parcels.insert(parcel.id, entries);
    }

    /// What a showing shows. What was settled since it was made is left out.
    pub(super) fn shown(&self, parcel: &Parcel) -> Vec<Shown> {
        let shown = |item: &peerbus_adapter::wake::Item| {
            let what = match &self.waiting.get(&item.entry)?.content {
                Content::Message(mail) => What::Message(mail.clone()),
                Content::Notice { sentence, .. } => What::Notice(sentence.clone()),
            };
            Some(Shown {
                what,
                repeat: item.repeat,
                whole: item.whole,
            })
        };
        parcel.items.iter().filter_map(shown).collect()
    }
}
