//! Connections without a token so far: when all places are taken, the oldest one is closed for a newcomer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use axum::http::Extensions;
use peerbus_os::sync::lock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

#[derive(Default)]
pub(crate) struct Strangers(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    next: u64,
    all: BTreeMap<u64, AbortHandle>,
}

/// A connection without a token so far.
#[derive(Clone)]
pub(crate) struct Stranger(Arc<Entry>);

struct Entry {
    number: u64,
    strangers: Arc<Strangers>,
    /// One of its token's places.
    place: OnceLock<OwnedSemaphorePermit>,
}

impl Strangers {
    pub(crate) fn spawn<F>(self: &Arc<Self>, serve: impl FnOnce(Stranger) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut waiting = lock(&self.0);
        let number = waiting.next;
        waiting.next += 1;
        let strangers = Arc::clone(self);
        let entry = Entry {
            number,
            strangers,
            place: OnceLock::new(),
        };
        let served = serve(Stranger(Arc::new(entry)));
        // It cannot leave before it is in.
        let task = tokio::spawn(served).abort_handle();
        waiting.all.insert(number, task);
    }

    pub(crate) fn close_oldest(&self) {
        let oldest = lock(&self.0).all.pop_first();
        if let Some((_, task)) = oldest {
            task.abort();
        }
    }
}

/// A request comes from a browser that may look: its connection stays.
pub(crate) fn known(extensions: &Extensions) {
    if let Some(Stranger(entry)) = extensions.get() {
        entry.leave();
    }
}

/// A request has shown a token: its connection stays, as far as the token has places for its own.
pub(crate) fn known_by(extensions: &Extensions, places: &Arc<Semaphore>) {
    if let Some(Stranger(entry)) = extensions.get()
        && entry.place.get().is_none()
        && let Ok(place) = Arc::clone(places).try_acquire_owned()
    {
        // Requests of one connection come one after another.
        let _ = entry.place.set(place);
        entry.leave();
    }
}

impl Entry {
    fn leave(&self) {
        lock(&self.strangers.0).all.remove(&self.number);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::sync::mpsc;

    use super::*;

    /// Says its number when it is closed.
    struct Said(usize, mpsc::Sender<usize>);

    impl Drop for Said {
        fn drop(&mut self) {
            self.1.try_send(self.0).unwrap();
        }
    }

    async fn serve(said: Said, stranger: Stranger, places: Arc<Semaphore>) {
        let mut extensions = Extensions::new();
        extensions.insert(stranger);
        match said.0 {
            0 => known(&extensions),
            1 | 2 => known_by(&extensions, &places),
            _ => {}
        }
        said.1.try_send(said.0).unwrap();
        pending::<()>().await;
    }

    #[tokio::test]
    async fn the_oldest_gives_way_unless_it_is_known() {
        let strangers = Arc::new(Strangers::default());
        let (sender, mut numbers) = mpsc::channel(16);
        // The token has one place for itself.
        let places = Arc::new(Semaphore::new(1));
        for number in 0..5 {
            let said = Said(number, sender.clone());
            strangers.spawn(|stranger| serve(said, stranger, Arc::clone(&places)));
            assert_eq!(numbers.recv().await, Some(number), "it is served");
        }
        for number in [2, 3, 4] {
            strangers.close_oldest();
            assert_eq!(numbers.recv().await, Some(number));
        }
        strangers.close_oldest();
        assert!(lock(&strangers.0).all.is_empty() && numbers.is_empty());
    }
}
