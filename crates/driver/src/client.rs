//! One process of the client.

use std::ffi::OsString;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use peerbus_os::lines::{BoundedLines, NextLine};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::io::{AsyncRead, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::Transport;
use crate::socket::{LINE_MAX, Line, Place, Socket, TOKEN};

/// Longest line of its stderr, in bytes.
const ERROR_LINE_MAX: usize = 4_096;
/// Lines that wait to be written.
const WAITING_MAX: usize = 64;
/// How long a client that has nothing to do may take to end once its input is closed.
const CLOSES_WITHIN: Duration = Duration::from_secs(2);
/// How long one may take after SIGTERM.
const ENDS_WITHIN: Duration = Duration::from_secs(3);

/// The way to its standard input. Clones share it.
#[derive(Clone)]
pub(crate) struct Client(mpsc::Sender<Line>);

/// A client that runs.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) client: Client,
    pub(crate) writing: Writing,
    pub(crate) output: Output,
    pub(crate) errors: BoundedLines<ChildStderr>,
}

/// Writes to the client, as long as it is polled. Dropped, it closes what it writes to.
pub(crate) enum Writing {
    Stdin(ChildStdin, mpsc::Receiver<Line>),
    Socket(Box<Socket>),
}

/// What the client says.
pub(crate) enum Output {
    Stdout(BoundedLines<ChildStdout>),
    Socket(mpsc::Receiver<String>),
}

/// Variables that make a client go elsewhere: with another way to send, or as a remote session.
const ELSEWHERE: [&str; 3] = [
    TOKEN,
    "CLAUDE_CODE_POST_FOR_SESSION_INGRESS_V2",
    "CLAUDE_CODE_WEBSOCKET_AUTH_FILE_DESCRIPTOR",
];
const REMOTE: &str = "CLAUDE_CODE_REMOTE";
/// Variables that name what is reached without a proxy.
const DIRECT: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// Starts a client in a process group of its own, so that a key that interrupts the driver does not
/// reach it first.
pub(crate) fn start(
    command: &[OsString],
    arguments: &[String],
    environment: (&str, &str),
    transport: Transport,
) -> io::Result<Process> {
    let (program, before) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command
        .args(before)
        .args(arguments)
        .env(environment.0, environment.1)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let names = std::env::vars_os().map(|(name, _)| name);
    let elsewhere = |name: &OsString| {
        let name = name.to_string_lossy();
        name.starts_with(REMOTE) || ELSEWHERE.contains(&name.as_ref())
    };
    names.filter(elsewhere).for_each(|name| {
        command.env_remove(name);
    });
    let place = match transport {
        Transport::Stdio => None,
        Transport::SdkUrl => Some(Place::new()?),
    };
    if let Some(place) = &place {
        command.arg("--sdk-url").arg(place.url()?);
        command.env(TOKEN, place.token()).stdin(Stdio::null());
        for name in DIRECT {
            let before = std::env::var(name).unwrap_or_default();
            command.env(name, format!("127.0.0.1,{before}").trim_end_matches(','));
        }
    }
    let mut child = command.spawn()?;
    let missing = || io::Error::from(io::ErrorKind::BrokenPipe);
    let stdout = child.stdout.take().ok_or_else(missing)?;
    let stderr = child.stderr.take().ok_or_else(missing)?;
    let (sender, waiting) = mpsc::channel(WAITING_MAX);
    let (writing, output) = match place {
        None => {
            let stdin = child.stdin.take().ok_or_else(missing)?;
            let lines = BoundedLines::new(stdout, LINE_MAX);
            (Writing::Stdin(stdin, waiting), Output::Stdout(lines))
        }
        Some(place) => {
            let (socket, lines) = place.serve(child.id(), stdout, waiting);
            (Writing::Socket(Box::new(socket)), Output::Socket(lines))
        }
    };
    Ok(Process {
        child,
        client: Client(sender),
        writing,
        output,
        errors: BoundedLines::new(stderr, ERROR_LINE_MAX),
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
    /// Writes for ever, or until the client is lost, and says why. What a client that ended does
    /// not take is let go: what it said last is still read.
    pub(crate) async fn write(&mut self) -> String {
        let (stdin, waiting) = match self {
            Self::Stdin(stdin, waiting) => (stdin, waiting),
            Self::Socket(socket) => return socket.serve().await,
        };
        while let Some(Line { text, written }) = waiting.recv().await {
            let line = format!("{text}\n");
            if stdin.write_all(line.as_bytes()).await.is_ok() {
                // Nobody may wait for it.
                let _ = written.send(());
            }
        }
        std::future::pending().await
    }

    /// Closes the way to the client. Whether an idle one ends by that.
    pub(crate) fn close(self) -> bool {
        matches!(self, Self::Stdin(..))
    }
}

impl Output {
    /// The next line. `None`: there are no more.
    pub(crate) async fn next(&mut self) -> Option<String> {
        match self {
            Self::Stdout(lines) => next_text(lines).await,
            Self::Socket(lines) => lines.recv().await,
        }
    }
}

/// The next line, or its beginning where it is too long. `None`: there are no more.
pub(crate) async fn next_text(lines: &mut BoundedLines<impl AsyncRead + Unpin>) -> Option<String> {
    let next = lines.next().await;
    let text = || String::from_utf8_lossy(lines.line()).trim_end().to_owned();
    (next != NextLine::End).then(text)
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
