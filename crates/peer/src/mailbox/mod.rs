//! The last hop: everything about a message between the moment in which the adapter's session has
//! it and the moment in which it is acked.
//!
//! One table holds what the agent has not seen; at every moment a message stands in one `Place`:
//!
//! ```text
//! Withheld ── the user lets it in ──> New
//! New ── attempt ──> Shown ── evidence ──> acked, leaves
//!  │ ^                 └─ no evidence in time ──> Overdue: the next path
//!  │ └─ released ── Held by the governor
//!  ├─ Kept by the client's user: no other path
//!  └─ Expected: the answer to a question that somebody waits for
//! ```
//!
//! From each but the first it may be `out` besides: in an attempt whose outcome is open. It is still in
//! its place if that fails.
//!
//! Drive a [`MailboxMachine`] like the other state machines of this crate: one input with the time, then
//! drain [`MailboxMachine::poll_output`], then look at [`MailboxMachine::poll_timeout`].
//!
//! What holds, whatever happens:
//!
//! - a message is shown as new once; every later showing of it is marked as a repeat;
//! - at most one attempt with a message waits for its outcome at a time;
//! - first showings over waking paths are in order of arrival for each sender; an urgent message
//!   goes before those of other senders; quiet ones go along with what is shown, and start nothing;
//!   what a client gave back unshown goes again when it comes back;
//! - a message is acked as seen only with evidence, as the policy says otherwise, once;
//! - what the user denied is not shown again by any path;
//! - what is held or expected is shown to nobody who did not ask for it;
//! - of what was put in here the broker hears nothing, and no peer's budget is used up by it.
//!
//! What it holds is bounded by what its host gives it: the host keeps to the broker's window.

mod arrive;
mod check;
mod checkout;
mod clock;
mod escalate;
mod evidence;
mod governor;
mod held;
mod lease;
mod look;
mod message;
mod mutation;
mod outcome;
mod owed;
mod push;
mod recent;
mod senders;
mod stuck;
#[cfg(test)]
mod tests;
mod transcript;
mod types;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use peerbus_wire::{Receipt, Window};

use arrive::Asks;
pub use arrive::PUT_IN_MAX;
use clock::IdleClock;
use governor::SentMail;
use governor::Told;
use governor::Turns;
pub use held::plain;
use message::{Message, Sent};
pub use mutation::MailboxMutation;
use owed::Debts;
use push::Paths;
use recent::Recent;
pub use senders::{SenderRule, Senders};
use transcript::Transcript;
pub use types::{
    ASK, Activity, AskId, Attempt, AttemptId, AttemptItem, Content, DRAIN, HERE, HOOK, INBOX,
    Image, Limit, Listed, Mail, MailboxOutput, Named, No, NotOwed, Outcome, Owed, PIGGYBACK,
    Parent, Path, PathSpec, Policy, Portion, Stuck, Wanted,
};

/// Text of a message, in bytes, up to which all of it is shown where the agent did not ask for it.
pub const WHOLE_BYTES_MAX: usize = 16_384;

/// Characters of one part of a message that is read part by part.
pub const PART_CHARS: usize = 16_384;

/// How long the window must stay nearly full before the agent is warned again.
const FULL_AGAIN_MS: u64 = 600_000;

/// Without a push in this time before it, a turn is the user's.
const STARTS_WITHIN_MS: u64 = 10_000;

/// What is not seen, and what comes next.
#[derive(Debug, Default)]
pub struct MailboxMachine {
    policy: Policy,
    /// What is not seen, in order of arrival.
    messages: BTreeMap<No, Message>,
    last: u64,
    /// When something happened last.
    now_ms: u64,
    /// Attempts with something unseen in them.
    attempts: BTreeMap<AttemptId, Sent>,
    next_attempt: u64,
    paths: Paths,
    /// The client takes pushes.
    open: bool,
    /// The name that is to be announced.
    announce: Option<String>,
    activity: Activity,
    clock: IdleClock,
    /// As `clock`, but it runs while a dialog is open.
    dialogs: IdleClock,
    /// The client's process is stopped: it reads nothing.
    stopped: bool,
    /// Why its last turn failed, until one ends well.
    failed: Option<Arc<str>>,
    /// When it was found running last.
    ran_ms: u64,
    transcript: Transcript,
    /// The transcript stopped showing our marks, so unprovable messages may be released.
    lost_sight: bool,
    /// So many replies may lead to a message; `None`: any number, and peers start any turns.
    hops_max: Option<u32>,
    /// Peers of which mail is paused.
    paused_told: Told,
    /// Peers that hold mail of this session.
    held_there: Told,
    turns: Turns,
    /// That peers may start no more turns, and that one may not.
    turns_told: Told,
    sent: SentMail,
    /// How far messages of this session's got, and whether the agent is to be told with the next thing that is
    /// shown.
    receipts: VecDeque<(Receipt, bool)>,
    recent: Recent,
    /// Requests that the agent has read.
    owed: Debts,
    driven: bool,
    asks: Asks,
    /// So much the broker sends ahead of acks, as far as is known.
    window: Option<Window>,
    /// While what is unacked nearly fills that: when to say so, on the clock that stands still while
    /// the session works.
    full_at_ms: Option<u64>,
    /// The last notice of it.
    full_notice: Option<No>,
    /// When the last pushes were made.
    recent_ms: VecDeque<u64>,
    /// The last push that queued up in the client, and when it went.
    last_queued: Option<(AttemptId, u64)>,
    /// Before this, what is new waits for more to come.
    digest_at_ms: u64,
    /// When a path is free for what waits.
    gap_at_ms: Option<u64>,
    /// Whose mail comes in at all.
    senders: Senders,
    /// Senders of whose mail the user was told that it does not.
    warned: Told,
    outputs: VecDeque<MailboxOutput>,
    mutations: peerbus_core::Mutations<MailboxMutation>,
}

impl MailboxMachine {
    /// Makes an empty one: it knows no waking path, and the transcript cannot be read.
    ///
    /// `hops_max`: so many replies may lead to a message that the agent is shown; with more it is
    /// held. `None`, or more than 1,000: nothing is ever held, and peers start as many turns as they
    /// like.
    #[must_use]
    pub fn new(policy: Policy, hops_max: Option<u32>) -> Self {
        Self {
            policy,
            next_attempt: 1,
            hops_max: hops_max.filter(|&hops| hops <= governor::LIMIT_MAX),
            ..Self::default()
        }
    }

    /// There is such a waking path. It is absent until [`MailboxMachine::set_path`] says that it is ready.
    pub fn add_path(&mut self, path: Path) {
        self.paths.add(path);
    }

    /// A waking path can be used, or cannot any more. A push that failed makes it absent, and so
    /// does any push over one that takes only one, until this says that it is ready again.
    pub fn set_path(&mut self, now_ms: u64, path: Path, ready: bool) {
        self.advance(now_ms);
        if self.paths.set(path, ready) {
            // What its client would not show before, it may show now.
            let others = self.messages.values_mut();
            for message in others.filter(|message| !message.is_suspect()) {
                message.dropped.retain(|dropped| *dropped != path);
            }
        }
        self.finish(now_ms);
    }

    /// The client takes pushes from now on: before, it would drop them.
    pub fn open(&mut self, now_ms: u64) {
        self.open = true;
        self.finish(now_ms);
    }

    /// The bus gave this session a name, which is announced before anything that comes after, and a
    /// window. The agent is told at once when what is unacked nearly fills that, and again after ten idle
    /// minutes of it.
    pub fn registered(&mut self, now_ms: u64, name: String, window: Window) {
        self.announce = Some(name);
        self.window = Some(window);
        self.finish(now_ms);
    }

    /// The session does something else now.
    pub fn set_activity(&mut self, now_ms: u64, activity: Activity) {
        self.advance(now_ms);
        let before = std::mem::replace(&mut self.activity, activity);
        let works = |activity| matches!(activity, Activity::Busy | Activity::Waiting);
        let ends = works(before) && !works(activity);
        let lately = |at: &u64| *at + STARTS_WITHIN_MS > now_ms;
        let users = before == Activity::Idle
            && works(activity)
            && !self.recent_ms.back().is_some_and(lately);
        if ends || users {
            self.prompted();
        }
        self.run_clocks(now_ms);
        if activity == Activity::Idle && before != activity {
            self.owed.idle_ms = self.clock.at(now_ms);
        }
        self.finish(now_ms);
    }

    fn run_clocks(&mut self, now_ms: u64) {
        let runs = matches!(self.activity, Activity::Idle | Activity::Unknown);
        self.clock.run(now_ms, runs && !self.stopped);
        let runs = self.activity != Activity::Busy;
        self.dialogs.run(now_ms, runs && !self.stopped);
    }

    /// The client's process is stopped, or runs. A stopped one reads nothing, and later all that it
    /// was sent: no more is pushed, and no time counts since it was last found running.
    pub fn set_stopped(&mut self, now_ms: u64, stopped: bool) {
        let before = std::mem::replace(&mut self.stopped, stopped);
        match (before, stopped) {
            (false, true) => self.run_clocks(self.ran_ms),
            (true, false) => self.run_clocks(now_ms),
            _ => {}
        }
        if !stopped {
            self.ran_ms = now_ms;
        }
        self.finish(now_ms);
    }

    /// The client's process is stopped, as far as is known.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// The user has the word: what the agent does from now on is not what peers made it do.
    pub fn prompted(&mut self) {
        self.turns.end();
    }

    /// Whether the session's transcript can be read: whether an answer would be noticed.
    pub fn set_evidence(&mut self, now_ms: u64, readable: bool) {
        self.advance(now_ms);
        self.transcript.set(readable, AttemptId(self.next_attempt));
        self.relieve();
        self.finish(now_ms);
    }

    /// Whether an answer would be noticed: the transcript can be read, and of the last attempts one
    /// at least left its mark there.
    #[must_use]
    pub fn evidence(&self) -> bool {
        self.transcript.shows()
    }

    /// Another session of this name may have read what waits here: all of it counts as perhaps
    /// shown.
    pub fn doubt(&mut self, now_ms: u64) {
        self.advance(now_ms);
        for message in self.messages.values_mut() {
            // What did not come over the bus no other session has.
            message.again |= message.is_owed() && !message.is_withheld();
            // A member of its group may have it now.
            if message.is_leased() && !message.is_begun() {
                message.lapse(now_ms);
            }
        }
        self.finish(now_ms);
    }

    /// The agent's client ended, and the next one goes on with its session: whatever it had shown
    /// without proof goes again, as a repeat. Each push that was under way has its outcome.
    pub fn client_ended(&mut self, now_ms: u64) {
        self.advance(now_ms);
        for message in self.messages.values_mut() {
            message.start_over();
        }
        self.finish(now_ms);
    }

    /// A deadline has passed.
    pub fn handle_timeout(&mut self, now_ms: u64) {
        self.advance(now_ms);
        self.finish(now_ms);
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<MailboxOutput> {
        self.outputs.pop_front()
    }

    /// When to call [`MailboxMachine::handle_timeout`], on the same clock.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let full = self.full_at_ms.filter(|_| self.unseen() > 0);
        let full = full.and_then(|at| self.clock.when(at));
        let gap = self.gap_at_ms.into_iter();
        let leases = self.lease_at().into_iter().chain(self.remind_at());
        let leases = leases.chain(self.stuck_at());
        gap.chain(self.escalate_at())
            .chain(full)
            .chain(leases)
            .min()
    }

    /// What every input ends with.
    fn finish(&mut self, now_ms: u64) {
        self.expire(now_ms);
        self.remind(now_ms);
        self.note_waits(now_ms);
        self.gauge(now_ms);
        if std::mem::take(&mut self.lost_sight) {
            self.relieve();
        }
        self.say_full(now_ms);
        // What was let go made room.
        self.gauge(now_ms);
        self.sweep();
        if self.open {
            let announce = self.announce.take().map(MailboxOutput::Announce);
            self.outputs.extend(announce);
            self.pump(now_ms);
        }
    }

    /// Forgets attempts in which nothing is unseen, except those whose outcome is open.
    fn sweep(&mut self) {
        let Self {
            messages, attempts, ..
        } = self;
        attempts.retain(|_, sent| {
            let open = sent.items.iter().any(|(no, _)| messages.contains_key(no));
            open || sent.step == message::Step::InFlight
        });
    }

    /// Looks how full the window is. Where nothing can be proven some of it is let go.
    fn gauge(&mut self, now_ms: u64) {
        let owed = self.messages.values().filter(|message| message.is_owed());
        let bytes = |message: &Message| message.content.mail().map_or(0, |m| m.inbound.body.len());
        let (messages, bytes) = owed.fold((0, 0), |(n, sum), m| (n + 1, sum + bytes(m)));
        let most = |part: usize, whole: u32| part.saturating_mul(4) >= whole as usize * 3;
        let full = self.window.filter(|_| messages > 0);
        let full = full.is_some_and(|it| most(messages, it.messages) || most(bytes, it.bytes));
        if self.full_at_ms.is_some() != full {
            self.full_at_ms = full.then(|| self.clock.at(now_ms));
            self.relieve();
        }
    }

    /// Says that the window is nearly full, if that is due.
    fn say_full(&mut self, now_ms: u64) {
        let idle_ms = self.clock.at(now_ms);
        let waiting = self.unseen();
        if waiting == 0 || self.full_at_ms.is_none_or(|at| at > idle_ms) {
            return;
        }
        self.full_at_ms = Some(idle_ms + FULL_AGAIN_MS);
        // An older one that waits says nothing more.
        if let Some(before) = self.full_notice.take() {
            self.seen_by_itself(before);
        }
        let sentence = format!(
            "what waits here unseen ({waiting}) nearly fills what the broker sends ahead; more may \
             wait there. Read it with the bus inbox tool"
        );
        let notice = self.put_notice(&sentence, None, peerbus_wire::Priority::Next);
        self.full_notice = Some(notice);
    }
}
