//! When an adapter ends: it lives and dies with its session.

use std::time::Duration;

use peerbus_adapter::signals::Stop;

/// Why an adapter ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// The client closed our standard input.
    InputClosed,
    /// The client does not read our standard output any more.
    OutputClosed,
    /// A signal asked for it: `SIGINT`, `SIGTERM` or `SIGHUP`.
    Signal(&'static str),
    /// The process that started us is gone.
    ParentGone,
    /// The client broke the protocol or our side failed: a sentence.
    Failed(String),
}

/// What an ending adapter may still take: answers under way first, then the goodbye to the
/// broker. Clients kill 100 ms after their first signal.
pub(crate) const LAST_ANSWERS: Duration = Duration::from_millis(40);

/// Watches for the end of the session from outside: signals, and the parent's end.
pub(crate) struct Watch {
    signals: Option<Stop>,
    #[cfg(target_os = "linux")]
    parent: Option<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>>,
}

impl Watch {
    /// Starts watching. What cannot be watched is logged and left out: a closed standard input
    /// ends the adapter in any case.
    pub(crate) fn start() -> Self {
        let signals = Stop::catch()
            .inspect_err(|error| tracing::warn!(%error, "signals are not handled"))
            .ok();
        Self {
            signals,
            #[cfg(target_os = "linux")]
            parent: parent(),
        }
    }

    pub(crate) async fn ended(&mut self) -> Exit {
        #[cfg(target_os = "linux")]
        let parent = gone(self.parent.as_ref());
        #[cfg(not(target_os = "linux"))]
        let parent = std::future::pending();
        let signal = signalled(self.signals.as_mut());
        tokio::select! {
            exit = signal => exit,
            exit = parent => exit,
        }
    }
}

async fn signalled(signals: Option<&mut Stop>) -> Exit {
    match signals {
        Some(signals) => Exit::Signal(signals.asked().await),
        None => std::future::pending().await,
    }
}

#[cfg(target_os = "linux")]
fn parent() -> Option<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>> {
    use std::os::unix::process::parent_id;
    let parent = parent_id();
    let handle = peerbus_os::process::handle(parent, || parent_id() == parent)?;
    #[expect(
        deprecated,
        reason = "its successor is unsafe; an owned descriptor keeps its contract"
    )]
    tokio::io::unix::AsyncFd::with_interest(handle, tokio::io::Interest::READABLE).ok()
}

#[cfg(target_os = "linux")]
async fn gone(parent: Option<&tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>>) -> Exit {
    if let Some(parent) = parent
        && parent.readable().await.is_ok()
    {
        return Exit::ParentGone;
    }
    std::future::pending().await
}
