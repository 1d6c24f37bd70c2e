//! The lines that a process writes, read as they come.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Lines of a pipe, read by a thread that ends with the pipe.
pub(crate) struct Lines {
    lines: Receiver<String>,
}

impl Lines {
    pub(crate) fn of(pipe: impl Read + Send + 'static) -> Self {
        Self::those(pipe, |_| true)
    }

    /// The lines that `wanted` takes.
    pub(crate) fn those(
        pipe: impl Read + Send + 'static,
        mut wanted: impl FnMut(&str) -> bool + Send + 'static,
    ) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "a program must not wait for its test"
        )]
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n') {
                let Ok(line) = line else { break };
                let line = String::from_utf8_lossy(&line).into_owned();
                if wanted(&line) && sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { lines }
    }

    /// The next line; `None` at the end of the pipe or when nothing comes in time.
    pub(crate) fn next(&self, patience: Duration) -> Option<String> {
        self.poll(patience).ok()
    }

    /// The next line, or why there is none.
    pub(crate) fn poll(&self, patience: Duration) -> Result<String, RecvTimeoutError> {
        self.lines.recv_timeout(patience)
    }

    /// The first line that `pick` takes; what comes before it is dropped.
    #[track_caller]
    pub(crate) fn find<T>(&self, what: &str, mut pick: impl FnMut(&str) -> Option<T>) -> T {
        let deadline = Instant::now() + super::PATIENCE;
        let mut seen = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.poll(left) {
                Ok(line) => {
                    if let Some(found) = pick(&line) {
                        return found;
                    }
                    seen.push(line);
                }
                Err(why) => panic!("no {what} ({why}); lines: {seen:#?}"),
            }
        }
    }
}
