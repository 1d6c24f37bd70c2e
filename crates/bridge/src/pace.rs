//! How often something may be done.

use std::time::{Duration, Instant};

/// Turns: so many at once, then one in each `every`.
#[derive(Debug)]
pub(crate) struct Turns {
    every: Duration,
    /// How far ahead turns may be taken.
    ahead: Duration,
    /// When all that were taken are made up for.
    even: Instant,
}

impl Turns {
    pub(crate) fn new(at_once: u32, every: Duration, now: Instant) -> Self {
        Self {
            every,
            ahead: every * at_once.saturating_sub(1),
            even: now,
        }
    }

    /// When the next turn may be taken, at the soonest.
    pub(crate) fn next(&self, now: Instant) -> Instant {
        let next = self.even.checked_sub(self.ahead).unwrap_or(now);
        next.max(now)
    }

    pub(crate) fn take(&mut self, now: Instant) {
        self.even = self.even.max(now) + self.every;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_turns_are_free_and_then_it_is_one_at_a_time() {
        let begun = Instant::now();
        let second = Duration::from_secs(1);
        let mut turns = Turns::new(3, second, begun);
        for _ in 0..3 {
            assert_eq!(turns.next(begun), begun);
            turns.take(begun);
        }
        assert_eq!(turns.next(begun), begun + second);
        assert_eq!(turns.next(begun), begun + second, "to ask costs nothing");
        let later = begun + second;
        turns.take(later);
        assert_eq!(turns.next(later), later + second);
        // A long rest saves up no more than that.
        let rested = begun + 600 * second;
        for _ in 0..3 {
            assert_eq!(turns.next(rested), rested);
            turns.take(rested);
        }
        assert_eq!(turns.next(rested), rested + second);
    }
}
