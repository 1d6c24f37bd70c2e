//! Between an editor and its agent: each session of theirs is a peer.
//!
//! The editor and the agent say to each other what they would say without this. For each session a driver
//! runs in this process, which takes this for the agent's process.

mod backlog;
mod long;
mod mux;
mod opening;
mod own;
mod question;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::process::Stdio;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use peerbus_adapter::Bus;
use peerbus_adapter::mailbox::WakeList;
use peerbus_adapter::signals::Stop;
use peerbus_mcp::{AdapterOptions, Input};
use tokio::process::ChildStdout;
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::backlog::{Source, Step, Way, hander, writer};
use self::mux::{Mux, Out, Place};
use crate::acp::{AcpAgent, Seat};
use crate::life::{self, RunEnd};
use crate::process::{self, WAITING_MAX};
use crate::{DrivenAgent, Settings};

/// How long the last lines may take to whoever reads them, and peers to say goodbye.
const LAST_WITHIN: Duration = Duration::from_secs(1);
/// How long an agent may go on once the editor has closed its end.
const ENDS_WITHIN: Duration = Duration::from_secs(2);
/// What a driver answers by itself it answers at once.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

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
        let room = Rc::new(Notify::new());
        let (editor, shown) = writer(output, &room);
        let (to_agent, written) = writer(stdin, &room);
        let mut ends = Ends {
            settings,
            wake,
            join,
            editor,
            agent: to_agent,
            up,
            room,
            seats: BTreeMap::new(),
            drivers: JoinSet::new(),
            all: Arc::default(),
            mux: Mux::of(agent.agent),
        };
        let mut lines = Lines {
            editor: Source::new(input),
            agent: Source::new(stdout),
            said,
        };
        let ended = tokio::select! {
            ended = ends.pass(&mut lines) => ended,
            _ = stop.asked() => Ok(Ended::Asked),
        };
        let cancels = ends.mux.cancels();
        let idle = cancels.is_empty() || matches!(ended, Ok(Ended::Agent));
        for line in cancels {
            ends.agent.send(line);
        }
        let mut drivers = ends.close();
        if timeout(LAST_WITHIN, written).await.is_err() {
            tracing::debug!("the agent takes nothing");
        }
        let status = process::end(child, idle).await;
        // The peers say goodbye, and the editor reads what the agent said last: of one that has ended
        // by itself all is waited for, as it would have waited.
        let goodbyes = async { while drivers.join_next().await.is_some() {} };
        let is_its = matches!(ended, Ok(Ended::Agent));
        let patience = async {
            match is_its {
                true => drop(stop.asked().await),
                false => sleep(LAST_WITHIN).await,
            }
        };
        let shown = async {
            tokio::select! {
                _ = shown => {}
                () = patience => {}
            }
        };
        let _ = tokio::join!(timeout(LAST_WITHIN, goodbyes), shown);
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
    editor: Source<Input>,
    agent: Source<ChildStdout>,
    /// The lines of drivers. `None`: one has ended.
    said: Receiver<(u64, Option<String>)>,
}

/// What is written to.
struct Ends<'a> {
    settings: Settings,
    wake: &'a WakeList,
    join: Join<'a>,
    editor: Way<Vec<u8>>,
    agent: Way<Vec<u8>>,
    up: Sender<(u64, Option<String>)>,
    /// Told that an end takes more, or nothing any more.
    room: Rc<Notify>,
    seats: BTreeMap<u64, Way<String>>,
    drivers: JoinSet<()>,
    /// Each driver has one.
    all: Arc<()>,
    mux: Mux,
}

impl Ends<'_> {
    /// Passes lines on until an end is closed. It waits for no end: of one that is slower than what is
    /// said to it, the others are read no more.
    async fn pass(&mut self, lines: &mut Lines) -> Result<Ended, String> {
        let (mut ends_at, mut late_at, mut is_deaf) = (None, None, false);
        while !self.editor.is_closed() {
            if ends_at.is_none() && self.agent.is_closed() {
                // It is ending, or it never hears of anything again.
                (ends_at, is_deaf) = (Some(Instant::now() + ENDS_WITHIN), true);
            }
            if self.agent.is_stuck() {
                return Err("the agent asks, and takes no answers".to_owned());
            }
            // What is refused is for an editor that may take nothing.
            let asked = ends_at.is_none() && self.agent.has_room() && !self.editor.is_stuck();
            let told = self.editor.has_room() && self.seats.values().all(Way::has_room);
            let in_while = || Instant::now() + ANSWERS_WITHIN;
            late_at = self.mux.hides().then(|| late_at.unwrap_or_else(in_while));
            let outs = tokio::select! {
                step = lines.editor.next(), if asked => match step {
                    Step::End => {
                        // The agent says the rest, as it would without this.
                        ends_at = Some(Instant::now() + ENDS_WITHIN);
                        self.mux.is_over = true;
                        self.agent.close();
                        continue;
                    }
                    step => self.editor_step(&step, &mut lines.editor)?,
                },
                step = lines.agent.next(), if told => match step {
                    Step::End if ends_at.is_some() && !is_deaf => return Ok(Ended::Asked),
                    Step::End => return Ok(Ended::Agent),
                    step => self.agent_step(&step, &mut lines.agent)?,
                },
                // The other end of it is ours, too.
                Some((nth, said)) = lines.said.recv() => match said {
                    Some(line) => self.mux.driver(nth, &line),
                    None => {
                        self.seats.remove(&nth);
                        self.mux.gone(nth)
                    }
                },
                () = at(late_at) => {
                    late_at = None;
                    self.mux.passed()
                }
                () = at(ends_at) => match is_deaf {
                    true => return Err("the agent takes nothing any more".to_owned()),
                    false => break,
                },
                () = self.room.notified() => continue,
            };
            self.act(outs);
            // Where lines never end, there is still a signal to be heard.
            tokio::task::yield_now().await;
        }
        Ok(Ended::Asked)
    }

    fn editor_step(&mut self, step: &Step, from: &mut Source<Input>) -> Result<Vec<Out>, String> {
        match step {
            Step::Line => return Ok(self.mux.editor(from.raw())),
            Step::Long => {
                let (passes, outs) = self.mux.editor_long(from.raw())?;
                from.passes(passes);
                if passes {
                    self.agent.begins();
                    self.agent.part(from.raw().to_vec());
                }
                return Ok(outs);
            }
            Step::Part => self.agent.part(from.raw().to_vec()),
            Step::Passed => self.agent.ends(),
            Step::LeftOut | Step::End => {}
        }
        Ok(Vec::new())
    }

    fn agent_step(
        &mut self,
        step: &Step,
        from: &mut Source<ChildStdout>,
    ) -> Result<Vec<Out>, String> {
        match step {
            Step::Line => return Ok(self.mux.agent(from.raw())),
            Step::Long => {
                let (passes, outs) = self.mux.agent_long(from.raw())?;
                from.passes(passes);
                if passes {
                    self.editor.begins();
                    self.editor.part(from.raw().to_vec());
                }
                return Ok(outs);
            }
            Step::Part => self.editor.part(from.raw().to_vec()),
            Step::Passed => self.editor.ends(),
            Step::LeftOut | Step::End => {}
        }
        Ok(Vec::new())
    }

    /// Says nothing more to anybody.
    fn close(self) -> JoinSet<()> {
        self.drivers
    }

    /// Does all of it.
    fn act(&mut self, outs: Vec<Out>) {
        let mut outs = VecDeque::from(outs);
        while let Some(out) = outs.pop_front() {
            match out {
                Out::Editor(line) => self.editor.send(line),
                Out::Agent(line) => self.agent.send(line),
                Out::Driver(nth, line) => {
                    if let Some(seat) = self.seats.get_mut(&nth) {
                        seat.send(line);
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
        let seat = Seat {
            process,
            nth,
            cwd,
            all: Arc::clone(&self.all),
        };
        let (wake, up) = (self.wake.clone(), self.up.clone());
        self.seats.insert(nth, hander(to, &self.room));
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

/// Waits until then, or for ever.
async fn at(then: Option<Instant>) {
    match then {
        Some(then) => sleep_until(then).await,
        None => std::future::pending().await,
    }
}
