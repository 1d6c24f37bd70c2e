//! What peers' mail makes a session do: the turns that it starts, and the replies that led there.

use std::collections::VecDeque;

use peerbus_wire::NameKey;

use super::governor::Times;

/// Turns that peers' mail may start in [`TURNS_MS`].
const TURNS: usize = 60;

/// So many of them are kept for mail that is urgent: one for each sender.
const URGENT_TURNS: usize = 10;

/// So many of them mail of one sender may start, or of all senders with one token.
const TURNS_OF_ONE: usize = TURNS / 2;

/// A count of replies may be so much above those that led to what this session sent: it went to
/// another one and to a third before it came back.
const WAY_ROUND: u32 = 2;

/// The sliding time of that budget.
const TURNS_MS: u64 = 600_000;

/// Where nobody tells what the session does, a turn that peers' mail started is over after so long.
const TURN_MS: u64 = 600_000;

/// A session of which nobody tells what started its turns may so often in [`TURNS_MS`] read and
/// then send before that counts as being led by what it reads.
const READS: usize = 5;

/// Whose mail starts a turn.
#[derive(Debug, Clone, Default)]
pub(super) struct Starter {
    pub(super) from: Option<NameKey>,
    /// Who answers for it, where that is not this session's token.
    pub(super) party: Option<String>,
}

/// A turn that peers' mail started.
#[derive(Debug)]
struct Started {
    at_ms: u64,
    by: Starter,
    /// One of those that are kept for what is urgent.
    kept: bool,
}

/// Until when mail may start no turn, and whether that is because of its sender's share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Free {
    pub(super) at_ms: u64,
    pub(super) of_one: bool,
}

/// The turns of a session.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The last ones that peers' mail started.
    started: VecDeque<Started>,
    /// Peers' mail led to what the agent does now.
    led: Option<Led>,
    /// When something was sent after something was read, in turns of which the start is not known.
    read_and_sent: Times,
    /// When something was sent last in a turn that peers' mail started, and the most replies that
    /// led to such a message of late.
    chained: Option<(u64, u32)>,
    /// The same of replies, whatever started their turn.
    replied: Option<(u64, u32)>,
}

/// What the agent was shown in a turn.
#[derive(Debug, Clone, Copy)]
struct Led {
    /// Peers' mail started the turn. Otherwise nobody knows what did.
    started: bool,
    /// So many replies led to what was shown.
    hops: u32,
    at_ms: u64,
    /// Nothing was sent since.
    unanswered: bool,
}

impl Turns {
    /// When mail of this sender may start the next turn.
    pub(super) fn free_at(&self, urgent: bool, by: &Starter) -> Free {
        let all = |_: &&Started| true;
        let kept = |started: &&Started| started.kept;
        let ordinary_ms = self.below(TURNS - URGENT_TURNS, all);
        let all_ms = match urgent {
            true => ordinary_ms.min(self.below(TURNS, all)),
            false => ordinary_ms,
        };
        let own = |started: &&Started| started.by.from == by.from;
        let party = |started: &&Started| by.party.is_some() && started.by.party == by.party;
        let shares = [
            self.below(TURNS_OF_ONE, own),
            self.below(TURNS_OF_ONE, party),
            ordinary_ms.min(self.below(1, |s| kept(s) && own(s))),
            ordinary_ms.min(self.below(1, |s| kept(s) && party(s))),
        ];
        let one_ms = shares.into_iter().max().unwrap_or(0);
        Free {
            at_ms: all_ms.max(one_ms),
            of_one: one_ms > all_ms,
        }
    }

    /// When fewer of these than so many are in the time that counts.
    fn below(&self, budget: usize, of: impl Fn(&&Started) -> bool) -> u64 {
        let mut last = self.started.iter().rev().filter(of);
        let at = last.nth(budget - 1).map(|started| started.at_ms);
        at.map_or(0, |at| at + TURNS_MS)
    }

    /// Peers' mail starts a turn.
    pub(super) fn start(&mut self, now_ms: u64, by: Starter) {
        let kept = self.below(TURNS - URGENT_TURNS, |_| true) > now_ms;
        if self.started.len() >= TURNS {
            self.started.pop_front();
        }
        let at_ms = now_ms;
        self.started.push_back(Started { at_ms, by, kept });
        self.led = Some(Led {
            started: true,
            hops: 0,
            at_ms: now_ms,
            unanswered: true,
        });
    }

    /// So many replies can have led to a message that is none to this session's own: they went
    /// through it, or began a way round with it.
    pub(super) fn possible(&self, now_ms: u64, hops: u32) -> u32 {
        let sent = [self.chained, self.replied].into_iter().flatten();
        let recent = sent.filter(|(at, _)| is_recent(now_ms, *at));
        let most = recent.map(|(_, hops)| hops).max();
        hops.min(most.unwrap_or(0).saturating_add(WAY_ROUND))
    }

    /// The agent was shown a message to which so many replies led. `unknown`: nobody tells what
    /// started the turn.
    pub(super) fn shown(&mut self, now_ms: u64, hops: u32, unknown: bool) {
        self.lapse(now_ms);
        let before = self.led;
        if before.is_none() && !unknown {
            return;
        }
        self.led = Some(Led {
            started: before.is_some_and(|led| led.started),
            hops: before.map_or(hops, |led| led.hops.max(hops)),
            at_ms: now_ms,
            unanswered: true,
        });
    }

    /// The turn ended, or the user has the word.
    pub(super) fn end(&mut self) {
        self.led = None;
    }

    /// The agent sends something: so many replies lead to it, by what it was shown in this turn, or
    /// `reply` where it answers a message to which so many led but one.
    pub(super) fn send(&mut self, now_ms: u64, reply: Option<u32>) -> u32 {
        let reply = reply.map(|hops| self.possible(now_ms, hops.saturating_sub(1)) + 1);
        if let Some(hops) = reply {
            self.replied = Some(most(now_ms, self.replied, hops));
        }
        self.lapse(now_ms);
        let Some(led) = &mut self.led else {
            return reply.unwrap_or(0);
        };
        if !led.started {
            if std::mem::take(&mut led.unanswered) {
                self.read_and_sent.add(now_ms, READS);
            }
            if !self.read_and_sent.over(now_ms, TURNS_MS, READS) {
                return reply.unwrap_or(0);
            }
        }
        let hops = reply.unwrap_or(led.hops.saturating_add(1));
        self.chained = Some(most(now_ms, self.chained, hops));
        hops
    }

    /// The session sent something of late because of what peers sent it.
    pub(super) fn chained(&self, now_ms: u64) -> bool {
        self.chained.is_some_and(|(at, _)| is_recent(now_ms, at))
    }

    fn lapse(&mut self, now_ms: u64) {
        self.led
            .take_if(|led| now_ms.saturating_sub(led.at_ms) >= TURN_MS);
    }
}

fn is_recent(now_ms: u64, at_ms: u64) -> bool {
    now_ms.saturating_sub(at_ms) < TURNS_MS
}

/// The greater count, of which the earlier one has to be recent.
fn most(now_ms: u64, before: Option<(u64, u32)>, hops: u32) -> (u64, u32) {
    let before = before.filter(|(at, _)| is_recent(now_ms, *at));
    (now_ms, before.map_or(hops, |(_, most)| most.max(hops)))
}
