//! Every frame in its exact spelling, and what is made of frames that are not right.

use peerbus_wire::limits::{FRAME_BYTES_MAX, PEERS_ENTRIES_MAX, STATUS_IDS_MAX};
use peerbus_wire::{
    Ack, AuditAction, AuditRecord, BrokerFrame, ClientFrame, DeliverFrame, DeliveryKey, GroupName,
    How, Instance, PeerEntry, PeersFrame, Presence, Receipt, Received, Register, Seq, Stage, Token,
    TokenName, Window,
};

use crate::{id, secret, signed};

#[test]
fn client_frames_are_spelled_so() {
    for (frame, text) in client_frames().into_iter().chain(registers()) {
        assert_eq!(frame.encode(), text);
        let again = ClientFrame::parse(text.as_bytes());
        assert_eq!(again.encode(), text, "{again:?}");
        assert_eq!(
            std::mem::discriminant(&again),
            std::mem::discriminant(&frame),
            "{text}"
        );
    }
}

fn registers() -> [(ClientFrame, &'static str); 2] {
    [
        (
            ClientFrame::Register(v1_register()),
            r#"{"protocol_version":"v1","type":"register","token":"t0ken","name":"alice"}"#,
        ),
        (
            ClientFrame::Register(Register {
                ext: 1,
                instance: Some(Instance::from_entropy(10)),
                ephemeral: true,
                generated: true,
                window: Some(Window {
                    messages: 256,
                    bytes: 1_048_576,
                }),
                presence: Presence::parse(r#"{"client": "claude-code"}"#),
                ..v1_register()
            }),
            concat!(
                r#"{"protocol_version":"v1","type":"register","token":"t0ken","name":"alice","#,
                r#""ext":1,"instance":"0000000000000000000000000000000a","ephemeral":true,"#,
                r#""generated":true,"window":{"messages":256,"bytes":1048576},"#,
                r#""presence":{"client":"claude-code"}}"#
            ),
        ),
    ]
}

fn client_frames() -> Vec<(ClientFrame, &'static str)> {
    let key = || DeliveryKey::parse("17").unwrap();
    let ack = |how| ClientFrame::ack(key(), how);
    let text = |text: &str| text.to_owned();
    let release = |again| ClientFrame::Release { key: key(), again };
    vec![
        (
            ack(None),
            r#"{"protocol_version":"v1","type":"ack","id":"17"}"#,
        ),
        (
            ClientFrame::Ack(Ack {
                key: key(),
                how: None,
                age_ms: 61_000,
            }),
            r#"{"protocol_version":"v1","type":"ack","id":"17","age_ms":61000}"#,
        ),
        (
            ack(Some(How::Seen {
                path: text("drain"),
                evidence: text("tool_result"),
            })),
            concat!(
                r#"{"protocol_version":"v1","type":"ack","id":"17","how":"seen","#,
                r#""path":"drain","evidence":"tool_result"}"#
            ),
        ),
        (
            ClientFrame::Peers,
            r#"{"protocol_version":"v1","type":"peers"}"#,
        ),
        (
            ClientFrame::Presence(Presence::parse(r#"{"project":"a<b"}"#).unwrap()),
            r#"{"protocol_version":"v1","type":"presence","presence":{"project":"a\u003cb"}}"#,
        ),
        (
            ClientFrame::reject(key(), text("signature mismatch")),
            r#"{"protocol_version":"v1","type":"reject","id":"17","reason":"signature mismatch"}"#,
        ),
        (
            release(false),
            r#"{"protocol_version":"v1","type":"release","id":"17"}"#,
        ),
        (
            release(true),
            r#"{"protocol_version":"v1","type":"release","id":"17","again":true}"#,
        ),
        (
            ClientFrame::Audit(AuditRecord {
                uid: Some(0),
                source: text("a \"tool\""),
                ..AuditRecord::new(AuditAction::Interrupt, "refused")
            }),
            concat!(
                r#"{"protocol_version":"v1","type":"audit","action":"interrupt","#,
                r#""outcome":"refused","uid":0,"source":"a \"tool\""}"#
            ),
        ),
        (
            ClientFrame::Status {
                ids: vec![id("m1"), id("m2")],
            },
            r#"{"protocol_version":"v1","type":"status","ids":["m1","m2"]}"#,
        ),
    ]
}

#[test]
fn broker_frames_are_spelled_so() {
    let v1 = PeersFrame {
        names: vec!["alice".into(), "bob".into()],
        ..PeersFrame::default()
    };
    let handshake = PeersFrame {
        names: vec!["alice".into()],
        ext: Some(1),
        window: Some(Window {
            messages: 256,
            bytes: 1_048_576,
        }),
        ..PeersFrame::default()
    };
    let bob = PeerEntry {
        name: "bob".into(),
        online: true,
        unacked: Some(3),
        away_s: Some(0),
        activity_s: Some(90),
        owes: Some(2),
        groups: vec![GroupName::parse("#shop").unwrap()],
        presence: Presence::parse("{}"),
        stopped: false,
        token: TokenName::parse("eve"),
        old: vec!["bobby".into()],
    };
    let carol = PeerEntry {
        name: "carol".into(),
        away_s: Some(60),
        ..PeerEntry::default()
    };
    let answer = PeersFrame {
        peers: Some(vec![bob, carol]),
        omitted: 2,
        ..v1.clone()
    };
    let frames = [
        (
            v1,
            r#"{"protocol_version":"v1","type":"peers","names":["alice","bob"]}"#,
        ),
        (
            handshake,
            concat!(
                r#"{"protocol_version":"v1","type":"peers","names":["alice"],"ext":1,"#,
                r#""window":{"messages":256,"bytes":1048576}}"#
            ),
        ),
        (
            answer,
            concat!(
                r#"{"protocol_version":"v1","type":"peers","names":["alice","bob"],"#,
                r#""peers":[{"name":"bob","online":true,"unacked":3,"away_s":0,"activity_s":90,"owes":2,"groups":["shop"],"presence":{},"token":"eve","names":["bobby"]},"#,
                r#"{"name":"carol","online":false,"away_s":60}],"omitted":2}"#
            ),
        ),
    ];
    for (frame, text) in frames {
        assert_eq!(&*BrokerFrame::Peers(frame.clone()).encode(), text);
        let Received::Peers(again) = Received::parse(text.as_bytes()) else {
            panic!("{text}")
        };
        assert_eq!(again, frame);
    }
}

#[test]
fn receipts_are_packed_into_frames_that_fit() {
    let worst = Receipt {
        id: id(&"x".repeat(128)),
        at_ms: Some(u64::MAX),
        key: Some(Seq(u64::MAX).key()),
        to: Some("n".repeat(64)),
        stage: Stage::Dead {
            why: "\u{1}".repeat(2_000),
        },
    };
    let best = Receipt::new(id("x"), Stage::Unknown);
    let all = [
        vec![best.clone(); 3_000],
        vec![worst; 1_000],
        vec![best; 3_000],
    ]
    .concat();
    let mut unpacked = Vec::new();
    let mut frames = 0;
    for frame in BrokerFrame::receipts(all.clone()) {
        assert!(frame.encode().len() <= FRAME_BYTES_MAX);
        let BrokerFrame::Receipts(receipts) = frame else {
            panic!()
        };
        unpacked.extend(receipts);
        frames += 1;
    }
    assert_eq!(unpacked, all);
    assert!(frames < 8, "{frames}");
    assert_eq!(BrokerFrame::receipts(Vec::new()).count(), 0);
}

#[test]
fn a_list_of_very_many_peers_fits_a_frame() {
    let names: Vec<_> = (0..20_000).map(|n| format!("{n:064}")).collect();
    let presence = Presence::parse(&format!("{{\"a\":\"{}\"}}", "x".repeat(1_000)));
    let entry = |name: &String| PeerEntry {
        name: name.clone(),
        online: false,
        unacked: Some(u64::MAX),
        away_s: Some(u64::MAX),
        activity_s: Some(u64::MAX),
        owes: Some(u64::MAX),
        groups: Vec::new(),
        presence: presence.clone(),
        stopped: false,
        token: TokenName::parse(&"t".repeat(32)),
        old: Vec::new(),
    };
    for (entries, at_least) in [(0, 15_000), (PEERS_ENTRIES_MAX, 4_000)] {
        let frame = PeersFrame {
            names: names.clone(),
            peers: Some(names.iter().take(entries).map(entry).collect()),
            ..PeersFrame::default()
        };
        let text = BrokerFrame::Peers(frame).encode();
        assert!(text.len() <= FRAME_BYTES_MAX, "{}", text.len());
        let Received::Peers(read) = Received::parse(text.as_bytes()) else {
            panic!()
        };
        assert_eq!(read.peers.map(|peers| peers.len()), Some(entries));
        assert!(read.names.len() > at_least, "{}", read.names.len());
        assert_eq!(read.names, names[..read.names.len()]);
    }
}

#[test]
fn a_delivery_arrives_from_our_broker_and_from_a_v1_broker() {
    let envelope = signed("msg", "bob", br#"{"text":"hi"}"#);
    let carried = envelope.carry().unwrap();
    let ours = DeliverFrame::new(Seq(17), &carried.text);
    let v1 = ours.text().replace(r#""17""#, r#""m1|bob""#);
    for (text, key) in [(ours.text().to_string(), "17"), (v1, "m1|bob")] {
        let Received::Deliver(delivery) = Received::parse(text.as_bytes()) else {
            panic!("{text}")
        };
        assert_eq!(delivery.key.as_str(), key);
        assert_eq!(delivery.envelope.envelope, envelope.envelope);
        assert!(secret().verify(&delivery.envelope.envelope).is_ok());
        assert_eq!(delivery.envelope.carry().unwrap(), carried);
    }
}

#[test]
fn frames_that_are_not_right_are_malformed() {
    let ids = vec!["\"m\""; STATUS_IDS_MAX + 1].join(",");
    let too_many = format!(r#"{{"protocol_version":"v1","type":"status","ids":[{ids}]}}"#);
    let presence = format!(
        r#"{{"protocol_version":"v1","type":"presence","presence":{{"project":"{}"}}}}"#,
        "x".repeat(1_024)
    );
    let frames = [
        "",
        "null",
        "[]",
        "{",
        "{}x",
        "\u{feff}{}",
        r#"{"protocol_version":"v1","type":"ack"}"#,
        r#"{"protocol_version":"v1","type":"ack","id":17}"#,
        r#"{"protocol_version":"v1","type":"ack","id":""}"#,
        r#"{"protocol_version":"v2","type":"ack","id":"17"}"#,
        r#"{"type":"peers"}"#,
        r#"{"protocol_version":"v1","type":"deliver","delivery_key":"1","envelope":{}}"#,
        r#"{"protocol_version":"v1","type":"register","name":1}"#,
        r#"{"protocol_version":1,"type":"register","name":"a"}"#,
        r#"{"protocol_version":"v1","type":"register","name":"a","token":[]}"#,
        r#"{"protocol_version":"v1","type":"register","name":"a","ext":"1"}"#,
        r#"{"protocol_version":"v1","type":"register","name":"a","ext":-1}"#,
        r#"{"protocol_version":"v1","type":"register","name":"a","instance":"a b"}"#,
        r#"{"protocol_version":"v1","type":"register","name":"a","ephemeral":1}"#,
        r#"{"protocol_version":"v1","type":"register","name":"a","window":5}"#,
        r#"{"protocol_version":"v1","type":"register","name":"a","window":{"bytes":1.5}}"#,
        r#"{"protocol_version":"v1","type":"register","name":"a","presence":"x"}"#,
        r#"{"protocol_version":"v1","type":"presence"}"#,
        r#"{"protocol_version":"v1","type":"presence","presence":[]}"#,
        r#"{"protocol_version":"v1","type":"reject","reason":"x"}"#,
        r#"{"protocol_version":"v1","type":"reject","id":"1","reason":5}"#,
        r#"{"protocol_version":"v1","type":"release"}"#,
        r#"{"protocol_version":"v1","type":"status"}"#,
        r#"{"protocol_version":"v1","type":"status","ids":["a b"]}"#,
        &too_many,
        &presence,
        &" ".repeat(FRAME_BYTES_MAX + 1),
    ];
    for text in frames {
        let frame = ClientFrame::parse(text.as_bytes());
        let useless = matches!(frame, ClientFrame::Malformed | ClientFrame::Unusable);
        assert!(useless, "{text}: {frame:?}");
    }
}

#[test]
fn control_members_match_as_in_v1() {
    let text =
        r#"{"Protocol_Version":"v1","TYPE":"peers","type":"ack","id":"1","ID":"2","id":null}"#;
    let ClientFrame::Ack(ack) = ClientFrame::parse(text.as_bytes()) else {
        panic!()
    };
    assert_eq!(ack.key.as_str(), "2");
    let text = r#"{"protocol_version":"v2","type":"register"}"#;
    let ClientFrame::Register(register) = ClientFrame::parse(text.as_bytes()) else {
        panic!()
    };
    assert_eq!(
        (register.protocol_version.as_str(), register.name.as_str()),
        ("v2", "")
    );
    assert_eq!((register.ext, register.token), (0, None));
}

#[test]
fn a_claim_that_does_not_say_all_is_none() {
    let how = |members: &str| {
        let text = format!(r#"{{"protocol_version":"v1","type":"ack","id":"1"{members}}}"#);
        let ClientFrame::Ack(ack) = ClientFrame::parse(text.as_bytes()) else {
            panic!("{text}")
        };
        ack.how
    };
    for members in [
        "",
        r#","how":"read","path":"p","evidence":"e""#,
        r#","how":1"#,
        r#","how":"seen","path":"p""#,
        r#","how":"seen","path":"p","evidence":"""#,
        r#","how":"pushed""#,
    ] {
        assert_eq!(how(members), None, "{members}");
    }
    let long = "e".repeat(65);
    assert_eq!(
        how(&format!(
            r#","how":"seen","path":"a\nb\u00e9","evidence":"{long}""#
        )),
        Some(How::Seen {
            path: "a?b?".into(),
            evidence: "e".repeat(64)
        })
    );
}

fn v1_register() -> Register {
    Register {
        protocol_version: "v1".into(),
        token: Token::parse("t0ken"),
        name: "alice".into(),
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

#[test]
fn a_request_says_beside_what_is_signed_what_its_body_says() {
    let body = r#"{"text":"are the tests green?","wants":"result","within_ms":60000}"#;
    let plain = signed("msg", "bob", body.as_bytes()).carry().unwrap().text;
    let text = plain.replacen('{', r#"{"within_ms":60000,"#, 1);
    let ClientFrame::Envelope(carried) = ClientFrame::parse(text.as_bytes()) else {
        panic!("{text}");
    };
    assert_eq!((carried.within_ms, &carried.text), (Some(60_000), &plain));
    let sent = ClientFrame::Envelope(carried).encode();
    assert_eq!(
        sent,
        format!(
            r#"{},"within_ms":60000}}"#,
            plain.strip_suffix('}').unwrap()
        )
    );
    for odd in ["0", "-1", "604800001", "\"60000\"", "null", "1.5"] {
        let text = plain.replacen('{', &format!(r#"{{"within_ms":{odd},"#), 1);
        let parsed = ClientFrame::parse(text.as_bytes());
        assert!(
            matches!(&parsed, ClientFrame::Envelope(carried) if carried.within_ms.is_none()),
            "{odd}"
        );
    }
}
