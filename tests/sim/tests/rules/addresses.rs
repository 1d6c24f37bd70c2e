//! Sessions at the brokers of two domains: whatever breaks between them, each message arrives once,
//! signed as the address that its sender had when it left.

use std::collections::{BTreeMap, BTreeSet};

use peerbus_core::Now;
use peerbus_core::TokenHash;
use peerbus_core::broker::ConnId;
use peerbus_core::grant::{Right, Rights};
use peerbus_peer::session::{
    Action, ConnectionCredentials, ConnectionEnd, Draft, PeerSession, Question, Reply,
    SessionConfig, SessionEvent, Unsent,
};
use peerbus_sim::Rng;
use peerbus_wire::{
    Address, BrokerFrame, ClientFrame, Domain, How, Mark, MessageId, PeerName, Received, Register,
    Secret, Stage, Token, Window,
};

use crate::rig::{OTHER_TOKEN, Rig, TOKEN, ext};

fn domain(text: &str) -> Domain {
    Domain::parse(text).unwrap()
}

/// A broker, the bridge there, and a session with a name that changes once.
struct Side {
    own: Domain,
    other: Domain,
    rig: Rig,
    session: PeerSession,
    secret: Secret,
    conn: Option<ConnId>,
    bridge: Option<ConnId>,
    /// What the bridge was given and has not brought to the other side.
    carried: Vec<(String, String)>,
    /// What the other broker has, which the bridge has not said here yet.
    confirmed: Vec<String>,
    takes: u64,
    /// The names that were ever asked for.
    names: BTreeSet<String>,
    sent: BTreeMap<String, String>,
    /// Id and sender of what the session showed.
    shown: BTreeMap<String, String>,
}

impl Side {
    fn new(own: &str, other: &str, name: &str, secret: u8) -> Self {
        let rig = Rig::with(|config| {
            config.domain = Domain::parse(own);
            config.epoch = Mark::parse(own);
            let bridges = TokenHash::of(&Token::parse(OTHER_TOKEN).unwrap());
            let mut grants = config.grants.iter_mut();
            let grant = grants.find(|grant| grant.token == bridges).unwrap();
            grant.rights = Rights::of([Right::Bridge]);
        });
        let config = SessionConfig {
            name: PeerName::parse(name).unwrap(),
            generated: false,
            instance: None,
            ephemeral: false,
            window: Window {
                messages: 256,
                bytes: 1_048_576,
            },
            presence: None,
            groups: Vec::new(),
        };
        // They have nothing in common but what the two domains share.
        let shared = Secret::new(&[b'p'; 32]).unwrap();
        let secret = Secret::new(&[secret; 32]).unwrap();
        let mut side = Self {
            own: domain(own),
            other: domain(other),
            rig,
            session: PeerSession::new(config, Now::default(), 7),
            secret: secret.sharing(domain(other), shared),
            conn: None,
            bridge: None,
            carried: Vec::new(),
            confirmed: Vec::new(),
            takes: 0,
            names: BTreeSet::from([name.to_owned()]),
            sent: BTreeMap::new(),
            shown: BTreeMap::new(),
        };
        side.join_bridge();
        side
    }

    fn now(&self) -> Now {
        self.rig.now()
    }

    fn join_bridge(&mut self) {
        let name = format!("bridge@{}", self.other);
        self.bridge = Some(self.rig.join(Register {
            token: Token::parse(OTHER_TOKEN),
            bridge: Mark::parse(self.other.as_str()),
            ..ext(&name, &name)
        }));
        self.carried.clear();
        self.confirmed.clear();
    }

    /// The bridge is started anew: what it had not confirmed is delivered again.
    fn lose_bridge(&mut self) {
        let bridge = self.bridge.take().unwrap();
        self.rig.close(bridge, false);
        self.join_bridge();
    }

    fn cut(&mut self) {
        if let Some(conn) = self.conn.take() {
            self.rig.close(conn, false);
            let why = "cut".into();
            let now = self.now();
            self.session
                .handle_closed(now, &ConnectionEnd::Broken { why });
        }
    }

    /// The broker is killed and comes back.
    fn crash(&mut self) {
        self.rig.restart();
        if self.conn.take().is_some() {
            let why = "killed".into();
            let now = self.now();
            self.session
                .handle_closed(now, &ConnectionEnd::Broken { why });
        }
        self.join_bridge();
    }

    fn send(&mut self, to: &str, id: String) {
        let draft = Draft {
            id: MessageId::parse(&id).unwrap(),
            to: Address::Peer(PeerName::parse(to).unwrap()),
            ts: "2026-01-01T00:00:00Z".into(),
            source: "rules".into(),
            body: "1".into(),
        };
        let now = self.now();
        self.session.send(now, draft, u64::MAX).unwrap();
        self.sent.insert(id, to.to_owned());
    }

    /// Lets session and broker talk, so many frames of the session's at most. `deaf`: the session
    /// hears nothing of what the broker says to that.
    fn talk(&mut self, most: usize, deaf: bool) {
        while let Some(action) = self.session.poll_action() {
            match action {
                Action::Dial => {
                    self.conn = Some(self.rig.open());
                    let credentials = ConnectionCredentials {
                        token: Token::parse(TOKEN).unwrap(),
                        secret: self.secret.clone(),
                        local: true,
                    };
                    let now = self.now();
                    self.session.handle_connected(now, credentials);
                }
                Action::Reread => {
                    let now = self.now();
                    self.session.handle_secret(now, None);
                }
                Action::Ping => {
                    let now = self.now();
                    self.session.handle_alive(now);
                }
                Action::HangUp => {
                    if let Some(conn) = self.conn.take() {
                        self.rig.close(conn, false);
                    }
                }
                Action::Rename => panic!("it has a name of its own"),
            }
        }
        let Some(conn) = self.conn else { return };
        for _ in 0..most {
            let Some(frame) = self.session.poll_transmit() else {
                break;
            };
            self.rig.text(conn, &frame.encode());
        }
        if deaf {
            return self.cut();
        }
        let told = self.rig.take(conn);
        assert!(told.closed.is_none(), "{told:?}");
        let frames = told.peers.into_iter().map(BrokerFrame::Peers);
        let frames = frames.chain(told.names.into_iter().map(BrokerFrame::Renamed));
        let frames = frames.chain(BrokerFrame::receipts(told.receipts));
        let texts = frames.map(|frame| frame.encode().to_string());
        for text in texts.chain(told.texts) {
            let now = self.now();
            self.session.handle_text(now, text.as_bytes());
        }
        self.session.check();
        self.show();
    }

    fn show(&mut self) {
        while let Some(event) = self.session.poll_event() {
            if let SessionEvent::Message(inbound) = event {
                let how = How::Seen {
                    path: "drain".into(),
                    evidence: "tool_result".into(),
                };
                let now = self.now();
                self.session
                    .reached(now, inbound.key, Stage::Acked(Some(how)));
                assert!(!inbound.to.is_some_and(|to| to.contains('@')));
                let before = self.shown.insert(inbound.id.clone(), inbound.from);
                assert_eq!(before, None, "{} was shown twice", inbound.id);
            }
        }
        while let Some(reply) = self.session.poll_reply() {
            let fails = matches!(&reply, Reply::Sent { outcome: Err(why), .. }
                if !matches!(why, Unsent::Unconfirmed { .. }));
            assert!(!fails, "{reply:?}");
        }
    }
}

/// The bridges carry what they have from one side to the other.
fn carry(from: &mut Side, to: &mut Side) {
    let told = from.rig.take(from.bridge.unwrap());
    for text in told.texts {
        let Received::Deliver(delivery) = Received::parse(text.as_bytes()) else {
            panic!("{text}");
        };
        let envelope = delivery.envelope.carry().unwrap().text.to_string();
        from.carried
            .push((delivery.key.as_str().to_owned(), envelope));
    }
    for (key, envelope) in std::mem::take(&mut from.carried) {
        to.takes += 1;
        let mark = to.takes;
        let frame = format!(
            r#"{{"protocol_version":"v1","type":"take","mark":"{mark}","envelope":{envelope}}}"#
        );
        let bridge = to.bridge.unwrap();
        to.rig.text(bridge, &frame);
        from.confirmed.push(key);
    }
}

/// A bridge says what the other broker has.
fn confirm(side: &mut Side) {
    for key in std::mem::take(&mut side.confirmed) {
        let frame = ClientFrame::progress(
            peerbus_wire::DeliveryKey::parse(&key).unwrap(),
            Stage::Forwarded,
        );
        side.rig.frame(side.bridge.unwrap(), frame);
    }
}

/// All that is under way arrives.
fn settle(sides: &mut [Side; 2]) {
    for _ in 0..40 {
        for at in 0..2 {
            sides[at].rig.pass(1_000);
            let now = sides[at].now();
            sides[at].session.handle_timeout(now);
            sides[at].talk(usize::MAX, false);
            let [a, b] = sides;
            let (from, to) = if at == 0 { (a, b) } else { (b, a) };
            carry(from, to);
            confirm(from);
        }
    }
}

fn world(seed: u64) {
    let mut rng = Rng::new(seed);
    let mut sides = [
        Side::new("alpha", "beta", "alice", b'a'),
        Side::new("beta", "alpha", "bob", b'b'),
    ];
    settle(&mut sides);
    for step in 0..80 {
        let at = rng.index(2);
        let [a, b] = &mut sides;
        let (side, far) = if at == 0 { (a, b) } else { (b, a) };
        match rng.index(12) {
            0..4 => {
                let old = far.names.first().unwrap();
                let to = match rng.index(3) {
                    0 => format!("{}@{}", side.session.name(), side.own),
                    1 => format!("{old}@{}", far.own),
                    _ => format!("{}@{}", far.session.name(), far.own.as_str().to_uppercase()),
                };
                side.send(&to, format!("{seed}-{step}"));
            }
            4..7 => side.talk(rng.index(4), rng.chance(200)),
            7 => carry(side, far),
            8 => confirm(side),
            9 => side.lose_bridge(),
            10 => side.cut(),
            _ if rng.chance(500) && side.names.len() == 1 && side.conn.is_some() => {
                let name = format!("{}-the-second", side.session.name());
                side.names.insert(name.clone());
                let name = PeerName::parse(&name).unwrap();
                side.session.ask(Question::Name(name), u64::MAX).unwrap();
            }
            _ => side.crash(),
        }
        let now = side.now();
        side.session.handle_timeout(now);
    }
    settle(&mut sides);
    for at in 0..2 {
        let (side, far) = (&sides[at], &sides[1 - at]);
        for (id, to) in &side.sent {
            let home = to.ends_with(&format!("@{}", side.own));
            let arrived = if home { side } else { far };
            let from = arrived.shown.get(id);
            let from = from.unwrap_or_else(|| panic!("seed {seed}: {id} to {to} never arrived"));
            let domain = if home { "" } else { &format!("@{}", side.own) };
            let known = |name: &String| format!("{name}{domain}") == *from;
            assert!(
                side.names.iter().any(known),
                "seed {seed}: {id} is from {from}"
            );
        }
    }
}

#[test]
fn what_crosses_domains_arrives_once_from_an_address_whatever_breaks() {
    for seed in 0..150 {
        world(seed);
    }
}
