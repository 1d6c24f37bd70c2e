//! Who may have how many of the connections.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most connections over TCP that have not registered, and most that are kept for the Unix socket.
const STRANGERS_MAX: usize = 4_096;
const UNIX_PLACES_MAX: usize = 64;

/// Places for connections. Those over TCP leave some to the Unix socket, which only the broker's own
/// user can reach; and those of them that have not registered leave half to those that have.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) max: usize,
    pub(crate) all: Arc<Semaphore>,
    tcp: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
}

/// A connection's place, until its socket is closed.
#[derive(Debug)]
pub(crate) struct Place {
    _all: OwnedSemaphorePermit,
    _tcp: Option<OwnedSemaphorePermit>,
}

/// A connection's place among those that have not registered.
#[derive(Debug, Default)]
pub(crate) struct StrangersPlace {
    _strangers: Option<OwnedSemaphorePermit>,
}

impl Places {
    pub(crate) fn new(max: usize) -> Self {
        let semaphore = |places| Arc::new(Semaphore::new(places));
        Self {
            max,
            all: semaphore(max),
            tcp: semaphore(max - Self::of_unix(max)),
            strangers: semaphore(STRANGERS_MAX.min(max.div_ceil(2))),
        }
    }

    /// So many of this many places are not for TCP.
    pub(crate) fn of_unix(max: usize) -> usize {
        UNIX_PLACES_MAX.min(max / 8)
    }

    /// Takes a place for a connection; `None`: there is none for one of its kind.
    pub(crate) fn take(&self, tcp: bool) -> Option<(Place, StrangersPlace)> {
        let of_tcp = |places: &Arc<Semaphore>| match tcp {
            true => Arc::clone(places).try_acquire_owned().ok().map(Some),
            false => Some(None),
        };
        let stranger = StrangersPlace {
            _strangers: of_tcp(&self.strangers)?,
        };
        let place = Place {
            _tcp: of_tcp(&self.tcp)?,
            _all: Arc::clone(&self.all).try_acquire_owned().ok()?,
        };
        Some((place, stranger))
    }
}
