//! Streams of server-sent events: their headers, and how many there may be.

use std::sync::Arc;

use axum::http::{HeaderName, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Streams of one token at once.
pub(crate) const STREAMS_OF_TOKEN: usize = 4;
/// Streams of all tokens at once,
const READERS_MAX: usize = 48;
/// and those of the dashboard, which nobody else takes.
const PAGES_MAX: usize = 16;

/// What every stream says of itself. The last one is for a proxy that would gather events first.
pub(crate) const STREAM: [(HeaderName, &str); 3] = [
    (header::CONTENT_TYPE, "text/event-stream"),
    (header::CACHE_CONTROL, "no-cache"),
    (HeaderName::from_static("x-accel-buffering"), "no"),
];

pub(crate) struct Streams {
    readers: Arc<Semaphore>,
    pages: Arc<Semaphore>,
}

impl Streams {
    pub(crate) fn new() -> Self {
        Self {
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            pages: Arc::new(Semaphore::new(PAGES_MAX)),
        }
    }

    pub(crate) fn reader(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.readers).try_acquire_owned().ok()
    }

    /// A place for a stream of the dashboard: one of its own, or one that no token has.
    pub(crate) fn page(&self) -> Option<OwnedSemaphorePermit> {
        let own = Arc::clone(&self.pages).try_acquire_owned().ok();
        own.or_else(|| self.reader())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_leave_places_to_the_dashboard() {
        let streams = Streams::new();
        let mut readers: Vec<_> = (0..READERS_MAX).map(|_| streams.reader()).collect();
        assert!(readers.iter().all(Option::is_some) && streams.reader().is_none());
        let pages: Vec<_> = (0..PAGES_MAX).map(|_| streams.page()).collect();
        assert!(pages.iter().all(Option::is_some) && streams.page().is_none());
        readers.clear();
        assert!(streams.page().is_some());
    }
}
