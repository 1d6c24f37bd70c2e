//! Between an editor and its agent: each session of theirs is a peer.
//!
//! The editor and the agent say to each other what they would say without this. For each session a driver
//! runs in this process, which takes this for the agent's process.

mod mux;
mod question;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use peerbus_adapter::Bus;
use peerbus_adapter::mailbox::WakeList;
use peerbus_adapter::signals::Stop;
use peerbus_mcp::{AdapterOptions, Input};
use peerbus_os::lines::{BoundedLines, NextLine};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::process::ChildStdout;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::{JoinHandle, JoinSet, LocalSet, spawn_local};
use tokio::time::timeout;

use self::mux::{Mux, Out, Place};
use crate::acp::{AcpAgent, Seat};
use crate::life::{self, RunEnd};
use crate::process::{self, LINE_MAX, WAITING_MAX};
use crate::{DrivenAgent, Settings};

/// How long the last lines may take to whoever reads them, and peers to say goodbye.
const LAST_WITHIN: Duration = Duration::from_secs(1);
/// A line has its method within so many bytes, or none.
const HEAD: usize = 1_024;

/// What joins the bus for a session in a directory, or why that cannot be.
pub type Join<'a> = &'a dyn Fn(&Path) -> Result<(Bus, AdapterOptions), String>;

/// Starts an agent for the editor at this process's standard streams, until one of them ends or a signal
/// asks for the end. Nothing of the agent is left then. Gives its exit code, if it ended by itself.
///
/// Must run on a single-threaded runtime, which must not be waited for afterwards.
///
/// # Errors
///
/// A sentence, when the agent cannot be started or not be understood.
pub async fn edit(
    agent: AcpAgent,
    settings: Settings,
    wake: &WakeList,
    join: Join<'_>,
) -> Result<Option<i32>, String> {
    let edited = async {
        let failed = |error| format!("{} cannot be started: {error}", agent.title);
        let mut stop = Stop::catch().map_err(failed)?;
        let mut command = life::command(&settings);
        command
            .args(agent.command.iter().skip(1))
            .stdin(Stdio::piped())
            .stderr(Stdio::inherit());
        let (mut child, _lifeline) = process::spawn(&mut command).map_err(failed)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = pipes.ok_or("the agent's pipes are gone")?;
        let (input, output) = peerbus_mcp::stdio();
        let (up, said) = channel(WAITING_MAX);
        let (editor, shown) = writer(output);
        let (to_agent, written) = writer(stdin);
        let mut ends = Ends {
            settings,
            wake,
            join,
            editor,
            agent: to_agent,
            up,
            seats: BTreeMap::new(),
            drivers: JoinSet::new(),
            mux: Mux::default(),
        };
        let mut lines = Lines {
            editor: BoundedLines::new(input, LINE_MAX),
            agent: BoundedLines::new(stdout, LINE_MAX),
            said,
        };
        let ended = tokio::select! {
            ended = ends.pass(&mut lines) => ended,
            _ = stop.asked() => Ok(Ended::Asked),
        };
        let cancels = ends.mux.cancels();
        let idle = cancels.is_empty() || matches!(ended, Ok(Ended::Agent));
        for line in cancels {
            // It is ended in any case.
            let _ = ends.agent.try_send(line);
        }
        let mut drivers = ends.close();
        if timeout(LAST_WITHIN, written).await.is_err() {
            tracing::debug!("the agent takes nothing");
        }
        let status = process::end(child, idle).await;
        // The peers say goodbye, and the editor reads what the agent said last.
        let goodbyes = async { while drivers.join_next().await.is_some() {} };
        let _ = timeout(LAST_WITHIN, async { tokio::join!(goodbyes, shown) }).await;
        let code = status.and_then(|status| status.code());
        ended.map(|ended| code.filter(|_| ended == Ended::Agent))
    };
    LocalSet::new().run_until(edited).await
}

#[derive(PartialEq, Eq)]
enum Ended {
    Agent,
    /// The editor closed its end, or a signal came.
    Asked,
}

/// What is read.
struct Lines {
    editor: BoundedLines<Input>,
    agent: BoundedLines<ChildStdout>,
    /// The lines of drivers. `None`: one has ended.
    said: Receiver<(u64, Option<String>)>,
}

/// What is written to.
struct Ends<'a> {
    settings: Settings,
    wake: &'a WakeList,
    join: Join<'a>,
    editor: Sender<Vec<u8>>,
    agent: Sender<Vec<u8>>,
    up: Sender<(u64, Option<String>)>,
    seats: BTreeMap<u64, Sender<String>>,
    drivers: JoinSet<()>,
    mux: Mux,
}

/// Writes lines until there are no more, or the other end is closed.
fn writer(mut to: impl AsyncWrite + Unpin + 'static) -> (Sender<Vec<u8>>, JoinHandle<()>) {
    let (sender, mut waiting) = channel::<Vec<u8>>(WAITING_MAX);
    let writes = spawn_local(async move {
        while let Some(line) = waiting.recv().await
            && to.write_all(&line).await.is_ok()
            && to.flush().await.is_ok()
        {}
    });
    (sender, writes)
}

impl Ends<'_> {
    /// Passes lines on until an end is closed.
    async fn pass(&mut self, lines: &mut Lines) -> Result<Ended, String> {
        loop {
            let outs = tokio::select! {
                next = lines.editor.next() => match next {
                    NextLine::End => return Ok(Ended::Asked),
                    NextLine::Line => self.mux.editor(lines.editor.raw()),
                    NextLine::TooLong => {
                        // What the editor asks may begin a turn; what it answers does not.
                        long(&mut lines.editor, false, &self.agent).await?;
                        continue;
                    }
                },
                next = lines.agent.next() => match next {
                    NextLine::End => return Ok(Ended::Agent),
                    NextLine::Line => self.mux.agent(lines.agent.raw()),
                    NextLine::TooLong => {
                        // What the agent answers may end a turn; what it tells does not.
                        long(&mut lines.agent, true, &self.editor).await?;
                        continue;
                    }
                },
                // The other end of it is ours, too.
                Some((nth, said)) = lines.said.recv() => match said {
                    Some(line) => self.mux.driver(nth, &line),
                    None => {
                        self.seats.remove(&nth);
                        self.mux.gone(nth)
                    }
                },
            };
            if !self.act(outs).await {
                return Ok(Ended::Asked);
            }
        }
    }

    /// Says nothing more to anybody.
    fn close(self) -> JoinSet<()> {
        self.drivers
    }

    /// Does all of it. Whether the editor still reads.
    async fn act(&mut self, outs: Vec<Out>) -> bool {
        let mut outs = VecDeque::from(outs);
        while let Some(out) = outs.pop_front() {
            match out {
                Out::Editor(line) => {
                    if self.editor.send(line).await.is_err() {
                        return false;
                    }
                }
                // One that takes nothing any more has ended, which is read soon.
                Out::Agent(line) => drop(self.agent.send(line).await),
                Out::Driver(nth, line) => {
                    if let Some(seat) = self.seats.get(&nth) {
                        // So has this.
                        let _ = seat.send(line).await;
                    }
                }
                Out::Joins(nth, place) => {
                    if let Err(why) = self.joins(nth, place) {
                        tracing::warn!("a session is not on the bus: {why}");
                        outs.extend(self.mux.gone(nth));
                    }
                }
                Out::Leaves(nth) => drop(self.seats.remove(&nth)),
            }
        }
        true
    }

    /// A session becomes a peer.
    fn joins(&mut self, nth: u64, Place { cwd, resume }: Place) -> Result<(), String> {
        let (bus, options) = (self.join)(&cwd)?;
        let up = self.up.clone();
        let (process, to) = process::shared(move |line| {
            let up = up.clone();
            // It fails when everything ends.
            async move { drop(up.send((nth, Some(line))).await) }
        });
        let mut settings = self.settings.clone();
        if let DrivenAgent::Acp(agent) = &mut settings.agent {
            agent.resume = resume;
        }
        let seat = Seat { process, nth, cwd };
        let (wake, up) = (self.wake.clone(), self.up.clone());
        self.seats.insert(nth, to);
        self.drivers.spawn_local(async move {
            let driven = life::host(bus, options, &wake, settings, Some(seat), |_| true);
            if let (RunEnd::Failed(why), _) = driven.await {
                tracing::warn!("a session is not on the bus any more: {why}");
            }
            let _ = up.send((nth, None)).await;
        });
        Ok(())
    }
}

/// Passes on a line that is too long to be read, in pieces.
async fn long(
    lines: &mut BoundedLines<impl AsyncRead + Unpin>,
    has_method: bool,
    to: &Sender<Vec<u8>>,
) -> Result<(), String> {
    let head = lines.raw().get(..HEAD).unwrap_or_default();
    if has_method != String::from_utf8_lossy(head).contains("\"method\"") {
        return Err(format!(
            "a line of more than {LINE_MAX} bytes cannot be understood"
        ));
    }
    let mut part = lines.raw().to_vec();
    while !part.is_empty() {
        // The other end is found closed with the next line.
        let _ = to.send(part).await;
        part = lines.more().await.to_vec();
    }
    Ok(())
}
