//! A clock that stands still while the session works or asks its user.

/// Counts the time in which a push would have been presented. It runs at first.
#[derive(Debug, Default)]
pub(super) struct IdleClock {
    passed_ms: u64,
    /// When it showed that.
    since_ms: u64,
    stands: bool,
}

impl IdleClock {
    /// What it shows.
    pub(super) fn at(&self, now_ms: u64) -> u64 {
        match self.stands {
            true => self.passed_ms,
            false => self.passed_ms + now_ms.saturating_sub(self.since_ms),
        }
    }

    pub(super) fn run(&mut self, now_ms: u64, running: bool) {
        self.passed_ms = self.at(now_ms);
        (self.since_ms, self.stands) = (now_ms, !running);
    }

    /// When it will show `idle_ms`; `None` while it stands still.
    pub(super) fn when(&self, idle_ms: u64) -> Option<u64> {
        let left = idle_ms.saturating_sub(self.passed_ms);
        (!self.stands).then_some(self.since_ms + left)
    }
}
