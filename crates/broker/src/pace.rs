//! How fast the peers of a token may send.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use peerbus_core::pace::Pace;
use tokio::sync::Mutex;

use crate::clock::Clock;

#[derive(Debug, Default)]
pub(crate) struct TokenPace {
    /// Messages a second; 0: as many as come.
    rate: AtomicU32,
    /// Connections that wait for their turn stand in line for it, so that none of them takes all.
    pace: Mutex<Pace>,
}

impl TokenPace {
    pub(crate) fn set(&self, per_second: Option<NonZeroU32>) {
        let rate = per_second.map_or(0, NonZeroU32::get);
        self.rate.store(rate, Ordering::Relaxed);
    }

    /// Waits until one more message may be handed in.
    pub(crate) async fn turn(&self, clock: Clock) {
        if self.rate.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut pace = self.pace.lock().await;
        loop {
            // It may have been changed meanwhile.
            let rate = self.rate.load(Ordering::Relaxed);
            let now_ms = clock.mono_ms();
            match pace.take(rate, now_ms) {
                Err(later_ms) if rate > 0 => {
                    tokio::time::sleep(Duration::from_millis(later_ms - now_ms)).await;
                }
                _ => return,
            }
        }
    }
}
