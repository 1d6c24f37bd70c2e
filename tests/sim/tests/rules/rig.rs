//! A broker on a bench: its store, its clock, and what it says.

use std::collections::BTreeMap;

use peerbus_core::audit::AuditKey;
use peerbus_core::broker::{
    Broker, BrokerConfig, BrokerInput, BrokerOutput, BusEvent, CommitNeed, ConnId,
};
use peerbus_core::store::{PeerKind, PeerRow, Store, Txn};
use peerbus_core::testing::MemoryStore;
use peerbus_core::{Now, TokenHash};
use peerbus_wire::{
    Accepted, BrokerFrame, ClientFrame, CloseReason, DeliveryKey, Envelope, Forwarded, How,
    Instance, JoinGrant, MessageId, NameAnswer, PROTOCOL_VERSION, PeersFrame, Receipt, Received,
    Register, Secret, Seq, Stage, Token, Window,
};

/// A token that the broker knows.
pub(crate) const TOKEN: &str = "one-token";
/// Another one.
pub(crate) const OTHER_TOKEN: &str = "another-token";

pub(crate) const SECOND: u64 = 1_000;
pub(crate) const DAY: u64 = 86_400 * SECOND;

/// What a connection was told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) peers: Vec<PeersFrame>,
    pub(crate) delivered: Vec<u64>,
    pub(crate) texts: Vec<String>,
    /// Under which key, on this connection.
    pub(crate) keys: BTreeMap<u64, DeliveryKey>,
    pub(crate) receipts: Vec<Receipt>,
    pub(crate) recalled: Vec<u64>,
    pub(crate) names: Vec<NameAnswer>,
    pub(crate) forwarded: Vec<Forwarded>,
    pub(crate) joined: Option<JoinGrant>,
    /// Frames that held receipts.
    pub(crate) receipt_frames: usize,
    pub(crate) pings: usize,
    pub(crate) closed: Option<CloseReason>,
}

pub(crate) struct Rig {
    pub(crate) broker: Broker,
    pub(crate) store: MemoryStore,
    pub(crate) config: BrokerConfig,
    pub(crate) ms: u64,
    /// How far the wall clock is ahead of the time that has passed.
    pub(crate) ahead_ms: i64,
    /// How long the machine has slept.
    pub(crate) slept_ms: u64,
    pub(crate) told: BTreeMap<ConnId, Told>,
    pub(crate) counts: Vec<BusEvent>,
    pub(crate) commits: usize,
    next: u64,
    open: bool,
}

/// A registration; `..` the rest.
pub(crate) fn register(name: &str) -> Register {
    Register {
        protocol_version: PROTOCOL_VERSION.into(),
        token: Token::parse(TOKEN),
        name: name.into(),
        renaming: None,
        ext: 0,
        instance: None,
        ephemeral: false,
        generated: false,
        window: None,
        presence: None,
        bridge: None,
    }
}

/// A registration that speaks `ext`, of the process `instance`.
pub(crate) fn ext(name: &str, instance: &str) -> Register {
    Register {
        ext: 1,
        instance: Instance::parse(instance),
        ..register(name)
    }
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(|_| ())
    }

    pub(crate) fn with(change: impl FnOnce(&mut BrokerConfig)) -> Self {
        let tokens = [TOKEN, OTHER_TOKEN].map(|text| TokenHash::of(&Token::parse(text).unwrap()));
        let mut config = BrokerConfig::new(tokens.into(), AuditKey([7; 32]));
        change(&mut config);
        let mut store = MemoryStore::default();
        let loaded = store.load().unwrap();
        let broker = Broker::new(config.clone(), loaded, at(0, 0, 0));
        Self {
            broker,
            store,
            config,
            ms: 0,
            ahead_ms: 0,
            slept_ms: 0,
            told: BTreeMap::new(),
            counts: Vec::new(),
            commits: 0,
            next: 0,
            open: false,
        }
    }

    /// The broker dies and starts again; what was not committed is gone.
    pub(crate) fn restart(&mut self) {
        self.store.rollback();
        self.open = false;
        let loaded = self.store.load().unwrap();
        self.broker = Broker::new(self.config.clone(), loaded, self.now());
    }

    pub(crate) fn now(&self) -> Now {
        at(self.ms, self.slept_ms, self.ahead_ms)
    }

    /// Hands inputs in as one batch and commits nothing.
    pub(crate) fn batch(&mut self, inputs: impl IntoIterator<Item = BrokerInput>) -> CommitNeed {
        let now = self.now();
        if !self.open {
            self.store.begin().unwrap();
            self.open = true;
        }
        for input in inputs {
            self.broker.handle(now, input, &mut self.store).unwrap();
        }
        self.broker.flush(now, &mut self.store).unwrap();
        self.drain();
        self.broker.check();
        self.broker.need()
    }

    pub(crate) fn commit(&mut self) {
        if !self.open {
            return;
        }
        if self.broker.need() == CommitNeed::None {
            self.store.rollback();
        } else {
            self.broker.seal(self.now(), &mut self.store).unwrap();
            self.store.commit().unwrap();
            self.commits += 1;
            self.broker.committed();
        }
        self.open = false;
        self.drain();
        self.broker.check();
    }

    /// Hands an input in and commits.
    pub(crate) fn input(&mut self, input: BrokerInput) {
        self.batch([input]);
        self.commit();
    }

    fn drain(&mut self) {
        while let Some(output) = self.broker.poll_output() {
            match output {
                BrokerOutput::Event(count) => self.counts.push(count),
                BrokerOutput::Ping(conn) => self.of(conn).pings += 1,
                BrokerOutput::Close(conn, reason) => {
                    assert!(self.of(conn).closed.is_none(), "{conn:?} was closed twice");
                    self.of(conn).closed = Some(reason);
                }
                BrokerOutput::Send(conn, frame) => {
                    assert!(
                        self.of(conn).closed.is_none(),
                        "{conn:?}: a frame after the close"
                    );
                    self.sent(conn, frame);
                }
            }
        }
    }

    fn sent(&mut self, conn: ConnId, frame: BrokerFrame) {
        let told = self.told.entry(conn).or_default();
        match frame {
            BrokerFrame::Peers(frame) => told.peers.push(frame),
            BrokerFrame::Deliver(frame) => {
                let text = frame.text().to_string();
                let Received::Deliver(delivery) = Received::parse(text.as_bytes()) else {
                    panic!("{text}");
                };
                let carried = delivery.envelope.carry().unwrap().text;
                let messages = &self.store.tables().messages;
                let is_it = |seq: &&Seq| messages[seq].envelope == carried;
                let seq = *messages.keys().find(is_it).expect("it is stored");
                told.delivered.push(seq.0);
                told.texts.push(text);
                told.keys.insert(seq.0, delivery.key);
            }
            BrokerFrame::Receipts(receipts) => {
                told.receipt_frames += 1;
                told.receipts.extend(receipts);
            }
            BrokerFrame::Recall(it) => told.recalled.extend(it.key.seq().map(|seq| seq.0)),
            BrokerFrame::Renamed(answer) | BrokerFrame::Retired(answer) => told.names.push(answer),
            BrokerFrame::Forwarded(messages) => told.forwarded = messages,
            BrokerFrame::Joined(grant) => told.joined = Some(grant),
        }
    }

    fn of(&mut self, conn: ConnId) -> &mut Told {
        self.told.entry(conn).or_default()
    }

    /// What a connection was told since the last call.
    pub(crate) fn take(&mut self, conn: ConnId) -> Told {
        let told = self.told.remove(&conn).unwrap_or_default();
        self.of(conn).closed.clone_from(&told.closed);
        self.of(conn).keys.clone_from(&told.keys);
        told
    }

    pub(crate) fn delivered(&mut self, conn: ConnId) -> Vec<u64> {
        self.take(conn).delivered
    }

    pub(crate) fn states(&mut self, conn: ConnId) -> Vec<Stage> {
        self.take(conn)
            .receipts
            .into_iter()
            .map(|receipt| receipt.stage)
            .collect()
    }

    pub(crate) fn closed(&self, conn: ConnId) -> Option<(u16, String)> {
        let reason = self.told.get(&conn)?.closed.as_ref()?;
        Some((reason.code(), reason.text()))
    }

    /// Time passes; the broker is woken whenever it wants to be.
    pub(crate) fn pass(&mut self, ms: u64) {
        let until = self.ms + ms;
        for _ in 0..100_000 {
            let due = self
                .broker
                .poll_timeout()
                .map_or(u64::MAX, |(due, _)| due - MONO_ZERO);
            if due > until {
                self.ms = until;
                return;
            }
            self.ms = self.ms.max(due);
            self.input(BrokerInput::Tick);
        }
        panic!("the broker wants to be woken for ever");
    }

    pub(crate) fn open(&mut self) -> ConnId {
        let conn = ConnId(self.next);
        self.next += 1;
        self.input(BrokerInput::Opened(conn));
        conn
    }

    /// Opens a connection and sends the registration.
    pub(crate) fn ask(&mut self, register: Register) -> ConnId {
        let conn = self.open();
        self.frame(conn, ClientFrame::Register(register));
        conn
    }

    /// Registers, and expects to be greeted.
    pub(crate) fn join(&mut self, register: Register) -> ConnId {
        let conn = self.ask(register);
        assert_eq!(self.told[&conn].peers.len(), 1, "{:?}", self.told[&conn]);
        self.told.get_mut(&conn).unwrap().peers.clear();
        conn
    }

    pub(crate) fn v1(&mut self, name: &str) -> ConnId {
        self.join(register(name))
    }

    pub(crate) fn ext(&mut self, name: &str) -> ConnId {
        self.join(ext(name, &format!("instance-of-{name}")))
    }

    /// A frame, as its bytes say it.
    pub(crate) fn frame(&mut self, conn: ConnId, frame: ClientFrame) {
        self.input(BrokerInput::Frame(conn, on_the_wire(&frame)));
    }

    pub(crate) fn text(&mut self, conn: ConnId, text: &str) {
        self.input(BrokerInput::Frame(
            conn,
            ClientFrame::parse(text.as_bytes()),
        ));
    }

    pub(crate) fn send(&mut self, conn: ConnId, from: &str, to: &str, id: &str) {
        self.text(conn, &envelope(from, to, id, "1"));
    }

    /// Acks a message under the key that the connection was given, if it was.
    pub(crate) fn ack(&mut self, conn: ConnId, seq: u64) {
        let frame = self.ack_of(conn, seq);
        self.frame(conn, frame);
    }

    pub(crate) fn ack_of(&self, conn: ConnId, seq: u64) -> ClientFrame {
        let given = self.told.get(&conn).and_then(|told| told.keys.get(&seq));
        let key = given.cloned().unwrap_or(Seq(seq).key());
        ClientFrame::ack(key, None)
    }

    /// The connection ends, with or without a close frame.
    pub(crate) fn close(&mut self, conn: ConnId, goodbye: bool) {
        self.input(BrokerInput::Closed { conn, goodbye });
    }

    /// The row of a name, as it is on disk.
    pub(crate) fn row(&mut self, name: &str) -> Option<PeerRow> {
        let loaded = self.store.load().unwrap();
        loaded
            .peers
            .into_iter()
            .find(|row| row.kind == PeerKind::Peer && row.name.eq_ignore_ascii_case(name))
    }

    /// What is owed to a name, on disk.
    pub(crate) fn owed(&mut self, name: &str) -> Vec<u64> {
        let Some(row) = self.row(name) else {
            return Vec::new();
        };
        self.store.begin().unwrap();
        let queue = self.store.read_queue(row.id, 100_000, usize::MAX).unwrap();
        self.store.rollback();
        let mut owed: Vec<_> = queue.into_iter().map(|queued| queued.head.seq.0).collect();
        owed.sort_unstable();
        owed
    }
}

/// The monotonic clock's zero.
const MONO_ZERO: u64 = 5_000_000;

fn at(ms: u64, slept_ms: u64, ahead_ms: i64) -> Now {
    Now {
        mono_ms: MONO_ZERO + ms,
        boot_ms: MONO_ZERO / 2 + ms + slept_ms,
        wall_ms: (1_700_000_000_000 + ms + slept_ms).saturating_add_signed(ahead_ms),
    }
}

/// The frame after a trip over the wire.
pub(crate) fn on_the_wire(frame: &ClientFrame) -> ClientFrame {
    ClientFrame::parse(frame.encode().as_bytes())
}

/// A signed envelope. `to` may be `*`.
pub(crate) fn envelope(from: &str, to: &str, id: &str, body: &str) -> String {
    let mut envelope = Envelope {
        protocol_version: PROTOCOL_VERSION.into(),
        id: id.into(),
        from: from.into(),
        to: to.into(),
        ts: "2026-01-01T00:00:00Z".into(),
        source: "rules".into(),
        kind: if to == "*" {
            "broadcast".into()
        } else {
            "msg".into()
        },
        body: body.into(),
        hmac: String::new(),
    };
    envelope.hmac = Secret::new(&[b's'; 32])
        .unwrap()
        .sign(&envelope.canonical().unwrap());
    let Envelope {
        protocol_version,
        id,
        from,
        to,
        ts,
        source,
        kind,
        hmac,
        ..
    } = envelope;
    format!(
        r#"{{"protocol_version":"{protocol_version}","id":"{id}","from":"{from}","to":"{to}","ts":"{ts}","source":"{source}","kind":"{kind}","body":{body},"hmac":"{hmac}"}}"#
    )
}

/// The envelope as an input.
pub(crate) fn message(conn: ConnId, from: &str, to: &str, id: &str) -> BrokerInput {
    BrokerInput::Frame(
        conn,
        ClientFrame::parse(envelope(from, to, id, "1").as_bytes()),
    )
}

pub(crate) fn ack(seq: u64, how: Option<How>) -> ClientFrame {
    ClientFrame::ack(Seq(seq).key(), how)
}

pub(crate) fn ids(ids: &[&str]) -> Vec<MessageId> {
    ids.iter().map(|id| MessageId::parse(id).unwrap()).collect()
}

pub(crate) fn window(messages: u32, bytes: u32) -> Option<Window> {
    Some(Window { messages, bytes })
}

pub(crate) fn accepted(recipients: u32, online: u32) -> Stage {
    Stage::Accepted(Accepted {
        recipients,
        online,
        duplicate: false,
    })
}
