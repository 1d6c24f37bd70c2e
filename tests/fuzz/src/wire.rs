//! The bytes of the wire.

use peerbus_wire::bridge::{OUTSIDE_BYTES_MAX, Outside, Position, StreamHead};
use peerbus_wire::limits::DECODE_NESTING_MAX;
use peerbus_wire::{ClientFrame, Conversation, Decoded, Envelope, Fields, Received};
use serde::de::IgnoredAny;
use serde_json::Value;

/// A frame of a client: what is read and written anew reads the same.
pub(crate) fn client_frame(bytes: &[u8]) {
    let frame = ClientFrame::parse(bytes);
    match &frame {
        ClientFrame::Refused { .. }
        | ClientFrame::Unusable
        | ClientFrame::Malformed
        | ClientFrame::Binary => return,
        ClientFrame::Envelope(carried) => {
            let decoded = Envelope::decode(carried.text.as_bytes()).expect("what is carried");
            carry(&decoded);
            assert_eq!(
                peerbus_wire::recipient_of(&carried.text),
                decoded.envelope.to
            );
        }
        _ => {}
    }
    let text = frame.encode();
    let again = ClientFrame::parse(text.as_bytes());
    assert_eq!(again.encode(), text, "written, read and written anew");
}

/// A frame of a broker.
pub(crate) fn broker_frame(bytes: &[u8]) {
    match Received::parse(bytes) {
        Received::Deliver(delivery) => carry(&delivery.envelope),
        Received::Peers(frame) => {
            let text = peerbus_wire::BrokerFrame::Peers(frame).encode();
            let Received::Peers(again) = Received::parse(text.as_bytes()) else {
                panic!("{text}");
            };
            let again = peerbus_wire::BrokerFrame::Peers(again).encode();
            assert_eq!(again, text, "written, read and written anew");
        }
        Received::Receipts(receipts) => {
            for receipt in receipts {
                let text = peerbus_wire::BrokerFrame::Receipts(vec![receipt]).encode();
                let read = Received::parse(text.as_bytes());
                assert!(
                    matches!(read, Received::Receipts(r) if r.len() == 1),
                    "{text}"
                );
            }
        }
        _ => {}
    }
}

/// What bridges say to each other: in the first line the head of a message in the stream and a mark, then what
/// goes outside of it.
pub(crate) fn bridge(bytes: &[u8]) {
    let mut lines = bytes.splitn(2, |byte| *byte == b'\n');
    let mut next = || lines.next().unwrap_or_default();
    let line = String::from_utf8_lossy(next());
    if let Some(head) = StreamHead::parse(&line) {
        assert_eq!(head.encode(), line, "one way to write it");
    }
    if let Some(position) = Position::parse(&line) {
        assert_eq!(position.encode(), line, "one way to write it");
    }
    if let Ok(outside) = Outside::parse(next()) {
        let text = outside.encode();
        assert!(text.len() <= OUTSIDE_BYTES_MAX, "{} bytes", text.len());
        let again = Outside::parse(text.as_bytes()).expect("what was written");
        assert_eq!(again, outside, "written and read anew");
    }
}

/// An envelope: what verifies at one end does at the other, and nothing depends on the spelling of
/// what is outside the body.
pub(crate) fn envelope(bytes: &[u8]) {
    let Ok(decoded) = Envelope::decode(bytes) else {
        return;
    };
    carry(&decoded);
    let Ok(canonical) = decoded.envelope.canonical() else {
        panic!("an envelope without a canonical form");
    };
    let again = Envelope::decode(&canonical).expect("the canonical form");
    assert_eq!(again.envelope.canonical().expect("a form"), canonical);
    let of_serde = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
    if let (Some(body), Some(form)) = (of_serde(body_of(&decoded)), of_serde(&canonical)) {
        assert_eq!(form["body"], body);
        assert_eq!(form["from"], decoded.envelope.from);
        assert_eq!(form["to"], decoded.envelope.to);
    }
}

/// A body, and the strings around it: the canonical form is stable, and what is JSON here is JSON to
/// others.
pub(crate) fn canonical(bytes: &[u8]) {
    let (text, body) = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(at) => bytes.split_at(at),
        None => (&b""[..], bytes),
    };
    let fields = Fields {
        strings: [b"v1", text, b"a", b"b", text, b"s", b"msg"],
        body,
    };
    let formed = peerbus_wire::canonical(&fields);
    let nested = body
        .iter()
        .filter(|byte| matches!(byte, b'[' | b'{'))
        .count();
    // Beyond these both are right to say no.
    let plain = nested < DECODE_NESTING_MAX.min(100) && std::str::from_utf8(body).is_ok();
    if plain && !body.is_empty() {
        let by_serde = serde_json::from_slice::<IgnoredAny>(body);
        assert_eq!(formed.is_ok(), by_serde.is_ok(), "{formed:?} {by_serde:?}");
    }
    let Ok(formed) = formed else { return };
    let decoded = Envelope::decode(&formed).expect("the canonical form");
    if plain && let Ok(text) = std::str::from_utf8(body_of(&decoded)) {
        let shown = peerbus_wire::readable(text);
        serde_json::from_str::<Value>(&shown).expect("what is shown is JSON to strict readers");
    }
    // What is not UTF-8 is written as v1 writes it, and has become a character then.
    if std::str::from_utf8(text).is_ok() {
        assert_eq!(decoded.envelope.canonical().expect("a form"), formed);
    }
    assert!(
        !formed
            .iter()
            .any(|byte| matches!(byte, b'<' | b'>' | b'&' | 0..=0x1f))
    );
    if let Ok(text) = std::str::from_utf8(body_of(&decoded)) {
        let of = Conversation::of(text);
        let written = Conversation::of(&of.write(text));
        assert_eq!(format!("{written:?}"), format!("{of:?}"));
    }
}

/// What is carried is canonical: carried again it is the same text.
fn carry(decoded: &Decoded) {
    let Ok(carried) = decoded.carry() else { return };
    let again = Envelope::decode(carried.text.as_bytes()).expect("what is carried");
    assert!(again.irregular.is_none(), "{:?}", again.irregular);
    let again = again.carry().expect("what was carried");
    assert_eq!((again.text, again.id), (carried.text, carried.id));
    assert_eq!((again.from, again.to), (carried.from, carried.to));
}

fn body_of(decoded: &Decoded) -> &[u8] {
    match &*decoded.envelope.body {
        b"" => b"null",
        body => body,
    }
}
