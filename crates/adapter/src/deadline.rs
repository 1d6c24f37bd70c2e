//! Waiting without a runtime.

use std::io::Read;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A point in time, or never.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    pub(crate) const NEVER: Self = Self(None);

    /// So long from now.
    #[must_use]
    pub fn after(time: Duration) -> Self {
        Self(Instant::now().checked_add(time))
    }

    /// What is left; `None`: there is no end.
    pub(crate) fn left(self) -> Option<Duration> {
        self.0
            .map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Waits until the first of these has something to read or has ended. False when one of the
    /// others does first, and at the deadline.
    pub(crate) fn readable(self, handles: &[BorrowedFd<'_>]) -> bool {
        loop {
            let polled = handles.iter().map(|it| PollFd::new(it, PollFlags::IN));
            let mut polled: Vec<_> = polled.collect();
            let left = self.left().map(|left| Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            });
            match poll(&mut polled, left.as_ref()) {
                Err(rustix::io::Errno::INTR) => {}
                Err(_) | Ok(0) => return false,
                Ok(_) => {
                    let ready = |one: &PollFd<'_>| !one.revents().is_empty();
                    return !polled.iter().skip(1).any(ready) && polled.first().is_some_and(ready);
                }
            }
        }
    }
}

/// Standard input, until a deadline.
#[derive(Debug, Clone, Copy)]
pub struct TimedInput(pub Deadline);

impl Read for TimedInput {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let stdin = std::io::stdin();
        if !self.0.readable(&[stdin.as_fd()]) {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        Ok(rustix::io::read(stdin.as_fd(), buffer)?)
    }
}
