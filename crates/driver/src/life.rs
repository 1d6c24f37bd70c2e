//! The life of a driver.

mod hear;

use std::cell::RefCell;
use std::ffi::OsStr;
use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peerbus_adapter::Bus;
use peerbus_adapter::hooks::SessionSocket;
use peerbus_adapter::mailbox::{Activity, AgentLink, BoxFuture, Mailbox, WakeList, WakePath as _};
use peerbus_adapter::paths::Paths;
use peerbus_adapter::signals::Stop;
use peerbus_mcp::{AdapterOptions, ClientInfo, Profile, Spelling};
use peerbus_node::{Node, SessionStatus};
use peerbus_wire::escape;
use tokio::process::Command;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use crate::acp::{Acp, Seat};
use crate::below::DRIVER_VARIABLE;
use crate::claude::{self, Claude};
use crate::process::{self, AgentLines, Process};
use crate::protocol::{Heard, Protocol};
use crate::session::Session;
use crate::tools::{PIPE_BYTES, Relays, Tools};
use crate::{DrivenAgent, Settings, WHY_CHARS};

/// What this kind of adapter is called, to peers.
const KIND: &str = "driver";
const VERSION_WITHIN: Duration = Duration::from_secs(20);
/// After so long without a session the user is told.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// How long a process may take for the line with which it is left.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);
/// The first pause; it doubles.
const PAUSE: Duration = Duration::from_millis(500);
/// So many ends in a row, without a turn that went well between them, are no accident.
const ENDS_MAX: u32 = 6;

/// Why a driver ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEnd {
    /// A signal asked for it: `SIGINT`, `SIGTERM` or `SIGHUP`.
    Signal(&'static str),
    /// A program of the user's asked for it, at the session's node.
    Stopped,
    /// Nobody reads what the model says any more.
    OutputClosed,
    /// The client cannot be run, or not any more: a sentence.
    Failed(String),
}

/// Drives a client until a signal asks it to end, and ends it before it returns. `say` prints a
/// line of what the model says, already fit for a terminal; false: nobody reads it any more. Gives
/// the id of the session, too, if it can be gone on with: the client's own word.
///
/// Must run on a single-threaded runtime, on which the link of `bus` runs.
pub async fn run(
    bus: Bus,
    options: AdapterOptions,
    wake: &WakeList,
    settings: Settings,
    say: impl FnMut(&str) -> bool,
) -> (RunEnd, Option<String>) {
    host(bus, options, wake, settings, None, say).await
}

/// The same, for a session of an editor's, too.
pub(crate) async fn host(
    bus: Bus,
    mut options: AdapterOptions,
    wake: &WakeList,
    settings: Settings,
    seat: Option<Seat>,
    say: impl FnMut(&str) -> bool,
) -> (RunEnd, Option<String>) {
    let (stop, version) = match begin(&settings).await {
        Ok(begun) => begun,
        Err(ended) => return (ended, None),
    };
    let (tools, waiting) = Tools::new();
    let relays = settings.agent.relays(&tools, seat.as_ref());
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    let (read, write) = tokio::io::split(theirs);
    let (made, mailbox) = oneshot::channel();
    let woken = peerbus_mcp::generic(|_| true);
    let client = settings.agent.client().to_owned();
    if let DrivenAgent::Acp(_) = settings.agent {
        // Models' interfaces take names without dots, all of them.
        options.tool_names.get_or_insert(Spelling::Underscore);
    }
    let instructions = woken.instruct(&client);
    let nth = seat.as_ref().map(|seat| seat.nth);
    let cwd = seat.as_ref().map(|seat| seat.cwd.clone());
    let cwd = cwd.or_else(|| std::env::current_dir().ok());
    let protocol = protocol(&settings, instructions, (&tools, &relays), seat);
    let session = Session::new(Arc::clone(&protocol), &settings, cwd);
    // What a server says of itself reaches the model in 2.1.330 only, and there not when the user's
    // configuration names another one alike. With the first request it does.
    let profile = Profile {
        kind: KIND,
        allowed: true,
        driven: true,
        instructions: Box::new(|_| ""),
        ..woken
    };
    let link = session.clone();
    let server = peerbus_mcp::run_over(bus, profile, options, read, write, |_, mailbox| {
        mailbox.report(&link);
        // It fails when the driver has ended, and everything with it.
        let _ = made.send(mailbox);
        std::future::ready(agent(link, wake))
    });
    let life = async {
        let Ok(mailbox) = mailbox.await else {
            return RunEnd::Failed("the bus tools ended".to_owned());
        };
        let name = client.clone();
        let who = ClientInfo { name, version };
        let (node, serve) = node(
            (&settings.places, nth),
            (&session, client),
            mailbox.clone(),
            relays,
        );
        let driver = Driver {
            settings: &settings,
            protocol,
            session: session.clone(),
            mailbox,
            node,
        };
        tokio::select! {
            ended = driver.live(stop, say) => ended,
            () = serve => RunEnd::Failed("the session's socket is gone".to_owned()),
            () = tools.carry(&who, ours, waiting, |line| driver.answered(line)) => {
                RunEnd::Failed("the bus tools ended".to_owned())
            }
        }
    };
    // The server says goodbye to the broker once our end of the pair is gone.
    let (ended, _) = tokio::join!(life, server);
    let kept = {
        let state = session.state();
        let kept = state.is_kept && session.goes_on();
        state.id.clone().filter(|_| kept)
    };
    (ended, kept)
}

/// What the session offers its mailbox.
fn agent(session: Session, wake: &WakeList) -> AgentLink {
    let mut agent = AgentLink {
        session: Some(Arc::new(session.clone())),
        evidence: Some(Box::new(session.clone())),
        ..AgentLink::default()
    };
    if wake.allows(session.spec()) {
        agent.paths.push(Box::new(session));
    }
    agent
}

/// How the agent is spoken with.
fn protocol(
    settings: &Settings,
    instructions: String,
    (tools, relays): (&Arc<Tools>, &Relays),
    seat: Option<Seat>,
) -> Arc<dyn Protocol> {
    match &settings.agent {
        DrivenAgent::Claude {
            choice, transport, ..
        } => Arc::new(Claude {
            options: choice.clone(),
            transport: *transport,
            instructions,
            tools: Arc::clone(tools),
            asked: Mutex::default(),
            stopped: AtomicBool::default(),
            settings: Mutex::default(),
        }),
        DrivenAgent::Acp(agent) => {
            // Read at the start: an upgrade may replace the file.
            let own = settings.before.first().cloned().unwrap_or_default();
            let server = (
                &*own.to_string_lossy(),
                &["adapter"][..],
                relays.environment(),
            );
            Arc::new(Acp::new(agent.clone(), instructions, server, seat))
        }
    }
}

/// Catches signals, asks Claude Code for its version, and looks whether that takes the transport.
async fn begin(settings: &Settings) -> Result<(Stop, String), RunEnd> {
    let mut stop = Stop::catch()
        .map_err(|error| RunEnd::Failed(format!("signals cannot be handled: {error}")))?;
    let DrivenAgent::Claude {
        program, transport, ..
    } = &settings.agent
    else {
        return Ok((stop, String::new()));
    };
    let version = tokio::select! {
        version = version(program) => version,
        signal = stop.asked() => return Err(RunEnd::Signal(signal)),
    };
    let version = version.map_err(RunEnd::Failed)?;
    claude::takes(*transport, &version).map_err(RunEnd::Failed)?;
    Ok((stop, version))
}

/// The version that the client says it has; empty where that is none.
async fn version(program: &OsStr) -> Result<String, String> {
    let name = program.to_string_lossy();
    let name = escape(&name, WHY_CHARS);
    let asked = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let seconds = VERSION_WITHIN.as_secs();
    let late = |_| format!("`{name} --version` printed nothing within {seconds} s");
    let output = timeout(VERSION_WITHIN, asked).await.map_err(late)?;
    let output = output.map_err(|error| {
        format!("`{name}` cannot be started ({error}): install Claude Code, and have it on PATH")
    })?;
    let printed = String::from_utf8_lossy(&output.stdout);
    Ok(claude::version(&printed).to_owned())
}

/// The session's node, and what serves it; the `nth` is seen in an editor. Without a socket nobody comes.
fn node(
    (places, nth): (&Paths, Option<u64>),
    (session, client): (&Session, String),
    mailbox: Mailbox,
    relays: Arc<Relays>,
) -> (Option<Node>, BoxFuture<'static, ()>) {
    // All that runs below this process is the session's.
    let socket = match SessionSocket::bind_nth(places, std::process::id(), nth.unwrap_or(0)) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!(%error, "the session cannot be watched: no socket for it");
            return (None, Box::pin(std::future::pending()));
        }
    };
    let about = SessionStatus {
        client,
        session: Some(Arc::new(session.clone())),
        transcript: None,
        shown_as: "user",
        control: Some(Arc::new(session.clone())),
        windowless: nth.is_none(),
    };
    let node = Node::new(&socket, places, about, mailbox);
    let below = move |hook| Arc::clone(&relays).serve(hook);
    (Some(node.clone()), Box::pin(node.serve(socket, below)))
}

struct Driver<'a> {
    settings: &'a Settings,
    protocol: Arc<dyn Protocol>,
    session: Session,
    mailbox: Mailbox,
    node: Option<Node>,
}

/// Why a client is not listened to any more.
enum Left {
    /// Nobody reads what the model says.
    Output,
    /// It cannot be understood.
    Client,
}

/// What one client has shown.
#[derive(Default)]
struct Shown {
    /// It takes turns.
    ready: bool,
    /// A turn went well.
    worked: bool,
    why: Option<String>,
}

impl Driver<'_> {
    async fn live(&self, mut stop: Stop, mut say: impl FnMut(&str) -> bool) -> RunEnd {
        let (mut ends, mut ever) = (0, false);
        let title = self.protocol.title();
        loop {
            let mut shown = Shown::default();
            let part = self.one(&mut stop, &mut say, &mut shown).await;
            self.gone().await;
            let why = match part {
                Ok(ended) => return ended,
                Err(_) if self.protocol.is_in_editor() => return RunEnd::Stopped,
                Err(why) => shown.why.or(why).unwrap_or_default(),
            };
            ever |= shown.ready;
            ends = if shown.worked { 1 } else { ends + 1 };
            let Some(pause) = pause(ends).filter(|_| ever) else {
                return RunEnd::Failed(match ever {
                    true => format!("{title} ends again and again: {why}"),
                    false => format!("{title} ended before it was ready: {why}"),
                });
            };
            tracing::warn!(why, "{title} ended; it is started again");
            tokio::select! {
                () = sleep(pause) => {}
                signal = stop.asked() => return RunEnd::Signal(signal),
                () = self.session.stopped() => return RunEnd::Stopped,
            }
        }
    }

    /// Runs one client. An error: it ended by itself, with a sentence on why.
    async fn one(
        &self,
        stop: &mut Stop,
        say: &mut impl FnMut(&str) -> bool,
        shown: &mut Shown,
    ) -> Result<RunEnd, Option<String>> {
        let resume = {
            let state = self.session.state();
            state.id.clone().filter(|_| state.is_kept)
        };
        tracing::info!(
            over = self.settings.agent.carrier(),
            "{} is started",
            self.protocol.title()
        );
        let process = match self
            .protocol
            .start(command(self.settings), resume.as_deref())
        {
            Ok(process) => process,
            Err(error) => return Err(Some(format!("it cannot be started: {error}"))),
        };
        let Process {
            child,
            lifeline: _lifeline,
            to,
            mut from,
            mut errors,
            mut carries,
            ends_when_closed,
            output: _output,
        } = process;
        let hear = self.listen(&to, &mut from, say, shown);
        let last = RefCell::new(None);
        let complain = async {
            while let Some(line) = process::next_text(&mut errors).await {
                let line = escape(&line, WHY_CHARS);
                tracing::warn!("{}: {line}", self.protocol.title());
                last.replace(Some(line));
            }
            std::future::pending().await
        };
        let over = tokio::select! {
            ended = hear => ended,
            why = &mut carries => {
                last.replace(Some(why));
                None
            }
            () = complain => None,
            () = self.wonder() => None,
            signal = stop.asked() => Some(RunEnd::Signal(signal)),
            () = self.session.stopped() => Some(RunEnd::Stopped),
        };
        let idle = {
            let mut state = self.session.state();
            state.client = None;
            state.turns.activity() == Activity::Idle
        };
        if !idle && over.is_some() {
            let leave = timeout(LEAVE_WITHIN, self.protocol.leave(&to));
            tokio::select! {
                _ = leave => {}
                _ = &mut carries => {}
            }
        }
        drop(carries);
        let status = match child {
            Some(child) => process::end(child, idle && ends_when_closed).await,
            None => None,
        };
        over.ok_or_else(|| last.take().or(status.map(|status| status.to_string())))
    }

    /// Says that a client takes its time, and waits for ever.
    async fn wonder(&self) {
        sleep(READY_WITHIN).await;
        if self.session.state().client.is_none() {
            let title = self.protocol.title();
            let seconds = READY_WITHIN.as_secs();
            tracing::warn!("{title} takes no turns after {seconds} s; it is waited for");
        }
        std::future::pending().await
    }

    /// Greets a client, and listens to it until it says no more.
    async fn listen(
        &self,
        to: &AgentLines,
        from: &mut mpsc::Receiver<String>,
        say: &mut impl FnMut(&str) -> bool,
        shown: &mut Shown,
    ) -> Option<RunEnd> {
        // A client that takes nothing has ended, which the lines below tell.
        let _ = self.protocol.greet(to).await;
        while let Some(line) = from.recv().await {
            let all = self.protocol.hear(to, &line).await;
            let is_news = all.iter().any(Heard::is_news);
            let is_over = |heard: &Heard| matches!(heard, Heard::TurnEnd { .. });
            let is_over = all.iter().any(is_over);
            for heard in all {
                match self.hear(to, heard, say, shown).await {
                    Some(Left::Output) => return Some(RunEnd::OutputClosed),
                    Some(Left::Client) => return None,
                    None => {}
                }
            }
            self.found();
            if is_over {
                self.tell();
            } else if is_news {
                self.mailbox.report(&self.session);
                self.session.look_again();
            }
        }
        None
    }

    /// The client is gone, and what it had of what is not proven goes to the next.
    async fn gone(&self) {
        self.session.ended().await;
        self.mailbox.machine(|it, now_ms| it.client_ended(now_ms));
        self.tell();
    }

    /// Peers are told whether the session can be woken, and what it does.
    fn tell(&self) {
        let path = self.protocol.path();
        self.mailbox.report(&self.session);
        let (busy, rests, found) = {
            let state = self.session.state();
            let busy = state.turns.activity() == Activity::Busy;
            let title = self.protocol.title();
            let gone = || format!("{title} is being started again");
            let found = state.client.as_ref().map(drop).ok_or_else(gone);
            (busy, state.rest.is_some(), found)
        };
        match found.is_ok() {
            true if path.one_shot && busy => self.mailbox.used(path),
            true if rests => self.mailbox.rests(path),
            _ => self.mailbox.found(path, found),
        }
        self.session.look_again();
    }
}

/// In a process group of its own, so that a key that interrupts the driver does not reach it first.
pub(crate) fn command(settings: &Settings) -> Command {
    let program = settings.agent.program();
    let mut words = settings.before.iter().map(|it| &**it).chain([program]);
    let mut command = Command::new(words.next().unwrap_or(program));
    command
        .args(words)
        .env(DRIVER_VARIABLE, std::process::id().to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    command
}

/// How long to wait after so many ends in a row; `None`: give up.
fn pause(ends: u32) -> Option<Duration> {
    (ends < ENDS_MAX).then(|| PAUSE * (1 << (ends - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_have_an_end() {
        let pauses: Vec<_> = (1..).map_while(pause).collect();
        let ms: Vec<_> = pauses.iter().map(Duration::as_millis).collect();
        assert_eq!(ms, [500, 1_000, 2_000, 4_000, 8_000]);
    }
}
