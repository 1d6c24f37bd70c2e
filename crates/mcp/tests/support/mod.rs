//! A scripted broker on loopback, and a client on an adapter's streams.

#![allow(dead_code, unreachable_pub, reason = "shared by test binaries")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod mcp;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use peerbus_adapter::{Bus, Config, How, Naming, PeerName, Secret, Token, Url, Window, connect};
use peerbus_wire::{
    Accepted, Address, BrokerFrame, Carried, ClientFrame, DeliverFrame, Envelope, PeerEntry,
    PeersFrame, Presence, Receipt, Refusal, RefusalCode, Register, Seq, Stage,
};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

pub use mcp::{Client, client};

/// Longer than anything takes.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// More than a test orders or looks at late.
const BACKLOG: usize = 4_096;
const SECRET: &[u8] = b"a secret for tests, long enough for HMAC";

/// What the broker saw.
#[derive(Debug)]
pub enum Seen {
    Registered(Register),
    Envelope(Carried),
    Ack { key: String, how: Option<How> },
    Progress { key: String, stage: Stage },
    Reject { key: String },
    Presence(Value),
    Left,
}

/// A message to deliver.
pub struct Mail<'a> {
    pub from: &'a str,
    /// Empty: `m` and its number.
    pub id: &'a str,
    /// The name that it was sent to, where that is an older one.
    pub alias: Option<&'a str>,
    /// To everybody.
    pub all: bool,
    /// It was delivered before, to an earlier session of this name.
    pub again: bool,
    pub body: &'a str,
}

impl<'a> Mail<'a> {
    /// From bob, as `m` and its number.
    pub fn new(body: &'a str) -> Self {
        Self {
            from: "bob",
            id: "",
            alias: None,
            all: false,
            again: false,
            body,
        }
    }
}

enum Command {
    Frame(String),
    HangUp,
}

/// A broker with one client. It accepts whatever is sent, knows the peer `bob`, and delivers what
/// it is told to.
pub struct Broker {
    url: String,
    commands: mpsc::Sender<Command>,
    seen: mpsc::Receiver<Seen>,
    seq: u64,
    answers: Shared,
}

/// What the broker tells when it is asked.
#[derive(Default)]
struct Answers {
    /// How peers describe themselves.
    presence: BTreeMap<&'static str, Presence>,
    /// How far every message is; with bob's adapter when empty.
    ladder: Vec<Stage>,
}

type Shared = Arc<Mutex<Answers>>;

impl Broker {
    /// Starts the broker. `ext`: it speaks our extension.
    pub async fn start(ext: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let (commands, orders) = mpsc::channel(BACKLOG);
        let (notes, seen) = mpsc::channel(BACKLOG);
        let answers = Shared::default();
        tokio::spawn(serve(listener, ext, orders, notes, answers.clone()));
        Self {
            answers,
            url,
            commands,
            seen,
            seq: 0,
        }
    }

    /// A bus named `me` that is connected to this broker, its link running.
    pub fn bus(&self) -> Bus {
        let (bus, link) = connect(Config {
            url: Some(Url::parse(&self.url).unwrap()),
            naming: Naming::Verbatim(PeerName::parse("me").unwrap()),
            token: Token::parse("token"),
            secret: Some(Secret::new(SECRET).unwrap()),
            sockets: Vec::new(),
            credentials: PathBuf::from("/nonexistent/peerbus-test"),
            ephemeral: false,
            window: Window {
                messages: 256,
                bytes: 1_048_576,
            },
            presence: None,
            sessions: None,
            session: None,
        });
        tokio::spawn(link.run());
        bus
    }

    /// Delivers a message from bob; its id is `m` and its number.
    pub fn deliver(&mut self, body: &str) {
        self.deliver_from("bob", body);
    }

    /// As [`Broker::deliver`], from anybody.
    pub fn deliver_from(&mut self, from: &str, body: &str) {
        let id = format!("m{}", self.seq + 1);
        self.deliver_as(from, &id, body);
    }

    /// As [`Broker::deliver_from`], under an id of the sender's choice.
    pub fn deliver_as(&mut self, from: &str, id: &str, body: &str) {
        self.deliver_with(&Mail {
            from,
            id,
            ..Mail::new(body)
        });
    }

    /// Delivers any message.
    pub fn deliver_with(&mut self, mail: &Mail<'_>) {
        self.seq += 1;
        let own = format!("m{}", self.seq);
        let mut envelope = Envelope {
            protocol_version: "v1".into(),
            id: if mail.id.is_empty() {
                own
            } else {
                mail.id.into()
            },
            from: mail.from.into(),
            to: if mail.all {
                "*"
            } else {
                mail.alias.unwrap_or("me")
            }
            .into(),
            ts: "2026-11-21T00:00:00Z".into(),
            source: "peer-bus".into(),
            kind: if mail.all { "broadcast" } else { "msg" }.into(),
            body: mail.body.into(),
            hmac: String::new(),
        };
        let canonical = envelope.canonical().unwrap();
        envelope.hmac = Secret::new(SECRET).unwrap().sign(&canonical);
        let canonical = String::from_utf8(canonical).unwrap();
        let open = canonical.strip_suffix('}').unwrap();
        let text = format!(r#"{open},"hmac":"{}"}}"#, envelope.hmac);
        let alias = mail.alias.map(|name| PeerName::parse(name).unwrap());
        let frame = DeliverFrame::for_one(Seq(self.seq), &text, mail.again, alias.as_ref());
        self.command(Command::Frame(frame.text().to_string()));
    }

    /// Sends a receipt about a message as a whole or at bob.
    pub fn receipt(&self, id: &str, stage: Stage) {
        self.receipt_of("bob", id, stage);
    }

    /// Sends a receipt about a message as a whole or at `to`.
    pub fn receipt_of(&self, to: &str, id: &str, stage: Stage) {
        self.command(Command::Frame(receipt(id, to, stage, None)));
    }

    /// Sends a receipt that the broker keeps under `key` until it is acked.
    pub fn notice(&self, key: &str, to: &str, stage: Stage) {
        let key = peerbus_wire::DeliveryKey::parse(key);
        self.command(Command::Frame(receipt("m0", to, stage, key)));
    }

    /// This peer, `bob` or `zoe`, describes itself like this from now on.
    pub fn set_presence(&self, name: &'static str, presence: &Value) {
        let presence = Presence::parse(&presence.to_string()).expect("it fits");
        self.answers.lock().unwrap().presence.insert(name, presence);
    }

    /// Every message got so far from now on.
    pub fn set_ladder(&self, states: Vec<Stage>) {
        self.answers.lock().unwrap().ladder = states;
    }

    /// Breaks the connection.
    pub fn hang_up(&self) {
        self.command(Command::HangUp);
    }

    fn command(&self, command: Command) {
        assert!(self.commands.try_send(command).is_ok(), "the broker runs");
    }

    /// The next thing that happens, of those that `pick` takes.
    pub async fn saw<T>(&mut self, what: &str, pick: impl Fn(Seen) -> Option<T>) -> T {
        let search = async {
            loop {
                let seen = self.seen.recv().await.expect("the broker runs");
                if let Some(found) = pick(seen) {
                    return found;
                }
            }
        };
        tokio::time::timeout(PATIENCE, search)
            .await
            .unwrap_or_else(|_| panic!("no {what}"))
    }

    /// The next ack, as key and how.
    pub async fn ack(&mut self) -> (String, Option<How>) {
        let pick = |seen| match seen {
            Seen::Ack { key, how } => Some((key, how)),
            _ => None,
        };
        self.saw("ack", pick).await
    }

    /// Waits until the client is registered.
    pub async fn registered(&mut self) -> Register {
        let pick = |seen| match seen {
            Seen::Registered(register) => Some(register),
            _ => None,
        };
        self.saw("registration", pick).await
    }

    /// Everything noticed so far and not looked at.
    pub fn noticed(&mut self) -> Vec<Seen> {
        let mut all = Vec::new();
        while let Ok(seen) = self.seen.try_recv() {
            all.push(seen);
        }
        all
    }
}

async fn serve(
    listener: TcpListener,
    ext: bool,
    mut orders: mpsc::Receiver<Command>,
    notes: mpsc::Sender<Seen>,
    answers: Shared,
) {
    // A test may end, and stop listening to notes, while its client still talks.
    let note = |seen| drop(notes.try_send(seen));
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else {
            continue;
        };
        loop {
            let message = tokio::select! {
                biased;
                order = orders.recv() => match order {
                    Some(Command::Frame(text)) => {
                        if socket.send(Message::text(text)).await.is_err() {
                            break;
                        }
                        continue;
                    }
                    Some(Command::HangUp) => break,
                    None => return,
                },
                message = socket.next() => match message {
                    Some(Ok(message)) => message,
                    _ => break,
                },
            };
            let Message::Text(text) = message else {
                continue;
            };
            let answer = answer(ClientFrame::parse(text.as_bytes()), ext, &note, &answers);
            if let Some(answer) = answer
                && socket.send(Message::text(answer)).await.is_err()
            {
                break;
            }
        }
        note(Seen::Left);
    }
}

fn answer(frame: ClientFrame, ext: bool, note: &impl Fn(Seen), answers: &Shared) -> Option<String> {
    match frame {
        ClientFrame::Register(register) => {
            let frame = PeersFrame {
                names: vec!["bob".into(), "me".into()],
                ext: ext.then_some(1),
                window: register.window.filter(|_| ext),
                ..PeersFrame::default()
            };
            note(Seen::Registered(register));
            Some(BrokerFrame::Peers(frame).encode().to_string())
        }
        ClientFrame::Peers => {
            let entry = |name: &str, online| PeerEntry {
                name: name.into(),
                online,
                unacked: Some(0),
                away_s: if online { 0 } else { 60 },
                presence: answers.lock().unwrap().presence.get(name).cloned(),
            };
            let entries = vec![entry("bob", true), entry("me", true), entry("zoe", false)];
            let frame = PeersFrame {
                names: vec!["bob".into(), "me".into()],
                peers: ext.then_some(entries),
                ..PeersFrame::default()
            };
            Some(BrokerFrame::Peers(frame).encode().to_string())
        }
        ClientFrame::Envelope(carried) => {
            let known = match &carried.to {
                Address::Peer(name) => name.as_str() == "bob",
                Address::All => true,
            };
            let stage = if known {
                Stage::Accepted(Accepted {
                    recipients: 1,
                    online: 0,
                    duplicate: false,
                })
            } else {
                Stage::Refused(Refusal {
                    code: RefusalCode::UnknownRecipient,
                    reason: "nobody holds or has held that name".into(),
                })
            };
            let id = carried.id.to_string();
            note(Seen::Envelope(carried));
            ext.then(|| receipt(&id, "bob", stage, None))
        }
        ClientFrame::Status { ids } => Some(ladders(ids, &answers.lock().unwrap().ladder)),
        other => {
            if let Some(seen) = noted(other) {
                note(seen);
            }
            None
        }
    }
}

/// What a frame that is not answered says.
fn noted(frame: ClientFrame) -> Option<Seen> {
    Some(match frame {
        ClientFrame::Ack(ack) => Seen::Ack {
            key: ack.key.as_str().into(),
            how: ack.how,
        },
        ClientFrame::Progress { key, stage } => Seen::Progress {
            key: key.as_str().into(),
            stage,
        },
        ClientFrame::Reject { key, .. } => Seen::Reject {
            key: key.as_str().into(),
        },
        ClientFrame::Presence(presence) => {
            Seen::Presence(serde_json::from_str(presence.as_str()).unwrap())
        }
        _ => return None,
    })
}

/// How far each message is.
fn ladders(ids: Vec<peerbus_wire::MessageId>, states: &[Stage]) -> String {
    let accepted = Stage::Accepted(Accepted {
        recipients: 1,
        online: 1,
        duplicate: false,
    });
    let delivered = Stage::Delivered;
    let states = match states {
        [] => vec![accepted, delivered],
        states => states.to_vec(),
    };
    let said = |id: peerbus_wire::MessageId| {
        let receipt = move |stage: Stage| Receipt {
            at_ms: Some(1_763_769_600_000),
            to: stage.is_at_one().then(|| "bob".to_owned()),
            ..Receipt::new(id.clone(), stage)
        };
        states.clone().into_iter().map(receipt)
    };
    let receipts = ids.into_iter().flat_map(said).collect();
    BrokerFrame::Receipts(receipts).encode().to_string()
}

fn receipt(id: &str, to: &str, stage: Stage, key: Option<peerbus_wire::DeliveryKey>) -> String {
    let id = peerbus_wire::MessageId::parse(id).unwrap();
    let receipt = Receipt {
        key,
        to: stage.is_at_one().then(|| to.to_owned()),
        ..Receipt::new(id, stage)
    };
    BrokerFrame::Receipts(vec![receipt]).encode().to_string()
}
