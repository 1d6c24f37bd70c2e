//! What is read, and what waits for an end that is slower than what is said to it: nobody waits for it.

use std::cell::Cell;
use std::mem::take;
use std::rc::Rc;

use peerbus_os::lines::{BoundedLines, NextLine};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Notify;
use tokio::sync::mpsc::{Sender, UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinHandle, spawn_local};

use crate::process::LINE_MAX;

/// With so much waiting for an end, nothing more is read for it.
const LINES_FULL: usize = 1_024;
const BYTES_FULL: usize = 8 << 20;
/// More than that can only be answers to an end that asks and takes none.
const LINES_MAX: usize = 65_536;
const BYTES_MAX: usize = 256 << 20;

/// The lines that wait for an end, and their bytes.
struct Load {
    lines: Cell<usize>,
    bytes: Cell<usize>,
    /// Told of room, and of an end that has closed.
    room: Rc<Notify>,
}

impl Load {
    fn more(&self, bytes: usize) {
        self.lines.set(self.lines.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
    }

    fn less(&self, bytes: usize) {
        self.lines.set(self.lines.get() - 1);
        self.bytes.set(self.bytes.get() - bytes);
        self.room.notify_one();
    }
}

/// The way to an end. Dropped, it closes when what waits has been taken.
pub(super) struct Way<T> {
    /// `None`: nothing more is said.
    to: Option<UnboundedSender<T>>,
    load: Rc<Load>,
    /// What waits for the end of a line that passes in pieces.
    behind: Option<Vec<T>>,
}

impl<T: AsRef<[u8]>> Way<T> {
    fn new(room: &Rc<Notify>) -> (Self, UnboundedReceiver<T>) {
        let (to, waiting) = unbounded_channel();
        let load = Load {
            lines: Cell::default(),
            bytes: Cell::default(),
            room: room.clone(),
        };
        let way = Self {
            to: Some(to),
            load: load.into(),
            behind: None,
        };
        (way, waiting)
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
        let bytes = part.as_ref().len();
        if self.to.as_ref().is_some_and(|to| to.send(part).is_ok()) {
            self.load.more(bytes);
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
    pub(super) fn close(&mut self) {
        self.to = None;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.to.as_ref().is_none_or(UnboundedSender::is_closed)
    }

    /// Whether more is to be read for it.
    pub(super) fn has_room(&self) -> bool {
        let is_below = self.load.lines.get() < LINES_FULL && self.load.bytes.get() < BYTES_FULL;
        is_below || self.is_closed()
    }

    /// It asks, and takes no answers.
    pub(super) fn is_stuck(&self) -> bool {
        let is_over = self.load.lines.get() > LINES_MAX || self.load.bytes.get() > BYTES_MAX;
        is_over && !self.is_closed()
    }
}

/// Writes lines until there are no more, or the other end is closed.
pub(super) fn writer(
    mut to: impl AsyncWrite + Unpin + 'static,
    room: &Rc<Notify>,
) -> (Way<Vec<u8>>, JoinHandle<()>) {
    let (way, mut waiting) = Way::<Vec<u8>>::new(room);
    let load = way.load.clone();
    let writes = spawn_local(async move {
        while let Some(line) = waiting.recv().await
            && to.write_all(&line).await.is_ok()
            && to.flush().await.is_ok()
        {
            load.less(line.len());
        }
        drop(waiting);
        load.room.notify_one();
    });
    (way, writes)
}

/// The same for one that takes them from a channel.
pub(super) fn hander(to: Sender<String>, room: &Rc<Notify>) -> Way<String> {
    let (way, mut waiting) = Way::<String>::new(room);
    let load = way.load.clone();
    spawn_local(async move {
        while let Some(line) = waiting.recv().await {
            let bytes = line.len();
            if to.send(line).await.is_err() {
                break;
            }
            load.less(bytes);
        }
        drop(waiting);
        load.room.notify_one();
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
