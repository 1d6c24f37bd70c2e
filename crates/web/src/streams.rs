//! Streams of server-sent events: their headers, how many there may be, and those of a page.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use peerbus_wire::escape_json;
use serde_json::Value;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::App;
use crate::answer::Failure;

/// Streams of one token at once.
pub(crate) const STREAMS_OF_TOKEN: usize = 4;
/// Streams of all tokens at once,
const READERS_MAX: usize = 48;
/// those of them that watch sessions, since a session serves so many programs,
const WATCHERS_MAX: usize = 8;
/// and those of the dashboard, which nobody else takes.
const PAGES_MAX: usize = 16;

/// Events that wait for a page that reads slowly.
pub(crate) const WAITING: usize = 256;
/// Time between two comments in a stream in which nothing happens.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What every stream says of itself. The last one is for a proxy that would gather events first.
pub(crate) const STREAM: [(HeaderName, &str); 3] = [
    (header::CONTENT_TYPE, "text/event-stream"),
    (header::CACHE_CONTROL, "no-cache"),
    (HeaderName::from_static("x-accel-buffering"), "no"),
];

pub(crate) struct Streams {
    readers: Arc<Semaphore>,
    watchers: Arc<Semaphore>,
    pages: Arc<Semaphore>,
}

impl Streams {
    pub(crate) fn new() -> Self {
        Self {
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            watchers: Arc::new(Semaphore::new(WATCHERS_MAX)),
            pages: Arc::new(Semaphore::new(PAGES_MAX)),
        }
    }

    pub(crate) fn reader(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.readers).try_acquire_owned().ok()
    }

    /// Places for a stream that watches sessions.
    pub(crate) fn watcher(&self) -> Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)> {
        let watcher = Arc::clone(&self.watchers).try_acquire_owned().ok()?;
        Some((watcher, self.reader()?))
    }

    /// A place for a stream of the dashboard: one of its own, or one that no token has.
    pub(crate) fn page(&self) -> Option<OwnedSemaphorePermit> {
        let own = Arc::clone(&self.pages).try_acquire_owned().ok();
        own.or_else(|| self.reader())
    }
}

/// A stream of what `begin` has threads say, until the page has gone.
pub(crate) fn streamed(app: &Arc<App>, begin: impl FnOnce(Sender<String>, &Arc<App>)) -> Response {
    let Some(place) = app.streams.page() else {
        let why = "there are as many streams as may be: close a page";
        let failure = Failure::new(StatusCode::TOO_MANY_REQUESTS, why);
        return failure.retry_after(5).into_response();
    };
    let (said, events) = channel(WAITING);
    begin(said, app);
    let chunks = stream::unfold(
        (events, place),
        |(mut events, place): (Receiver<_>, _)| async {
            let text = match timeout(KEEP_ALIVE, events.recv()).await {
                Ok(text) => text?,
                Err(_) => ": \n\n".into(),
            };
            Some((Ok::<_, Infallible>(text), (events, place)))
        },
    );
    (STREAM, Body::from_stream(chunks)).into_response()
}

/// Says something; whether the page is still there.
pub(crate) fn say(to: &Sender<String>, kind: &str, data: &Value) -> bool {
    to.blocking_send(said(kind, data)).is_ok()
}

/// An event as it is written.
pub(crate) fn said(kind: &str, data: &Value) -> String {
    let data = escape_json(&data.to_string());
    format!("event: {kind}\ndata: {data}\n\n")
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
        // Other streams find places beside those that watch sessions.
        let watchers: Vec<_> = (0..WATCHERS_MAX).map(|_| streams.watcher()).collect();
        assert!(watchers.iter().all(Option::is_some) && streams.watcher().is_none());
        assert!(streams.reader().is_some());
        assert!(streams.page().is_some());
    }
}
