//! What holds for every input.

use peerbus_wire::{
    Accepted, Ack, BrokerFrame, Carried, ClientFrame, Decoded, DeliverFrame, DeliveryKey, Envelope,
    Fields, How, Instance, MessageId, PeerEntry, PeersFrame, Presence, Receipt, Received, Refusal,
    RefusalCode, Register, Secret, Seq, Stage, Token, Window, canonical, control_type, escape,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::value::RawValue;

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
    fn broker_frames_survive_the_wire(peers in peers_frame(), receipts in vec(receipt(), 0..5)) {
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

fn sign(mut envelope: Envelope) -> Envelope {
    envelope.hmac = secret().sign(&envelope.canonical().unwrap());
    envelope
}

fn space() -> impl Strategy<Value = &'static str> + Clone {
    select(vec!["", "", "", " ", "\n\t", "\r "])
}

/// JSON in all kinds of spelling.
fn json() -> impl Strategy<Value = String> {
    let piece = select(vec![
        "a", " ", "<", ">", "&", "\u{2028}", "\u{2029}", "\u{2027}", "é", "😀", "\u{7f}", r"\\",
        r#"\""#, r"\n", r"\/", r"\u003C", r"\u2028", r"\ud800", "[", "]", "{", "}", ",", ":",
    ]);
    let string = vec(piece, 0..8).prop_map(|pieces| format!("\"{}\"", pieces.concat()));
    let number = select(vec![
        "0",
        "-0",
        "1.50",
        "1e5",
        "1E+05",
        "123456789012345678901234567890",
    ]);
    let word = select(vec!["null", "true", "false"]);
    let leaf = prop_oneof![
        string.clone(),
        number.prop_map(String::from),
        word.prop_map(String::from)
    ];
    leaf.prop_recursive(4, 24, 5, move |inner| {
        let element = (space(), inner.clone(), space()).prop_map(|(a, x, b)| format!("{a}{x}{b}"));
        let member = (space(), string.clone(), space(), element.clone())
            .prop_map(|(a, name, b, value)| format!("{a}{name}{b}:{value}"));
        prop_oneof![
            vec(element, 0..4).prop_map(|all| format!("[{}]", all.join(","))),
            vec(member, 0..4).prop_map(|all| format!("{{{}}}", all.join(","))),
            (space(), inner, space()).prop_map(|(a, x, b)| format!("{a}{x}{b}")),
        ]
    })
}

fn envelope_of(strings: [String; 7], body: String) -> Envelope {
    let [protocol_version, id, from, to, ts, source, kind] = strings;
    let body = body.into_bytes();
    Envelope {
        protocol_version,
        id,
        from,
        to,
        ts,
        source,
        kind,
        body,
        hmac: String::new(),
    }
}

/// Members of any text.
fn any_envelope() -> impl Strategy<Value = Envelope> {
    (any::<[String; 7]>(), json()).prop_map(|(strings, body)| envelope_of(strings, body))
}

/// Members that satisfy the rules.
fn good_envelope() -> impl Strategy<Value = Envelope> {
    let to = prop_oneof![Just(None), "r[A-Za-z0-9._@:-]{0,63}".prop_map(Some)];
    (
        "[A-Za-z0-9._:-]{1,128}",
        "q[A-Za-z0-9._@:-]{0,63}",
        to,
        "[ -~]{0,64}",
        "[A-Za-z0-9._-]{1,64}",
        json(),
    )
        .prop_map(|(id, from, to, ts, source, body)| {
            let kind = if to.is_some() { "msg" } else { "broadcast" };
            let to = to.unwrap_or("*".into());
            envelope_of(["v1".into(), id, from, to, ts, source, kind.into()], body)
        })
}

fn carried() -> impl Strategy<Value = Carried> {
    good_envelope().prop_map(|e| {
        Decoded {
            envelope: sign(e),
            irregular: None,
        }
        .carry()
        .unwrap()
    })
}

fn message_id() -> impl Strategy<Value = MessageId> {
    "[A-Za-z0-9._:-]{1,128}".prop_map(|text| MessageId::parse(&text).unwrap())
}

fn key() -> impl Strategy<Value = DeliveryKey> {
    prop_oneof![
        any::<u64>().prop_map(|n| Seq(n).key().as_str().to_owned()),
        "\\PC{1,40}"
    ]
    .prop_map(|text| DeliveryKey::parse(&text).unwrap())
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        "[ -~]{1,64}".prop_map(|path| How::Pushed { path }),
        ("[ -~]{1,64}", "[ -~]{1,64}").prop_map(|(path, evidence)| How::Seen { path, evidence }),
    ]
}

fn word() -> &'static str {
    "[ -~]{1,64}"
}

fn progress() -> impl Strategy<Value = Stage> {
    prop_oneof![
        word().prop_map(|path| Stage::Pushed { path }),
        word().prop_map(|path| Stage::Presented { path }),
        "\\PC{0,80}".prop_map(|why| Stage::Held { why }),
    ]
}

fn window() -> impl Strategy<Value = Window> {
    any::<(u32, u32)>().prop_map(|(messages, bytes)| Window { messages, bytes })
}

fn presence() -> impl Strategy<Value = Presence> {
    any::<[String; 2]>().prop_map(|[project, branch]| {
        let object = serde_json::json!({"project": project, "branch": branch});
        Presence::parse(&object.to_string()).unwrap_or(Presence::parse("{}").unwrap())
    })
}

fn register() -> impl Strategy<Value = Register> {
    let v1 = (any::<String>(), option::of("[!-~]{0,40}"), any::<String>());
    let ext = (
        any::<u32>(),
        option::of(any::<u128>()),
        any::<(bool, bool)>(),
        option::of(any::<String>()),
    );
    (v1, ext, option::of(window()), option::of(presence())).prop_map(
        |((protocol_version, token, name), (ext, instance, flags, renaming), window, presence)| {
            Register {
                protocol_version,
                token: token.and_then(|token| Token::parse(&token)),
                name,
                renaming,
                ext,
                instance: instance.map(Instance::from_entropy),
                ephemeral: flags.0,
                generated: flags.1,
                window,
                presence,
            }
        },
    )
}

fn client_frame() -> impl Strategy<Value = ClientFrame> {
    prop_oneof![
        register().prop_map(ClientFrame::Register),
        (key(), option::of(how())).prop_map(|(key, how)| ClientFrame::Ack(Ack { key, how })),
        Just(ClientFrame::Peers),
        carried().prop_map(ClientFrame::Envelope),
        presence().prop_map(ClientFrame::Presence),
        (key(), "\\PC{0,80}").prop_map(|(key, reason)| ClientFrame::Reject { key, reason }),
        key().prop_map(|key| ClientFrame::Release { key }),
        vec(message_id(), 0..5).prop_map(|ids| ClientFrame::Status { ids }),
        (key(), progress()).prop_map(|(key, stage)| ClientFrame::Progress { key, stage }),
        any::<String>().prop_map(|name| ClientFrame::Rename { name }),
        option::of(any::<String>()).prop_map(|successor| ClientFrame::Retire { successor }),
    ]
}

fn peers_frame() -> impl Strategy<Value = PeersFrame> {
    let entry = (
        any::<String>(),
        any::<bool>(),
        option::of(any::<u64>()),
        option::of(any::<u64>()),
        option::of(any::<u64>()),
        option::of(presence()),
    )
        .prop_map(
            |(name, online, unacked, away_s, activity_s, presence)| PeerEntry {
                name,
                online,
                unacked,
                away_s,
                activity_s,
                presence,
            },
        );
    let names = vec(any::<String>(), 0..4);
    (
        names,
        option::of(any::<u32>()),
        option::of(window()),
        option::of(vec(entry, 0..4)),
        any::<u32>(),
    )
        .prop_map(|(names, ext, window, peers, omitted)| PeersFrame {
            names,
            ext,
            window,
            peers,
            omitted,
        })
}

fn receipt() -> impl Strategy<Value = Receipt> {
    let code = select(vec![
        RefusalCode::Invalid,
        RefusalCode::From,
        RefusalCode::UnknownRecipient,
        RefusalCode::IdReused,
        RefusalCode::TooLarge,
        RefusalCode::QueueFull,
        RefusalCode::DiskFull,
        RefusalCode::Quota,
        RefusalCode::Forbidden,
    ]);
    let (to, why) = (any::<String>(), "\\PC{0,80}");
    let at_one = prop_oneof![
        Just(Stage::Queued),
        Just(Stage::Forwarded),
        Just(Stage::Delivered),
        progress(),
        option::of(how()).prop_map(Stage::Acked),
        why.prop_map(|why| Stage::Expired { why }),
        why.prop_map(|why| Stage::Dead { why }),
    ];
    let of_all = prop_oneof![
        any::<(u32, u32, bool)>().prop_map(|(recipients, online, duplicate)| Stage::Accepted(
            Accepted {
                recipients,
                online,
                duplicate
            }
        )),
        (code, why).prop_map(|(code, reason)| Stage::Refused(Refusal { code, reason })),
        any::<u32>().prop_map(|recipients| Stage::Settled { recipients }),
        Just(Stage::Unknown),
    ];
    let said = prop_oneof![
        (to, at_one).prop_map(|(to, stage)| (Some(to), stage)),
        of_all.prop_map(|stage| (None, stage)),
    ];
    (
        message_id(),
        said,
        option::of(key()),
        option::of(any::<u64>()),
    )
        .prop_map(|(id, (to, stage), key, at_ms)| Receipt {
            id,
            at_ms,
            key,
            to,
            stage,
        })
}

/// The text of any frame, in either direction.
fn frame_text() -> impl Strategy<Value = String> {
    prop_oneof![
        client_frame().prop_map(|frame| frame.encode()),
        peers_frame().prop_map(|frame| BrokerFrame::Peers(frame).encode().to_string()),
        vec(receipt(), 0..3).prop_map(|all| BrokerFrame::Receipts(all).encode().to_string()),
        carried().prop_map(|c| DeliverFrame::new(Seq(1), &c.text).text().to_string()),
    ]
}
