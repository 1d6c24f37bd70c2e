//! A clock that stands still while the session works or asks its user.

/// Counts the time in which a push would have been presented.
#[derive(Debug)]
pub(super) struct IdleClock {
    passed_ms: u64,
    since_ms: Option<u64>,
}

impl IdleClock {
    /// A clock that runs.
    pub(super) fn new() -> Self {
        Self {
            passed_ms: 0,
            since_ms: Some(0),
        }
    }

    /// What it shows.
    pub(super) fn at(&self, now_ms: u64) -> u64 {
        let running = self
            .since_ms
            .map_or(0, |since| now_ms.saturating_sub(since));
        self.passed_ms + running
    }

    /// Stops it or lets it run.
    pub(super) fn run(&mut self, now_ms: u64, running: bool) {
        self.passed_ms = self.at(now_ms);
        self.since_ms = running.then_some(now_ms);
    }

    /// When it will show `idle_ms`; `None` while it stands still.
    pub(super) fn when(&self, idle_ms: u64) -> Option<u64> {
        let left = idle_ms.saturating_sub(self.passed_ms);
        self.since_ms.map(|since| since + left)
    }
}
