//! Sessions driven by hand.

mod connection;
mod domains;
mod lapsing;
mod queries;
mod receiving;
mod sending;

use peerbus_wire::{
    Accepted, Address, BrokerFrame, ClientFrame, Decoded, Envelope, How, MessageId, PeerName,
    PeersFrame, Receipt, Register, Secret, Stage, Token, Window,
};

use super::*;

pub(super) const SECRET: &[u8] = b"peerbus-test-secret-of-enough-bytes";

/// A session under test with a clock.
pub(super) struct Rig {
    pub(super) session: PeerSession,
    pub(super) ms: u64,
    /// What the credentials say when they are read again.
    pub(super) secret: Option<Secret>,
}

pub(super) fn name(text: &str) -> PeerName {
    PeerName::parse(text).unwrap()
}

pub(super) fn id(text: &str) -> MessageId {
    MessageId::parse(text).unwrap()
}

pub(super) fn seen() -> How {
    How::Seen {
        path: "drain".into(),
        evidence: "tool_result".into(),
    }
}

pub(super) fn pushed() -> How {
    How::Pushed {
        path: "channel".into(),
    }
}

pub(super) fn credentials() -> ConnectionCredentials {
    ConnectionCredentials {
        token: Token::parse("token").unwrap(),
        secret: Secret::new(SECRET).unwrap(),
        local: true,
    }
}

pub(super) fn draft(text: &str) -> Draft {
    Draft {
        id: id(text),
        to: Address::Peer(name("alice")),
        ts: "2026-11-21T00:00:00Z".into(),
        source: "peer-bus".into(),
        body: format!("\"{text}\""),
    }
}

/// An envelope from `from`, signed.
pub(super) fn signed(from: &str, to: &str, message: &str) -> Envelope {
    let mut envelope = Envelope {
        protocol_version: "v1".into(),
        id: message.into(),
        from: from.into(),
        to: to.into(),
        ts: "t".into(),
        source: "peer-bus".into(),
        kind: if to == "*" {
            "broadcast".into()
        } else {
            "msg".into()
        },
        body: b"\"hello\"".to_vec(),
        hmac: String::new(),
    };
    let secret = Secret::new(SECRET).unwrap();
    envelope.hmac = secret.sign(&envelope.canonical().unwrap());
    envelope
}

/// A deliver frame, for an envelope that need not satisfy any rule.
pub(super) fn deliver_text(key: &str, envelope: &Envelope) -> String {
    let canonical = String::from_utf8(envelope.canonical().unwrap()).unwrap();
    let open = canonical.strip_suffix('}').unwrap();
    format!(
        r#"{{"protocol_version":"v1","type":"deliver","delivery_key":"{key}","envelope":{open},"hmac":"{}"}}}}"#,
        envelope.hmac
    )
}

impl Rig {
    pub(super) fn new(generated: bool) -> Self {
        let config = SessionConfig {
            name: name("Bob"),
            generated,
            instance: None,
            ephemeral: false,
            window: Window {
                messages: 256,
                bytes: 1_048_576,
            },
            presence: None,
            groups: Vec::new(),
        };
        let mut rig = Self {
            session: PeerSession::new(config, Now::default(), 7),
            ms: 0,
            secret: None,
        };
        assert_eq!(rig.actions(), [Action::Dial]);
        rig
    }

    pub(super) fn online(ext: bool) -> Self {
        let mut rig = Self::new(false);
        rig.register(ext);
        assert!(matches!(
            rig.session.poll_event(),
            Some(SessionEvent::Registered { .. })
        ));
        rig
    }

    pub(super) fn now(&self) -> Now {
        Now {
            mono_ms: self.ms,
            boot_ms: self.ms,
            ..Now::default()
        }
    }

    /// Connects; gives the registration.
    pub(super) fn connect(&mut self) -> Register {
        self.session.handle_connected(self.now(), credentials());
        match &*self.frames() {
            [ClientFrame::Register(register)] => register.clone(),
            frames => panic!("{frames:?}"),
        }
    }

    pub(super) fn register(&mut self, ext: bool) -> Register {
        let register = self.connect();
        let names = vec!["Bob".into()];
        let frame = PeersFrame {
            names,
            ext: ext.then_some(1),
            ..PeersFrame::default()
        };
        self.receive(&BrokerFrame::Peers(frame));
        register
    }

    pub(super) fn receive(&mut self, frame: &BrokerFrame) {
        self.text(&frame.encode());
    }

    pub(super) fn text(&mut self, text: &str) {
        self.session.handle_text(self.now(), text.as_bytes());
        self.session.check();
        if self.session.unverified.is_some() {
            assert!(!self.session.wants_read());
            assert_eq!(self.actions(), [Action::Reread]);
            self.session.handle_secret(self.now(), self.secret.clone());
            self.session.check();
        }
    }

    pub(super) fn deliver(&mut self, key: &str, message: &str) {
        self.text(&deliver_text(key, &signed("alice", "bob", message)));
    }

    pub(super) fn receipt(&mut self, message: &str, stage: Stage, key: Option<&str>) {
        let key = key.and_then(peerbus_wire::DeliveryKey::parse);
        self.receive(&BrokerFrame::Receipts(vec![Receipt {
            key,
            to: stage.is_at_one().then(|| "alice".to_owned()),
            ..Receipt::new(id(message), stage)
        }]));
    }

    pub(super) fn accept(&mut self, message: &str) {
        let stage = Stage::Accepted(Accepted {
            recipients: 1,
            online: 1,
            duplicate: false,
        });
        self.receipt(message, stage, None);
    }

    pub(super) fn send(&mut self, message: &str, deadline_ms: u64) {
        self.session
            .send(self.now(), draft(message), self.ms + deadline_ms)
            .unwrap();
        self.session.check();
    }

    pub(super) fn ack(&mut self, key: Key, how: How) {
        let now = self.now();
        self.session.reached(now, key, Stage::Acked(Some(how)));
    }

    pub(super) fn cut(&mut self) {
        self.end(&ConnectionEnd::Broken {
            why: "connection reset".into(),
        });
    }

    pub(super) fn closed(&mut self, reason: &peerbus_wire::CloseReason) {
        self.end(&ConnectionEnd::Closed {
            code: reason.code(),
            text: reason.text(),
        });
    }

    fn end(&mut self, ended: &ConnectionEnd) {
        self.session.handle_closed(self.now(), ended);
        self.session.check();
    }

    /// Lets time pass up to the next deadline; gives the time.
    pub(super) fn wait(&mut self) -> u64 {
        let at = self.session.poll_timeout().unwrap();
        self.ms = self.ms.max(at);
        self.session.handle_timeout(self.now());
        self.session.check();
        self.ms
    }

    /// Waits until the session dials.
    pub(super) fn redial(&mut self) {
        self.wait();
        assert_eq!(self.actions(), [Action::Dial]);
    }

    pub(super) fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.session.poll_action()).collect()
    }

    pub(super) fn frames(&mut self) -> Vec<ClientFrame> {
        std::iter::from_fn(|| self.session.poll_transmit()).collect()
    }

    /// The frames to send, as the text of what identifies each.
    pub(super) fn wire(&mut self) -> Vec<String> {
        let show = |frame: &ClientFrame| match frame {
            ClientFrame::Envelope(carried) => carried.id.to_string(),
            ClientFrame::Ack(ack) => {
                let how = match &ack.how {
                    None => "",
                    Some(How::Pushed { .. }) => " pushed",
                    Some(How::Seen { .. }) => " seen",
                };
                let age = Some(ack.age_ms).filter(|age_ms| *age_ms > 0);
                let age = age.map_or(String::new(), |age_ms| format!(" {age_ms} ms ago"));
                format!("ack {}{how}{age}", ack.key.as_str())
            }
            ClientFrame::Reject { key, reason, .. } => format!("reject {}: {reason}", key.as_str()),
            ClientFrame::Status { ids } => format!("status {ids:?}"),
            ClientFrame::Withdraw { id } => format!("withdraw {id:?}"),
            ClientFrame::Peers => "peers".into(),
            other => format!("{other:?}"),
        };
        self.frames().iter().map(show).collect()
    }

    pub(super) fn replies(&mut self) -> Vec<Reply> {
        std::iter::from_fn(|| self.session.poll_reply()).collect()
    }

    /// The next event, a message.
    pub(super) fn message(&mut self) -> Inbound {
        match self.session.poll_event() {
            Some(SessionEvent::Message(inbound)) => inbound,
            other => panic!("expected a message, got {other:?}"),
        }
    }
}

/// Reads an envelope that the session sent, as a recipient would.
pub(super) fn decode(frame: &ClientFrame) -> Decoded {
    Envelope::decode(frame.encode().as_bytes()).unwrap()
}
