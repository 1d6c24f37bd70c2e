//! Lines of a bounded length. They end with `\n` or `\r\n`; the last one may end with its stream.

use std::io::{self, BufRead as _};

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// Capacity that an idle reader keeps, in bytes.
const BUFFER_KEPT: usize = 64 * 1024;

/// One step of [`BoundedLines`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextLine {
    /// A whole line is there.
    Line,
    /// A line is longer than the reader's bound: its beginning is there. Said at once; the next step
    /// skips the rest.
    TooLong,
    /// The other end has closed it, or reading failed.
    End,
}

/// Reads lines. A `next` that is dropped half-way loses nothing: the next one goes on.
#[derive(Debug)]
pub struct BoundedLines<R> {
    read: BufReader<R>,
    line: Vec<u8>,
    max: usize,
    /// `line` was handed out and is cleared by the next step.
    done: bool,
    /// The rest of a line that was too long is to come.
    skips: bool,
}

impl<R: AsyncRead + Unpin> BoundedLines<R> {
    /// Reads lines of at most `max` bytes, their ends included.
    #[must_use]
    pub fn new(read: R, max: usize) -> Self {
        Self {
            read: BufReader::new(read),
            line: Vec::new(),
            max,
            done: false,
            skips: false,
        }
    }

    /// The line that the last step announced, without its end.
    #[must_use]
    pub fn line(&self) -> &[u8] {
        let line = self.line.get(..self.max).unwrap_or(&self.line);
        without_end(line)
    }

    /// The same with its end, as it was read.
    #[must_use]
    pub fn raw(&self) -> &[u8] {
        &self.line
    }

    /// The next part of a line that was too long, its end included; empty: there is no more of it.
    pub async fn more(&mut self) -> &[u8] {
        self.done = true;
        self.line.clear();
        if self.skips {
            let read = self.read.fill_buf().await.unwrap_or_default();
            let end = memchr::memchr(b'\n', read).map(|at| at + 1);
            let (part, _) = read.split_at(end.unwrap_or(read.len()));
            self.line.extend_from_slice(part);
            let used = part.len();
            self.read.consume(used);
            self.skips = end.is_none() && used > 0;
        }
        &self.line
    }

    /// Waits for a line.
    pub async fn next(&mut self) -> NextLine {
        loop {
            if std::mem::take(&mut self.done) {
                self.line.clear();
                self.line.shrink_to(BUFFER_KEPT);
            }
            let read = self.read.fill_buf().await.unwrap_or_default();
            let mut end = memchr::memchr(b'\n', read).map(|at| at + 1);
            let (part, _) = read.split_at(end.unwrap_or(read.len()));
            let used = part.len();
            if self.skips {
                self.read.consume(used);
                self.skips = end.is_none() && used > 0;
                if used == 0 {
                    return NextLine::End;
                }
                continue;
            }
            // A byte more than fits shows that a line is too long.
            let room = self.max + 1 - self.line.len();
            let fits = part.get(..room).unwrap_or(part);
            end = end.filter(|end| *end == fits.len());
            self.line.extend_from_slice(fits);
            let taken = fits.len();
            self.read.consume(taken);
            let too_long = self.line.len() > self.max;
            self.done = end.is_some() || used == 0 || too_long;
            self.skips = end.is_none() && too_long;
            if self.done {
                return match end {
                    _ if too_long => NextLine::TooLong,
                    None if self.line.is_empty() => NextLine::End,
                    _ => NextLine::Line,
                };
            }
        }
    }

    /// What comes after the lines that were read.
    #[must_use]
    pub fn rest(self) -> BufReader<R> {
        self.read
    }

    /// Waits for a line, and gives it. `None`: one was too long, or there are no more.
    pub async fn whole(&mut self) -> Option<&[u8]> {
        (self.next().await == NextLine::Line).then(|| self.line())
    }
}

/// Reads a line of at most `max` bytes, its end included, by blocking. `None`: there are no more.
///
/// # Errors
///
/// When reading fails, and of the kind [`io::ErrorKind::InvalidData`] when the line is longer. What
/// was read of it is gone.
pub fn read_line(read: &mut impl io::BufRead, max: usize) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    io::Read::take(&mut *read, max as u64 + 1).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.len() > max {
        let why = format!("a line of more than {max} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    line.truncate(without_end(&line).len());
    Ok(Some(line))
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(input: &[u8], max: usize) -> Vec<Option<String>> {
        let text = |line: &[u8]| String::from_utf8(line.to_vec()).unwrap();
        let (mut lines, mut blocking) = (BoundedLines::new(input, max), input);
        let mut out = Vec::new();
        for _ in 0..20 {
            let step = lines.next().await;
            if !out.contains(&None) {
                // Both read the same, until one line was too long.
                match read_line(&mut blocking, max) {
                    Ok(Some(line)) => assert_eq!((step, &*line), (NextLine::Line, lines.line())),
                    Ok(None) => assert_eq!(step, NextLine::End),
                    Err(_) => assert_ne!(step, NextLine::Line),
                }
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
    async fn a_line_that_is_too_long_can_be_had_in_parts() {
        for input in ["0123456789\r\nrest\n", "01234\nrest\n", "012345\nrest\n"] {
            let mut lines = BoundedLines::new(input.as_bytes(), 5);
            assert_eq!(lines.next().await, NextLine::TooLong);
            let mut all = lines.raw().to_vec();
            loop {
                let part = lines.more().await;
                if part.is_empty() {
                    break;
                }
                all.extend_from_slice(part);
            }
            let (long, _) = input.split_once("rest").unwrap();
            assert_eq!(String::from_utf8(all).unwrap(), long);
            assert_eq!(lines.next().await, NextLine::Line);
            assert_eq!(lines.raw(), b"rest\n");
        }
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
        assert_eq!(all(&b"x".repeat(20_000), 8_001).await, [None]);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_can_be_told_by_its_beginning() {
        use tokio::io::AsyncWriteExt as _;
        let (mut client, server) = tokio::io::duplex(64);
        let mut lines = BoundedLines::new(server, 8);
        client.write_all(b"1234567890").await.unwrap();
        // Its end need not come.
        assert_eq!(lines.next().await, NextLine::TooLong);
        assert_eq!(lines.line(), b"12345678");
        client.write_all(b"11\nabc\n").await.unwrap();
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
