//! Peers without an adapter: they speak the wire, and may do what no adapter does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use peerbus_test_support::message::envelope;
use peerbus_test_support::socket::{Socket, registration};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::history::{Id, Kind, Shown};
use super::world::World;

/// How long a peer waits for a connection, or for a frame to leave.
const WAIT: Duration = Duration::from_secs(2);
/// How long it listens before it looks what else there is to do.
const LISTEN: Duration = Duration::from_millis(5);
/// How long the end of a connection may be on its way after its token was revoked.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// A registered connection.
pub(crate) struct Wire {
    runtime: Runtime,
    socket: Socket,
    /// How often the token had been revoked when the connection was registered.
    revocations: u64,
    /// Since when it is known that the token was revoked once more.
    void: Option<Instant>,
}

/// What came.
pub(crate) enum Heard {
    Frame(Value),
    Nothing,
    End,
}

impl Wire {
    /// A connection on which nothing was said.
    pub(crate) fn dial(address: SocketAddr) -> Option<Self> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        let dialed = runtime.block_on(async { timeout(WAIT, Socket::connect(address)).await });
        let socket = dialed.ok()?.ok()?;
        Some(Self {
            runtime,
            socket,
            revocations: 0,
            void: None,
        })
    }

    pub(crate) fn register(world: &World, name: &str) -> Option<Self> {
        let history = &world.history;
        let revoked = history.revocation(name);
        let mut wire = Self::dial(world.proxy.address)?;
        let mut register = registration(name, world.token_of(name));
        register["ext"] = 1.into();
        register["instance"] = format!("chaos-{name}").into();
        if !wire.say(&register.to_string()) {
            return None;
        }
        let start = Instant::now();
        while start.elapsed() < WAIT {
            match wire.hear(LISTEN) {
                Heard::Frame(frame) if frame["type"] == "peers" => {
                    if revoked.is_some() && history.revocation(name) == revoked {
                        history.violate(format!("{name} registered with a revoked token"));
                    }
                    wire.revocations = history.revocations(name);
                    return Some(wire);
                }
                Heard::Frame(_) => return None,
                Heard::Nothing => {}
                Heard::End => return None,
            }
        }
        None
    }

    /// Whether the token of this connection was revoked, and that was confirmed. The connection must
    /// end then.
    fn is_void(&mut self, world: &World, name: &str) -> bool {
        if world.history.revocations(name) == self.revocations {
            return false;
        }
        if self.void.get_or_insert_with(Instant::now).elapsed() > LAST_WORDS {
            let what = format!("{name} is still connected, and its token was revoked");
            world.history.violate(what);
        }
        true
    }

    /// Whether it left.
    pub(crate) fn say(&mut self, text: &str) -> bool {
        let message = Message::text(text.to_owned());
        let socket = &mut self.socket.ws;
        let sent = self
            .runtime
            .block_on(async { timeout(WAIT, socket.send(message)).await });
        matches!(sent, Ok(Ok(())))
    }

    pub(crate) fn hear(&mut self, patience: Duration) -> Heard {
        let socket = &mut self.socket.ws;
        let next = self
            .runtime
            .block_on(async { timeout(patience, socket.next()).await });
        match next {
            Err(_) => Heard::Nothing,
            Ok(Some(Ok(Message::Text(text)))) => {
                Heard::Frame(serde_json::from_str(&text).expect("the broker speaks JSON"))
            }
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => Heard::Nothing,
            Ok(_) => Heard::End,
        }
    }
}

/// A message on its way.
struct Sent {
    id: String,
    number: u64,
    to: &'static str,
    text: String,
    kind: Kind,
    /// It left on a connection whose token was revoked.
    void: bool,
}

/// A peer that sends, resends what was not receipted, and asks what became of it.
pub(crate) struct Sender<'a> {
    world: &'a World,
    name: &'static str,
    to: &'static [&'static str],
    /// Most messages under way.
    pipeline: usize,
    rng: StdRng,
    number: u64,
    under_way: VecDeque<Sent>,
    /// Ids that are accepted, and to whom they went.
    accepted: Vec<(String, &'static str)>,
    /// Of what was asked for: what the recipient had acked for good before.
    asked: BTreeSet<String>,
}

impl<'a> Sender<'a> {
    pub(crate) fn new(
        world: &'a World,
        name: &'static str,
        to: &'static [&'static str],
        pipeline: usize,
        seed: u64,
    ) -> Self {
        let rng = StdRng::seed_from_u64(seed);
        Self {
            world,
            name,
            to,
            pipeline,
            rng,
            number: 0,
            under_way: VecDeque::new(),
            accepted: Vec::new(),
            asked: BTreeSet::new(),
        }
    }

    /// Goes on until sending is over and everything has an answer.
    pub(crate) fn run(mut self) {
        while !self.done() {
            let Some(mut wire) = Wire::register(self.world, self.name) else {
                std::thread::park_timeout(LISTEN * 2);
                continue;
            };
            self.serve(&mut wire);
        }
    }

    fn done(&self) -> bool {
        self.world.sending_is_over() && self.under_way.is_empty() || self.world.is_over()
    }

    fn serve(&mut self, wire: &mut Wire) -> Option<()> {
        for sent in &mut self.under_way {
            sent.void = wire.is_void(self.world, self.name);
            self.world.history.sending_again(self.name, sent.number);
            wire.say(&sent.text).then_some(())?;
        }
        self.ask(wire)?;
        while !self.done() {
            while !self.world.sending_is_over() && self.under_way.len() < self.pipeline {
                let mut sent = self.make();
                sent.void = wire.is_void(self.world, self.name);
                self.under_way.push_back(sent);
                let sent = self.under_way.back().map(|sent| sent.text.clone());
                wire.say(&sent.unwrap_or_default()).then_some(())?;
            }
            match wire.hear(LISTEN) {
                Heard::Frame(frame) => self.hear(wire, &frame)?,
                Heard::Nothing => {}
                Heard::End => return None,
            }
            if self.rng.random_ratio(1, 400) {
                self.ask(wire)?;
            }
            // The machine has others to serve.
            std::thread::park_timeout(LISTEN);
        }
        Some(())
    }

    fn make(&mut self) -> Sent {
        self.number += 1;
        let to = self.to[self.rng.random_range(0..self.to.len())];
        let random = self.rng.random::<u128>() >> 32;
        // A message is known by the end of its id: no two of a sender's are the same.
        let end = (self.number as u32).wrapping_mul(0x9e37_79b1);
        let id = format!("{}-{random:024x}{end:08x}", self.name);
        let body = json!({ "text": self.number.to_string() }).to_string();
        // Some are forgeries, which nobody may ever be shown.
        let (from, secret, kind) = match self.rng.random_range(0..60) {
            0 => ("sender", self.world.secret.as_str(), Kind::Forged),
            1 => (
                self.name,
                "another secret, of which nobody knows",
                Kind::Forged,
            ),
            _ => (self.name, self.world.secret.as_str(), Kind::Honest),
        };
        let text = envelope(secret, &id, from, to, &body);
        self.world.history.sending(self.name, self.number, to, kind);
        Sent {
            id,
            number: self.number,
            to,
            text,
            kind,
            void: false,
        }
    }

    /// Asks about some of what was accepted.
    fn ask(&mut self, wire: &mut Wire) -> Option<()> {
        if self.accepted.is_empty() {
            return Some(());
        }
        let mut ids = BTreeMap::new();
        for _ in 0..20 {
            let (id, to) = &self.accepted[self.rng.random_range(0..self.accepted.len())];
            ids.insert(id.clone(), *to);
        }
        let settled = |(id, to): (&String, &&str)| {
            let settled =
                *to == "bin" && self.world.is_settled(&(self.name.to_owned(), id.clone()));
            settled.then(|| id.clone())
        };
        self.asked = ids.iter().filter_map(settled).collect();
        let ids: Vec<_> = ids.into_keys().collect();
        let count = ids.len() as u64;
        self.world.history.count(|counts| counts.statuses += count);
        let ask = json!({ "protocol_version": "v1", "type": "status", "ids": ids });
        wire.say(&ask.to_string()).then_some(())
    }

    fn hear(&mut self, wire: &mut Wire, frame: &Value) -> Option<()> {
        for receipt in frame["receipts"].as_array().into_iter().flatten() {
            let text = |member: &str| receipt[member].as_str().unwrap_or_default();
            let (id, to) = (text("id"), text("to"));
            let history = &self.world.history;
            match text("state") {
                state @ ("accepted" | "refused") => self.answered(id, state, text("code")),
                "acked" if receipt["how"] == "seen" => history.seen(id, to, text("evidence")),
                state @ ("expired" | "dead") => history.ended(self.name, id, to, state),
                "unknown" => {
                    history.violate(format!("{id} was accepted, and is not known any more"));
                }
                "queued" if self.asked.contains(id) => {
                    history.violate(format!("{id} was acked by {to} for good, and is queued"));
                }
                _ => {}
            }
            if let Some(key) = receipt["key"].as_str() {
                wire.say(&ack(key).to_string()).then_some(())?;
            }
        }
        Some(())
    }

    fn answered(&mut self, id: &str, state: &str, code: &str) {
        // Else it is an answer to a question.
        let Some(at) = self.under_way.iter().position(|sent| sent.id == id) else {
            return;
        };
        let Some(sent) = self.under_way.remove(at) else {
            return;
        };
        let history = &self.world.history;
        let told = format!("{id} was {state} {code}");
        if state == "accepted" && sent.void {
            history.violate(format!("{told}, and the token was revoked before"));
        }
        match (state, sent.kind) {
            ("accepted", Kind::Honest) => {
                self.world.probe(id);
                history.accepted(self.name, id, sent.to);
                self.accepted.push((id.to_owned(), sent.to));
            }
            ("accepted", Kind::Forged) if sent.text.contains(r#""from":"sender""#) => {
                history.violate(format!("{told}, in another's name"));
            }
            // The broker cannot tell a wrong signature.
            ("accepted", Kind::Forged) => {}
            (_, Kind::Honest) if !["disk_full", "queue_full"].contains(&code) => {
                history.violate(told);
            }
            _ => history.refused(self.name, id),
        }
    }
}

/// A peer that receives, acks when it likes, and leaves without having acked everything.
pub(crate) fn receive(world: &World, name: &'static str, leaves: bool, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    while !world.is_over() {
        match Wire::register(world, name) {
            Some(mut wire) => {
                receive_on(world, name, leaves, &mut wire, &mut rng);
            }
            None => std::thread::park_timeout(LISTEN * 2),
        }
    }
}

fn receive_on(
    world: &World,
    name: &'static str,
    leaves: bool,
    wire: &mut Wire,
    rng: &mut StdRng,
) -> Option<()> {
    let process = world.history.process(name);
    let mut held: VecDeque<(String, Id)> = VecDeque::new();
    // What was acked before the barrier that is under way.
    let mut acked: Vec<Id> = Vec::new();
    let mut barrier: Option<Vec<Id>> = None;
    loop {
        if world.is_over() || leaves && !world.sending_is_over() && rng.random_ratio(1, 300) {
            return None;
        }
        wire.is_void(world, name);
        if leaves && rng.random_ratio(1, 500) {
            // It does not read for a while.
            std::thread::park_timeout(Duration::from_millis(rng.random_range(100..1_500)));
        }
        match wire.hear(LISTEN) {
            Heard::Frame(frame) if frame["type"] == "deliver" => {
                let key = frame["delivery_key"].as_str()?.to_owned();
                let id = take(world, name, process, &frame);
                held.push_back((key, id));
            }
            Heard::Frame(frame) if frame["type"] == "peers" => {
                world.settle(barrier.take().unwrap_or_default());
            }
            Heard::Frame(_) | Heard::Nothing => {}
            Heard::End => return None,
        }
        let keep = if leaves && !world.sending_is_over() {
            6
        } else {
            0
        };
        while held.len() > keep {
            let (key, id) = held.pop_front()?;
            wire.say(&ack(&key).to_string()).then_some(())?;
            acked.push(id);
        }
        if barrier.is_none() && !acked.is_empty() {
            let ask = json!({ "protocol_version": "v1", "type": "peers" });
            wire.say(&ask.to_string()).then_some(())?;
            barrier = Some(std::mem::take(&mut acked));
        }
    }
}

/// Notes a delivery.
fn take(world: &World, name: &str, process: u64, frame: &Value) -> Id {
    let envelope = &frame["envelope"];
    let text = |member: &str| envelope[member].as_str().unwrap_or_default().to_owned();
    let (from, id) = (text("from"), text("id"));
    let key = (from.clone(), id.clone());
    if world.is_settled(&key) {
        let what = format!("{name} acked {from} {id} for good, and gets it again");
        world.history.violate(what);
    }
    let number = envelope["body"]["text"].as_str();
    let shown = Shown {
        from,
        id,
        number: number.and_then(|text| text.parse().ok()),
        repeat: frame["again"] == true,
    };
    // Whoever has no adapter checks signatures itself; this one leaves that to the oracle.
    if !world.is_forged(&shown) {
        world.history.show(name, process, &shown, true);
    }
    key
}

fn ack(key: &str) -> Value {
    json!({ "protocol_version": "v1", "type": "ack", "id": key })
}
