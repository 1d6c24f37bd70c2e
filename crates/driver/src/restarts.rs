//! When a client that died is started again. Pure.

use std::time::Duration;

/// The first pause; it doubles.
const PAUSE: Duration = Duration::from_millis(500);
/// So many ends in a row, without a turn that went well between them, are no accident.
const ENDS_MAX: u32 = 6;

#[derive(Debug, Default)]
pub(crate) struct Restarts {
    ends: u32,
}

impl Restarts {
    pub(crate) fn works(&mut self) {
        self.ends = 0;
    }

    /// The client ended. How long to wait before the next; `None`: give up.
    pub(crate) fn ended(&mut self) -> Option<Duration> {
        self.ends += 1;
        (self.ends < ENDS_MAX).then(|| PAUSE * (1 << (self.ends - 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_have_an_end_and_a_turn_that_works_begins_anew() {
        let mut restarts = Restarts::default();
        let pauses: Vec<_> = std::iter::from_fn(|| restarts.ended()).collect();
        let ms: Vec<_> = pauses.iter().map(Duration::as_millis).collect();
        assert_eq!(ms, [500, 1_000, 2_000, 4_000, 8_000]);
        restarts.works();
        assert_eq!(restarts.ended(), Some(PAUSE));
    }
}
