//! The life of a driver.

mod hear;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use peerbus_adapter::Bus;
use peerbus_adapter::hooks::SessionSocket;
use peerbus_adapter::mailbox::{AgentLink, BoxFuture, Mailbox, WakeList};
use peerbus_adapter::paths::Paths;
use peerbus_adapter::signals::Stop;
use peerbus_mcp::{AdapterOptions, ClientInfo as Introduced, Profile};
use peerbus_node::{Node, SessionStatus};
use peerbus_wire::escape;
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::bridge::Bridge;
use crate::client::{self, Process};
use crate::restarts::Restarts;
use crate::session::{STREAM, Session};
use crate::stream;
use crate::{DRIVER_VARIABLE, SERVER, Settings, arguments};

/// What this kind of adapter is called, to peers.
const KIND: &str = "driver";
/// How the client introduces itself to MCP servers.
const CLIENT: &str = "claude-code";
/// How long the client may take to print its version.
const VERSION_WITHIN: Duration = Duration::from_secs(20);
/// The first request.
const BEGIN: &str = "peerbus-begin";
/// Longest sentence of the client's that is repeated, in characters.
const WHY_CHARS: usize = 300;
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
    let session = Session::new(settings.choice.resume.clone(), settings.prompt.clone());
    let (bridge, theirs, carrying) = Bridge::new();
    let (read, write) = tokio::io::split(theirs);
    let (made, mailbox) = oneshot::channel();
    let woken = peerbus_mcp::generic(|_| true);
    let instructions = woken.instruct(CLIENT);
    // What a server says of itself reaches the model in 2.1.330 only, and there not when the user's
    // configuration names another one alike. With the first request it does.
    let profile = Profile {
        kind: KIND,
        instructions: Box::new(|_| ""),
        ..woken
    };
    let allowed = wake.allows(&STREAM);
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
        if allowed {
            agent.paths.push(Box::new(link));
        }
        std::future::ready(agent)
    });
    let life = async {
        let Ok(mailbox) = mailbox.await else {
            return RunEnd::Failed("the bus tools ended".to_owned());
        };
        let who = Introduced {
            name: CLIENT.to_owned(),
            version: version.clone(),
        };
        bridge.introduce(&who).await;
        let (node, serve) = node(&settings.places, &session, mailbox.clone());
        let driver = Driver {
            settings: &settings,
            instructions,
            session: session.clone(),
            bridge: &bridge,
            mailbox,
            node,
            open: Arc::default(),
        };
        tokio::select! {
            ended = driver.live(stop, say) => ended,
            () = serve => RunEnd::Failed("the session's socket is gone".to_owned()),
        }
    };
    let life = async {
        tokio::select! {
            ended = life => ended,
            () = carrying.carry(&bridge) => RunEnd::Failed("the bus tools ended".to_owned()),
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
    arguments::takes(settings.transport, &version).map_err(RunEnd::Failed)?;
    Ok((stop, version))
}

/// The version that the client says it has; empty where that is none.
async fn version(settings: &Settings) -> Result<String, String> {
    let name = settings.program.to_string_lossy();
    let name = escape(&name, WHY_CHARS);
    let asked = Command::new(&settings.program)
        .arg("--version")
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output();
    match timeout(VERSION_WITHIN, asked).await {
        Ok(Ok(output)) => {
            let printed = String::from_utf8_lossy(&output.stdout);
            Ok(arguments::version(&printed).to_owned())
        }
        Ok(Err(error)) => Err(format!(
            "`{name}` cannot be started ({error}): install Claude Code, and have it on PATH"
        )),
        Err(_) => Err(format!(
            "`{name} --version` printed nothing within {} s",
            VERSION_WITHIN.as_secs()
        )),
    }
}

/// The session's node, and what serves it. Where there can be no socket, nobody comes.
fn node(
    places: &Paths,
    session: &Session,
    mailbox: Mailbox,
) -> (Option<Node>, BoxFuture<'static, ()>) {
    // All that runs below this process is the session's.
    let socket = SessionSocket::bind(places, std::process::id());
    let socket = socket.inspect_err(|error| {
        tracing::warn!(%error, "the session cannot be watched: no socket for it");
    });
    let Ok(socket) = socket else {
        return (None, Box::pin(std::future::pending()));
    };
    let about = SessionStatus {
        client: CLIENT.to_owned(),
        session: Some(Arc::new(session.clone())),
        transcript: None,
        shown_as: "user",
        control: Some(Arc::new(session.clone())),
    };
    let node = Node::new(&socket, places, about, mailbox);
    // Its hooks have nothing to say: the stream tells it all.
    let serve = node
        .clone()
        .serve(socket, |mut hook| async move { hook.nothing().await });
    (Some(node), Box::pin(serve))
}

struct Driver<'a> {
    settings: &'a Settings,
    /// What the model is told of the bus with the first request.
    instructions: String,
    session: Session,
    bridge: &'a Bridge,
    mailbox: Mailbox,
    node: Option<Node>,
    /// What waits for verdicts on requests to use a tool.
    open: Open,
}

/// Requests by their ids. One that is dropped is not waited for.
type Open = Arc<Mutex<BTreeMap<String, AbortHandle>>>;

/// How a client's part of the life ended.
enum Part {
    /// It ended, with a sentence on why.
    Died(Option<String>),
    /// Everything ends.
    Over(RunEnd),
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
        let mut restarts = Restarts::default();
        let mut ever = false;
        loop {
            let mut shown = Shown::default();
            let part = self.one(&mut stop, &mut say, &mut shown).await;
            self.gone().await;
            let why = match part {
                Part::Over(ended) => return ended,
                Part::Died(why) => shown.why.or(why).unwrap_or_default(),
            };
            ever |= shown.ready;
            if shown.worked {
                restarts.works();
            }
            let pause = restarts.ended().filter(|_| ever);
            let Some(pause) = pause else {
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

    /// Runs one client to its end.
    async fn one(
        &self,
        stop: &mut Stop,
        say: &mut impl FnMut(&str) -> bool,
        shown: &mut Shown,
    ) -> Part {
        let resume = {
            let state = self.session.state();
            state.id.clone().filter(|_| state.is_kept)
        };
        let arguments = self.settings.choice.arguments(resume.as_deref());
        let mut command = self.settings.before.clone();
        command.push(self.settings.program.clone());
        let us = std::process::id().to_string();
        let transport = self.settings.transport;
        tracing::info!(%transport, "Claude Code is started");
        let mark = (DRIVER_VARIABLE, us.as_str());
        let process = match client::start(&command, &arguments, mark, transport) {
            Ok(process) => process,
            Err(error) => return Part::Died(Some(format!("it cannot be started: {error}"))),
        };
        let Process {
            child,
            client,
            mut writing,
            mut output,
            mut errors,
        } = process;
        let begin = stream::initialize(BEGIN, SERVER, &self.instructions);
        let hear = async {
            // A client that takes nothing has ended, which the lines below tell.
            let _ = client.say(begin).await;
            while let Some(line) = output.next().await {
                if !self.hear(&client, &line, say, shown).await {
                    return Some(RunEnd::OutputClosed);
                }
            }
            None
        };
        let last = Mutex::new(None);
        let complain = async {
            while let Some(line) = client::next_text(&mut errors).await {
                let line = escape(&line, WHY_CHARS);
                tracing::warn!("Claude Code: {line}");
                *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
            }
            std::future::pending().await
        };
        let over = tokio::select! {
            ended = hear => ended,
            why = writing.write() => {
                *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                None
            }
            () = complain => None,
            signal = stop.asked() => Some(RunEnd::Signal(signal)),
            () = self.session.stopped() => Some(RunEnd::Stopped),
        };
        let idle =
            self.session.state().turns.activity() == peerbus_adapter::mailbox::Activity::Idle;
        self.session.state().client = None;
        let closed = writing.close();
        let status = client::end(child, idle && closed).await;
        match over {
            Some(ended) => Part::Over(ended),
            None => {
                let said = last.into_inner().unwrap_or_else(PoisonError::into_inner);
                let status = status.map(|status| status.to_string());
                Part::Died(said.or(status))
            }
        }
    }

    /// The client is gone, and what it had of what is not proven goes to the next.
    async fn gone(&self) {
        self.session.ended().await;
        std::mem::take(&mut *self.open())
            .into_values()
            .for_each(|waits| waits.abort());
        self.mailbox.machine(|it, now_ms| it.client_ended(now_ms));
        self.tell();
    }

    fn open(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, AbortHandle>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Peers are told whether the session can be woken, and what it does.
    fn tell(&self) {
        let ready = self.session.state().client.is_some();
        let found = ready
            .then_some(())
            .ok_or("Claude Code is being started again");
        self.mailbox.report(&self.session);
        self.mailbox.found(&STREAM, found.map_err(str::to_owned));
        self.session.look_again();
    }
}
