//! A broker on loopback that answers by itself and delivers what a test says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures_util::{SinkExt, StreamExt};
use peerbus_wire::{
    Address, BrokerFrame, Carried, ClientFrame, CloseReason, Conversation, DeliverFrame,
    DeliveryKey, How, MessageId, PeerEntry, PeerName, PeersFrame, Presence, Receipt, Refusal,
    RefusalCode, Register, Remarks, Seq, Stage, TokenName,
};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

use crate::PATIENCE;
use crate::message::{SECRET, envelope};
use crate::peer::{accepted, receipt};
use crate::socket::Socket;

/// More than a test orders or looks at late.
const BACKLOG: usize = 4_096;

/// What the broker saw.
#[derive(Debug)]
pub enum Seen {
    /// The client registered.
    Registered(Register),
    /// It sent a message.
    Envelope(Carried),
    /// It is done with a delivery.
    #[expect(missing_docs, reason = "as the frame has them")]
    Ack { key: String, how: Option<How> },
    /// It said how far a delivery got.
    #[expect(missing_docs, reason = "as the frame has them")]
    Progress { key: String, stage: Stage },
    /// It refused a delivery, which has this key.
    Reject(String),
    /// It took this request back.
    Withdraw(MessageId),
    /// It described itself.
    Presence(Value),
    /// The connection ended.
    Left,
}

/// A message to deliver.
#[derive(Debug)]
pub struct Mail<'a> {
    /// The sender.
    pub from: &'a str,
    /// Empty: `m` and its number.
    pub id: &'a str,
    /// The name that it was sent to, where that is an older one.
    pub alias: Option<&'a str>,
    /// The sender's token, where that is another one.
    pub token: Option<&'a str>,
    /// That token may approve.
    pub approves: bool,
    /// To everybody.
    pub all: bool,
    /// It was delivered before, to an earlier session of this name.
    pub again: bool,
    /// It is a request, whose result is wanted within so many milliseconds; 0: it is none.
    pub within_ms: u64,
    /// JSON, as the sender wrote it.
    pub body: &'a str,
}

impl<'a> Mail<'a> {
    /// From bob, as `m` and its number.
    pub fn new(body: &'a str) -> Self {
        Self {
            from: "bob",
            id: "",
            alias: None,
            token: None,
            approves: false,
            all: false,
            again: false,
            within_ms: 0,
            body,
        }
    }
}

#[derive(Debug)]
enum Command {
    Frame(String),
    HangUp,
    TakeOver,
}

/// A broker with one client. It accepts whatever is sent, knows the peer `bob`, and delivers what
/// it is told to.
#[derive(Debug)]
pub struct Broker {
    url: String,
    commands: mpsc::Sender<Command>,
    seen: mpsc::Receiver<Seen>,
    seq: u64,
    answers: Shared,
}

/// What the broker tells when it is asked.
#[derive(Debug, Default)]
struct Answers {
    /// How peers describe themselves.
    presence: BTreeMap<&'static str, Presence>,
    /// How far every message is; with bob's adapter when empty.
    stages: Vec<Stage>,
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

    /// The environment of an adapter named `me` that is to find this broker.
    pub fn variable(&self, name: &str) -> Option<String> {
        Some(match name {
            "PEERBUS_URL" => self.url.clone(),
            "PEERBUS_NAME" => "me".into(),
            "PEERBUS_TOKEN" => "token".into(),
            "PEERBUS_HMAC_SECRET" => SECRET.into(),
            _ => return None,
        })
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

    /// Delivers a request of bob's, whose answer is wanted within an hour.
    pub fn request(&mut self, body: &str) {
        self.deliver_with(&Mail {
            within_ms: 3_600_000,
            ..Mail::new(body)
        });
    }

    /// Delivers any message.
    pub fn deliver_with(&mut self, mail: &Mail<'_>) {
        self.seq += 1;
        let own = format!("m{}", self.seq);
        let id = if mail.id.is_empty() { &own } else { mail.id };
        let to = if mail.all {
            "*"
        } else {
            mail.alias.unwrap_or("me")
        };
        let said = Conversation::of(mail.body);
        let within_ms = Some(mail.within_ms).filter(|within_ms| *within_ms > 0);
        let talk = Conversation {
            within_ms: within_ms.or(said.within_ms),
            ..said
        };
        let text = envelope(SECRET, id, mail.from, to, &talk.write(mail.body));
        let alias = mail.alias.map(|name| PeerName::parse(name).unwrap());
        let token = mail.token.map(|name| TokenName::parse(name).unwrap());
        let frame = DeliverFrame::for_one(
            Seq(self.seq),
            &text,
            &Remarks {
                again: mail.again,
                alias,
                token,
                approves: mail.approves,
                within_ms: mail.within_ms,
                ..Remarks::default()
            },
        );
        self.command(Command::Frame(frame.text().to_string()));
    }

    /// Sends a receipt about a message as a whole or at bob.
    pub fn receipt(&self, id: &str, stage: Stage) {
        self.receipt_of("bob", id, stage);
    }

    /// Sends a receipt about a message as a whole or at `to`.
    pub fn receipt_of(&self, to: &str, id: &str, stage: Stage) {
        self.say(id, to, stage, None);
    }

    /// Sends a receipt that the broker keeps under `key` until it is acked.
    pub fn notice(&self, key: &str, to: &str, stage: Stage) {
        self.say("m0", to, stage, DeliveryKey::parse(key));
    }

    fn say(&self, id: &str, to: &str, stage: Stage, key: Option<DeliveryKey>) {
        let id = MessageId::parse(id).unwrap();
        self.command(Command::Frame(receipt(id, to, stage, key)));
    }

    /// This peer, `bob` or `zoe`, describes itself like this from now on.
    pub fn set_presence(&self, name: &'static str, presence: &Value) {
        let presence = Presence::parse(&presence.to_string()).expect("it fits");
        self.answers.lock().unwrap().presence.insert(name, presence);
    }

    /// Every message got so far from now on.
    pub fn set_stages(&self, stages: Vec<Stage>) {
        self.answers.lock().unwrap().stages = stages;
    }

    /// Breaks the connection.
    pub fn hang_up(&self) {
        self.command(Command::HangUp);
    }

    /// Gives the name to somebody else.
    pub fn take_over(&self) {
        self.command(Command::TakeOver);
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
            .unwrap_or_else(|_| panic!("no {what} within 60 s"))
    }

    /// The next ack, as key and how.
    pub async fn ack(&mut self) -> (String, Option<How>) {
        let ack = |seen| match seen {
            Seen::Ack { key, how } => Some((key, how)),
            _ => None,
        };
        self.saw("ack", ack).await
    }

    /// The next message that the client sends.
    pub async fn envelope(&mut self) -> Carried {
        let envelope = |seen| match seen {
            Seen::Envelope(carried) => Some(carried),
            _ => None,
        };
        self.saw("envelope", envelope).await
    }

    /// How far the next delivery got of which the client says it, as key and stage.
    pub async fn progress(&mut self) -> (String, Stage) {
        let progress = |seen| match seen {
            Seen::Progress { key, stage } => Some((key, stage)),
            _ => None,
        };
        self.saw("progress", progress).await
    }

    /// Waits until the client is registered.
    pub async fn registered(&mut self) -> Register {
        let registered = |seen| match seen {
            Seen::Registered(register) => Some(register),
            _ => None,
        };
        self.saw("registration", registered).await
    }

    /// The acks among what happened so far and was not looked at, as key and how.
    pub fn acks(&mut self) -> Vec<(String, Option<How>)> {
        let acks = self.noticed().into_iter().filter_map(|seen| match seen {
            Seen::Ack { key, how } => Some((key, how)),
            _ => None,
        });
        acks.collect()
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
        let Ok(mut socket) = Socket::accept(stream).await else {
            continue;
        };
        loop {
            let message = tokio::select! {
                biased;
                order = orders.recv() => match order {
                    Some(Command::Frame(text)) => {
                        if socket.ws.send(Message::text(text)).await.is_err() {
                            break;
                        }
                        continue;
                    }
                    Some(Command::HangUp) => break,
                    Some(Command::TakeOver) => {
                        drop(socket.close(&CloseReason::TakenOver).await);
                        continue;
                    }
                    None => return,
                },
                message = socket.ws.next() => match message {
                    Some(Ok(message)) => message,
                    _ => break,
                },
            };
            let Message::Text(text) = message else {
                continue;
            };
            let answer = answer(ClientFrame::parse(text.as_bytes()), ext, &note, &answers);
            if let Some(answer) = answer
                && socket.ws.send(Message::text(answer)).await.is_err()
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
                away_s: Some(if online { 0 } else { 60 }),
                activity_s: online.then_some(180),
                owes: None,
                groups: Vec::new(),
                presence: answers.lock().unwrap().presence.get(name).cloned(),
                stopped: false,
                token: None,
                old: Vec::new(),
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
                Address::Group(_) | Address::One(_) | Address::All => true,
            };
            let stage = if known {
                accepted(0)
            } else {
                Stage::Refused(Refusal {
                    code: RefusalCode::UnknownRecipient,
                    reason: "nobody holds or has held that name".into(),
                })
            };
            let id = carried.id.clone();
            note(Seen::Envelope(carried));
            ext.then(|| receipt(id, "bob", stage, None))
        }
        ClientFrame::Status { ids } => Some(status(ids, &answers.lock().unwrap().stages)),
        ClientFrame::Withdraw { id } => {
            note(Seen::Withdraw(id.clone()));
            Some(status(vec![id], &answers.lock().unwrap().stages))
        }
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
        ClientFrame::Progress { key, stage, .. } => Seen::Progress {
            key: key.as_str().into(),
            stage,
        },
        ClientFrame::Reject { key, .. } => Seen::Reject(key.as_str().into()),
        ClientFrame::Presence(presence) => {
            Seen::Presence(serde_json::from_str(presence.as_str()).unwrap())
        }
        _ => return None,
    })
}

/// How far each message is.
fn status(ids: Vec<MessageId>, stages: &[Stage]) -> String {
    let stages = match stages {
        [] => vec![accepted(1), Stage::Delivered],
        stages => stages.to_vec(),
    };
    let said = |id: MessageId| {
        let receipt = move |stage: Stage| Receipt {
            at_ms: Some(1_763_769_600_000),
            to: stage.is_at_one().then(|| "bob".to_owned()),
            ..Receipt::new(id.clone(), stage)
        };
        stages.clone().into_iter().map(receipt)
    };
    let receipts = ids.into_iter().flat_map(said).collect();
    BrokerFrame::Receipts(receipts).encode().to_string()
}
