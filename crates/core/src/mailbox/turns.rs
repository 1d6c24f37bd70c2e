//! What peers' mail makes a session do: the turns that it starts, and the replies that led there.

use std::collections::VecDeque;

use super::governor::Times;

/// Turns that peers' mail may start in [`TURNS_MS`].
const TURNS: usize = 60;

/// So many of them are kept for mail that is urgent.
const URGENT_TURNS: usize = 10;

/// The sliding time of that budget.
const TURNS_MS: u64 = 600_000;

/// Where nobody tells what the session does, a turn that peers' mail started is over after so long.
const TURN_MS: u64 = 600_000;

/// A session of which nobody tells what started its turns may so often in [`TURNS_MS`] read and
/// then send before that counts as being led by what it reads.
const READS: usize = 5;

/// The turns of a session.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// When peers' mail started the last ones.
    started_ms: VecDeque<u64>,
    /// Peers' mail led to what the agent does now.
    led: Option<Led>,
    /// When something was sent after something was read, in turns of which the start is not known.
    read_and_sent: Times,
    /// When something was sent last in a turn that peers' mail started.
    chained_ms: Option<u64>,
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
    /// When peers' mail may start the next turn.
    pub(super) fn free_at(&self, urgent: bool) -> u64 {
        let budget = if urgent { TURNS } else { TURNS - URGENT_TURNS };
        let at = self.started_ms.len().checked_sub(budget);
        let at = at.and_then(|at| self.started_ms.get(at));
        at.map_or(0, |at| at + TURNS_MS)
    }

    /// Peers' mail starts a turn.
    pub(super) fn start(&mut self, now_ms: u64) {
        if self.started_ms.len() >= TURNS {
            self.started_ms.pop_front();
        }
        self.started_ms.push_back(now_ms);
        self.led = Some(Led {
            started: true,
            hops: 0,
            at_ms: now_ms,
            unanswered: true,
        });
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

    /// The agent sends something: so many replies lead to it, by what it was shown in this turn.
    pub(super) fn send(&mut self, now_ms: u64) -> u32 {
        self.lapse(now_ms);
        let Some(led) = &mut self.led else { return 0 };
        if !led.started {
            if std::mem::take(&mut led.unanswered) {
                self.read_and_sent.add(now_ms, READS);
            }
            if !self.read_and_sent.over(now_ms, TURNS_MS, READS) {
                return 0;
            }
        }
        self.chained_ms = Some(now_ms);
        led.hops.saturating_add(1)
    }

    /// The session sent something of late because of what peers sent it.
    pub(super) fn chained(&self, now_ms: u64) -> bool {
        let recent = |at| now_ms.saturating_sub(at) < TURNS_MS;
        self.chained_ms.is_some_and(recent)
    }

    fn lapse(&mut self, now_ms: u64) {
        self.led
            .take_if(|led| now_ms.saturating_sub(led.at_ms) >= TURN_MS);
    }
}
