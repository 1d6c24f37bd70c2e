//! The shell of the mailbox: a lock around the machine that decides (`peerbus_peer::mailbox`), the
//! loops that drive it, and how peers' text is shown.
//!
//! It owns the bus's events. It knows no protocol of an agent's client: a tool server takes mail
//! out by [`Checkout`], and what a client offers besides stands in an [`AgentLink`].

mod agent;
mod checkout;
mod expected;
mod inject;
mod mail;
mod measure;
mod observe;
mod presence;
mod push;
pub mod quote;
mod senders;
mod serve;
mod sum;
mod wake_list;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use peerbus_os::sync::lock;
use peerbus_peer::mailbox::{self as core, Attempt, MailboxOutput};
use peerbus_peer::session::SessionEvent;
use peerbus_view::fate;
use peerbus_wire::{Conversation, PeerName, Priority, Stage, escape};
use presence::About;
use serve::Probe;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::Bus;

pub use core::{
    ASK, Activity, AttemptId, AttemptItem, Content, DRAIN, HERE, HOOK, INBOX, Image, Limit, Listed,
    Mail, Named, No, NotOwed, Outcome, Owed, PART_CHARS, PIGGYBACK, Parent, Path, PathSpec, Policy,
    Portion,
};

pub use agent::{
    AgentLink, BoxFuture, Evidence, EvidenceSource, Readable, SessionSource, Snapshot, WakePath,
};
pub use checkout::Checkout;
pub use expected::Expected;
pub use inject::{InjectError, Injection, SOURCE_CHARS};
pub use measure::without_marks;
pub use observe::{Observer, Staged, receipt};
pub use presence::Who;
pub use push::{Attribute, Push, until};
pub use senders::Undecided;
pub use sum::{ALONG, REPLACED, Sum};
pub use wake_list::WakeList;

/// Longest reason that is repeated, in characters.
const REASON_CHARS: usize = 300;

/// What waits for the agent of a session. Clones share it.
#[derive(Clone)]
pub struct Mailbox {
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
    /// So much waits here.
    waits: watch::Sender<[usize; 4]>,
    /// Some message got further.
    further: Notify,
    /// The conversation is about to show more.
    goes_on: Notify,
    /// Counts answers that somebody waits for, claims to be one, and ends of questions.
    answers: watch::Sender<u64>,
    /// Is told what happens here.
    observer: OnceLock<Weak<dyn Observer>>,
}

/// What stands behind the lock.
#[derive(Default)]
struct State {
    machine: core::MailboxMachine,
    about: About,
    /// What is to be pushed, in order.
    pushes: VecDeque<Attempt>,
    /// The name that is to be announced.
    announce: Option<String>,
    answers: u64,
    /// What is to be logged.
    warnings: Vec<Arc<str>>,
    /// The waking paths that may be used.
    offered: BTreeSet<Path>,
    /// The waking paths as they were found: why one cannot be used.
    paths: BTreeMap<Path, Option<String>>,
    /// It takes no push for a while, unless there is mail that has come since.
    resting: Option<Path>,
    probe: Probe,
    /// What the observer is to be told.
    staged: Vec<Staged>,
    /// So much mail waits for the user, and so much is paused.
    kept: (usize, usize),
    /// The observer is to be told of a change in that, or in being stuck.
    changed: bool,
    /// The client's process; of one that something may stand before, all.
    client: Vec<u32>,
    /// The session's conversation, by the client's id.
    conversation: Option<String>,
    texts: observe::Texts,
}

impl Mailbox {
    /// Makes one for this session. `hops_max`: so many replies may lead to a message that the agent
    /// is shown; `None`: nothing is ever held back.
    #[must_use]
    pub fn new(bus: Bus, policy: Policy, hops_max: Option<u32>) -> Self {
        #[cfg_attr(
            not(feature = "mutations"),
            expect(unused_mut, reason = "to be broken")
        )]
        let mut machine = core::MailboxMachine::new(policy, hops_max);
        #[cfg(feature = "mutations")]
        if std::env::var("PEERBUS_BROKEN").as_deref() == Ok("seen-without-evidence") {
            machine.mutate(core::MailboxMutation::TrustPipe);
        }
        let state = State {
            machine,
            about: About::new(policy),
            ..State::default()
        };
        let shared = Shared {
            bus,
            state: Mutex::new(state),
            start: Instant::now(),
            marks: RandomState::new(),
            work: Notify::new(),
            deadline: Notify::new(),
            further: Notify::new(),
            goes_on: Notify::new(),
            watched: watch::Sender::new(false),
            waits: watch::Sender::default(),
            answers: watch::Sender::new(0),
            observer: OnceLock::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The bus whose mail it is.
    #[must_use]
    pub fn bus(&self) -> &Bus {
        &self.shared.bus
    }

    /// Asks the machine that decides something, or tells it, and does what it decides.
    pub fn machine<T>(&self, f: impl FnOnce(&mut core::MailboxMachine, u64) -> T) -> T {
        self.with(|state, now_ms| f(&mut state.machine, now_ms))
    }

    /// The client introduced itself: peers are told who is here.
    pub fn met(&self, who: &Who<'_>) {
        self.with(|state, _| {
            state.client = vec![who.process];
            state.machine.set_driven(who.driven);
            state.about.met(&self.shared.bus, who);
        });
    }

    /// The client is one of these processes, not the one that [introduced it](Self::met).
    pub fn is_in(&self, processes: Vec<u32>) {
        self.with(|state, _| state.client = processes);
    }

    /// The session does something else now. Peers are told.
    pub fn activity(&self, activity: Activity) {
        self.with(|state, now_ms| {
            state.machine.set_activity(now_ms, activity);
            state.about.set_activity(&self.shared.bus, activity);
        });
    }

    /// The user has the word: what the agent does now is not what peers made it do. `prompt`: what
    /// started the turn; a push of ours may have.
    pub fn prompted(&self, prompt: &str) {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let mut words = prompt.split(|c| !word(c));
        if !words.any(|word| word.starts_with(MARK) && self.attempt(word).is_some()) {
            self.with(|state, _| state.machine.prompted());
        }
    }

    /// A waking path can be used; `Err` says why it cannot. Peers are told.
    pub fn found(&self, path: Path, found: Result<(), String>) {
        self.with(|state, now_ms| {
            // The machine takes a path that failed or was used up for absent by itself: it is told
            // in any case.
            state.machine.set_path(now_ms, path, found.is_ok());
            state.resting.take_if(|it| *it == path);
            state.found(&self.shared.bus, path, found.err());
        });
    }

    /// A waking path that takes one push is in use: it can be used again once it is found.
    pub fn used(&self, path: Path) {
        self.with(|state, now_ms| {
            state.machine.set_path(now_ms, path, false);
            state.resting.take_if(|it| *it == path);
            state.found(&self.shared.bus, path, None);
        });
    }

    /// The same, but what comes meanwhile has it looked for at once.
    pub fn rests(&self, path: Path) {
        self.used(path);
        self.with(|state, _| state.resting = Some(path));
    }

    /// What came of an attempt, after [`WakePath::wake`] has answered.
    pub fn outcome(&self, attempt: AttemptId, outcome: Outcome) {
        self.with(|state, now_ms| state.machine.outcome(now_ms, attempt, outcome));
    }

    /// The text that identifies an attempt in a transcript. Peers cannot guess it.
    #[must_use]
    pub fn mark(&self, attempt: AttemptId) -> String {
        let secret = self.shared.marks.hash_one(attempt.0);
        format!("{MARK}{secret:016x}-{}", attempt.0)
    }

    /// The attempt with this mark.
    fn attempt(&self, mark: &str) -> Option<AttemptId> {
        let number = mark.rsplit('-').next()?.parse().ok()?;
        let attempt = AttemptId(number);
        (self.mark(attempt) == mark).then_some(attempt)
    }

    /// The marks to look for. Nobody needs to look when there are none.
    #[must_use]
    pub fn watched(&self) -> Vec<String> {
        let attempts: Vec<_> = self.with(|state, _| state.machine.watched().collect());
        attempts.into_iter().map(|id| self.mark(id)).collect()
    }

    /// Gives what is unseen to something that shows text anyway: what to show, and what to say of
    /// it.
    #[must_use]
    pub fn along(&self, path: Path) -> Option<(Push, Checkout)> {
        let alone = path == &PIGGYBACK;
        let (push, attempt) = self.show(alone, |it, now_ms| it.along(now_ms, path))?;
        Some((push, Checkout::new(self.clone(), attempt)))
    }

    /// What an attempt shows now; `None`: all of it was seen since it was made.
    fn push(&self, attempt: &Attempt) -> Option<Push> {
        let shown = self.show(false, |it, now_ms| {
            let items = it.current(now_ms, attempt);
            let attempt = attempt.clone();
            (!items.is_empty()).then_some(Attempt { items, ..attempt })
        });
        shown.map(|(push, _)| push)
    }

    /// What an attempt shows; `alone`: without one, how far messages of this session's own got.
    fn show(
        &self,
        alone: bool,
        attempt: impl FnOnce(&mut core::MailboxMachine, u64) -> Option<Attempt>,
    ) -> Option<(Push, Option<Attempt>)> {
        self.with(|state, now_ms| {
            let attempt = attempt(&mut state.machine, now_ms);
            // Only what is shown takes them along.
            let receipts = match attempt.is_some() || alone {
                true => state.machine.take_receipts(),
                false => Vec::new(),
            };
            let mark = attempt.as_ref().map(|attempt| self.mark(attempt.id));
            let held = state.machine.held().0;
            let shows = attempt.is_some() || !receipts.is_empty();
            let push = shows.then(|| Push::new(attempt.as_ref(), mark, held, receipts))?;
            state.texts.keep(&push, &state.machine);
            Some((push, attempt))
        })
    }

    /// Checks these out, for an agent that asked.
    pub fn check_out(&self, path: Path, chosen: &[(No, Portion)]) -> Checkout {
        let attempt = self.machine(|it, now_ms| it.check_out(now_ms, path, chosen));
        Checkout::new(self.clone(), attempt)
    }

    /// Runs `f`, then does what the machine decides.
    fn with<T>(&self, f: impl FnOnce(&mut State, u64) -> T) -> T {
        let shared = &self.shared;
        let now_ms = peerbus_os::clock::millis(shared.start.elapsed());
        let mut state = lock(&shared.state);
        let before = state.machine.poll_timeout();
        let answers = state.answers;
        let result = f(&mut state, now_ms);
        state.act(&shared.bus);
        let watched = state.machine.watched().next().is_some();
        let waits = (shared.waits.receiver_count() > 0).then(|| state.machine.waits());
        let other_deadline = state.machine.poll_timeout() != before;
        let (work, answered) = (state.has_work(), state.answers);
        let warnings = std::mem::take(&mut state.warnings);
        let staged = std::mem::take(&mut state.staged);
        let changed = std::mem::take(&mut state.changed);
        drop(state);
        if !staged.is_empty() {
            shared.further.notify_waiters();
        }
        if let Some(observer) = self.observer().filter(|_| changed || !staged.is_empty()) {
            staged.iter().for_each(|staged| observer.staged(staged));
            if changed {
                observer.changed();
            }
        }
        for line in warnings {
            tracing::warn!("{line}");
        }
        if work {
            shared.work.notify_one();
        }
        if other_deadline {
            shared.deadline.notify_one();
        }
        if answered != answers {
            shared.answers.send_replace(answered);
        }
        let changed = |any: &mut bool| std::mem::replace(any, watched) != watched;
        shared.watched.send_if_modified(changed);
        if let Some(waits) = waits {
            let other = |last: &mut [usize; 4]| std::mem::replace(last, waits) != waits;
            shared.waits.send_if_modified(other);
        }
        result
    }
}

/// What every mark begins with.
const MARK: &str = "pb-";

impl State {
    /// Something came from the bus.
    fn put(&mut self, now_ms: u64, event: SessionEvent) {
        let sentence = notice(&event);
        match event {
            SessionEvent::Registered { name, window, .. } => {
                self.machine.registered(now_ms, name, window);
            }
            SessionEvent::Message(inbound) => {
                self.staged.push(Staged::here(&inbound, Stage::Delivered));
                let mail = mail::mail(inbound);
                self.machine.message(now_ms, mail);
                self.look_for_paths();
            }
            SessionEvent::NotJoined { why } => tracing::warn!(?why, "no member of its groups"),
            SessionEvent::Lapsed { key, reason } => {
                self.machine.lapsed(now_ms, key, reason.as_deref());
            }
            SessionEvent::Notice { receipt, id: token } => {
                self.staged.push(Staged::there(&receipt));
                let sentence = sentence.as_deref();
                self.machine.receipt(now_ms, &receipt, sentence, token);
                self.answers += 1;
                self.look_for_paths();
            }
            SessionEvent::GaveUp { .. } => {
                let sentence = sentence.unwrap_or_default();
                self.machine.notice(now_ms, &sentence, Priority::Next);
                self.look_for_paths();
            }
        }
    }

    /// Does what the machine has decided, pushes excepted.
    fn act(&mut self, bus: &Bus) {
        while let Some(output) = self.machine.poll_output() {
            self.perform(bus, output);
        }
        self.about.set_evidence(bus, self.machine.evidence());
        let kept = (
            self.machine.withheld().count(),
            self.machine.paused().count(),
        );
        self.changed |= std::mem::replace(&mut self.kept, kept) != kept;
        self.changed |= self.about.set_stuck(bus, self.machine.stuck());
    }

    fn perform(&mut self, bus: &Bus, output: MailboxOutput) {
        match output {
            MailboxOutput::Announce(name) => self.announce = Some(name),
            MailboxOutput::Push(attempt) => self.pushes.push_back(attempt),
            MailboxOutput::Reached { mail, stage } => {
                self.staged.push(Staged::here(&mail.inbound, stage.clone()));
                bus.reached(&mail.inbound.key, stage);
            }
            MailboxOutput::GiveBack { mail } => {
                let stage = Stage::Recalled { why: String::new() };
                self.staged.push(Staged::here(&mail.inbound, stage));
                bus.give_back(&mail.inbound.key);
            }
            MailboxOutput::Local { mail, stage } => {
                self.staged.push(Staged::here(&mail.inbound, stage))
            }
            MailboxOutput::Told(token) => bus.ack_notice(token),
            MailboxOutput::Answered(_) | MailboxOutput::Claimed(_) => self.answers += 1,
            MailboxOutput::Warn(line) => self.warnings.push(line),
        }
    }
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

/// A sentence for an event that is no mail and that the agent should know of: what became of a
/// message of its own. `None` for progress as expected.
#[must_use]
pub fn notice(event: &SessionEvent) -> Option<String> {
    match event {
        SessionEvent::Notice { receipt, .. } => fate(receipt),
        SessionEvent::GaveUp { id } => Some(format!(
            "your message {} was never confirmed and is not sent again: it may or may not have \
             arrived",
            escape(id, 128)
        )),
        SessionEvent::NotJoined { why } => Some(format!(
            "not in the groups that were asked for: {}",
            escape(why, REASON_CHARS)
        )),
        SessionEvent::Registered { .. }
        | SessionEvent::Message(_)
        | SessionEvent::Lapsed { .. } => None,
    }
}

impl Mailbox {
    /// What the agent sends now as `talk` says, a reply excepted, with the replies that led to it: to this
    /// peer or group; `None`: to everybody.
    #[must_use]
    pub fn led_to(&self, to: Option<&str>, talk: Conversation) -> Conversation {
        let to = to.and_then(|to| PeerName::parse(to).ok());
        let to = to.map(|to| to.key());
        let hops = self.with(|state, now_ms| state.machine.hops(now_ms, to.as_ref(), talk.hops));
        Conversation { hops, ..talk }
    }

    /// The broker has the agent's message `id` to this peer or group; `None`: to everybody. Nothing is
    /// owed to that peer any more for a request that it answers; a question back is no answer.
    pub fn sent(&self, to: Option<&str>, id: &str, talk: &Conversation) {
        let to = to.map(|to| self.shared.bus.at_home(to));
        let peer = to.as_deref().filter(|to| !to.starts_with('#'));
        let peer = peer.map(PeerName::parse);
        if let Some(Err(_)) = peer {
            return;
        }
        let peer = peer.and_then(Result::ok).map(|peer| peer.key());
        self.with(|state, now_ms| {
            state.machine.sent(now_ms, peer.as_ref(), id, talk.hops);
            if talk.within_ms.is_some() {
                state.machine.asked(id);
            }
            let answers = talk.reply_to.as_ref().filter(|_| talk.within_ms.is_none());
            if let (Some(to), Some(request)) = (&to, answers) {
                let machine = &mut state.machine;
                machine.answered_request(now_ms, to, request.as_str());
            }
        });
    }
}
