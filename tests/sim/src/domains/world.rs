//! The world: what is on its way, and who gets it.

use std::collections::BTreeMap;

use peerbus_core::broker::{BrokerInput, BrokerMutation, BrokerOutput, ConnId};
use peerbus_peer::bridge;
use peerbus_wire::{ClientFrame, Domain, Received};

use super::home::{Fate, Home};
use super::joint::Joint;
use super::net::{Who, Wire};
use super::oracle::Oracle;
use super::peer::Peer;
use super::plan::Plan;
use crate::failure::{Failure, Verdict, ensure};
use crate::rng::Rng;
use crate::trace::Trace;

/// Events after which a world that has not come to rest is stuck.
const STEPS_MAX: u64 = 400_000;

/// What happens.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// A broker's process runs a while.
    Engine(usize),
    Boot(usize),
    Crash(usize),
    Backup(usize),
    Restore(usize),
    /// A broker's disk is nearly full, or is not any more.
    Full(usize, bool),
    /// A frame reaches a broker.
    Frame(u64, Box<ClientFrame>),
    /// A broker sees that a connection is gone.
    Gone(usize, u64),
    /// A frame reaches a client.
    Received(u64, Box<Received>),
    /// A client sees that its connection is gone.
    Cut(Who),
    Dial(Who),
    /// A peer writes its next message.
    Write(usize),
    /// It sends again what was refused and may be taken later.
    Resend(usize),
    /// It says of a message what became of it, if it is still on this connection.
    Verdict(usize, u64, super::oracle::Key, peerbus_wire::DeliveryKey),
    /// It does something about a request that it has read.
    Answer(usize, u64, super::oracle::Key, peerbus_wire::DeliveryKey),
    /// It takes a request of its own back.
    Withdraw(usize, peerbus_wire::MessageId),
    Leave(usize),
    Tick(usize),
    Pull(usize),
    /// A message reaches the stream to the other end of this bridge.
    Publish(usize, String, Vec<u8>),
    /// A message outside of the stream reaches this bridge.
    Outside(usize, Vec<u8>),
    /// A bridge dies, and is started again.
    Kill(usize),
    Start(usize),
    /// The stream from this bridge is deleted and made anew.
    Forget(usize),
}

pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) plan: Plan,
    pub(super) now_ms: u64,
    pub(super) steps: u64,
    queue: BTreeMap<(u64, u64), Event>,
    next: u64,
    pub(super) homes: Vec<Home>,
    pub(super) peers: Vec<Peer>,
    pub(super) joints: Vec<Joint>,
    pub(super) wires: BTreeMap<u64, Wire>,
    pub(super) oracle: Oracle,
    pub(super) trace: Trace,
    pub(super) healing: bool,
    pub(super) mutation: Option<bridge::BridgeMutation>,
    /// When each broker is going to run.
    planned: Vec<Option<u64>>,
}

impl World {
    pub(super) fn new(
        rng: Rng,
        plan: Plan,
        mutations: (Option<bridge::BridgeMutation>, Option<BrokerMutation>),
        keep: bool,
    ) -> Self {
        let homes: Vec<_> = (0..plan.homes)
            .filter_map(|at| Home::new(at, plan.expiry_ms, mutations.1))
            .collect();
        let domains: Vec<Domain> = homes.iter().map(|home| home.domain.clone()).collect();
        let mut joints = Vec::new();
        for home in 0..plan.homes {
            for abroad in (0..plan.homes).filter(|abroad| *abroad != home) {
                joints.push(Joint::new((home, abroad), &domains));
            }
        }
        let named = |at: usize| Peer::new(at / plan.peers, format!("p{at}"));
        let peers: Vec<_> = (0..plan.homes * plan.peers).map(named).collect();
        let mut world = Self {
            now_ms: 0,
            steps: 0,
            queue: BTreeMap::new(),
            next: 1,
            planned: vec![None; homes.len()],
            homes,
            peers,
            joints,
            wires: BTreeMap::new(),
            oracle: Oracle {
                expires: plan.expiry_ms.is_some(),
                liar: plan.liar,
                ..Oracle::default()
            },
            trace: Trace::new(keep),
            healing: false,
            mutation: mutations.0,
            rng,
            plan,
        };
        world.begin();
        world
    }

    /// What is going to happen.
    fn begin(&mut self) {
        let plan = self.plan.clone();
        for home in 0..self.homes.len() {
            self.at(0, Event::Boot(home));
            for _ in 0..plan.home_crashes {
                self.sometime(Event::Crash(home));
            }
            for _ in 0..plan.full {
                self.sometime(Event::Full(home, true));
            }
            for _ in 0..plan.restores {
                self.sometime(Event::Backup(home));
                self.sometime(Event::Restore(home));
            }
        }
        for joint in 0..self.joints.len() {
            self.at(1, Event::Start(joint));
            self.at(2, Event::Pull(joint));
            for _ in 0..plan.bridge_crashes {
                self.sometime(Event::Kill(joint));
            }
            for _ in 0..plan.forgets {
                self.sometime(Event::Forget(joint));
            }
        }
        for peer in 0..self.peers.len() {
            self.at(5, Event::Dial(Who::Peer(peer)));
            for _ in 0..plan.letters {
                self.sometime(Event::Write(peer));
            }
            for _ in 0..plan.leaves {
                self.sometime(Event::Leave(peer));
            }
        }
    }

    pub(super) fn at(&mut self, at_ms: u64, event: Event) {
        self.queue
            .insert((at_ms.max(self.now_ms), self.next), event);
        self.next += 1;
    }

    pub(super) fn after(&mut self, ms: u64, event: Event) {
        self.at(self.now_ms + ms, event);
    }

    fn sometime(&mut self, event: Event) {
        let at = self.rng.range(0, self.plan.busy_ms);
        self.at(at, event);
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Lives until then.
    pub(super) fn live(&mut self, until_ms: u64) -> Verdict {
        while let Some(((at, number), event)) = self.queue.pop_first() {
            if at > until_ms {
                self.queue.insert((at, number), event);
                break;
            }
            self.now_ms = self.now_ms.max(at);
            self.steps += 1;
            ensure(self.steps < STEPS_MAX, "rest", || {
                "the world does not come to rest".into()
            })?;
            self.happens(event)?;
        }
        self.now_ms = until_ms;
        Ok(())
    }

    fn happens(&mut self, event: Event) -> Verdict {
        match event {
            Event::Engine(home) => self.engine(home)?,
            Event::Boot(home) => self.boot(home)?,
            Event::Crash(home) if !self.healing => self.crash(home),
            Event::Backup(home) => {
                let tables = self.homes[home].store.tables().clone();
                // A backup is of what is committed: between steps that is all there is.
                self.homes[home].backup = Some((self.now_ms, tables));
            }
            Event::Restore(home) if !self.healing => self.restore(home),
            Event::Full(home, full) => self.fill(home, full && !self.healing),
            Event::Frame(conn, frame) => self.frame(conn, *frame),
            Event::Gone(home, conn) => {
                let conn = ConnId(conn);
                self.tell(
                    home,
                    BrokerInput::Closed {
                        conn,
                        goodbye: false,
                    },
                );
            }
            Event::Received(conn, received) => self.received(conn, *received)?,
            Event::Cut(who) => self.cut_off(who)?,
            Event::Dial(who) => self.dial(who),
            Event::Write(peer) => self.write(peer),
            Event::Resend(peer) => self.resend(peer),
            Event::Verdict(peer, conn, key, delivery) => {
                self.decide(peer, conn, &key, delivery);
            }
            Event::Answer(peer, conn, key, delivery) => {
                self.answer(peer, conn, key, delivery);
            }
            Event::Withdraw(peer, id) => self.withdraw(peer, id),
            Event::Leave(peer) if !self.healing => self.leave(peer),
            Event::Tick(joint) => self.joint_ticks(joint)?,
            Event::Pull(joint) => self.pull(joint)?,
            Event::Publish(joint, head, payload) => self.arrives(joint, head, payload),
            Event::Outside(joint, bytes) => {
                self.bridge(joint, bridge::BridgeInput::Outside(bytes))?;
            }
            Event::Kill(joint) if !self.healing => self.kill(joint),
            Event::Start(joint) => self.start(joint)?,
            Event::Forget(joint) if !self.healing => self.joints[joint].stream.forget(),
            _ => {}
        }
        Ok(())
    }

    fn boot(&mut self, home: usize) -> Verdict {
        if self.homes[home].is_up() {
            return Ok(());
        }
        let mono_zero = self.rng.range(0, 1 << 40);
        self.trace.note(self.now_ms, "boot", home as u64, "");
        self.homes[home].boot(self.now_ms, mono_zero)?;
        self.fill(home, false);
        self.plan_engine(home);
        Ok(())
    }

    fn crash(&mut self, home: usize) {
        self.homes[home].die();
        self.dead(home);
    }

    /// A broker's process is gone: its connections break.
    fn dead(&mut self, home: usize) {
        self.trace.note(self.now_ms, "dead", home as u64, "");
        self.oracle.seen.insert("broker died");
        let of_it = |(_, wire): &(&u64, &Wire)| wire.home == home;
        let broken: Vec<_> = self
            .wires
            .iter()
            .filter(of_it)
            .map(|(conn, _)| *conn)
            .collect();
        for conn in broken {
            self.sever(conn, false);
        }
        let down = self.rng.range(10, 4_000);
        self.after(down, Event::Boot(home));
    }

    fn restore(&mut self, home: usize) {
        let Some(backup_ms) = self.homes[home].restore() else {
            return;
        };
        self.trace.note(self.now_ms, "restore", home as u64, "");
        let tables = self.homes[home].store.tables();
        let span_ms = (backup_ms, self.now_ms);
        self.oracle.restored(home, span_ms, tables);
        self.dead(home);
    }

    fn fill(&mut self, home: usize, full: bool) {
        let total = 1 << 40;
        let free = if full { 0 } else { total };
        self.tell(home, BrokerInput::Space { free, total });
        if full {
            // For a moment, so that some of what is under way is refused and what follows is not.
            let longest = self.rng.pick(&[3, 10_000]);
            let later = self.rng.range(1, longest);
            self.after(later, Event::Full(home, false));
        }
    }

    /// Tells a broker something.
    pub(super) fn tell(&mut self, home: usize, input: BrokerInput) {
        self.homes[home].tell(input);
        self.plan_engine(home);
    }

    fn plan_engine(&mut self, home: usize) {
        let Some(wake) = self.homes[home].wake_ms() else {
            return;
        };
        let at = wake.max(self.now_ms);
        if self.planned[home].is_none_or(|planned| planned > at) {
            let at = if wake == 0 {
                at + self.rng.range(0, 2)
            } else {
                at
            };
            self.planned[home] = Some(at);
            self.at(at, Event::Engine(home));
        }
    }

    fn engine(&mut self, home: usize) -> Verdict {
        if self.planned[home].is_some_and(|at| at <= self.now_ms) {
            self.planned[home] = None;
        }
        let fate = match self.rng.chance(self.plan.dies_at_commit) {
            false => Fate::Lives,
            true if self.rng.chance(500) => Fate::Lost,
            true => Fate::Kept,
        };
        let up = self.homes[home].is_up();
        let outputs = self.homes[home].step(self.now_ms, fate)?;
        self.oracle.look(self.now_ms, home, &mut self.homes[home])?;
        for output in outputs {
            match output {
                BrokerOutput::Send(conn, frame) => self.sends(home, conn, &frame),
                BrokerOutput::Ping(conn) => self.tell(home, BrokerInput::Pong(conn)),
                BrokerOutput::Close(ConnId(conn), reason) => {
                    self.trace
                        .note(self.now_ms, "close", conn, &format!("{reason:?}"));
                    self.sever(conn, true);
                }
                BrokerOutput::Event(_) => {}
            }
        }
        if up && !self.homes[home].is_up() {
            self.dead(home);
        }
        self.plan_engine(home);
        Ok(())
    }

    /// All trouble ends.
    pub(super) fn heal(&mut self) {
        self.trace.note(self.now_ms, "heal", 0, "");
        self.healing = true;
        self.oracle.healed_ms = self.now_ms;
        self.plan.heal();
        for home in 0..self.homes.len() {
            self.fill(home, false);
            self.after(0, Event::Boot(home));
        }
        for peer in 0..self.peers.len() {
            self.peers[peer].away = false;
            self.after(100, Event::Dial(Who::Peer(peer)));
            self.after(100, Event::Resend(peer));
        }
        for joint in 0..self.joints.len() {
            self.after(0, Event::Start(joint));
        }
    }

    /// What keeps a healed world from being at rest.
    pub(super) fn unfinished(&self) -> Option<String> {
        for home in &self.homes {
            let owed = home.store.tables().deliveries.len();
            if owed > 0 {
                return Some(format!("{owed} messages are owed in {}", home.domain));
            }
            let kept = home.store.tables().notices.len();
            if kept > 0 {
                return Some(format!("{kept} notices are kept in {}", home.domain));
            }
        }
        let sends = self.peers.iter().find(|peer| !peer.outbox.is_empty());
        sends.map(|peer| format!("{} has no receipt", peer.name))
    }

    pub(super) fn failed(&self, text: impl Into<String>) -> Failure {
        Failure::new("liveness", text)
    }
}
