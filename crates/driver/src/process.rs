//! One process of an agent, and the way to it.

use std::io::{self, PipeWriter};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use peerbus_adapter::mailbox::BoxFuture;
use peerbus_os::lines::{BoundedLines, NextLine};
use peerbus_os::process::{signal, terminate};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use crate::guard::{self, LIFELINE, below};

/// Longest line that is read, in bytes: the result of a tool may hold pictures.
pub(crate) const LINE_MAX: usize = 32 << 20;
const ERROR_LINE_MAX: usize = 4_096;
pub(crate) const WAITING_MAX: usize = 64;
/// How long a process that has nothing to do may take to end once its input is closed.
const CLOSES_WITHIN: Duration = Duration::from_secs(2);
/// How long its guard may take after SIGTERM: a second more than it gives itself.
const ENDS_WITHIN: Duration = guard::ENDS_WITHIN
    .saturating_add(guard::KILLED_WITHIN)
    .saturating_add(Duration::from_secs(1));

/// A line for the process.
pub(crate) struct Outgoing {
    pub(crate) text: String,
    /// Told that it left.
    pub(crate) written: oneshot::Sender<()>,
}

/// The way to a process. Clones share it.
#[derive(Clone)]
pub(crate) struct AgentLines(mpsc::Sender<Outgoing>);

impl AgentLines {
    /// With what it is given to write.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Outgoing>) {
        let (sender, waiting) = mpsc::channel(WAITING_MAX);
        (Self(sender), waiting)
    }

    /// Writes a line. Whether it left.
    pub(crate) async fn say(&self, text: String) -> bool {
        let (written, left) = oneshot::channel();
        self.0.send(Outgoing { text, written }).await.is_ok() && left.await.is_ok()
    }
}

pub(crate) struct Process {
    /// The guard that it stands below. `None`: somebody else ends it.
    pub(crate) child: Option<Child>,
    /// Dropped, it has the guard end all that stands below it.
    pub(crate) lifeline: Option<PipeWriter>,
    pub(crate) to: AgentLines,
    pub(crate) from: mpsc::Receiver<String>,
    pub(crate) errors: BoundedLines<Box<dyn AsyncRead + Unpin + Send>>,
    /// Moves the lines for ever, or until the process is lost, and says why. Dropped, it closes the way.
    pub(crate) carries: BoxFuture<'static, String>,
    /// It ends by that when it is idle.
    pub(crate) ends_when_closed: bool,
    /// Where it writes, open until it has ended: nobody reads it any more, and nothing fails for that.
    pub(crate) output: Option<OwnedFd>,
}

/// Starts a process that is spoken with over its standard streams.
pub(crate) fn start(mut command: Command) -> io::Result<Process> {
    let (mut child, lifeline) = spawn(command.stdin(Stdio::piped()))?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let (mut stdin, stdout) = stdin.zip(stdout).ok_or(io::ErrorKind::BrokenPipe)?;
    let output = stdout.as_fd().try_clone_to_owned()?;
    let (to, mut waiting) = AgentLines::new();
    let (heard, from) = mpsc::channel(1);
    let read = async move {
        let mut stdout = BoundedLines::new(stdout, LINE_MAX);
        while let Some(line) = next_text(&mut stdout).await
            && heard.send(line).await.is_ok()
        {}
    };
    // What a process that ended does not take is let go: what it said last is still read.
    let write = async move {
        while let Some(Outgoing { text, written }) = waiting.recv().await {
            let line = format!("{text}\n");
            if stdin.write_all(line.as_bytes()).await.is_err() {
                sleep(CLOSES_WITHIN).await;
                return "it takes no lines any more".to_owned();
            }
            // Nobody may wait for it.
            let _ = written.send(());
        }
        std::future::pending().await
    };
    let read = async {
        read.await;
        std::future::pending().await
    };
    let carries = async {
        tokio::select! {
            () = read => String::new(),
            why = write => why,
        }
    };
    let process = Process::new((child, lifeline), to, from, Box::pin(carries), true)?;
    Ok(Process {
        output: Some(output),
        ..process
    })
}

/// A part of one that is shared: this takes each line that is for it.
pub(crate) fn shared<T: Future<Output = ()> + Send>(
    take: impl Fn(String) -> T + Send + 'static,
) -> (Process, mpsc::Sender<String>) {
    let (to, mut waiting) = AgentLines::new();
    let (heard, from) = mpsc::channel(WAITING_MAX);
    let carries = async move {
        while let Some(Outgoing { text, written }) = waiting.recv().await {
            take(text).await;
            // Nobody may wait for it.
            let _ = written.send(());
        }
        std::future::pending().await
    };
    let process = Process {
        child: None,
        lifeline: None,
        to,
        from,
        errors: BoundedLines::new(Box::new(tokio::io::empty()), ERROR_LINE_MAX),
        carries: Box::pin(carries),
        ends_when_closed: true,
        output: None,
    };
    (process, heard)
}

/// Starts a guard, which has the pipe that ends with this process.
pub(crate) fn spawn(command: &mut Command) -> io::Result<(Child, PipeWriter)> {
    let (reader, lifeline) = io::pipe()?;
    // Another program that is started just now does no harm with it: this end says nothing.
    fcntl_setfd(&reader, FdFlags::empty())?;
    let number = reader.as_raw_fd().to_string();
    let child = command.env(LIFELINE, number).spawn()?;
    Ok((child, lifeline))
}

impl Process {
    pub(crate) fn new(
        (mut child, lifeline): (Child, PipeWriter),
        to: AgentLines,
        from: mpsc::Receiver<String>,
        carries: BoxFuture<'static, String>,
        ends_when_closed: bool,
    ) -> io::Result<Self> {
        let errors = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let errors = BoundedLines::new(Box::new(errors) as _, ERROR_LINE_MAX);
        Ok(Self {
            child: Some(child),
            lifeline: Some(lifeline),
            to,
            from,
            errors,
            carries,
            ends_when_closed,
            output: None,
        })
    }
}

/// The next line that is not blank, or its beginning where it is too long. `None`: there are no more.
pub(crate) async fn next_text(lines: &mut BoundedLines<impl AsyncRead + Unpin>) -> Option<String> {
    while lines.next().await != NextLine::End {
        let text = String::from_utf8_lossy(lines.line());
        if !text.trim_end().is_empty() {
            return Some(text.trim_end().to_owned());
        }
    }
    None
}

/// Ends a process and all that stands below it: in an orderly way if it has nothing to do, and in any
/// case. Nothing must be read from it any more.
pub(crate) async fn end(mut child: Child, idle: bool) -> Option<ExitStatus> {
    if idle && let Ok(status) = timeout(CLOSES_WITHIN, child.wait()).await {
        return status.ok();
    }
    // Each may have ended meanwhile.
    let _ = child.id().map(terminate);
    if let Ok(status) = timeout(ENDS_WITHIN, child.wait()).await {
        return status.ok();
    }
    // A guard that somebody has stopped, say.
    if let Some(guard) = child.id() {
        for id in below(guard).into_iter().chain([guard]) {
            let _ = signal(id, Signal::KILL);
        }
    }
    child.wait().await.ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What a process would read.
    pub(crate) struct Reader(mpsc::Receiver<Outgoing>);

    /// A process that there is not.
    pub(crate) fn scripted() -> (AgentLines, Reader) {
        let (to, waiting) = AgentLines::new();
        (to, Reader(waiting))
    }

    impl Reader {
        /// The next line.
        pub(crate) async fn next(&mut self) -> String {
            let Outgoing { text, written } = self.0.recv().await.unwrap();
            written.send(()).unwrap();
            text
        }

        /// Takes all lines, for as long as somebody writes.
        pub(crate) async fn take_all(mut self) {
            while let Some(Outgoing { written, .. }) = self.0.recv().await {
                written.send(()).unwrap();
            }
        }
    }
}
