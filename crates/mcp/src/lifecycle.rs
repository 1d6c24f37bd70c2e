//! When an adapter ends: it lives and dies with its session.

use std::os::fd::OwnedFd;
use std::os::unix::process::parent_id;
use std::time::Duration;

use futures_util::future::OptionFuture;
use peerbus_adapter::signals::Stop;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

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

/// Watches for the end of the session from outside: signals, and the parent's end. What cannot be watched is
/// logged and left out: a closed standard input ends the adapter in any case.
pub(crate) fn watch() -> impl Future<Output = Exit> {
    let mut signals = Stop::catch()
        .inspect_err(|error| tracing::warn!(%error, "signals are not handled"))
        .ok();
    let parent = parent();
    async move {
        let asked = OptionFuture::from(signals.as_mut().map(Stop::asked));
        let gone = OptionFuture::from(parent.as_ref().map(AsyncFd::readable));
        tokio::select! {
            Some(signal) = asked => Exit::Signal(signal),
            Some(Ok(_)) = gone => Exit::ParentGone,
            else => std::future::pending().await,
        }
    }
}

fn parent() -> Option<AsyncFd<OwnedFd>> {
    let parent = parent_id();
    let handle = peerbus_os::process::handle(parent, || parent_id() == parent)?;
    #[expect(
        deprecated,
        reason = "its successor is unsafe; an owned descriptor keeps its contract"
    )]
    AsyncFd::with_interest(handle, Interest::READABLE).ok()
}
