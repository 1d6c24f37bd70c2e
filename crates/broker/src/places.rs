//! Who may have how many of the connections.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Context;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use peerbus_os::sync::lock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Most connections over TCP that have not registered, and most that are kept for the Unix socket.
const STRANGERS_MAX: usize = 4_096;
const UNIX_PLACES_MAX: usize = 64;
/// How long a newcomer waits for the place of one that was closed for it.
const CLOSED_MAX: Duration = Duration::from_secs(1);

/// Places for connections. Those over TCP leave some to the Unix socket, which only the broker's own
/// user can reach; and those of them that have not registered leave half to those that have.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) max: usize,
    pub(crate) all: Arc<Semaphore>,
    tcp: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    waiting: Arc<Mutex<Waiting>>,
}

/// Clients over TCP that have not sent a whole first frame, by arrival.
#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    /// Those without a WebSocket.
    dialled: BTreeMap<u64, Weak<Silent>>,
    upgraded: BTreeMap<u64, Weak<Silent>>,
}

/// A client over TCP that may be closed to make room for a newcomer, as long as it has not sent a
/// whole first frame.
#[derive(Debug)]
pub(crate) struct Silent {
    number: u64,
    waiting: Arc<Mutex<Waiting>>,
    closed: AtomicBool,
    reader: AtomicWaker,
}

impl Silent {
    pub(crate) fn upgraded(&self) {
        let mut waiting = lock(&self.waiting);
        if let Some(this) = waiting.dialled.remove(&self.number) {
            waiting.upgraded.insert(self.number, this);
        }
    }

    /// It has spoken, or is gone.
    pub(crate) fn over(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.dialled.remove(&self.number);
        waiting.upgraded.remove(&self.number);
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.reader.wake();
    }

    /// Fails once it was closed; to be asked by whoever reads.
    pub(crate) fn poll_closed(&self, cx: &Context<'_>) -> io::Result<()> {
        self.reader.register(cx.waker());
        match self.closed.load(Ordering::Acquire) {
            true => Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "it said nothing, and a newcomer got its place",
            )),
            false => Ok(()),
        }
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.over();
    }
}

/// A connection's place, until its socket is closed.
pub(crate) type Place = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

/// A connection's place among those that have not registered.
pub(crate) type StrangersPlace = Option<OwnedSemaphorePermit>;

impl Places {
    pub(crate) fn new(max: usize) -> Self {
        let semaphore = |places| Arc::new(Semaphore::new(places));
        Self {
            max,
            all: semaphore(max),
            tcp: semaphore(max - Self::of_unix(max)),
            strangers: semaphore(STRANGERS_MAX.min(max.div_ceil(2))),
            waiting: Arc::default(),
        }
    }

    /// So many of this many places are not for TCP.
    pub(crate) fn of_unix(max: usize) -> usize {
        UNIX_PLACES_MAX.min(max / 8)
    }

    /// A client has dialled over TCP.
    pub(crate) fn arrive(&self) -> Arc<Silent> {
        let mut waiting = lock(&self.waiting);
        waiting.next += 1;
        let number = waiting.next;
        let silent = Arc::new(Silent {
            number,
            waiting: Arc::clone(&self.waiting),
            closed: AtomicBool::new(false),
            reader: AtomicWaker::new(),
        });
        waiting.dialled.insert(number, Arc::downgrade(&silent));
        silent
    }

    /// Closes the socket that has said nothing for longest, if there is one.
    pub(crate) fn close_silent(&self) {
        let first = lock(&self.waiting).dialled.pop_first();
        match first.and_then(|(_, silent)| silent.upgrade()) {
            Some(silent) => silent.close(),
            None => drop(self.close_stranger()),
        }
    }

    /// The same, of those that are WebSockets. Says whether there was one.
    fn close_stranger(&self) -> bool {
        let first = lock(&self.waiting).upgraded.pop_first();
        let silent = first.and_then(|(_, silent)| silent.upgrade());
        silent.inspect(|silent| silent.close()).is_some()
    }

    /// Takes a place for a connection; `None`: there is none for one of its kind. Over TCP it may be
    /// that of the one that has waited longest without a word.
    pub(crate) async fn take(&self, tcp: bool) -> Option<(Place, StrangersPlace)> {
        let mut closed = false;
        let (mut stranger, mut of_tcp) = (None, None);
        if tcp {
            stranger = Some(self.room(&self.strangers, &mut closed).await?);
            of_tcp = Some(self.room(&self.tcp, &mut closed).await?);
        }
        let place = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some(((place, of_tcp), stranger))
    }

    async fn room(
        &self,
        places: &Arc<Semaphore>,
        closed: &mut bool,
    ) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = Arc::clone(places).try_acquire_owned() {
            return Some(place);
        }
        *closed |= self.close_stranger();
        if !*closed {
            return None;
        }
        let freed = timeout(CLOSED_MAX, Arc::clone(places).acquire_owned());
        freed.await.ok()?.ok()
    }
}
