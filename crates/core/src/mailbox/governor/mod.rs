//! Keeps conversations from running away: two agents that answer each other for ever, a thread or a
//! ring of sessions that goes round in circles, peers that wake another all day.
//!
//! A message is judged where it arrives, before it is shown. A message over budget is held: it is
//! kept and can be read, and starts nothing. A peer that is never answered is never held, however
//! much it sends and whatever it says of itself. A peer is answered by what is sent to it or to
//! everybody; in a thread also by what is sent there to others; and in a ring by what this session
//! sends to anybody in a turn that peers' mail started.

mod recent;
#[cfg(test)]
mod tests;

use peerbus_wire::NameKey;

use recent::Book;
pub(super) use recent::Times;

/// The sliding time of the budgets of a pair.
const PAIR_MS: u64 = 600_000;

/// The sliding time of the budget of a thread.
const THREAD_MS: u64 = 3_600_000;

/// Messages of a peer in a thread, each after something was sent there, in that time.
const THREAD_MESSAGES: usize = 40;

/// Replies that may lead to a message.
const HOPS: u32 = 16;

/// A budget above this is none: so many times are kept of each pair.
const EXCHANGES_MAX: u32 = 1_000;

/// After so long without a hold of its kind the next is told again.
const TELL_AGAIN_MS: u64 = 600_000;

/// Characters of a thread's name that a reason repeats.
const THREAD_CHARS: usize = 64;

/// What a message looks like to the governor.
#[derive(Debug, Clone)]
pub(super) struct Arrival<'a> {
    /// Who sent it.
    pub(super) from: &'a NameKey,
    /// The conversation that it belongs to.
    pub(super) thread: Option<&'a str>,
    /// How many replies led to it.
    pub(super) hops: u32,
}

/// What to do with a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Show it as its sender wishes.
    Pass,
    /// Hold it as quiet.
    Hold {
        /// Why: a sentence for both sides and the human.
        reason: String,
        /// This is the first of its kind for a while: the agent, the sender and the human are told.
        tell: bool,
    },
}

/// What is known of a peer.
#[derive(Debug, Default)]
struct Pair {
    /// When something was sent to it last.
    sent_ms: Option<u64>,
    /// Something was, since its last exchange.
    asked: bool,
    /// What was sent to everybody before its last message.
    alls: u64,
    exchanges: Times,
    /// When something was held last, for each reason.
    held_ms: [Option<u64>; 2],
}

/// What was sent in a thread, to whomever.
#[derive(Debug, Default)]
struct Thread {
    /// When last.
    sent_ms: Option<u64>,
    /// How often.
    sends: u64,
}

/// What a peer says in a thread.
#[derive(Debug, Default)]
struct Talk {
    /// What was sent in the thread before its last message.
    sends: u64,
    messages: Times,
    held_ms: Option<u64>,
}

/// The budgets of one recipient.
#[derive(Debug)]
pub(super) struct Governor {
    exchanges: usize,
    pairs: Book<NameKey, Pair>,
    threads: Book<[u8; 32], Thread>,
    talks: Book<([u8; 32], NameKey), Talk>,
    /// When something was sent to everybody last, and how often.
    all_ms: Option<u64>,
    alls: u64,
}

impl Governor {
    /// A governor that lets `exchanges` replies of one peer through in ten minutes; none where they
    /// are more than 1,000.
    pub(super) fn new(exchanges: u32) -> Option<Self> {
        let exchanges = Some(exchanges).filter(|&n| n <= EXCHANGES_MAX)?;
        Some(Self {
            exchanges: usize::try_from(exchanges).ok()?,
            pairs: Book::default(),
            threads: Book::default(),
            talks: Book::default(),
            all_ms: None,
            alls: 0,
        })
    }

    /// Judges what arrived. `chained`: this session sent something of late because of what peers
    /// sent it.
    pub(super) fn judge(&mut self, now_ms: u64, arrival: &Arrival<'_>, chained: bool) -> Verdict {
        let pair = self.pairs.get(arrival.from);
        if std::mem::replace(&mut pair.alls, self.alls) < self.alls {
            pair.asked = true;
            pair.sent_ms = pair.sent_ms.max(self.all_ms);
        }
        let held = pair.judge(now_ms, arrival, self.exchanges, chained);
        let round = self.round(now_ms, arrival);
        held.or(round).map_or(Verdict::Pass, |(what, tell)| {
            let reason = format!("held as quiet: {what}");
            Verdict::Hold { reason, tell }
        })
    }

    /// Judges a message as one of its thread. Of threads in which nothing was sent nothing is kept.
    fn round(&mut self, now_ms: u64, arrival: &Arrival<'_>) -> Held {
        let name = arrival.thread?;
        let key = key(name);
        let thread = self.threads.find(&key)?;
        let recent = |at| now_ms.saturating_sub(at) < THREAD_MS;
        if !thread.sent_ms.is_some_and(recent) {
            return None;
        }
        let sends = thread.sends;
        let talk = self.talks.get(&(key, arrival.from.clone()));
        talk.judge(now_ms, sends, name, arrival.from)
    }

    /// This peer sent something to `to`: the next message from there is an answer.
    pub(super) fn sent(&mut self, now_ms: u64, to: &NameKey, thread: Option<&str>) {
        let pair = self.pairs.get(to);
        pair.asked = true;
        pair.sent_ms = Some(now_ms);
        self.sent_in(now_ms, thread);
    }

    /// This peer sent something to everybody: the next message of each is an answer.
    pub(super) fn sent_to_all(&mut self, now_ms: u64, thread: Option<&str>) {
        self.all_ms = Some(now_ms);
        self.alls += 1;
        self.sent_in(now_ms, thread);
    }

    fn sent_in(&mut self, now_ms: u64, thread: Option<&str>) {
        if let Some(name) = thread {
            let thread = self.threads.get(&key(name));
            thread.sent_ms = Some(now_ms);
            thread.sends += 1;
        }
    }
}

/// What is wrong with a message, and whether to tell it.
type Held = Option<(String, bool)>;

impl Pair {
    fn judge(&mut self, now_ms: u64, arrival: &Arrival<'_>, budget: usize, chained: bool) -> Held {
        if std::mem::take(&mut self.asked) {
            self.exchanges.add(now_ms, budget);
        }
        let answers = self
            .sent_ms
            .is_some_and(|at| now_ms.saturating_sub(at) < PAIR_MS);
        let (from, hops) = (arrival.from.as_str(), arrival.hops);
        if self.exchanges.over(now_ms, PAIR_MS, budget) {
            let replies = budget + 1;
            let what = format!(
                "{replies} replies of {from} within 10 minutes, budget {budget} (the recipient's \
                 PEERBUS_BUDGET)"
            );
            return Some((what, tell(&mut self.held_ms[0], now_ms)));
        }
        if (answers || chained) && hops > HOPS {
            let what = format!(
                "{hops} replies led to this message of {from}, budget {HOPS}; a new message that is \
                 no reply begins anew"
            );
            return Some((what, tell(&mut self.held_ms[1], now_ms)));
        }
        None
    }
}

impl Talk {
    fn judge(&mut self, now_ms: u64, sends: u64, thread: &str, from: &NameKey) -> Held {
        // Once a send there: whoever goes on alone is in no conversation.
        if std::mem::replace(&mut self.sends, sends) != sends {
            self.messages.add(now_ms, THREAD_MESSAGES);
        }
        if !self.messages.over(now_ms, THREAD_MS, THREAD_MESSAGES) {
            return None;
        }
        let (found, from, thread) = (THREAD_MESSAGES + 1, from.as_str(), plain(thread));
        let what = format!(
            "{found} messages of {from} in thread {thread} within an hour, budget \
             {THREAD_MESSAGES}; another thread begins anew"
        );
        Some((what, tell(&mut self.held_ms, now_ms)))
    }
}

/// Notes a hold. True: there was none of its kind for a while.
fn tell(held_ms: &mut Option<u64>, now_ms: u64) -> bool {
    let last = held_ms.replace(now_ms);
    last.is_none_or(|at| now_ms.saturating_sub(at) >= TELL_AGAIN_MS)
}

/// The name of a thread as it can stand in a reason, and be quoted with that: it has the form of
/// an id, and whatever has not gets it.
fn plain(thread: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
    let shown = thread.chars().take(THREAD_CHARS);
    shown.map(|c| if plain(c) { c } else { '_' }).collect()
}

/// Names come from peers and have any length.
fn key(thread: &str) -> [u8; 32] {
    *blake3::hash(thread.as_bytes()).as_bytes()
}
