//! What peers' mail makes a session do: the turns that it starts, and the replies that led there.

use std::collections::VecDeque;

use peerbus_wire::NameKey;

use super::governor::Hops;

/// Turns that peers' mail may start in [`TURNS_MS`].
const TURNS: usize = 60;

/// So many of them are kept for mail that is urgent: one for each sender.
const URGENT_TURNS: usize = 10;

/// So many of them mail of one sender may start, or of all senders with one token.
const TURNS_OF_ONE: usize = TURNS / 2;

/// The sliding time of that budget.
const TURNS_MS: u64 = 600_000;

/// Where nobody tells what the session does, a turn that peers' mail started is over after so long.
const TURN_MS: u64 = 600_000;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Free {
    pub(super) at_ms: u64,
    pub(super) of_one: bool,
}

#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The last ones that peers' mail started.
    started: VecDeque<Started>,
    /// Peers' mail led to what the agent does now: when it was shown that, and the most replies that
    /// led to it.
    led: Option<(u64, Hops)>,
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
        self.led = Some((at_ms, Hops::default()));
    }

    /// The agent was shown a message to which so many replies led. `unknown`: nobody tells what
    /// started the turn. Then its mail counts as what did.
    pub(super) fn shown(&mut self, now_ms: u64, hops: Hops, unknown: bool) {
        let before = self.led(now_ms);
        if before.is_some() || unknown {
            let hops = before.map_or(hops, |before| before.max(hops));
            self.led = Some((now_ms, hops));
        }
    }

    /// The replies that led to what the agent does now; `None`: nothing of peers did.
    pub(super) fn led(&self, now_ms: u64) -> Option<Hops> {
        let (at_ms, hops) = self.led?;
        (now_ms.saturating_sub(at_ms) < TURN_MS).then_some(hops)
    }

    /// The turn ended, or the user has the word.
    pub(super) fn end(&mut self) {
        self.led = None;
    }
}
