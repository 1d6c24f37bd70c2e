//! Sharing a server: it is run here, and its channel is served to peers.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::future::poll_fn;
use std::process::Stdio;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::future::OptionFuture;
use peerbus_adapter::{Bus, How, PeerName, SessionEvent};
use peerbus_core::grant::NamePattern;
use peerbus_wire::jsonrpc::RpcMessage;
use peerbus_wire::limits::STATUS_IDS_MAX;
use peerbus_wire::{MessageId, PeerEntry, Stage, escape};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{sleep, sleep_until, timeout};

use crate::side_channel::VERSION;
use crate::side_channel::advert;
use crate::side_channel::host::{Client, Host, Out};
use crate::side_channel::lines;
use crate::side_channel::message::{self, Kind, Message};
use crate::side_channel::surface::{Set, Surface};

const INTRODUCTION: Duration = Duration::from_secs(30);
/// Pauses before a server that ended is started again.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How often it is looked who is there still.
const LOOK: Duration = Duration::from_secs(10);
/// How long an answer may wait for the broker.
const SENDS_WITHIN: Duration = Duration::from_secs(30);

/// A server to share.
#[derive(Debug, Clone)]
pub struct Share {
    /// What it is called.
    pub name: String,
    /// What may be served of what it declares.
    pub allow: Vec<Set>,
    /// Who may use it.
    pub to: Vec<NamePattern>,
    /// How it is started.
    pub command: Vec<OsString>,
    /// Said to the user: it is ready, it ended, who asks what of it.
    pub say: fn(&str),
}

struct Server {
    child: Child,
    from: mpsc::Receiver<String>,
    to: mpsc::Sender<String>,
    surface: Surface,
}

/// Shares a server until the bus is closed. One that ends is started again, as a new generation.
///
/// # Errors
///
/// When the server cannot be started at first, declares nothing that is allowed, or its advertisement
/// does not fit: a sentence.
pub async fn share(bus: &Bus, share: &Share) -> Result<(), String> {
    let mut pause = PAUSE;
    let mut first = true;
    let mut host = Host::new(share.to.clone());
    loop {
        match Server::start(share).await {
            Ok(server) => {
                let since = Instant::now();
                serve(bus, share, (server, &mut host), first).await?;
                first = false;
                if since.elapsed() > PAUSE_MAX {
                    pause = PAUSE;
                }
                (share.say)(&format!(
                    "the server has ended; it is started again in {pause:?}"
                ));
            }
            Err(why) if first => return Err(why),
            Err(why) => (share.say)(&format!("{why}; trying again in {pause:?}")),
        }
        bus.set_presence(&advert::presence(&share.name, None));
        // What comes meanwhile is refused, not kept: its channel is gone.
        host.begin(String::new(), Surface::default());
        let end = tokio::time::Instant::now() + pause;
        loop {
            tokio::select! {
                () = sleep_until(end) => break,
                event = bus.next() => match event {
                    Some(event) => {
                        let out = heard(bus, &mut host, event).map(|(from, message, age_ms)| host.hear(&from, message, (0, age_ms)));
                        hand_out(bus, &mut host, None, out.unwrap_or_default()).await;
                    }
                    None => return Ok(()),
                },
            }
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Serves a generation until its server or the bus ends.
async fn serve(
    bus: &Bus,
    share: &Share,
    (mut server, host): (Server, &mut Host),
    first: bool,
) -> Result<(), String> {
    let generation = format!("{:08x}", rand::random::<u32>());
    let uri = advert::uri(&bus.name(), &share.name, &generation);
    let shown = advert::presence(&share.name, Some((&uri, &server.surface)));
    if !bus.set_presence(&shown) && first {
        return Err(format!(
            "what {uri} serves does not fit into a presence of 1,024 bytes: choose shorter names"
        ));
    }
    (share.say)(&format!("sharing {uri}"));
    host.begin(uri, server.surface.clone());
    let begun = Instant::now();
    let now_ms = || u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let mut look = tokio::time::interval(LOOK);
    let mut odd = false;
    loop {
        let left = |at_ms: u64| Duration::from_millis(at_ms.saturating_sub(now_ms()));
        let late = OptionFuture::from(host.deadline().map(|at_ms| sleep(left(at_ms))));
        let out = tokio::select! {
            event = bus.next() => match event {
                Some(event) => match heard(bus, host, event) {
                    Some((from, message, age_ms)) => {
                        let out = host.hear(&from, message, (now_ms(), age_ms));
                        out.iter().filter_map(|out| done(&from.name, out)).for_each(|it| (share.say)(&it));
                        out
                    }
                    None => continue,
                },
                None => return Ok(()),
            },
            line = server.from.recv() => match line {
                Some(line) => match Message::parse(&line) {
                    Some(message) => host.said(message),
                    None => {
                        if !std::mem::replace(&mut odd, true) {
                            (share.say)(&format!("the server writes what is no message of MCP: {}", escape(&line, 200)));
                        }
                        continue;
                    }
                },
                None => {
                    let out = host.ended();
                    hand_out(bus, host, None, out).await;
                    // It is ours, and done with.
                    let _ = server.child.kill().await;
                    return Ok(());
                }
            },
            Some(()) = late => host.late(now_ms()),
            _ = look.tick() => {
                // Together: nobody else has a turn meanwhile.
                let ((), peers) = tokio::join!(clear(bus, host), bus.peers(LOOK));
                let Ok(peers) = peers else { continue };
                let key = |peer: &PeerEntry| Some(PeerName::parse(&peer.name).ok()?.key());
                let there = peers.entries.iter().filter(|peer| peer.online).filter_map(key);
                let known = peers.entries.iter().filter_map(key).collect();
                host.keep(&there.collect(), Some(&known).filter(|_| peers.omitted == 0))
            }
        };
        hand_out(bus, host, Some(&server), out).await;
    }
}

/// Asks what became of messages to clients: not all statements of that need to have come.
async fn clear(bus: &Bus, host: &mut Host) {
    let ids = host.doubted(STATUS_IDS_MAX);
    let ended =
        |stage: &Stage| stage.is_final() || matches!(stage, Stage::Unknown | Stage::Settled { .. });
    if !ids.is_empty()
        && let Ok(told) = bus.statuses(&ids, LOOK).await
    {
        let ended = told.iter().filter(|receipt| ended(&receipt.stage));
        ended.for_each(|receipt| host.ended_at_client(receipt.id.as_str()));
    }
}

/// What a peer has the server do, for its user.
fn done(from: &PeerName, out: &Out) -> Option<String> {
    let Out::Server(message) = out else {
        return None;
    };
    message.id.as_ref()?;
    let word = |member: &str| {
        let members = message.members();
        let text = serde_json::from_str::<String>(members.get(member)?.get()).ok()?;
        Some(format!(" {}", escape(&text, 200)))
    };
    let method = escape(message.method.as_deref()?, 80);
    // A caller may add other members.
    let what = match method.split_once('/') {
        Some(("resources", _)) => word("uri"),
        Some((_, "call" | "get")) => word("name"),
        _ => None,
    };
    let what = what.unwrap_or_default();
    Some(format!("{from}: {method}{what}"))
}

/// A message of a peer's and its age, which is acked before anything comes of it: nothing is done
/// twice.
fn heard(bus: &Bus, host: &mut Host, event: SessionEvent) -> Option<(Client, Message, u64)> {
    let message = match event {
        SessionEvent::Message(message) => message,
        SessionEvent::Notice { receipt, id } => {
            id.into_iter().for_each(|id| bus.ack_notice(id));
            if receipt.stage.is_final() {
                host.ended_at_client(receipt.id.as_str());
            }
            return None;
        }
        _ => return None,
    };
    bus.ack(&message.key, How::Pushed { path: "mcp".into() });
    let (name, party) = (PeerName::parse(&message.from).ok()?, message.party());
    let said = Message::parse(&message.body)?;
    Some((Client { name, party }, said, message.age_ms))
}

async fn hand_out(bus: &Bus, host: &mut Host, server: Option<&Server>, out: Vec<Out>) {
    let mut out = VecDeque::from(out);
    while let Some(one) = out.pop_front() {
        match one {
            Out::Server(message) => {
                let sent = server.map(|server| server.to.try_send(message.text()));
                if let Some(Err(_)) = sent {
                    out.extend(host.unsent(message));
                }
            }
            Out::Client(to, message) => {
                let (id, text) = (Bus::new_id(), message.text());
                if host.sends(&to, id.as_str(), text.len(), message.id.is_some()) {
                    send(bus, id, &to.name, text).await;
                }
            }
        }
    }
}

/// Sends a message, in the order of the calls, and does not wait for the broker.
pub(crate) async fn send(bus: &Bus, id: MessageId, to: &PeerName, text: String) {
    let (bus, to) = (bus.clone(), to.clone());
    begin(async move {
        if let Err(error) = bus.send_as(id, to.as_str(), &text, SENDS_WITHIN).await {
            tracing::warn!(%to, %error, "an answer did not reach its peer");
        }
    })
    .await;
}

/// Begins something that takes its place when it is polled first, and does not wait for its end.
pub(crate) async fn begin(act: impl Future<Output = ()> + Send + 'static) {
    let mut act = Box::pin(act);
    let open = poll_fn(|cx| Poll::Ready(act.as_mut().poll(cx).is_pending()));
    if open.await {
        tokio::spawn(act);
    }
}

impl Server {
    async fn start(share: &Share) -> Result<Self, String> {
        let (program, arguments) = share
            .command
            .split_first()
            .ok_or("name the server's command")?;
        let shown = escape(&program.to_string_lossy(), 200);
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("{shown} cannot be started: {error}"))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (stdin, stdout) = stdin.zip(stdout).ok_or("the server has no pipes")?;
        let (to, mut from) = (lines::write(stdin), lines::read(stdout));
        let declared = timeout(INTRODUCTION, introduce(&to, &mut from)).await;
        let declared = declared
            .map_err(|_late| {
                format!(
                    "{shown} did not introduce itself within {} s",
                    INTRODUCTION.as_secs()
                )
            })?
            .ok_or_else(|| format!("{shown} ended, or is no MCP server that speaks over stdio"))?;
        let surface = Surface::of(&share.allow, &declared["capabilities"]);
        if surface.is_empty() {
            let wanted: Vec<_> = share.allow.iter().map(|set| set.as_str()).collect();
            return Err(format!(
                "{shown} has none of {}: nothing would be shared",
                wanted.join(", ")
            ));
        }
        Ok(Self {
            child,
            from,
            to,
            surface,
        })
    }
}

/// The handshake. Gives what the server says of itself.
async fn introduce(to: &mpsc::Sender<String>, from: &mut mpsc::Receiver<String>) -> Option<Value> {
    let about = json!({
        "protocolVersion": VERSION, "capabilities": {},
        "clientInfo": { "name": "peerbus", "version": env!("CARGO_PKG_VERSION") },
    });
    let hello = RpcMessage::call(message::raw(&0), "initialize", message::raw(&about));
    to.send(hello.text()).await.ok()?;
    loop {
        let line = from.recv().await?;
        let Some(answer) = Message::parse(&line) else {
            continue;
        };
        if answer.kind() != Kind::Response {
            continue;
        }
        let result = serde_json::from_str(answer.rpc.result?.get()).ok()?;
        let ready = RpcMessage::call(None, "notifications/initialized", None);
        to.send(ready.text()).await.ok()?;
        return Some(result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_caller_adds_hides_nothing_that_it_has_done() {
        let told = |method: &str, params: &str| {
            let line =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
            let message = Message::parse(&line).unwrap();
            done(&PeerName::parse("eve").unwrap(), &Out::Server(message)).unwrap()
        };
        let read = told(
            "resources/read",
            r#"{"name":"README.md","uri":"file:///etc/shadow"}"#,
        );
        assert_eq!(read, "eve: resources/read file:///etc/shadow");
        let called = told("tools/call", r#"{"uri":"harmless","name":"rm"}"#);
        assert_eq!(called, "eve: tools/call rm");
        assert_eq!(
            told("tools/call", r#"{"uri":"harmless"}"#),
            "eve: tools/call"
        );
    }
}
