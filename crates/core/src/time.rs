//! Time as an argument.

/// The clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Now {
    /// Milliseconds on a clock that never goes back; its zero means nothing. For deadlines.
    pub mono_ms: u64,
    /// The same on a clock that goes on while the machine sleeps. For ages.
    pub boot_ms: u64,
    /// Milliseconds since the Unix epoch, as the machine has it. For what people are told.
    pub wall_ms: u64,
}

/// A moment as it is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Stamp {
    /// Milliseconds since the Unix epoch, as the machine had it. For what people are told.
    pub wall_ms: u64,
    /// Milliseconds on the steady clock. For ages.
    pub steady_ms: u64,
}

/// What a stop adds to an age at most, in milliseconds: one day.
const STOP_MAX_MS: u64 = 86_400_000;

/// The clock that ages go by. It starts near the wall clock and never jumps: while the broker runs
/// it goes on with the time that passes, and over a stop with the wall clock, forward only, at most
/// a day.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steady {
    start_ms: u64,
    boot_ms: u64,
}

impl Steady {
    /// Goes on at `now` from the last moment that was written down.
    pub(crate) fn resume(last: Option<Stamp>, now: Now) -> Self {
        let stopped_ms = |last: Stamp| now.wall_ms.saturating_sub(last.wall_ms).min(STOP_MAX_MS);
        Self {
            start_ms: last.map_or(now.wall_ms, |last| last.steady_ms + stopped_ms(last)),
            boot_ms: now.boot_ms,
        }
    }

    pub(crate) fn stamp(self, now: Now) -> Stamp {
        Stamp {
            wall_ms: now.wall_ms,
            steady_ms: self.start_ms + now.boot_ms.saturating_sub(self.boot_ms),
        }
    }
}
