//! Being told to stop.

use futures_util::future::OptionFuture;
use peerbus_os::process::ignores;
pub use peerbus_os::process::unblock_signals;
use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask a process to stop, caught from the moment this is made.
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
    hangup: Option<Signal>,
}

impl Stop {
    /// Catches `SIGINT`, `SIGTERM` and `SIGHUP` from now on; `SIGHUP` not where it is ignored,
    /// which is what `nohup` does. From now on, too, a file that may not grow any further (`ulimit
    /// -f`) fails to be written, as on a full disk, and `SIGXFSZ` does not end the process. Needs a
    /// runtime.
    ///
    /// # Errors
    ///
    /// When the system refuses a handler.
    pub fn catch() -> std::io::Result<Self> {
        // The handler stays when this is dropped.
        let _handled = signal(SignalKind::from_raw(Number::XFSZ.as_raw()))?;
        let hangup = match ignores(Number::HUP) {
            true => None,
            false => Some(signal(SignalKind::hangup())?),
        };
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup,
        })
    }

    /// Waits for a signal and gives its name.
    pub async fn asked(&mut self) -> &'static str {
        let hangup = OptionFuture::from(self.hangup.as_mut().map(Signal::recv));
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            Some(_) = hangup => "SIGHUP",
        }
    }
}
