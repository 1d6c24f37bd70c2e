//! Being told to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT and SIGTERM, caught from the moment this is made.
pub(crate) struct Stop {
    caught: [Signal; 2],
}

impl Stop {
    /// Catches the signals from now on. Needs a runtime.
    pub(crate) fn catch() -> std::io::Result<Self> {
        let caught = [
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        ];
        Ok(Self { caught })
    }

    /// Waits for a signal.
    pub(crate) async fn asked(&mut self) {
        let [interrupt, terminate] = &mut self.caught;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}
