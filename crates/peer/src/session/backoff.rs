//! How long to wait before the next attempt.

/// First delay, in milliseconds; each failure doubles it.
const FIRST_MS: u64 = 50;
/// Longest delay towards a broker on this machine.
const CAP_LOCAL_MS: u64 = 1_000;
/// Longest delay towards any other broker.
const CAP_MS: u64 = 10_000;
/// A connection that lasted this long counts as a success; one that is cut sooner does not start
/// the doubling again, so that two processes cannot take a name from each other in a tight loop.
const LASTED_MS: u64 = 10_000;

/// Exponential backoff with full jitter: each delay is uniform between nothing and the bound.
#[derive(Debug)]
pub(super) struct Backoff {
    failures: u32,
    jitter: u64,
}

impl Backoff {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            failures: 0,
            jitter: seed,
        }
    }

    /// A connection was online for `lasted_ms`.
    pub(super) fn was_online(&mut self, lasted_ms: u64) {
        if lasted_ms >= LASTED_MS {
            self.failures = 0;
        }
    }

    pub(super) fn next(&mut self, local: bool) -> u64 {
        let cap = if local { CAP_LOCAL_MS } else { CAP_MS };
        let bound = FIRST_MS
            .checked_shl(self.failures.min(16))
            .map_or(cap, |ms| ms.min(cap));
        self.failures = self.failures.saturating_add(1);
        self.draw(bound)
    }

    /// A number from 0 to `bound`, from a splitmix64 sequence.
    pub(super) fn draw(&mut self, bound: u64) -> u64 {
        self.jitter = self.jitter.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.jitter;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % (bound + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn largest(local: bool, failures: u32) -> u64 {
        (0..2_000)
            .map(|seed| {
                let mut backoff = Backoff {
                    failures,
                    jitter: seed,
                };
                backoff.next(local)
            })
            .max()
            .unwrap()
    }

    #[test]
    fn the_bound_doubles_up_to_its_cap() {
        for (failures, bound) in [
            (0, 50),
            (1, 100),
            (3, 400),
            (4, 800),
            (5, 1_000),
            (99, 1_000),
        ] {
            let largest = largest(true, failures);
            assert!(
                largest <= bound && largest > bound * 9 / 10,
                "{failures}: {largest}"
            );
        }
        let far = largest(false, 40);
        assert!(far <= 10_000 && far > 9_000, "{far}");
    }

    #[test]
    fn only_a_connection_that_lasted_starts_the_doubling_again() {
        let mut backoff = Backoff::new(1);
        for _ in 0..5 {
            backoff.next(true);
        }
        backoff.was_online(LASTED_MS - 1);
        assert_eq!(backoff.failures, 5);
        backoff.was_online(LASTED_MS);
        assert_eq!(backoff.failures, 0);
    }
}
