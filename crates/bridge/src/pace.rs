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

const SAID_MAX: u64 = 60;
const MINUTE: Duration = Duration::from_secs(60);

/// What is said at most so often. The rest is counted.
#[derive(Debug, Default)]
pub(crate) struct Said {
    since: Option<Instant>,
    count: u64,
}

impl Said {
    /// Whether one more is to be said.
    pub(crate) fn one_more(&mut self, now: Instant) -> bool {
        self.since.get_or_insert(now);
        self.count += 1;
        self.count <= SAID_MAX
    }

    /// Begins anew once a minute is over, and tells how many were not said in it. To be asked now and then.
    pub(crate) fn not_said(&mut self, now: Instant) -> u64 {
        if self.since.is_none_or(|since| now < since + MINUTE) {
            return 0;
        }
        std::mem::take(self).count.saturating_sub(SAID_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_often_said_is_counted_and_told_once() {
        let begun = Instant::now();
        let mut said = Said::default();
        assert_eq!(said.not_said(begun), 0);
        let lets = |said: &mut Said, now| (0..100).filter(|_| said.one_more(now)).count();
        assert_eq!(lets(&mut said, begun), 60);
        assert_eq!(said.not_said(begun + MINUTE / 2), 0);
        let over = begun + MINUTE;
        assert_eq!(said.not_said(over), 40);
        assert_eq!(said.not_said(over + MINUTE), 0, "that was told");
        assert_eq!(lets(&mut said, over), 60);
    }

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
