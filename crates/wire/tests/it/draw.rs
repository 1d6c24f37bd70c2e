//! Anything that the wire may carry, drawn at random.

use peerbus_wire::limits::WITHIN_MS_MAX;
use peerbus_wire::{
    Accepted, Ack, BrokerFrame, Carried, ClientFrame, Decoded, DeliverFrame, DeliveryKey, Domain,
    Envelope, GroupName, How, Instance, JoinRequest, Mark, MessageId, PeerEntry, PeersFrame,
    Presence, Receipt, Refusal, RefusalCode, Register, Seq, Stage, Token, TokenName, Window,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::secret;

pub(crate) fn sign(mut envelope: Envelope) -> Envelope {
    envelope.hmac = secret().sign(&envelope.canonical().unwrap());
    envelope
}

pub(crate) fn space() -> impl Strategy<Value = &'static str> + Clone {
    select(vec!["", "", "", " ", "\n\t", "\r "])
}

/// JSON in all kinds of spelling.
pub(crate) fn json() -> impl Strategy<Value = String> {
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

pub(crate) fn envelope_of(strings: [String; 7], body: String) -> Envelope {
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
pub(crate) fn any_envelope() -> impl Strategy<Value = Envelope> {
    (any::<[String; 7]>(), json()).prop_map(|(strings, body)| envelope_of(strings, body))
}

/// Members that satisfy the rules.
pub(crate) fn good_envelope() -> impl Strategy<Value = Envelope> {
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

pub(crate) fn carried() -> impl Strategy<Value = Carried> {
    good_envelope().prop_map(|e| {
        Decoded {
            envelope: sign(e),
            irregular: None,
        }
        .carry()
        .unwrap()
    })
}

/// One that may be a request.
pub(crate) fn sent() -> impl Strategy<Value = Carried> {
    let within_ms = option::of(1..=WITHIN_MS_MAX);
    (carried(), within_ms).prop_map(|(carried, within_ms)| Carried {
        within_ms,
        ..carried
    })
}

pub(crate) fn message_id() -> impl Strategy<Value = MessageId> {
    "[A-Za-z0-9._:-]{1,128}".prop_map(|text| MessageId::parse(&text).unwrap())
}

pub(crate) fn key() -> impl Strategy<Value = DeliveryKey> {
    prop_oneof![
        any::<u64>().prop_map(|n| Seq(n).key().as_str().to_owned()),
        "\\PC{1,40}"
    ]
    .prop_map(|text| DeliveryKey::parse(&text).unwrap())
}

pub(crate) fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        "[ -~]{1,64}".prop_map(|path| How::Pushed { path }),
        ("[ -~]{1,64}", "[ -~]{1,64}").prop_map(|(path, evidence)| How::Seen { path, evidence }),
    ]
}

pub(crate) fn word() -> &'static str {
    "[ -~]{1,64}"
}

pub(crate) fn progress() -> impl Strategy<Value = Stage> {
    prop_oneof![
        word().prop_map(|path| Stage::Pushed { path }),
        word().prop_map(|path| Stage::Presented { path }),
        "\\PC{0,80}".prop_map(|why| Stage::Held { why }),
        "\\PC{0,80}".prop_map(|said| Stage::Working { said }),
    ]
}

pub(crate) fn window() -> impl Strategy<Value = Window> {
    any::<(u32, u32)>().prop_map(|(messages, bytes)| Window { messages, bytes })
}

pub(crate) fn presence() -> impl Strategy<Value = Presence> {
    any::<[String; 2]>().prop_map(|[project, branch]| {
        let object = serde_json::json!({"project": project, "branch": branch});
        Presence::parse(&object.to_string()).unwrap_or(Presence::parse("{}").unwrap())
    })
}

pub(crate) fn register() -> impl Strategy<Value = Register> {
    let v1 = (any::<String>(), option::of("[!-~]{0,40}"), any::<String>());
    let ext = (
        any::<u32>(),
        option::of(any::<u128>()),
        any::<(bool, bool)>(),
        option::of(any::<String>()),
        option::of(mark()),
    );
    (v1, ext, option::of(window()), option::of(presence())).prop_map(
        |(
            (protocol_version, token, name),
            (ext, instance, flags, renaming, bridge),
            window,
            presence,
        )| {
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
                bridge,
            }
        },
    )
}

pub(crate) fn mark() -> impl Strategy<Value = Mark> {
    "[!-~]{1,128}".prop_map(|text| Mark::parse(&text).unwrap())
}

pub(crate) fn client_frame() -> impl Strategy<Value = ClientFrame> {
    prop_oneof![
        register().prop_map(ClientFrame::Register),
        ("[!-~]{1,64}", "[!-~]{32,64}").prop_map(|(code, token)| {
            let token_of = |text: &str| Token::parse(text).unwrap();
            let (code, token) = (token_of(&code), token_of(&token));
            ClientFrame::Join(JoinRequest { code, token })
        }),
        (key(), option::of(how()), any::<u32>())
            .prop_map(|(key, how, age_ms)| ClientFrame::Ack(Ack { key, how, age_ms })),
        Just(ClientFrame::Peers),
        Just(ClientFrame::PeersOf(Domain::parse("beta").unwrap())),
        (groups(), groups()).prop_map(|(join, leave)| ClientFrame::Regroup { join, leave }),
        vec(entry(), 0..4).prop_map(ClientFrame::Roster),
        sent().prop_map(ClientFrame::Envelope),
        message_id().prop_map(|id| ClientFrame::Withdraw { id }),
        presence().prop_map(ClientFrame::Presence),
        (mark(), any::<bool>(), sent()).prop_map(|(mark, again, carried)| ClientFrame::Take {
            mark,
            again,
            envelope: Ok(carried),
        }),
        option::of(key()).prop_map(|after| ClientFrame::Forwarded { after }),
        (key(), "\\PC{0,80}").prop_map(|(key, reason)| ClientFrame::reject(key, reason)),
        (key(), any::<bool>()).prop_map(|(key, again)| ClientFrame::Release { key, again }),
        vec(message_id(), 0..5).prop_map(|ids| ClientFrame::Status { ids }),
        (key(), progress(), any::<u32>()).prop_map(|(key, stage, age_ms)| ClientFrame::Progress {
            key,
            stage,
            age_ms
        }),
        any::<String>().prop_map(|name| ClientFrame::Rename { name }),
        option::of(any::<String>()).prop_map(|successor| ClientFrame::Retire { successor }),
    ]
}

fn groups() -> impl Strategy<Value = Vec<GroupName>> {
    vec("[a-z0-9][a-z0-9._-]{0,15}", 0..4).prop_map(|names| {
        let group = |name: &String| GroupName::parse(name).unwrap();
        names.iter().map(group).collect()
    })
}

fn entry() -> impl Strategy<Value = PeerEntry> {
    (
        any::<String>(),
        any::<bool>(),
        option::of(any::<u64>()),
        option::of(any::<u64>()),
        option::of(any::<u64>()),
        option::of(any::<u64>()),
        groups(),
        option::of(presence()),
        option::of(Just("eve")),
    )
        .prop_map(
            |(name, online, unacked, away_s, activity_s, owes, groups, presence, token)| {
                PeerEntry {
                    name,
                    online,
                    unacked,
                    away_s,
                    activity_s,
                    owes,
                    groups,
                    presence,
                    stopped: false,
                    token: token.and_then(TokenName::parse),
                    old: Vec::new(),
                }
            },
        )
}

pub(crate) fn peers_frame() -> impl Strategy<Value = PeersFrame> {
    let names = vec(any::<String>(), 0..4);
    (
        names,
        option::of(any::<u32>()),
        option::of(window()),
        option::of(vec(entry(), 0..4)),
        any::<u32>(),
        (
            option::of("[a-z0-9]{1,16}"),
            option::of(mark()),
            option::of(mark()),
            option::of(0..1_u64 << 50),
        ),
        (option::of(groups()), option::of("[a-z ]{0,80}")),
    )
        .prop_map(
            |(
                names,
                ext,
                window,
                peers,
                omitted,
                (domain, epoch, mark, age_ms),
                (groups, reason),
            )| PeersFrame {
                names,
                groups,
                reason,
                ext,
                window,
                peers,
                omitted,
                domain: domain.and_then(|domain| Domain::parse(&domain)),
                age_ms,
                epoch,
                mark,
            },
        )
}

pub(crate) fn receipt() -> impl Strategy<Value = Receipt> {
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
        why.prop_map(|why| Stage::Recalled { why }),
        why.prop_map(|why| Stage::Expired { why }),
        why.prop_map(|why| Stage::Dead { why }),
        message_id().prop_map(|reply| Stage::Done { reply }),
        message_id().prop_map(|reply| Stage::Failed { reply }),
        why.prop_map(|why| Stage::Declined { why }),
        Just(Stage::Owed),
        Just(Stage::Withdrawn),
        why.prop_map(|why| Stage::Unanswered { why }),
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
pub(crate) fn frame_text() -> impl Strategy<Value = String> {
    prop_oneof![
        client_frame().prop_map(|frame| frame.encode()),
        peers_frame().prop_map(|frame| BrokerFrame::Peers(frame).encode().to_string()),
        vec(receipt(), 0..3).prop_map(|all| BrokerFrame::Receipts(all).encode().to_string()),
        carried().prop_map(|c| DeliverFrame::new(Seq(1), &c.text).text().to_string()),
    ]
}
