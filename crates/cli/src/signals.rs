//! Being told to stop.

/// SIGINT and SIGTERM (Ctrl-C elsewhere), caught from the moment this is made.
pub(crate) struct Stop {
    #[cfg(unix)]
    caught: [tokio::signal::unix::Signal; 2],
}

impl Stop {
    /// Catches the signals from now on. Needs a runtime.
    pub(crate) fn catch() -> std::io::Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let caught = [
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
            ];
            Ok(Self { caught })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// Waits for a signal.
    pub(crate) async fn asked(&mut self) {
        #[cfg(unix)]
        {
            let [interrupt, terminate] = &mut self.caught;
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        }
        // Without a handler the default action of the signal ends the process.
        #[cfg(not(unix))]
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
