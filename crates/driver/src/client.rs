//! One process of the client.

use std::ffi::OsString;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Longest line that is read, in bytes: the result of a tool may hold pictures.
const LINE_MAX: u64 = 32 << 20;
/// Longest line of its stderr, in bytes.
const ERROR_LINE_MAX: u64 = 4_096;
/// Lines that wait to be written.
const WAITING_MAX: usize = 64;
/// How long a client that has nothing to do may take to end once its input is closed.
const CLOSES_WITHIN: Duration = Duration::from_secs(2);
/// How long one may take after SIGTERM.
const ENDS_WITHIN: Duration = Duration::from_secs(3);

/// The way to its standard input. Clones share it.
#[derive(Clone)]
pub(crate) struct Client(mpsc::Sender<Line>);

struct Line {
    text: String,
    written: oneshot::Sender<()>,
}

/// A client that runs.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) client: Client,
    pub(crate) writing: Writing,
    pub(crate) output: Lines<ChildStdout>,
    pub(crate) errors: Lines<ChildStderr>,
}

/// Writes to standard input, as long as it is polled. Dropped, it closes it.
pub(crate) struct Writing {
    stdin: ChildStdin,
    waiting: mpsc::Receiver<Line>,
}

/// The lines of a stream, each of a bounded length.
pub(crate) struct Lines<R> {
    read: BufReader<R>,
    max: u64,
}

/// Starts a client in a process group of its own, so that a key that interrupts the driver does not
/// reach it first.
pub(crate) fn start(
    command: &[OsString],
    arguments: &[String],
    environment: (&str, &str),
) -> io::Result<Process> {
    let (program, before) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut child = Command::new(program)
        .args(before)
        .args(arguments)
        .env(environment.0, environment.1)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let missing = || io::Error::from(io::ErrorKind::BrokenPipe);
    let stdin = child.stdin.take().ok_or_else(missing)?;
    let stdout = child.stdout.take().ok_or_else(missing)?;
    let stderr = child.stderr.take().ok_or_else(missing)?;
    let (sender, waiting) = mpsc::channel(WAITING_MAX);
    Ok(Process {
        child,
        client: Client(sender),
        writing: Writing { stdin, waiting },
        output: Lines {
            read: BufReader::new(stdout),
            max: LINE_MAX,
        },
        errors: Lines {
            read: BufReader::new(stderr),
            max: ERROR_LINE_MAX,
        },
    })
}

impl Client {
    /// Writes a line. Whether it left.
    pub(crate) async fn say(&self, text: String) -> bool {
        let (written, left) = oneshot::channel();
        self.0.send(Line { text, written }).await.is_ok() && left.await.is_ok()
    }

    /// Whether both lead to the same process.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }
}

impl Writing {
    /// Writes for ever. What a client that ended does not take is let go: what it said last is
    /// still read.
    pub(crate) async fn write(&mut self) {
        while let Some(Line { text, written }) = self.waiting.recv().await {
            let line = format!("{text}\n");
            if self.stdin.write_all(line.as_bytes()).await.is_ok() {
                // Nobody may wait for it.
                let _ = written.send(());
            }
        }
        std::future::pending().await
    }
}

impl<R: tokio::io::AsyncRead + Unpin> Lines<R> {
    /// The next line, or its beginning where it is too long. `None`: there are no more.
    pub(crate) async fn next(&mut self) -> Option<String> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.read).take(self.max);
        bounded.read_until(b'\n', &mut line).await.ok()?;
        (!line.is_empty()).then(|| String::from_utf8_lossy(&line).trim_end().to_owned())
    }
}

/// Ends a client: in an orderly way if it has nothing to do, and in any case. Nothing must be read
/// from it any more.
pub(crate) async fn end(mut child: Child, idle: bool) -> Option<ExitStatus> {
    if idle && let Ok(status) = timeout(CLOSES_WITHIN, child.wait()).await {
        return status.ok();
    }
    signal(&child, kill_process, Signal::TERM);
    if let Ok(status) = timeout(ENDS_WITHIN, child.wait()).await {
        return status.ok();
    }
    signal(&child, kill_process_group, Signal::KILL);
    child.wait().await.ok()
}

fn signal(child: &Child, how: fn(Pid, Signal) -> rustix::io::Result<()>, signal: Signal) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(pid) = pid.and_then(Pid::from_raw) {
        // It may have ended meanwhile.
        let _ = how(pid, signal);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What a client would read.
    pub(crate) struct Reader(mpsc::Receiver<Line>);

    /// A client without a process.
    pub(crate) fn scripted() -> (Client, Reader) {
        let (sender, waiting) = mpsc::channel(WAITING_MAX);
        (Client(sender), Reader(waiting))
    }

    impl Reader {
        /// The next line.
        pub(crate) async fn next(&mut self) -> String {
            let Line { text, written } = self.0.recv().await.unwrap();
            written.send(()).unwrap();
            text
        }
    }
}
