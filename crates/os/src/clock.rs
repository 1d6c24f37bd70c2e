//! A clock that goes on while the machine sleeps, and durations as numbers.

use std::time::Duration;

use rustix::time::clock_gettime;

use crate::system::CLOCK;

/// Time since some moment of the past; the time that the machine slept is counted.
#[must_use]
pub fn since_boot() -> Duration {
    let now = clock_gettime(CLOCK);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// A duration in whole milliseconds.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on() {
        let before = since_boot();
        assert!(since_boot() >= before && before > Duration::ZERO);
    }
}
