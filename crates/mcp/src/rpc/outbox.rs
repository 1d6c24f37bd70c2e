//! Answers to tool calls, and lines to a client: written in the order in which they were queued, and it is
//! known when each has left.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex};

use peerbus_adapter::mailbox::Checkout;
use peerbus_os::sync::lock;
use rmcp::model::RequestId;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, oneshot, watch};

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

#[derive(Default)]
pub(crate) struct Sending {
    /// JSON text of its structured content. rmcp's result holds decoded JSON, which would change
    /// the spelling of numbers in a body: the text travels beside it.
    pub(crate) structured: Option<String>,
    /// The mail in it, told what becomes of it. Dropped before it is taken, the client does not have it,
    /// or at least never showed that it has.
    pub(crate) mail: Vec<Checkout>,
}

#[derive(Clone, Default)]
pub(crate) struct Calls {
    open: Arc<Mutex<Open>>,
    /// An answer left whose mail waits.
    left: Arc<Notify>,
}

#[derive(Default)]
struct Open {
    answers: HashMap<RequestId, Sending>,
    /// These left, and the client has asked for nothing since.
    waiting: Vec<(RequestId, Checkout)>,
    /// These were taken last: a cancellation can cross an answer on the way.
    last: Vec<(RequestId, Checkout)>,
}

impl Calls {
    pub(crate) fn answer(&self, id: RequestId, answer: Sending) {
        let replaced = self.with(|open| open.answers.insert(id, answer));
        drop(replaced);
    }

    /// The structured content, when the answer is about to be written.
    pub(super) fn structured(&self, id: &RequestId) -> Option<String> {
        self.with(|open| open.answers.get_mut(id)?.structured.take())
    }

    pub(super) fn flushed(&self, id: RequestId) {
        let Some(answer) = self.with(|open| open.answers.remove(&id)) else {
            return;
        };
        for mut mail in answer.mail {
            mail.left();
            self.with(|open| open.waiting.push((id.clone(), mail)));
            self.left.notify_one();
        }
    }

    /// Waits until an answer has left whose mail waits.
    pub(super) async fn left(&self) {
        self.left.notified().await;
    }

    /// Mail waits for a sign of life.
    pub(super) fn wait(&self) -> bool {
        self.with(|open| !open.waiting.is_empty())
    }

    /// The client lives: what left before is with it. A library answers a ping, too, that refused
    /// the line before.
    pub(super) fn alive(&self) {
        let waiting = self.with(|open| std::mem::take(&mut open.waiting));
        for (_, mail) in &waiting {
            mail.reached();
        }
        self.with(|open| open.waiting.splice(..0, waiting).for_each(drop));
    }

    pub(super) fn goes_on(&self) {
        let mut taken = self.with(|open| std::mem::take(&mut open.waiting));
        if taken.is_empty() {
            return;
        }
        for (_, mail) in &mut taken {
            mail.taken();
        }
        let replaced = self.with(|open| std::mem::replace(&mut open.last, taken));
        drop(replaced);
    }

    /// The client cancelled the call, and ignores its answer whether it left or not.
    pub(super) fn cancel(&self, id: &RequestId) {
        let thrown = self.with(|open| {
            let answer = open.answers.remove(id);
            let mut found = answer.map_or_else(Vec::new, |answer| answer.mail);
            for list in [&mut open.waiting, &mut open.last] {
                let of_it = list.extract_if(.., |(of, _)| of == id);
                found.extend(of_it.map(|(_, mail)| mail));
            }
            found
        });
        thrown.into_iter().for_each(Checkout::cancelled);
    }

    /// Runs `f`; mail is told and dropped outside the lock, because it takes another one.
    fn with<T>(&self, f: impl FnOnce(&mut Open) -> T) -> T {
        f(&mut lock(&self.open))
    }
}
