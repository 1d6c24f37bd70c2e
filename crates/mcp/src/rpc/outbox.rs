//! Lines to a client: written in the order in which they were queued, and it is known when each
//! has left.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, watch};

/// Bytes waiting to be written above which no further line is read from the client: one that
/// asks and does not read its answers waits, and memory stays bounded.
const BACKLOG_BYTES: usize = 1024 * 1024;

/// What to do once a line was flushed. Dropped unused when it cannot be.
pub(super) type Flushed = Box<dyn FnOnce() + Send>;

struct Line {
    bytes: Vec<u8>,
    flushed: Option<Flushed>,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<Line>,
    bytes: usize,
    closed: bool,
}

/// The queue of lines to a client. [`Outbox::write_to`] empties it.
#[derive(Clone)]
pub(super) struct Outbox {
    queue: Arc<Mutex<Queue>>,
    changed: Arc<Notify>,
    /// Bytes queued, for those who wait for room or for the end.
    level: Arc<watch::Sender<usize>>,
}

impl Outbox {
    pub(super) fn new() -> Self {
        let queue = Arc::new(Mutex::new(Queue::default()));
        Self {
            queue,
            changed: Arc::default(),
            level: Arc::new(watch::channel(0).0),
        }
    }

    /// Queues a line; `bytes` must hold no line break. `flushed` runs after it was flushed, and
    /// is dropped if that never happens.
    ///
    /// # Errors
    ///
    /// When the client does not read any more.
    pub(super) fn push(&self, mut bytes: Vec<u8>, flushed: Option<Flushed>) -> io::Result<()> {
        debug_assert!(!bytes.contains(&b'\n'), "one message, one line");
        bytes.push(b'\n');
        let mut queue = self.lock();
        if queue.closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        queue.bytes += bytes.len();
        queue.lines.push_back(Line { bytes, flushed });
        self.level.send_replace(queue.bytes);
        drop(queue);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits until the client has read enough for another question of its own.
    pub(super) async fn room(&self) {
        // The sender lives as long as self: waiting cannot fail.
        let _ = self
            .level
            .subscribe()
            .wait_for(|bytes| *bytes <= BACKLOG_BYTES)
            .await;
    }

    /// Waits until everything queued has left, or cannot leave any more.
    pub(super) async fn empty(&self) {
        let _ = self.level.subscribe().wait_for(|bytes| *bytes == 0).await;
    }

    /// Writes what is queued until writing fails.
    pub(super) async fn write_to(&self, mut out: impl AsyncWrite + Unpin) -> io::Error {
        loop {
            let (batch, bytes) = self.take().await;
            let result = match out.write_all(&bytes).await {
                Ok(()) => out.flush().await,
                Err(error) => Err(error),
            };
            if let Err(error) = result {
                self.close();
                return error;
            }
            for flushed in batch {
                flushed();
            }
            let mut queue = self.lock();
            queue.bytes -= bytes.len();
            self.level.send_replace(queue.bytes);
        }
    }

    async fn take(&self) -> (Vec<Flushed>, Vec<u8>) {
        loop {
            let lines = std::mem::take(&mut self.lock().lines);
            if !lines.is_empty() {
                let mut bytes = Vec::with_capacity(lines.iter().map(|l| l.bytes.len()).sum());
                let mut batch = Vec::new();
                for line in lines {
                    bytes.extend_from_slice(&line.bytes);
                    batch.extend(line.flushed);
                }
                return (batch, bytes);
            }
            self.changed.notified().await;
        }
    }

    /// Nothing can be written any more.
    fn close(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        queue.bytes = 0;
        let dropped = std::mem::take(&mut queue.lines);
        self.level.send_replace(0);
        drop(queue);
        drop(dropped);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
