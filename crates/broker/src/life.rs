//! How a broker came to be, who needs it, and whether somebody asked for its end.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::options::Origin;

/// The life of a broker.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) origin: Origin,
    /// Sockets that were opened since the start, and those that are open.
    uses: AtomicU64,
    open: AtomicUsize,
    asked: Notify,
}

impl Default for Life {
    fn default() -> Self {
        Self {
            origin: Origin::Hand,
            uses: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            asked: Notify::new(),
        }
    }
}

impl Life {
    /// Somebody has connected.
    pub(crate) fn came(&self) {
        self.uses.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Somebody has left.
    pub(crate) fn left(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many connected since the start; `None` while anybody is.
    pub(crate) fn unused(&self) -> Option<u64> {
        let nobody = self.open.load(Ordering::Relaxed) == 0;
        nobody.then(|| self.uses.load(Ordering::Relaxed))
    }

    /// Asks it to end.
    pub(crate) fn ask(&self) {
        self.asked.notify_one();
    }

    /// Waits until it is asked to end.
    pub(crate) async fn asked(&self) {
        self.asked.notified().await;
    }
}
