//! What is read, and what waits for an end that is slower than what is said to it: nobody waits for it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem::take;
use std::rc::Rc;

use peerbus_os::lines::{BoundedLines, NextLine};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Notify;
use tokio::sync::mpsc::Sender;
use tokio::task::{JoinHandle, spawn_local};

use crate::process::LINE_MAX;

/// With so much waiting for an end, nothing more is read for it.
const LINES_FULL: usize = 1_024;
const BYTES_FULL: usize = 8 << 20;
/// More than that can only be answers to an end that asks and takes none.
const LINES_MAX: usize = 65_536;
const BYTES_MAX: usize = 256 << 20;

/// What waits for an end.
struct Queue<T> {
    waiting: RefCell<VecDeque<T>>,
    /// With those of the line that is being taken.
    bytes: Cell<usize>,
    more: Notify,
    /// Nothing more is said.
    is_over: Cell<bool>,
    /// Nothing more is taken.
    is_closed: Cell<bool>,
    /// Told of room, and of an end that has closed.
    room: Rc<Notify>,
}

impl<T> Queue<T> {
    async fn next(&self) -> Option<T> {
        loop {
            let next = self.waiting.borrow_mut().pop_front();
            if next.is_some() || self.is_over.get() {
                return next;
            }
            self.more.notified().await;
        }
    }

    /// One is taken.
    fn taken(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() - bytes);
        self.room.notify_one();
    }

    fn close(&self) {
        self.is_closed.set(true);
        self.waiting.borrow_mut().clear();
        self.room.notify_one();
    }

    fn end(&self) {
        self.is_over.set(true);
        self.more.notify_one();
    }
}

/// The way to an end. Dropped, it closes when what waits has been taken.
pub(super) struct Way<T> {
    queue: Rc<Queue<T>>,
    /// What waits for the end of a line that passes in pieces.
    behind: Option<Vec<T>>,
}

impl<T> Drop for Way<T> {
    fn drop(&mut self) {
        self.queue.end();
    }
}

impl<T: AsRef<[u8]>> Way<T> {
    fn new(room: &Rc<Notify>) -> Self {
        let queue = Queue {
            waiting: RefCell::default(),
            bytes: Cell::default(),
            more: Notify::new(),
            is_over: Cell::default(),
            is_closed: Cell::default(),
            room: room.clone(),
        };
        Self {
            queue: queue.into(),
            behind: None,
        }
    }

    /// One that has closed takes nothing any more.
    pub(super) fn send(&mut self, line: T) {
        match &mut self.behind {
            Some(behind) => behind.push(line),
            None => self.part(line),
        }
    }

    /// A piece of a line.
    pub(super) fn part(&self, part: T) {
        if !self.is_closed() {
            let bytes = self.queue.bytes.get() + part.as_ref().len();
            self.queue.bytes.set(bytes);
            self.queue.waiting.borrow_mut().push_back(part);
            self.queue.more.notify_one();
        }
    }

    /// A line passes in pieces from now on.
    pub(super) fn begins(&mut self) {
        self.behind.get_or_insert_default();
    }

    /// It has passed.
    pub(super) fn ends(&mut self) {
        for line in self.behind.take().unwrap_or_default() {
            self.part(line);
        }
    }

    /// Says nothing more: it closes when what waits has been taken.
    pub(super) fn close(&self) {
        self.queue.end();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.queue.is_over.get() || self.queue.is_closed.get()
    }

    fn has(&self, lines: usize, bytes: usize) -> bool {
        self.queue.waiting.borrow().len() >= lines || self.queue.bytes.get() >= bytes
    }

    /// Whether more is to be read for it.
    pub(super) fn has_room(&self) -> bool {
        self.is_closed() || !self.has(LINES_FULL, BYTES_FULL)
    }

    /// It asks, and takes no answers.
    pub(super) fn is_stuck(&self) -> bool {
        !self.is_closed() && self.has(LINES_MAX, BYTES_MAX)
    }
}

/// Writes lines until there are no more, or the other end is closed.
pub(super) fn writer(
    mut to: impl AsyncWrite + Unpin + 'static,
    room: &Rc<Notify>,
) -> (Way<Vec<u8>>, JoinHandle<()>) {
    let way = Way::<Vec<u8>>::new(room);
    let queue = way.queue.clone();
    let writes = spawn_local(async move {
        while let Some(line) = queue.next().await
            && to.write_all(&line).await.is_ok()
            && to.flush().await.is_ok()
        {
            queue.taken(line.len());
        }
        queue.close();
    });
    (way, writes)
}

/// The same for one that takes them from a channel.
pub(super) fn hander(to: Sender<String>, room: &Rc<Notify>) -> Way<String> {
    let way = Way::<String>::new(room);
    let queue = way.queue.clone();
    spawn_local(async move {
        while let Some(line) = queue.next().await {
            let bytes = line.len();
            if to.send(line).await.is_err() {
                break;
            }
            queue.taken(bytes);
        }
        queue.close();
    });
    way
}

/// Where lines are read.
pub(super) struct Source<R> {
    lines: BoundedLines<R>,
    /// The rest of one that is too long is to come.
    is_long: bool,
    /// It is passed on.
    passes: bool,
}

/// What was read.
pub(super) enum Step {
    Line,
    /// The beginning of a line that is too long to be read.
    Long,
    /// More of it, which is to be passed on.
    Part,
    /// All of it was passed on.
    Passed,
    /// All of it was left out.
    LeftOut,
    End,
}

impl<R: AsyncRead + Unpin> Source<R> {
    pub(super) fn new(read: R) -> Self {
        Self {
            lines: BoundedLines::new(read, LINE_MAX),
            is_long: false,
            passes: false,
        }
    }

    /// Whether the long line of which the beginning is there is passed on.
    pub(super) fn passes(&mut self, passes: bool) {
        self.passes = passes;
    }

    /// What the last step announced, as it was read.
    pub(super) fn raw(&self) -> &[u8] {
        self.lines.raw()
    }

    /// One that is dropped half-way loses nothing.
    pub(super) async fn next(&mut self) -> Step {
        while self.is_long {
            if self.lines.more().await.is_empty() {
                self.is_long = false;
                return match take(&mut self.passes) {
                    true => Step::Passed,
                    false => Step::LeftOut,
                };
            }
            if self.passes {
                return Step::Part;
            }
        }
        match self.lines.next().await {
            NextLine::Line => Step::Line,
            NextLine::End => Step::End,
            NextLine::TooLong => {
                self.is_long = true;
                Step::Long
            }
        }
    }
}
