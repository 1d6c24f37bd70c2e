//! Whether the broker still holds this connection for ours.
//!
//! A process that was suspended does not know that another one has taken its name over meanwhile.

use std::time::Duration;

use peerbus_peer::session::Status;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::bus::Bus;

const ANSWER: Duration = Duration::from_secs(2);
/// Turns of the runtime in which the driver reads what came: one for the runtime to see it, one for the
/// driver, one to spare.
const TURNS: usize = 3;

/// The state of the connection when the broker was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// The broker was heard on it now, or shortly before.
    Alive,
    /// There is none, or it ended: others may have what was delivered on it.
    Lost,
    /// Nothing came in time.
    NoAnswer,
}

impl Bus {
    /// Forgets when the broker was last heard: the next [`Bus::confirm_alive`] asks it.
    pub fn doubt(&self) {
        self.shared().pulse.doubt();
    }

    /// Lets the driver read what the broker has written already. A sender may know of a delivery, and ask
    /// something of this process, before the driver had its turn.
    pub(crate) async fn catch_up(&self) {
        for _ in 0..TURNS {
            yield_now().await;
        }
    }

    /// Says whether this peer's connection still stands, so that what was delivered on it is not
    /// with another process by now. At once when the broker was heard within the last two seconds,
    /// the time that the machine slept included; otherwise the broker is asked, and has `max` to
    /// answer, two seconds at most.
    pub async fn confirm_alive(&self, max: Duration) -> Liveness {
        self.catch_up().await;
        let pulse = &self.shared().pulse;
        if !matches!(*self.link().borrow(), Status::Online { .. }) {
            return Liveness::Lost;
        }
        if pulse.is_fresh() {
            return Liveness::Alive;
        }
        let mut told = pulse.told.subscribe();
        let ended = told.borrow().ended;
        let number = pulse.ask();
        self.shared().wake.notify_one();
        let answer = told.wait_for(|told| told.answered >= number || told.ended != ended);
        match timeout(max.min(ANSWER), answer).await {
            Ok(Ok(told)) if told.ended == ended => Liveness::Alive,
            Ok(_) => Liveness::Lost,
            Err(_) => Liveness::NoAnswer,
        }
    }
}
