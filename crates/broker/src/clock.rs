//! The clocks, read in one place.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use peerbus_core::Now;
use peerbus_os::clock::{millis, since_boot};

/// Reads the clocks; the monotonic one counts from the start of the broker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    pub(crate) fn now(self) -> Now {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        Now {
            mono_ms: self.mono_ms(),
            boot_ms: millis(since_boot()),
            wall_ms: millis(wall),
        }
    }

    pub(crate) fn mono_ms(self) -> u64 {
        millis(self.start.elapsed())
    }
}
