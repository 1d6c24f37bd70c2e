//! Each rule of the bridge by itself; the simulation has them all at once.

mod sending;
mod stages;
mod taking;

use std::collections::VecDeque;
use std::sync::Arc;

use peerbus_wire::bridge::{Epoch, Inquiry, Outside, Saying, StreamHead, StreamItem};
use peerbus_wire::{
    Accepted, DeliverFrame, Domain, Envelope, Forwarded, Mark, MessageId, PeersFrame, Receipt,
    Received, Refusal, RefusalCode, Seq, Stage,
};

use super::*;

fn epoch(text: &str) -> Epoch {
    Epoch::parse(text).unwrap()
}

fn id(text: &str) -> MessageId {
    MessageId::parse(text).unwrap()
}

/// What the own broker has forwarded.
fn forwarded(messages: &[(u64, &str)]) -> BridgeInput {
    let message = |(number, named): &(u64, &str)| Forwarded {
        key: Seq(*number).key(),
        id: id(named),
    };
    BridgeInput::Broker(Received::Forwarded(messages.iter().map(message).collect()))
}

/// What is asked about.
fn asked(messages: &[(u64, &str)]) -> Saying {
    let message = |(number, named): &(u64, &str)| Inquiry {
        number: *number,
        id: id(named),
    };
    Saying::Ask(messages.iter().map(message).collect())
}

/// The carried text of a message.
fn envelope(from: &str, to: &str, id: &str) -> Arc<str> {
    envelope_of(from, to, id, b"1".to_vec())
}

fn envelope_of(from: &str, to: &str, id: &str, body: Vec<u8>) -> Arc<str> {
    let envelope = Envelope {
        protocol_version: "v1".into(),
        id: id.into(),
        from: from.into(),
        to: to.into(),
        ts: "2026-05-18T12:00:00Z".into(),
        source: "peer-bus".into(),
        kind: "msg".into(),
        body,
        hmac: "0".repeat(64),
    };
    let decoded = peerbus_wire::Decoded {
        envelope,
        irregular: None,
    };
    decoded.carry().unwrap().text
}

/// The bridge of alpha, whose broker is in epoch A1, to beta, whose broker is in B1.
struct Rig {
    bridge: Bridge,
    now_ms: u64,
    out: VecDeque<BridgeOutput>,
}

impl Rig {
    fn new() -> Self {
        let domain = |text| Domain::parse(text).unwrap();
        let mut rig = Self {
            bridge: Bridge::new(domain("alpha"), domain("beta"), 0),
            now_ms: 0,
            out: VecDeque::new(),
        };
        rig.drain();
        rig
    }

    /// Both brokers are there, and know each other.
    fn up(mark: Option<&str>) -> Self {
        let mut rig = Self::new();
        rig.greet("A1", None);
        rig.hello("B1", 0, false);
        rig.greet("A1", mark);
        rig.outs();
        rig
    }

    fn drain(&mut self) {
        while let Some(output) = self.bridge.poll_output() {
            self.out.push_back(output);
        }
    }

    fn input(&mut self, input: BridgeInput) {
        self.bridge.handle(self.now_ms, input);
        self.drain();
    }

    /// Lives through so much time.
    fn pass(&mut self, ms: u64) {
        let until = self.now_ms + ms;
        let mut ticks = 0;
        while let Some(due) = self.bridge.poll_timeout().filter(|due| *due <= until) {
            assert!(ticks <= ms, "it wants to be woken again and again");
            ticks += 1;
            self.now_ms = self.now_ms.max(due);
            self.input(BridgeInput::Tick);
        }
        self.now_ms = until;
    }

    /// The same, while the other bridge goes on saying that it is there.
    fn pass_with(&mut self, ms: u64, taken: u64) {
        for _ in 0..ms / 1_000 {
            self.hello("B1", taken, false);
            self.pass(1_000);
        }
    }

    /// What came out, in order, without events and hellos.
    fn outs(&mut self) -> Vec<BridgeOutput> {
        let plain = |output: &BridgeOutput| match output {
            BridgeOutput::Event(_) => false,
            BridgeOutput::Outside(text) => !text.contains(r#""hello""#),
            _ => true,
        };
        self.out.drain(..).filter(plain).collect()
    }

    /// What was counted and told to the operator.
    fn events(&mut self) -> Vec<BridgeEvent> {
        let events = self.out.drain(..).filter_map(|output| match output {
            BridgeOutput::Event(event) => Some(event),
            _ => None,
        });
        events.collect()
    }

    /// What was said to the other bridge.
    fn said(&mut self) -> Vec<Saying> {
        let said = self.out.drain(..).filter_map(|output| match output {
            BridgeOutput::Outside(text) => Some(Outside::parse(text.as_bytes()).unwrap().saying),
            _ => None,
        });
        said.collect()
    }

    /// The newest hello: how far it is, and whether something is missing.
    fn hellos(&mut self) -> Option<(u64, bool)> {
        let hello = |saying| match saying {
            Saying::Hello { taken, gap } => Some((taken, gap)),
            _ => None,
        };
        self.said().into_iter().filter_map(hello).next_back()
    }

    fn greet(&mut self, own: &str, mark: Option<&str>) {
        self.input(BridgeInput::Broker(Received::Peers(PeersFrame {
            ext: Some(2),
            epoch: Mark::parse(own),
            mark: mark.and_then(Mark::parse),
            ..PeersFrame::default()
        })));
    }

    /// The bridge of beta says something, to A1.
    fn say(&mut self, saying: Saying) {
        self.outside("B1", Some("A1"), saying);
    }

    fn outside(&mut self, of: &str, meant_for: Option<&str>, saying: Saying) {
        let outside = Outside {
            epoch: epoch(of),
            meant_for: meant_for.map(epoch),
            saying,
        };
        self.input(BridgeInput::Outside(outside.encode().into_bytes()));
    }

    fn hello(&mut self, of: &str, taken: u64, gap: bool) {
        self.outside(of, Some("A1"), Saying::Hello { taken, gap });
    }

    /// The own broker delivers these.
    fn deliver(&mut self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            let named = format!("m{number}");
            self.deliver_text(number, &envelope("alice@alpha", "bob@beta", &named));
        }
    }

    fn deliver_text(&mut self, number: u64, envelope: &str) {
        let frame = DeliverFrame::new(Seq(number), envelope);
        let received = Received::parse(frame.text().as_bytes());
        self.input(BridgeInput::Broker(received));
    }

    /// The own broker has answered the oldest barrier.
    fn barrier(&mut self) {
        let peers = Received::Peers(PeersFrame::default());
        self.input(BridgeInput::Broker(peers));
    }

    /// A message of the stream, from B1 for A1. Its number names it there, too.
    fn stream(&mut self, number: u64, after: u64) {
        let text = envelope("bob@beta", "alice@alpha", &format!("b{number}"));
        self.stream_text(("B1", "A1"), number, after, text.as_bytes());
    }

    fn stream_text(&mut self, epochs: (&str, &str), number: u64, after: u64, payload: &[u8]) {
        let head = StreamHead {
            epoch: epoch(epochs.0),
            meant_for: epoch(epochs.1),
            number,
            after,
        };
        self.input(BridgeInput::Stream {
            stream: StreamId(number),
            head: head.encode(),
            payload: payload.to_vec(),
        });
    }

    fn receipt(&mut self, named: &str, key: Option<&str>, stage: Stage) {
        self.input(BridgeInput::Broker(Received::Receipts(vec![Receipt {
            id: id(named),
            at_ms: Some(7),
            key: key.and_then(peerbus_wire::DeliveryKey::parse),
            to: Some("alice@alpha".into()),
            stage,
        }])));
    }

    /// The own broker takes what it was given under this id.
    fn accept(&mut self, named: &str) {
        self.receipt(
            named,
            None,
            Stage::Accepted(Accepted {
                recipients: 1,
                online: 0,
                duplicate: false,
            }),
        );
    }

    fn refuse(&mut self, named: &str, code: RefusalCode) {
        let reason = "no".to_owned();
        self.receipt(named, None, Stage::Refused(Refusal { code, reason }));
    }
}

/// Number and number before of what was published.
fn published(outs: &[BridgeOutput]) -> Vec<(u64, u64)> {
    let head = |output: &BridgeOutput| match output {
        BridgeOutput::Publish { head, .. } => {
            StreamHead::parse(head).map(|head| (head.number, head.after))
        }
        _ => None,
    };
    outs.iter().filter_map(head).collect()
}

/// Number and word of what the own broker was told of its messages.
fn says(outs: &[BridgeOutput]) -> Vec<(u64, &'static str)> {
    let says = |output: &BridgeOutput| match output {
        BridgeOutput::Broker(ClientFrame::Progress { key, stage, .. }) => {
            Some((key.seq()?.0, stage.word()))
        }
        _ => None,
    };
    outs.iter().filter_map(says).collect()
}

/// Mark of what the own broker was given, and whether it is said to be after a refusal.
fn takes(outs: &[BridgeOutput]) -> Vec<(&str, bool)> {
    let mut takes = Vec::new();
    for output in outs {
        if let BridgeOutput::Broker(ClientFrame::Take { mark, again, .. }) = output {
            takes.push((mark.as_str(), *again));
        }
    }
    takes
}

#[test]
fn the_two_brokers_epochs_are_learnt_before_anything_is_sent_or_taken() {
    let mut rig = Rig::new();
    assert_eq!(rig.outs(), [BridgeOutput::Register("unknown".into())]);
    rig.greet("A1", None);
    let hello = Saying::Hello {
        taken: 0,
        gap: false,
    };
    assert_eq!(rig.said(), [hello]);
    rig.deliver([1]);
    rig.stream(1, 0);
    assert_eq!(rig.outs(), [BridgeOutput::Later(StreamId(1))]);
    rig.outside(
        "B1",
        None,
        Saying::Hello {
            taken: 0,
            gap: false,
        },
    );
    assert_eq!(rig.outs(), [BridgeOutput::Register("B1".into())]);
    rig.greet("A1", None);
    rig.deliver([1]);
    assert_eq!(published(&rig.outs()), [(1, 0)]);
    assert!(rig.bridge.takes());
}

#[test]
fn another_epoch_of_the_far_broker_makes_the_bridge_register_anew() {
    let mut rig = Rig::up(None);
    rig.deliver([1, 2]);
    rig.outs();
    rig.hello("B2", 2, false);
    let outs = rig.outs();
    assert_eq!(
        outs,
        [BridgeOutput::Register("B2".into())],
        "and confirms nothing"
    );
    // What the old one still says is not believed.
    rig.greet("A1", None);
    rig.say(asked(&[(1, "m1")]));
    assert_eq!(rig.outs(), []);
}

#[test]
fn what_cannot_be_read_or_was_meant_for_another_life_is_left_alone() {
    let mut rig = Rig::up(None);
    rig.deliver([1]);
    rig.events();
    rig.input(BridgeInput::Outside(b"{".to_vec()));
    assert!(matches!(&rig.events()[..], [BridgeEvent::Refused { .. }]));
    let taken = Saying::Hello {
        taken: 1,
        gap: false,
    };
    rig.outside("B1", Some("A0"), taken.clone());
    assert_eq!(says(&rig.outs()), []);
    rig.outside("B1", Some("A1"), taken);
    assert_eq!(says(&rig.outs()), [(1, "forwarded")]);
}

#[test]
fn the_operator_hears_that_the_other_side_is_away_and_nothing_is_given_up() {
    let mut rig = Rig::up(None);
    rig.deliver([1]);
    rig.out.clear();
    rig.pass(60_000);
    let outs: Vec<_> = rig.out.iter().cloned().collect();
    assert!(outs.contains(&BridgeOutput::Event(BridgeEvent::Away)));
    let last = published(&rig.outs());
    assert!(
        last.len() < 5,
        "it is sent again only while somebody is there: {last:?}"
    );
    rig.hello("B1", 0, false);
    assert!(rig.events().contains(&BridgeEvent::Back));
    rig.pass_with(3_000, 0);
    assert_eq!(published(&rig.outs()), [(1, 0)]);
}

#[test]
fn a_connection_that_is_lost_is_asked_for_again_and_what_was_under_way_is_given_back() {
    let mut rig = Rig::up(None);
    rig.stream(1, 0);
    rig.deliver([5]);
    rig.outs();
    rig.input(BridgeInput::Lost);
    let outs = rig.outs();
    let register = BridgeOutput::Register("B1".into());
    assert_eq!(outs, [BridgeOutput::Later(StreamId(1)), register]);
    rig.greet("A1", Some("B1:1"));
    rig.deliver([5]);
    assert_eq!(published(&rig.outs()), [(5, 0)]);
    rig.pass(20);
    rig.stream(1, 0);
    assert_eq!(
        rig.outs(),
        [BridgeOutput::Ack(StreamId(1))],
        "it was on disk"
    );
}

#[test]
fn an_answer_that_does_not_greet_a_bridge_is_no_registration() {
    let greeting = |more: &str| {
        let text = format!(r#"{{"protocol_version":"v1","type":"peers","domain":"alpha"{more}}}"#);
        Bridge::greeting(&Received::parse(text.as_bytes()))
    };
    let greeted = greeting(r#","ext":5,"epoch":"A1","peers":[]"#);
    assert_eq!(greeted, Some(epoch("A1")));
    for more in [
        "",
        r#","peers":[]"#,
        r#","ext":5,"peers":[]"#,
        r#","ext":5,"epoch":"?","peers":[]"#,
    ] {
        assert_eq!(greeting(more), None, "{more}");
    }
    assert_eq!(Bridge::greeting(&Received::Unknown), None);
}
