//! Which messages go over which waking path, and when.

use std::collections::{BTreeMap, BTreeSet};

use peerbus_wire::{NameKey, Priority};

use super::checkout::within;
use super::governor::Free;
use super::message::{Cause, Message, Sent, Step};
use super::mutation::MailboxMutation;
use super::types::{Activity, MailboxOutput, No, Path};
use super::{MailboxMachine, WHOLE_BYTES_MAX};

/// Pushes in [`RECENT_MS`] beyond which even urgent messages wait for the pause.
const RECENT_MAX: usize = 20;

/// See [`RECENT_MAX`].
const RECENT_MS: u64 = 60_000;

/// Minimum time between two pushes to a busy session that has not shown the first.
const BATCH_MS: u64 = 10_000;

/// What was pushed within this time of each other escalates together: one turn, not two.
const SOON_MS: u64 = 3_000;

/// Why nothing is pushed now.
#[derive(Default)]
struct Wait {
    /// When something can be.
    until_ms: Option<u64>,
    /// Peers have started as many turns as they may, all of them or this one.
    turns: Option<Turns>,
}

/// Whose turns are used up.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Turns {
    All,
    Of(Option<NameKey>),
}

impl Wait {
    fn until(&mut self, at_ms: u64) {
        self.until_ms = Some(self.until_ms.map_or(at_ms, |other| other.min(at_ms)));
    }
}

/// The sender of a message that was never shown: that does not overtake another first showing of its
/// sender's.
fn fresh(message: &Message) -> Option<Option<&NameKey>> {
    (message.is_fresh() && message.reminds.is_none()).then_some(message.from.as_ref())
}

impl MailboxMachine {
    /// Pushes what is due, if its path is free. One push at a time waits for its outcome, so that
    /// what returns unshown still goes before what came after it.
    pub(super) fn pump(&mut self, now_ms: u64) {
        self.gap_at_ms = None;
        let waits = |s: &Sent| s.cause == Cause::Push && s.step == Step::InFlight;
        let careless = self.mutations.broken(MailboxMutation::ShowInFlight);
        if self.stopped {
            return;
        }
        if self.attempts.values().any(waits) && !careless {
            return;
        }
        match self.choose(now_ms) {
            Ok((path, head)) => self.push(now_ms, path, head),
            Err(wait) => {
                self.gap_at_ms = wait.until_ms;
                if let Some(turns) = wait.turns {
                    self.say_turns(now_ms, &turns);
                }
            }
        }
    }

    /// The oldest message whose path is free, an urgent one and what its sender sent before it
    /// first, and that path; or when the next path will be.
    fn choose(&self, now_ms: u64) -> Result<(Path, No), Wait> {
        let urgent = self.is_urgent(now_ms);
        let hurries = |m: &&Message| m.priority == Priority::Now && m.is_fresh() && m.is_due();
        let hurried = self.messages.values().filter(hurries);
        let hurried: BTreeSet<_> = hurried.map(|m| m.from.as_ref()).collect();
        let mut wait = Wait::default();
        for now in [true, false] {
            let mut waiting = BTreeSet::new();
            for (no, message) in self.loud() {
                if self.is_on_its_way(message) {
                    waiting.extend(fresh(message));
                }
                let overtakes = fresh(message).is_some_and(|from| waiting.contains(&from));
                if !self.is_due(message) || overtakes {
                    continue;
                }
                let Some(path) = self.next_path(now_ms, message) else {
                    continue;
                };
                let own = message.is_fresh() && hurried.contains(&message.from.as_ref());
                if now && message.priority != Priority::Now && !own {
                    waiting.extend(fresh(message));
                    continue;
                }
                let turn = self.turn_at(message, now);
                let free_ms = self.free_at(now_ms, message, path, urgent);
                let at_ms = free_ms.max(turn.at_ms);
                if at_ms <= now_ms {
                    return Ok((path, *no));
                }
                wait.until(at_ms);
                if turn.at_ms > now_ms && wait.turns.is_none() && !message.is_notice() {
                    let of = || Turns::Of(message.from.clone());
                    wait.turns = Some(if turn.of_one { of() } else { Turns::All });
                }
                waiting.extend(fresh(message));
            }
        }
        Err(wait)
    }

    /// It is about to be shown, and what came after it waits for that. A result of a tool is shown
    /// when its client goes on, which may take a while: it holds nobody up.
    fn is_on_its_way(&self, message: &Message) -> bool {
        let sent = message.out.and_then(|out| self.attempts.get(&out));
        sent.is_some_and(|sent| !sent.path.in_result)
    }

    /// What may start a push, in the order in which it is tried.
    fn loud(&self) -> impl Iterator<Item = (&No, &Message)> {
        let mut loud: Vec<_> = self.messages.iter().collect();
        loud.retain(|(_, message)| !message.is_quiet() && message.is_open());
        if self.mutations.broken(MailboxMutation::NewestFirst) {
            loud.reverse();
        }
        loud.into_iter()
    }

    fn is_due(&self, message: &Message) -> bool {
        let careless = self.mutations.broken(MailboxMutation::ShowInFlight);
        message.is_due() && self.may_go(message, false) || careless && message.out.is_some()
    }

    /// An urgent message is due, and not too many of its kind went before it.
    fn is_urgent(&self, now_ms: u64) -> bool {
        let wants = |message: &Message| {
            let now = message.priority == Priority::Now && message.is_due();
            let path = self.next_path(now_ms, message).filter(|_| now);
            path.is_some_and(|path| self.paths.free_at(path, true) <= now_ms)
        };
        !self.is_often(now_ms) && self.messages.values().any(wants)
    }

    /// As many pushes as may be without a pause have gone lately.
    fn is_often(&self, now_ms: u64) -> bool {
        let oldest = self.recent_ms.front();
        self.recent_ms.len() >= RECENT_MAX && oldest.is_some_and(|&at| at + RECENT_MS > now_ms)
    }

    /// The waking path that a message goes over next.
    fn next_path(&self, now_ms: u64, message: &Message) -> Option<Path> {
        self.paths.best(now_ms, |path| message.may_go_over(path))
    }

    /// When peers' mail may start the turn that a push would start.
    fn turn_at(&self, head: &Message, urgent: bool) -> Free {
        let works = matches!(self.activity, Activity::Busy | Activity::Waiting);
        if works || !self.may_count(head) || self.hops_max.is_none() {
            return Free::default();
        }
        self.turns.free_at(urgent, &head.starter())
    }

    /// A turn that it starts counts as one that peers started.
    pub(super) fn may_count(&self, message: &Message) -> bool {
        let mail = !message.is_notice() && self.counts(message.is_local());
        mail || message.reminds.is_some()
    }

    /// Whether it counts as mail that makes the session do something: a peer's does, a text that was
    /// put in here (`local`) does not.
    pub(super) fn counts(&self, local: bool) -> bool {
        !local || self.mutations.broken(MailboxMutation::CountLocal)
    }

    /// When a push with this head may go over this path.
    fn free_at(&self, now_ms: u64, head: &Message, path: Path, urgent: bool) -> u64 {
        if self.mutations.broken(MailboxMutation::SkipPause) {
            return 0;
        }
        // A program that puts texts in waits for each: nothing is gathered.
        let takes = path.text_bytes == usize::MAX || !self.is_often(now_ms);
        let hurries = urgent || head.is_local() && takes;
        let mut free = self.paths.free_at(path, hurries);
        if head.is_new() && !hurries {
            // Else a burst would be one push for each path and then a digest.
            free = free.max(self.digest_at_ms);
        }
        let works = matches!(self.activity, Activity::Busy | Activity::Waiting);
        if urgent && free <= now_ms || !works || !path.joins_busy_turn {
            return free;
        }
        // It would queue up in the client behind the one before.
        let open = |&(id, _): &(_, u64)| self.attempts.get(&id).is_some_and(|s| !s.presented);
        let queued = self.last_queued.filter(open);
        queued.map_or(free, |(_, at_ms)| free.max(at_ms + BATCH_MS))
    }

    fn push(&mut self, now_ms: u64, path: Path, head: No) {
        let chosen = self.compose(now_ms, path, head);
        let fresh = |(no, m): &(&No, &Message)| m.is_fresh() && m.is_free() && !chosen.contains(no);
        let rest = self.messages.iter().filter(fresh).count();
        let chosen = self.portions(chosen, path, WHOLE_BYTES_MAX);
        let attempt = self.send(path, &chosen, rest, (Cause::Push, Some(head)));
        self.paths.used(path);
        if self.recent_ms.len() >= RECENT_MAX {
            self.recent_ms.pop_front();
        }
        self.recent_ms.push_back(now_ms);
        self.outputs.push_back(MailboxOutput::Push(attempt));
    }

    /// What goes along with the head: in order of arrival what would start a push itself, then
    /// quiet messages in the space that is left.
    fn compose(&self, now_ms: u64, path: Path, first: No) -> Vec<No> {
        let Some(head) = self.messages.get(&first) else {
            return Vec::new();
        };
        let single = [MailboxMutation::SkipPause, MailboxMutation::NewestFirst];
        if head.is_suspect() || single.into_iter().any(|m| self.mutations.broken(m)) {
            return vec![first];
        }
        let mut along = Vec::new();
        let mut waiting = BTreeSet::new();
        for (no, message) in self.loud() {
            if self.is_on_its_way(message) {
                waiting.extend(fresh(message));
            }
            let soon_ms = self.evidence_clock(message).at(now_ms) + SOON_MS;
            let escalates_soon = !head.is_fresh() && message.is_overdue_at(soon_ms);
            let due = self.is_due(message) || escalates_soon;
            if !due || *no == first || message.is_suspect() {
                continue;
            }
            let here = if message.is_fresh() && head.is_fresh() {
                message.may_go_over(path)
            } else {
                // What was shown goes where it would go by itself.
                let next = self.next_path(now_ms, message);
                if next.is_some_and(|next| next != path) {
                    waiting.extend(fresh(message));
                }
                next == Some(path)
            };
            let overtakes = fresh(message).is_some_and(|from| waiting.contains(&from));
            if here && !overtakes {
                along.push((no, message));
            }
        }
        let mut chosen = within(path.limit, [(&first, head)].into_iter().chain(along));
        self.ride_along(path, &mut chosen);
        chosen
    }

    /// Quiet messages go in the space that is left.
    fn ride_along(&self, path: Path, chosen: &mut Vec<No>) {
        let size = |no: &No| self.messages.get(no).map_or(0, |m| m.content.bytes());
        let mut bytes: usize = chosen.iter().map(size).sum();
        for (no, quiet) in &self.messages {
            let rides = quiet.is_quiet() && quiet.is_due() && quiet.may_go_over(path);
            let rides = rides && !quiet.is_suspect();
            let more = bytes + quiet.content.bytes();
            if rides && chosen.len() < path.limit.messages && more <= path.limit.bytes {
                bytes = more;
                chosen.push(*no);
            }
        }
    }

    /// Tells once in a while that peers have started as many turns as they may.
    fn say_turns(&mut self, now_ms: u64, turns: &Turns) {
        let (which, whose, many) = match turns {
            Turns::All => (
                "all",
                "peers' mail".to_owned(),
                "50, and 10 for mail that is urgent",
            ),
            Turns::Of(from) => {
                let from = from.as_ref().map_or("", NameKey::as_str);
                let from = super::held::plain(from);
                let whose = format!("mail of {from}, or of its token,");
                let many = "30, and of those that are kept for urgent mail one";
                ("one", whose, many)
            }
        };
        if !self.turns_told.is_due(now_ms, which) {
            return;
        }
        let sentence = format!(
            "{whose} started as many turns of this session as it may within 10 minutes ({many}): \
             what arrives of it now waits a while. Read it with the bus inbox tool"
        );
        self.warn(&sentence);
        self.put_notice(&sentence, None, Priority::Quiet);
    }
}

/// The first pause after a push that did not leave; it doubles.
const BACKOFF_MS: u64 = 2_000;

/// The longest of these pauses.
const BACKOFF_MAX_MS: u64 = 64_000;

/// Showings without evidence, one after the other, after which a path comes last.
const MISSES_MAX: u32 = 2;

/// What is known of a waking path.
#[derive(Debug, Default)]
struct Waking {
    ready: bool,
    proven: bool,
    misses: u32,
    failures: u32,
    pause_until_ms: u64,
    backoff_until_ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct Paths(BTreeMap<Path, Waking>);

impl Paths {
    pub(super) fn add(&mut self, path: Path) {
        self.0.entry(path).or_default();
    }

    /// Notes whether a path can be used. True: it can, and could not before.
    pub(super) fn set(&mut self, path: Path, ready: bool) -> bool {
        let Some(waking) = self.0.get_mut(path) else {
            return false;
        };
        let was = std::mem::replace(&mut waking.ready, ready);
        ready && !was
    }

    /// Some path can be used now.
    pub(super) fn has_ready(&self) -> bool {
        self.0.values().any(|waking| waking.ready)
    }

    /// The best ready path that `may` be used; if only such as failed a moment ago, the one whose
    /// turn is soonest.
    pub(super) fn best(&self, now_ms: u64, may: impl Fn(Path) -> bool) -> Option<Path> {
        let ready = self.0.iter().filter(|(path, it)| it.ready && may(path));
        let best = ready.min_by_key(|(path, waking)| {
            let backoff_ms = waking.backoff_until_ms.saturating_sub(now_ms);
            (backoff_ms, waking.doubt(), path.rank)
        });
        best.map(|(path, _)| *path)
    }

    /// When a path may be used again. Nobody is too urgent for a path that just failed.
    pub(super) fn free_at(&self, path: Path, urgent: bool) -> u64 {
        self.0.get(path).map_or(0, |waking| {
            let pause = if urgent { 0 } else { waking.pause_until_ms };
            pause.max(waking.backoff_until_ms)
        })
    }

    pub(super) fn used(&mut self, path: Path) {
        if path.one_shot {
            self.set(path, false);
        }
    }

    pub(super) fn took(&mut self, now_ms: u64, path: Path) {
        if let Some(waking) = self.0.get_mut(path) {
            waking.failures = 0;
            waking.pause_until_ms = now_ms + path.gap_ms;
        }
    }

    pub(super) fn failed(&mut self, now_ms: u64, path: Path) {
        if let Some(waking) = self.0.get_mut(path) {
            let pause = BACKOFF_MS << waking.failures.min(5);
            waking.backoff_until_ms = now_ms + pause.min(BACKOFF_MAX_MS);
            waking.failures += 1;
            waking.ready = false;
        }
    }

    /// Text that went there is in the conversation.
    pub(super) fn arrived(&mut self, path: Path) {
        if let Some(waking) = self.0.get_mut(path) {
            waking.misses = 0;
        }
    }

    /// The model saw what went there.
    pub(super) fn proved(&mut self, path: Path) {
        self.arrived(path);
        if let Some(waking) = self.0.get_mut(path) {
            waking.proven = true;
        }
    }

    /// Nothing showed in time that a push arrived.
    pub(super) fn missed(&mut self, path: Path) {
        if let Some(waking) = self.0.get_mut(path) {
            waking.misses = waking.misses.saturating_add(1);
        }
    }
}

impl Waking {
    /// Low is good: what brought proof, then what may, then what does not seem to arrive.
    fn doubt(&self) -> u8 {
        match (self.misses < MISSES_MAX, self.proven) {
            (true, true) => 0,
            (true, false) => 1,
            (false, _) => 2,
        }
    }
}
