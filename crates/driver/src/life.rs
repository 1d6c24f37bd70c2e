//! The life of a driver.

mod hear;

use std::cell::RefCell;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peerbus_adapter::Bus;
use peerbus_adapter::agents::claude_code;
use peerbus_adapter::hooks::SessionSocket;
use peerbus_adapter::mailbox::{Activity, AgentLink, BoxFuture, Mailbox, WakeList};
use peerbus_adapter::paths::Paths;
use peerbus_adapter::signals::Stop;
use peerbus_mcp::{AdapterOptions, ClientInfo, Profile};
use peerbus_node::{Node, SessionStatus};
use peerbus_wire::escape;
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::below::DRIVER_VARIABLE;
use crate::claude::{self, Claude};
use crate::process::{self, Process};
use crate::protocol::Protocol;
use crate::session::{STREAM, Session};
use crate::tools::{PIPE_BYTES, Relays, Tools};
use crate::{Settings, WHY_CHARS};

/// What this kind of adapter is called, to peers.
const KIND: &str = "driver";
/// How the client introduces itself to MCP servers.
const CLIENT: &str = "claude-code";
const VERSION_WITHIN: Duration = Duration::from_secs(20);
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
    let (stop, version) = match begin(&settings).await {
        Ok(begun) => begun,
        Err(ended) => return (ended, None),
    };
    let (tools, waiting) = Tools::new();
    let relays = Relays::new(Arc::clone(&tools), &claude_code::AGENT, true);
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    let (read, write) = tokio::io::split(theirs);
    let (made, mailbox) = oneshot::channel();
    let woken = peerbus_mcp::generic(|_| true);
    let protocol: Arc<dyn Protocol> = Arc::new(Claude {
        options: settings.choice.clone(),
        transport: settings.transport,
        instructions: woken.instruct(CLIENT),
        tools: Arc::clone(&tools),
        asked: Mutex::default(),
    });
    let resume = settings.choice.resume.clone();
    let session = Session::new(Arc::clone(&protocol), resume, settings.prompt.clone());
    // What a server says of itself reaches the model in 2.1.330 only, and there not when the user's
    // configuration names another one alike. With the first request it does.
    let profile = Profile {
        kind: KIND,
        instructions: Box::new(|_| ""),
        ..woken
    };
    let link = session.clone();
    let server = peerbus_mcp::run_over(bus, profile, options, read, write, |_, mailbox| {
        mailbox.report(&link);
        // It fails when the driver has ended, and everything with it.
        let _ = made.send(mailbox);
        let mut agent = AgentLink {
            session: Some(Arc::new(link.clone())),
            evidence: Some(Box::new(link.clone())),
            ..AgentLink::default()
        };
        if wake.allows(&STREAM) {
            agent.paths.push(Box::new(link));
        }
        std::future::ready(agent)
    });
    let life = async {
        let Ok(mailbox) = mailbox.await else {
            return RunEnd::Failed("the bus tools ended".to_owned());
        };
        let who = ClientInfo {
            name: CLIENT.to_owned(),
            version,
        };
        let (node, serve) = node(&settings.places, &session, mailbox.clone(), relays);
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
            () = tools.carry(&who, ours, waiting) => {
                RunEnd::Failed("the bus tools ended".to_owned())
            }
        }
    };
    // The server says goodbye to the broker once our end of the pair is gone.
    let (ended, _) = tokio::join!(life, server);
    let kept = {
        let state = session.state();
        state.id.clone().filter(|_| state.is_kept)
    };
    (ended, kept)
}

/// Catches signals, asks the client for its version, and looks whether that takes the transport.
async fn begin(settings: &Settings) -> Result<(Stop, String), RunEnd> {
    let mut stop = Stop::catch()
        .map_err(|error| RunEnd::Failed(format!("signals cannot be handled: {error}")))?;
    let version = tokio::select! {
        version = version(settings) => version,
        signal = stop.asked() => return Err(RunEnd::Signal(signal)),
    };
    let version = version.map_err(RunEnd::Failed)?;
    claude::takes(settings.transport, &version).map_err(RunEnd::Failed)?;
    Ok((stop, version))
}

/// The version that the client says it has; empty where that is none.
async fn version(settings: &Settings) -> Result<String, String> {
    let name = settings.program.to_string_lossy();
    let name = escape(&name, WHY_CHARS);
    let asked = Command::new(&settings.program)
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

/// The session's node, and what serves it. Where there can be no socket, nobody comes.
fn node(
    places: &Paths,
    session: &Session,
    mailbox: Mailbox,
    relays: Arc<Relays>,
) -> (Option<Node>, BoxFuture<'static, ()>) {
    // All that runs below this process is the session's.
    let socket = match SessionSocket::bind(places, std::process::id()) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!(%error, "the session cannot be watched: no socket for it");
            return (None, Box::pin(std::future::pending()));
        }
    };
    let about = SessionStatus {
        client: CLIENT.to_owned(),
        session: Some(Arc::new(session.clone())),
        transcript: None,
        shown_as: "user",
        control: Some(Arc::new(session.clone())),
    };
    let node = Node::new(&socket, places, about, mailbox);
    let below = move |hook| Arc::clone(&relays).serve(hook);
    let serve = node.clone().serve(socket, below);
    (Some(node), Box::pin(serve))
}

struct Driver<'a> {
    settings: &'a Settings,
    protocol: Arc<dyn Protocol>,
    session: Session,
    mailbox: Mailbox,
    node: Option<Node>,
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
    async fn live(self, mut stop: Stop, mut say: impl FnMut(&str) -> bool) -> RunEnd {
        let (mut ends, mut ever) = (0, false);
        loop {
            let mut shown = Shown::default();
            let part = self.one(&mut stop, &mut say, &mut shown).await;
            self.gone().await;
            let why = match part {
                Ok(ended) => return ended,
                Err(why) => shown.why.or(why).unwrap_or_default(),
            };
            ever |= shown.ready;
            ends = if shown.worked { 1 } else { ends + 1 };
            let Some(pause) = pause(ends).filter(|_| ever) else {
                return RunEnd::Failed(match ever {
                    true => format!("Claude Code ends again and again: {why}"),
                    false => format!("Claude Code ended before it was ready: {why}"),
                });
            };
            tracing::warn!(why, "Claude Code ended; it is started again");
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
        tracing::info!(transport = %self.settings.transport, "Claude Code is started");
        let process = match self.protocol.start(self.command(), resume.as_deref()) {
            Ok(process) => process,
            Err(error) => return Err(Some(format!("it cannot be started: {error}"))),
        };
        let Process {
            child,
            to,
            mut from,
            mut errors,
            mut carries,
            ends_when_closed,
            output: _output,
        } = process;
        let hear = async {
            // A client that takes nothing has ended, which the lines below tell.
            let _ = self.protocol.greet(&to).await;
            while let Some(line) = from.recv().await {
                let all = self.protocol.hear(&to, &line).await;
                let is_news = !all.is_empty();
                for heard in all {
                    if !self.hear(&to, heard, say, shown).await {
                        return Some(RunEnd::OutputClosed);
                    }
                }
                if is_news {
                    self.mailbox.report(&self.session);
                    self.session.look_again();
                }
            }
            None
        };
        let last = RefCell::new(None);
        let complain = async {
            while let Some(line) = process::next_text(&mut errors).await {
                let line = escape(&line, WHY_CHARS);
                tracing::warn!("Claude Code: {line}");
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
            signal = stop.asked() => Some(RunEnd::Signal(signal)),
            () = self.session.stopped() => Some(RunEnd::Stopped),
        };
        let idle = {
            let mut state = self.session.state();
            state.client = None;
            state.turns.activity() == Activity::Idle
        };
        drop(carries);
        let status = process::end(child, idle && ends_when_closed).await;
        over.ok_or_else(|| last.take().or(status.map(|status| status.to_string())))
    }

    /// In a process group of its own, so that a key that interrupts the driver does not reach it first.
    fn command(&self) -> Command {
        let Settings {
            before, program, ..
        } = self.settings;
        let mut words = before.iter().chain([program]);
        let mut command = Command::new(words.next().unwrap_or(program));
        command
            .args(words)
            .env(DRIVER_VARIABLE, std::process::id().to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        command
    }

    /// The client is gone, and what it had of what is not proven goes to the next.
    async fn gone(&self) {
        self.session.ended().await;
        self.mailbox.machine(|it, now_ms| it.client_ended(now_ms));
        self.tell();
    }

    /// Peers are told whether the session can be woken, and what it does.
    fn tell(&self) {
        let found = match self.session.state().client {
            Some(_) => Ok(()),
            None => Err("Claude Code is being started again".to_owned()),
        };
        self.mailbox.report(&self.session);
        self.mailbox.found(&STREAM, found);
        self.session.look_again();
    }
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
