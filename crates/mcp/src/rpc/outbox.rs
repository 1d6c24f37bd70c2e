//! Lines to a client: written in the order in which they were queued, and it is known when each
//! has left.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use rmcp::model::RequestId;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{oneshot, watch};

/// Bytes waiting to be written above which no further line is read from the client: one that
/// asks and does not read its answers waits, and memory stays bounded.
const BACKLOG_BYTES: usize = 1024 * 1024;

#[derive(Default)]
pub(super) struct Line {
    pub(super) bytes: Vec<u8>,
    /// The call that it answers.
    pub(super) call: Option<RequestId>,
    /// Told when it was flushed, and dropped if that never happens.
    pub(super) done: Option<oneshot::Sender<()>>,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<Line>,
    bytes: usize,
    closed: bool,
}

/// The queue of lines to a client. [`Outbox::write_to`] empties it.
#[derive(Clone, Default)]
pub(super) struct Outbox(Arc<watch::Sender<Queue>>);

impl Outbox {
    /// Queues a line; fails when the client does not read any more.
    pub(super) fn push(&self, mut line: Line) -> io::Result<()> {
        debug_assert!(!line.bytes.contains(&b'\n'), "one message, one line");
        line.bytes.push(b'\n');
        let queued = self.0.send_if_modified(|queue| {
            if !queue.closed {
                queue.bytes += line.bytes.len();
                queue.lines.push_back(std::mem::take(&mut line));
            }
            !queue.closed
        });
        queued.then_some(()).ok_or(io::ErrorKind::BrokenPipe.into())
    }

    /// Waits until the client has read enough for another question of its own.
    pub(super) async fn room(&self) {
        self.reaches(|queue| queue.bytes <= BACKLOG_BYTES).await;
    }

    /// Waits until everything queued has left, or cannot leave any more.
    pub(super) async fn empty(&self) {
        self.reaches(|queue| queue.bytes == 0).await;
    }

    async fn reaches(&self, state: impl FnMut(&Queue) -> bool) {
        // The sender lives as long as self: waiting cannot fail.
        let _ = self.0.subscribe().wait_for(state).await;
    }

    /// Writes what is queued until writing fails. `flushed` hears of each answer that has left.
    pub(super) async fn write_to(
        &self,
        mut out: impl AsyncWrite + Unpin,
        flushed: impl Fn(RequestId),
    ) -> io::Error {
        loop {
            self.reaches(|queue| !queue.lines.is_empty()).await;
            let mut lines = VecDeque::new();
            self.0
                .send_modify(|queue| lines = std::mem::take(&mut queue.lines));
            let bytes: Vec<u8> = lines.iter().flat_map(|line| &line.bytes).copied().collect();
            let result = match out.write_all(&bytes).await {
                Ok(()) => out.flush().await,
                Err(error) => Err(error),
            };
            if let Err(error) = result {
                self.0.send_replace(Queue {
                    closed: true,
                    ..Queue::default()
                });
                return error;
            }
            for line in lines {
                line.call.map(&flushed);
                // Nobody may be waiting.
                let _ = line.done.map(|done| done.send(()));
            }
            self.0.send_modify(|queue| queue.bytes -= bytes.len());
        }
    }
}
