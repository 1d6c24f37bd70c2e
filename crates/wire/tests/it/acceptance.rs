//! Which messages are carried, in which form, and what the others are told.

use peerbus_wire::limits::{ENVELOPE_BYTES_MAX, FRAME_BYTES_MAX};
use peerbus_wire::{Address, ClientFrame, Decoded, DeliverFrame, Envelope, RefusalCode, Seq};

use crate::{id, signed};

#[test]
fn an_extension_type_on_an_envelope_changes_nothing() {
    let text = signed("msg", "bob", b"1").carry().unwrap().text;
    for kind in ["status", "release", "send", ""] {
        let typed = text.replacen('{', &format!(r#"{{"type":"{kind}","#), 1);
        let ClientFrame::Envelope(carried) = ClientFrame::parse(typed.as_bytes()) else {
            panic!("{typed}")
        };
        assert_eq!(carried.text, text);
    }
    let acked = text.replacen('{', r#"{"type":"ack","#, 1);
    assert!(matches!(
        ClientFrame::parse(acked.as_bytes()),
        ClientFrame::Ack(_)
    ));
}

#[test]
fn what_is_carried_is_canonical() {
    let sent = concat!(
        r#" {"extra":[1], "hmac":"HMAC","body" : { "b" : "<\u003C&> ","a":[1 , 2.50e1] },"#,
        r#""kind":"msg","source":"peer-bus","ts":"2026-05-18T12:00:00Z <","to":"b\u006fb","#,
        r#""from":"alice","id":"m1","protocol_version":"v1"}"#
    );
    let hmac = "AB".repeat(32);
    let ClientFrame::Envelope(carried) = ClientFrame::parse(sent.replace("HMAC", &hmac).as_bytes())
    else {
        panic!()
    };
    assert_eq!(
        *carried.text,
        format!(
            concat!(
                r#"{{"protocol_version":"v1","id":"m1","from":"alice","to":"bob","#,
                r#""ts":"2026-05-18T12:00:00Z \u003c","source":"peer-bus","kind":"msg","#,
                r#""body":{{"b":"\u003c\u003C\u0026\u003e ","a":[1,2.50e1]}},"hmac":"{}"}}"#
            ),
            hmac
        )
    );
    assert_eq!(
        (carried.id.as_str(), carried.from.as_str()),
        ("m1", "alice")
    );
    assert!(matches!(&carried.to, Address::Peer(name) if name.as_str() == "bob"));
    let all = signed("broadcast", "*", b"").carry().unwrap();
    assert_eq!(all.to, Address::All);
    assert!(all.text.contains(r#""body":null,"#));
}

#[test]
fn a_body_that_nests_deeper_than_is_read_is_called_so() {
    let mut decoded = signed("msg", "bob", b"[]");
    decoded.envelope.body = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    let why = decoded.carry().unwrap_err().reason;
    assert!(why.contains("nests over 10000 deep; at most 64"), "{why}");
}

#[test]
fn a_refusal_names_the_thing_and_carries_the_id() {
    type Change = fn(&mut Envelope);
    let cases: [(Change, &str); 12] = [
        (
            |e| e.protocol_version = "v2".into(),
            "protocol_version must be \"v1\", got \"v2\"",
        ),
        (
            |e| e.from = "a b".into(),
            "invalid sender \"a b\": peer name contains U+0020",
        ),
        (
            |e| e.to = "System".into(),
            "invalid recipient \"System\": the name is reserved",
        ),
        (|e| e.to = "*".into(), "kind \"msg\" goes to one peer"),
        (
            |e| e.to = String::new(),
            "invalid recipient \"\": empty peer name",
        ),
        (
            |e| e.kind = "broadcast".into(),
            "kind \"broadcast\" goes to \"*\", got to \"bob\"",
        ),
        (
            |e| e.kind = "note\n<é".into(),
            "got \"note\\u000a\\u003c\\u00e9\"",
        ),
        (
            |e| e.ts = "\u{7f}".into(),
            "ts must be at most 64 printable ASCII",
        ),
        (|e| e.source = String::new(), "source must be 1 to 64"),
        (
            |e| e.hmac = "00".into(),
            "hmac must be 64 hex digits, got \"00\"",
        ),
        (|e| e.hmac = "xy".repeat(32), "hmac must be 64 hex digits"),
        (
            |e| e.body = [vec![b'['; 65], vec![b']'; 65]].concat(),
            "body nests 65 deep; at most 64",
        ),
    ];
    for (change, says) in cases {
        let mut decoded = signed("msg", "bob", b"[]");
        change(&mut decoded.envelope);
        let refusal = decoded.carry().unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Invalid);
        assert!(refusal.reason.contains(says), "{}", refusal.reason);
        let frame = ClientFrame::parse(&uncarried(&decoded));
        let ClientFrame::Refused {
            id: Some(m1),
            refusal: parsed,
        } = frame
        else {
            panic!("{says}")
        };
        assert_eq!((m1, parsed), (id("m1"), refusal));
    }
}

#[test]
fn a_frame_that_is_hardly_an_envelope_is_refused_too() {
    let mistyped = r#"{"protocol_version":"v1","id":"m1","from":"alice","to":"bob","ts":5}"#;
    let ClientFrame::Refused {
        id: Some(_),
        refusal,
    } = ClientFrame::parse(mistyped.as_bytes())
    else {
        panic!()
    };
    assert_eq!(refusal.reason, "member ts must be a string");
    let no_id = ClientFrame::parse(b"{}");
    assert!(
        matches!(no_id, ClientFrame::Refused { id: None, .. }),
        "{no_id:?}"
    );
}

#[test]
fn the_largest_envelope_fits_a_frame_and_one_more_byte_is_refused() {
    let empty = signed("msg", "bob", b"\"\"").carry().unwrap().text.len();
    let body = |bytes: usize| format!("\"{}\"", "x".repeat(bytes)).into_bytes();
    let largest = signed("msg", "bob", &body(ENVELOPE_BYTES_MAX - empty))
        .carry()
        .unwrap();
    assert_eq!(largest.text.len(), ENVELOPE_BYTES_MAX);
    assert_eq!(
        DeliverFrame::new(Seq(u64::MAX), &largest.text).text().len(),
        FRAME_BYTES_MAX
    );
    let over = signed("msg", "bob", &body(ENVELOPE_BYTES_MAX - empty + 1))
        .carry()
        .unwrap_err();
    assert_eq!(over.code, RefusalCode::TooLarge);
    let sizes = format!(
        "{} bytes as it is carried, at most {ENVELOPE_BYTES_MAX}",
        ENVELOPE_BYTES_MAX + 1
    );
    assert!(over.reason.contains(&sizes), "{}", over.reason);
    // 200,000 bytes on the wire, 1.2 MB as they are carried.
    let grown = signed(
        "msg",
        "bob",
        format!("\"{}\"", "<".repeat(200_000)).as_bytes(),
    );
    assert_eq!(grown.carry().unwrap_err().code, RefusalCode::TooLarge);
}

/// The envelope as its sender would write it, acceptable or not.
fn uncarried(decoded: &Decoded) -> Vec<u8> {
    let mut text = decoded.envelope.canonical().unwrap();
    text.pop();
    text.extend_from_slice(format!(",\"hmac\":\"{}\"}}", decoded.envelope.hmac).as_bytes());
    text
}
