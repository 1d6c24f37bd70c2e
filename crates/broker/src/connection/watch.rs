//! Liveness: pings a silent client, gives up one that stays silent or does not read, and bounds
//! the time for which a connection that is being closed may drain.

use std::time::Duration;

use peerbus_os::clock::millis;
use peerbus_wire::CloseReason;
use tokio::time::sleep;

use super::End;
use crate::link::{Link, Ping};
use crate::shared::Shared;

pub(super) async fn watch(link: &Link, shared: &Shared) -> End {
    let ping_ms = millis(shared.times.ping_every);
    let silence_ms = millis(shared.times.silence_max);
    loop {
        let now_ms = shared.clock.mono_ms();
        let silent_ms = link.silent_ms(now_ms);
        let stuck_ms = link.stuck_ms(now_ms);
        if stuck_ms >= silence_ms {
            return End::Closed(CloseReason::TooSlow);
        }
        if silent_ms >= silence_ms {
            return End::Closed(CloseReason::Unresponsive);
        }
        // Of a client that was heard meanwhile, the next silence begins with another ping.
        let next_ms = if silent_ms < ping_ms {
            ping_ms - silent_ms
        } else {
            link.want_ping(Ping::Idle);
            ping_ms
        };
        let left_ms = silence_ms - silent_ms.max(stuck_ms);
        let next_ms = next_ms.min(left_ms).max(1);
        tokio::select! {
            () = sleep(Duration::from_millis(next_ms)) => {}
            closing = link.close_wanted() => {
                sleep(closing.drain).await;
                return End::Cut;
            }
        }
    }
}
