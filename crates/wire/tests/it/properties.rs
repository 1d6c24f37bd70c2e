//! What holds for every input.

use peerbus_wire::{
    BrokerFrame, ClientFrame, Decoded, DeliverFrame, DeliveryKey, Envelope, Fields, Forwarded,
    MessageId, Presence, Recall, Received, Secret, Seq, canonical, control_type, escape,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::value::RawValue;

use crate::draw::*;
use crate::secret;

/// Reads bytes in every way there is.
fn read_all(bytes: &[u8]) {
    let _ = control_type(bytes);
    let _ = ClientFrame::parse(bytes).encode();
    let _ = Received::parse(bytes);
    let _ = canonical(&Fields {
        strings: [bytes; 7],
        body: bytes,
    });
    if let Ok(decoded) = Envelope::decode(bytes) {
        let _ = decoded.carry();
        let _ = secret().verify(&decoded.envelope);
    }
    let text = String::from_utf8_lossy(bytes);
    let _ = Presence::parse(&text);
    let safe = escape(&text, 20);
    assert!(!safe.contains(['<', '>', '\n', '\r', '\u{2028}', '\u{202e}', '\u{200b}']));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics_on_bytes(bytes in vec(any::<u8>(), 0..200)) {
        read_all(&bytes);
    }

    #[test]
    fn nothing_panics_on_json_like_text(text in r#"[\[\]{}",:\\u0-9a-fA-FeE+. \n<&-]{0,60}"#) {
        read_all(text.as_bytes());
    }

    #[test]
    fn nothing_panics_on_a_frame_that_was_changed(
        text in frame_text(),
        changes in vec((any::<Index>(), any::<Index>(), vec(any::<u8>(), 0..4)), 1..6),
    ) {
        let mut bytes = text.into_bytes();
        for (from, to, put) in changes {
            let (a, b) = (from.index(bytes.len() + 1), to.index(bytes.len() + 1));
            bytes.splice(a.min(b)..a.max(b).min(a.min(b) + 8), put);
        }
        read_all(&bytes);
    }

    #[test]
    fn json_is_what_an_independent_reader_takes_for_json(
        text in r#"[\[\]{}",:\\u0-9truefalsn+. -]{0,24}"#,
    ) {
        let theirs = serde_json::from_str::<&RawValue>(&text).is_ok();
        let ours = canonical(&Fields { strings: [b""; 7], body: text.as_bytes() }).is_ok();
        prop_assert_eq!(ours, theirs || text.is_empty());
    }

    #[test]
    fn numbers_are_what_an_independent_reader_takes_for_numbers(
        text in r"-?[01]{0,2}(\.[01]{0,2})?([eE][+-]?[01]{0,2})?",
    ) {
        let theirs = serde_json::from_str::<&RawValue>(&text).is_ok();
        let ours = canonical(&Fields { strings: [b""; 7], body: text.as_bytes() }).is_ok();
        prop_assert_eq!(ours, theirs || text.is_empty());
    }

    #[test]
    fn a_body_is_compacted_and_escaped_and_not_touched_otherwise(body in json()) {
        let form = canonical(&Fields { strings: [b"x"; 7], body: body.as_bytes() }).unwrap();
        let form = String::from_utf8(form).unwrap();
        let (_, rest) = form.split_once(r#""body":"#).unwrap();
        prop_assert_eq!(rest.strip_suffix('}').unwrap(), model(&body));
    }

    #[test]
    fn the_canonical_form_of_the_canonical_form_is_itself(envelope in any_envelope()) {
        let form = envelope.canonical().unwrap();
        let decoded = Envelope::decode(&form).unwrap();
        prop_assert!(decoded.irregular.is_none());
        prop_assert_eq!(decoded.envelope.canonical().unwrap(), form);
        let Envelope { hmac: _, body: _, ref from, .. } = decoded.envelope;
        prop_assert_eq!(from, &envelope.from);
    }

    #[test]
    fn a_signature_holds_for_what_was_signed_and_nothing_else(
        envelope in any_envelope(), at in any::<Index>(), to in any::<u8>(),
    ) {
        let signed = sign(envelope);
        prop_assert!(secret().verify(&signed).is_ok());
        prop_assert!(Secret::new(&[9; 32]).unwrap().verify(&signed).is_err());

        let form = signed.canonical().unwrap();
        let mut changed = form.clone();
        let at = at.index(form.len());
        changed[at] = to;
        prop_assert_eq!(secret().sign(&changed) == signed.hmac, to == form[at]);

        let mut wire = form;
        wire.pop();
        wire.extend_from_slice(format!(",\"hmac\":\"{}\"}}", signed.hmac).as_bytes());
        wire[at] = to;
        if let Ok(Decoded { envelope, .. }) = Envelope::decode(&wire) {
            let same = envelope.canonical().unwrap() == signed.canonical().unwrap();
            prop_assert_eq!(secret().verify(&envelope).is_ok(), same);
        }
    }

    #[test]
    fn what_is_carried_is_canonical_and_verifies(envelope in good_envelope()) {
        let signed = sign(envelope);
        let carried = Decoded { envelope: signed.clone(), irregular: None }.carry().unwrap();
        let read = Envelope::decode(carried.text.as_bytes()).unwrap();
        prop_assert!(secret().verify(&read.envelope).is_ok());
        prop_assert_eq!(&read.carry().unwrap(), &carried);
        let form = String::from_utf8(signed.canonical().unwrap()).unwrap();
        let open = form.strip_suffix('}').unwrap();
        prop_assert!(carried.text.starts_with(open));
        let deliver = DeliverFrame::new(Seq(7), &carried.text);
        let Received::Deliver(delivery) = Received::parse(deliver.text().as_bytes()) else {
            return Err(TestCaseError::fail("no delivery"));
        };
        prop_assert_eq!(delivery.envelope.carry().unwrap(), carried);
    }

    #[test]
    fn client_frames_survive_the_wire(frame in client_frame()) {
        let text = frame.encode();
        let again = ClientFrame::parse(text.as_bytes());
        // Debug hides credentials; their spelling is compared through the text.
        prop_assert_eq!(format!("{again:?}"), format!("{frame:?}"));
        prop_assert_eq!(again.encode(), text);
    }

    #[test]
    fn broker_frames_survive_the_wire(
        peers in peers_frame(),
        receipts in vec(receipt(), 0..5),
        messages in vec((key(), "[a-z0-9]{1,8}"), 0..5),
    ) {
        let message = |(key, id): (DeliveryKey, String)| Forwarded {
            key,
            id: MessageId::parse(&id).unwrap(),
        };
        let forwarded: Vec<_> = messages.into_iter().map(message).collect();
        let recall = Recall { key: Seq(7).key(), reason: "its \"time\" is over".into() };
        let text = BrokerFrame::Recall(recall.clone()).encode();
        prop_assert!(matches!(Received::parse(text.as_bytes()), Received::Recall(it) if it == recall));
        let text = BrokerFrame::Forwarded(forwarded.clone()).encode();
        let Received::Forwarded(again) = Received::parse(text.as_bytes()) else {
            return Err(TestCaseError::fail(text.to_string()));
        };
        prop_assert_eq!(again, forwarded);
        let text = BrokerFrame::Peers(peers.clone()).encode();
        let Received::Peers(again) = Received::parse(text.as_bytes()) else {
            return Err(TestCaseError::fail(text.to_string()));
        };
        prop_assert_eq!(again, peers);
        let text = BrokerFrame::Receipts(receipts.clone()).encode();
        let Received::Receipts(again) = Received::parse(text.as_bytes()) else {
            return Err(TestCaseError::fail(text.to_string()));
        };
        prop_assert_eq!(again, receipts);
    }
}

#[test]
fn nesting_is_read_to_its_bound_and_no_further() {
    let nested = |depth: usize| ["[".repeat(depth), "]".repeat(depth)].concat();
    let form = |body: &str| {
        canonical(&Fields {
            strings: [b""; 7],
            body: body.as_bytes(),
        })
    };
    assert!(form(&nested(10_000)).is_ok());
    assert!(form(&nested(10_001)).is_err());
    let objects = ["{\"a\":".repeat(10_000), "1".into(), "}".repeat(10_000)].concat();
    assert!(form(&objects).is_ok());
    assert!(Envelope::decode(format!("{{\"body\":{}}}", nested(9_999)).as_bytes()).is_ok());
    assert!(Envelope::decode(format!("{{\"body\":{}}}", nested(10_000)).as_bytes()).is_err());
}

/// The canonical form of a body, written down once more in the simplest way.
fn model(body: &str) -> String {
    let raw: &RawValue = serde_json::from_str(body).unwrap();
    let (mut out, mut quoted, mut escaped) = (String::new(), false, false);
    for c in raw.get().chars() {
        if quoted || !c.is_ascii_whitespace() {
            match c {
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                    out += &format!("\\u{:04x}", u32::from(c));
                }
                _ => out.push(c),
            }
        }
        if c == '"' && !escaped {
            quoted = !quoted;
        }
        escaped = c == '\\' && !escaped;
    }
    out
}
