//! Lines of a bounded length from a stream: read by a runtime ([`BoundedLines`]) or by blocking
//! ([`BlockingLines`]). Lines end with `\n` or `\r\n`; the last one may end with its stream.

use std::io::{self, BufRead as _, Read};

use tokio::io::{AsyncBufReadExt as _, AsyncRead};

/// Capacity that an idle reader keeps, in bytes.
const BUFFER_KEPT: usize = 64 * 1024;

/// One step of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextLine {
    /// A whole line is there.
    Line,
    /// A line was longer than the reader's bound: its beginning is there, the rest is gone.
    TooLong,
    /// The other end has closed it, or reading failed.
    End,
}

/// The line that is being read.
#[derive(Debug)]
struct Partial {
    line: Vec<u8>,
    max: usize,
    /// `line` was handed out and is cleared by the next step.
    done: bool,
    /// The rest of a line that was too long is being skipped.
    skipping: bool,
}

impl Partial {
    fn new(max: usize) -> Self {
        Self {
            line: Vec::new(),
            max,
            done: false,
            skipping: false,
        }
    }

    fn line(&self) -> &[u8] {
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        line.strip_suffix(b"\r").unwrap_or(line)
    }

    /// Adds what was read next, nothing at the end. Gives how much of it is used, and the step if
    /// that is complete.
    fn add(&mut self, read: &[u8]) -> (usize, Option<NextLine>) {
        if std::mem::take(&mut self.done) {
            self.line.clear();
            self.line.shrink_to(BUFFER_KEPT);
        }
        if read.is_empty() {
            self.done = true;
            let nothing = std::mem::take(&mut self.skipping) || self.line.is_empty();
            return (
                0,
                Some(if nothing {
                    NextLine::End
                } else {
                    NextLine::Line
                }),
            );
        }
        let end = memchr::memchr(b'\n', read).map(|at| at + 1);
        let part = read.get(..end.unwrap_or(read.len())).unwrap_or(read);
        let room = self.max - self.line.len();
        self.skipping |= part.len() > room;
        self.line
            .extend_from_slice(part.get(..room).unwrap_or(part));
        self.done = end.is_some();
        let step = || match std::mem::take(&mut self.skipping) {
            true => NextLine::TooLong,
            false => NextLine::Line,
        };
        (part.len(), end.is_some().then(step))
    }
}

/// Reads lines. A `next` that is dropped half-way loses nothing: the next one goes on.
#[derive(Debug)]
pub struct BoundedLines<R> {
    read: tokio::io::BufReader<R>,
    partial: Partial,
}

impl<R: AsyncRead + Unpin> BoundedLines<R> {
    /// Reads lines of at most `max` bytes, their ends included.
    #[must_use]
    pub fn new(read: R, max: usize) -> Self {
        Self {
            read: tokio::io::BufReader::new(read),
            partial: Partial::new(max),
        }
    }

    /// The line that the last step announced, without its end.
    #[must_use]
    pub fn line(&self) -> &[u8] {
        self.partial.line()
    }

    /// Waits for a line.
    pub async fn next(&mut self) -> NextLine {
        loop {
            let read = self.read.fill_buf().await.unwrap_or_default();
            let (used, step) = self.partial.add(read);
            self.read.consume(used);
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// Waits for a line, and gives it. `None`: one was too long, or there are no more.
    pub async fn whole(&mut self) -> Option<&[u8]> {
        (self.next().await == NextLine::Line).then(|| self.partial.line())
    }
}

/// Reads lines by blocking.
#[derive(Debug)]
pub struct BlockingLines<R> {
    read: io::BufReader<R>,
    partial: Partial,
}

impl<R: Read> BlockingLines<R> {
    /// Reads lines of at most `max` bytes, their ends included.
    pub fn new(read: R, max: usize) -> Self {
        Self {
            read: io::BufReader::new(read),
            partial: Partial::new(max),
        }
    }

    /// What is read from.
    pub fn get_ref(&self) -> &R {
        self.read.get_ref()
    }

    /// What is read from. Read apart from this, lines lose what is taken.
    pub fn get_mut(&mut self) -> &mut R {
        self.read.get_mut()
    }

    /// Waits for a line, and gives it without its end. `None`: there are no more. One that failed
    /// half-way goes on with the next call.
    ///
    /// # Errors
    ///
    /// When reading fails, and of the kind [`io::ErrorKind::InvalidData`] when a line is too long,
    /// which is gone.
    pub fn read_line(&mut self) -> io::Result<Option<&[u8]>> {
        loop {
            let (used, step) = match self.read.fill_buf() {
                Ok(read) => self.partial.add(read),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.read.consume(used);
            match step {
                None => {}
                Some(NextLine::Line) => return Ok(Some(self.partial.line())),
                Some(NextLine::End) => return Ok(None),
                Some(NextLine::TooLong) => {
                    let why = format!("a line of more than {} bytes", self.partial.max);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(input: &[u8], max: usize) -> Vec<Option<String>> {
        let text = |line: &[u8]| String::from_utf8(line.to_vec()).unwrap();
        let (mut lines, mut blocking) = (
            BoundedLines::new(input, max),
            BlockingLines::new(input, max),
        );
        let mut out = Vec::new();
        for _ in 0..20 {
            let step = lines.next().await;
            // Both read the same.
            match blocking.read_line() {
                Ok(Some(line)) => assert_eq!((step, line), (NextLine::Line, lines.line())),
                Ok(None) => assert_eq!(step, NextLine::End),
                Err(_) => assert_eq!(step, NextLine::TooLong),
            }
            match step {
                NextLine::Line => out.push(Some(text(lines.line()))),
                NextLine::TooLong => out.push(None),
                NextLine::End => return out,
            }
        }
        panic!("no end");
    }

    #[tokio::test]
    async fn lines_of_any_ending_arrive_and_a_long_one_is_skipped_whole() {
        let line = |text: &str| Some(text.to_owned());
        assert_eq!(
            all(b"one\r\ntwo\n\nlast", 80).await,
            [line("one"), line("two"), line(""), line("last")]
        );
        assert_eq!(all(b"123456789\nabc\n", 8).await, [None, line("abc")]);
        assert_eq!(
            all(b"1234567\n12345678\n", 8).await,
            [line("1234567"), None]
        );
        // One that comes in several reads.
        let long = [&b"x".repeat(20_000)[..], b"\nabc"].concat();
        assert_eq!(all(&long, 8_001).await, [None, line("abc")]);
        assert_eq!(all(&b"x".repeat(20_000), 8_001).await, []);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_can_be_told_by_its_beginning() {
        let mut lines = BoundedLines::new(&b"1234567890\nabc"[..], 8);
        assert_eq!(lines.next().await, NextLine::TooLong);
        assert_eq!(lines.line(), b"12345678");
        assert_eq!(lines.whole().await, Some(&b"abc"[..]));
    }

    #[tokio::test]
    async fn a_dropped_wait_keeps_what_was_read() {
        use tokio::io::AsyncWriteExt as _;
        let (mut client, server) = tokio::io::duplex(64);
        let mut lines = BoundedLines::new(server, 64);
        client.write_all(b"hel").await.unwrap();
        tokio::select! {
            biased;
            _ = lines.next() => panic!("no line yet"),
            () = tokio::task::yield_now() => {}
        }
        client.write_all(b"lo\n").await.unwrap();
        assert_eq!(lines.next().await, NextLine::Line);
        assert_eq!(lines.line(), b"hello");
    }
}
