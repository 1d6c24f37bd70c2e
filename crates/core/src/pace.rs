//! How many messages may go in a second.

/// The rate is dealt out in ticks, so that what waits goes together and shares a commit.
const TICK_MS: u64 = 100;
const TICKS: u64 = 1_000 / TICK_MS;

/// Deals out turns at a rate. Those of a tenth of a second, and one at least, are kept for later.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    /// Turns that are left, in parts of [`TICKS`].
    left: u64,
    /// The tick up to which they were dealt out.
    tick: u64,
}

impl Pace {
    /// Takes a turn, at so many a second. Else gives the time at which to try again; both times
    /// are monotonic, in milliseconds.
    pub fn take(&mut self, rate: u32, now_ms: u64) -> Result<(), u64> {
        let rate = u64::from(rate);
        let tick = now_ms / TICK_MS;
        let ticks = tick.saturating_sub(self.tick).min(TICKS);
        // Beside a tick's worth, what is left of a turn.
        self.left = (self.left + rate * ticks).min(rate + TICKS - 1);
        self.tick = tick;
        match self.left.checked_sub(TICKS) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err((tick + (TICKS - self.left).div_ceil(rate.max(1))) * TICK_MS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_every_turn_gets_the_rate_and_no_burst_above_a_tick() {
        for rate in [1, 7, 15, 100, 999, 20_000] {
            let (mut pace, mut now_ms) = (Pace::default(), 5_000);
            let (mut taken, mut together) = (0_u64, 0_u64);
            while now_ms < 65_000 {
                match pace.take(rate, now_ms) {
                    Ok(()) => (taken, together) = (taken + 1, together + 1),
                    Err(later_ms) => {
                        assert!(later_ms > now_ms && later_ms <= now_ms + 1_000, "{rate}");
                        (now_ms, together) = (later_ms, 0);
                    }
                }
                assert!(
                    together <= u64::from(rate) / TICKS + 1,
                    "{rate}: {together}"
                );
            }
            let minute = 60 * u64::from(rate);
            let tick = u64::from(rate) / TICKS + 1;
            assert!(taken.abs_diff(minute) <= tick, "{rate}: {taken}");
        }
    }

    #[test]
    fn a_long_silence_saves_up_no_more_than_a_tick() {
        let mut pace = Pace::default();
        assert_eq!(pace.take(1, 10_000), Ok(()));
        assert_eq!(pace.take(1, 10_050), Err(11_000));
        assert_eq!(pace.take(1, 3_600_000), Ok(()));
        assert_eq!(pace.take(1, 3_600_000), Err(3_601_000));
    }
}
