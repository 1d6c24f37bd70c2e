//! Lines from a client, bounded.

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};

/// Longest line that is read, in bytes: a body of the largest size, every byte of it escaped.
pub(super) const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Capacity that an idle reader keeps, in bytes.
const BUFFER_KEPT: usize = 64 * 1024;

/// One step of a [`LineReader`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A whole line is in [`LineReader::line`].
    Line,
    /// A line was longer than [`LINE_BYTES_MAX`] and is gone.
    TooLong,
    /// The client closed its end, or reading failed.
    End,
}

/// Reads lines. A `next` that is dropped half-way loses nothing: the next one goes on.
pub(super) struct LineReader<R> {
    read: BufReader<R>,
    line: Vec<u8>,
    max: usize,
    /// `line` was handed out and is cleared by the next step.
    done: bool,
    /// The rest of a line that was too long is being skipped.
    skipping: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(super) fn new(read: R) -> Self {
        Self::with_max(read, LINE_BYTES_MAX)
    }

    fn with_max(read: R, max: usize) -> Self {
        Self {
            read: BufReader::new(read),
            line: Vec::new(),
            max,
            done: false,
            skipping: false,
        }
    }

    /// The line that the last [`Next::Line`] announced, without its line break.
    pub(super) fn line(&self) -> &[u8] {
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        line.strip_suffix(b"\r").unwrap_or(line)
    }

    /// Waits for a line. The last one may end without a line break.
    pub(super) async fn next(&mut self) -> Next {
        loop {
            if std::mem::take(&mut self.done) {
                self.line.clear();
                self.line.shrink_to(BUFFER_KEPT);
            }
            // A byte more than fits shows that a line is too long.
            let room = self.max + 1 - self.line.len();
            let mut read = (&mut self.read).take(room as u64);
            let read = read.read_until(b'\n', &mut self.line).await;
            self.done = self.line.ends_with(b"\n") || self.line.len() > self.max;
            match read {
                Ok(0) | Err(_) if self.skipping || self.line.is_empty() => return Next::End,
                Ok(0) | Err(_) => self.done = true,
                Ok(_) => {}
            }
            if self.line.len() > self.max && !self.line.ends_with(b"\n") {
                self.skipping = true;
            } else if self.done {
                let long = std::mem::take(&mut self.skipping) || self.line.len() > self.max;
                return if long { Next::TooLong } else { Next::Line };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(input: &[u8], max: usize) -> Vec<Option<String>> {
        let mut reader = LineReader::with_max(input, max);
        let mut out = Vec::new();
        for _ in 0..20 {
            match reader.next().await {
                Next::Line => out.push(Some(String::from_utf8(reader.line().to_vec()).unwrap())),
                Next::TooLong => out.push(None),
                Next::End => return out,
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
    }

    #[tokio::test]
    async fn a_dropped_wait_keeps_what_was_read() {
        use tokio::io::AsyncWriteExt;
        let (mut client, server) = tokio::io::duplex(64);
        let mut reader = LineReader::new(server);
        client.write_all(b"hel").await.unwrap();
        tokio::select! {
            biased;
            _ = reader.next() => panic!("no line yet"),
            () = tokio::task::yield_now() => {}
        }
        client.write_all(b"lo\n").await.unwrap();
        assert_eq!(reader.next().await, Next::Line);
        assert_eq!(reader.line(), b"hello");
    }
}
