//! How old things are, whatever the wall clock says.

use peerbus_core::Stamp;
use peerbus_core::audit::Block;
use peerbus_wire::Seq;

use super::Oracle;
use crate::failure::{Verdict, ensure};
use crate::machine::Moment;

/// What a stop adds to an age at most.
const STOP_MAX_MS: u64 = 86_400_000;
/// How long mail may be owed when it should have expired, besides two pauses of the sweep.
const LATE_MS: u64 = 60_000;

/// The steady clock: the time that passes while the broker runs, and what a stop adds to it.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// When the broker started: virtual time, and this clock.
    started: (u64, u64),
    /// What is on disk of it.
    sealed: Option<Stamp>,
}

impl Clock {
    pub(crate) fn steady_ms(&self, now_ms: u64) -> u64 {
        let (started_ms, steady_ms) = self.started;
        steady_ms + (now_ms - started_ms)
    }

    pub(super) fn started(&mut self, at: Moment) {
        let steady_ms = match self.sealed {
            None => at.wall_ms,
            Some(sealed) => {
                let stopped_ms = at.wall_ms.saturating_sub(sealed.wall_ms);
                sealed.steady_ms + stopped_ms.min(STOP_MAX_MS)
            }
        };
        self.started = (at.now_ms, steady_ms);
    }

    pub(super) fn committed(&mut self, block: &Block) {
        self.sealed = Some(block.at);
    }
}

impl Oracle {
    /// When a message was accepted.
    pub(super) fn since(&self, seq: Seq) -> u64 {
        self.since.get(&seq).copied().unwrap_or_default()
    }

    /// A time on the steady clock is written down.
    pub(super) fn dated(&self, at_ms: u64, written_ms: u64) -> Verdict {
        ensure(written_ms == at_ms, "I19", || {
            format!("it is {at_ms} on the steady clock, written is {written_ms}")
        })
    }

    /// What should have expired has, if the broker had the time for it.
    pub(super) fn nothing_late(&self, now_ms: u64) -> Verdict {
        let late_ms = 2 * self.rules.sweep_ms + LATE_MS;
        if now_ms - self.clock.started.0 < late_ms {
            return Ok(());
        }
        let oldest = self
            .view
            .debts
            .iter()
            .map(|(_, seq)| self.since(*seq))
            .min();
        let steady_ms = self.clock.steady_ms(now_ms);
        let age_ms = oldest.map_or(0, |since_ms| steady_ms.saturating_sub(since_ms));
        ensure(age_ms <= self.rules.expiry_ms + late_ms, "I19", || {
            format!("a message is owed for {age_ms} ms")
        })
    }
}
