//! How what became of a message is spelled.

use peerbus_wire::{
    Accepted, BrokerFrame, DeliveryKey, How, MessageId, Receipt, Received, Refusal, RefusalCode,
    Seq, Stage,
};

#[test]
fn receipts_of_what_is_under_way_are_spelled_so() {
    let seen = How::Seen {
        path: "drain".into(),
        evidence: "tool_result".into(),
    };
    let refusal = Refusal {
        code: RefusalCode::UnknownRecipient,
        reason: "nobody is bob".into(),
    };
    let accepted = |duplicate| {
        Stage::Accepted(Accepted {
            recipients: 2,
            online: 1,
            duplicate,
        })
    };
    for (said, inner) in [
        (
            (None, accepted(false)),
            r#""state":"accepted","recipients":2,"online":1"#,
        ),
        (
            (None, accepted(true)),
            r#""state":"accepted","recipients":2,"online":1,"duplicate":true"#,
        ),
        (
            (None, Stage::Refused(refusal)),
            r#""state":"refused","code":"unknown_recipient","reason":"nobody is bob""#,
        ),
        (at(Stage::Delivered), r#""state":"delivered","to":"bob""#),
        (at(Stage::Acked(None)), r#""state":"acked","to":"bob""#),
        (
            at(Stage::Acked(Some(How::Pushed {
                path: "channel".into(),
            }))),
            r#""state":"acked","to":"bob","how":"pushed","path":"channel""#,
        ),
        (
            at(Stage::Acked(Some(seen))),
            r#""state":"acked","to":"bob","how":"seen","path":"drain","evidence":"tool_result""#,
        ),
        (at(Stage::Queued), r#""state":"queued","to":"bob""#),
        (at(Stage::Forwarded), r#""state":"forwarded","to":"bob""#),
        (
            at(Stage::Recalled {
                why: "it was given back".into(),
            }),
            r#""state":"recalled","to":"bob","reason":"it was given back""#,
        ),
        ((None, Stage::Unknown), r#""state":"unknown""#),
    ] {
        spelled(said, None, inner);
    }
}

#[test]
fn receipts_of_what_is_at_its_recipient_are_spelled_so() {
    for (said, inner) in [
        (
            at(Stage::Pushed {
                path: "socket".into(),
            }),
            r#""state":"pushed","to":"bob","path":"socket""#,
        ),
        (
            at(Stage::Presented {
                path: "hook".into(),
            }),
            r#""state":"presented","to":"bob","path":"hook""#,
        ),
        (
            at(Stage::Held {
                why: "a loop".into(),
            }),
            r#""state":"held","to":"bob","reason":"a loop""#,
        ),
        (
            (None, Stage::Settled { recipients: 2 }),
            r#""state":"settled","recipients":2"#,
        ),
    ] {
        spelled(said, None, inner);
    }
}

#[test]
fn receipts_of_what_came_to_nothing_are_spelled_so() {
    let reason = || "not acked for 30 days".to_owned();
    for (said, inner) in [
        (
            at(Stage::Expired { why: reason() }),
            r#""state":"expired","to":"bob","reason":"not acked for 30 days","key":"9""#,
        ),
        (
            at(Stage::Dead { why: reason() }),
            r#""state":"dead","to":"bob","reason":"not acked for 30 days","key":"9""#,
        ),
        (
            at(Stage::Declined { why: reason() }),
            r#""state":"declined","to":"bob","reason":"not acked for 30 days","key":"9""#,
        ),
        (
            at(Stage::Unanswered { why: reason() }),
            r#""state":"unanswered","to":"bob","reason":"not acked for 30 days","key":"9""#,
        ),
    ] {
        spelled(said, Some(Seq(9).key()), inner);
    }
}

/// Said of bob.
fn at(stage: Stage) -> (Option<String>, Stage) {
    (Some("bob".into()), stage)
}

fn spelled((to, stage): (Option<String>, Stage), key: Option<DeliveryKey>, inner: &str) {
    let receipts = vec![Receipt {
        id: MessageId::parse("m1").unwrap(),
        at_ms: Some(1_779_105_600_000),
        key,
        to,
        stage,
    }];
    let text = BrokerFrame::Receipts(receipts.clone()).encode();
    let start = r#"{"protocol_version":"v1","type":"receipts","receipts":[{"id":"m1","#;
    assert_eq!(&*text, format!("{start}{inner},\"at\":1779105600000}}]}}"));
    let Received::Receipts(again) = Received::parse(text.as_bytes()) else {
        panic!("{text}")
    };
    assert_eq!(again, receipts);
}

#[test]
fn receipts_of_requests_are_spelled_so() {
    let reply = || MessageId::parse("a1").unwrap();
    let said = || "half \"way\"".to_owned();
    for (said, inner) in [
        (
            at(Stage::Working { said: said() }),
            r#""state":"working","to":"bob","reason":"half \"way\"""#,
        ),
        (
            at(Stage::Done { reply: reply() }),
            r#""state":"done","to":"bob","reply":"a1""#,
        ),
        (
            at(Stage::Failed { reply: reply() }),
            r#""state":"failed","to":"bob","reply":"a1""#,
        ),
        (at(Stage::Owed), r#""state":"owed","to":"bob""#),
        (at(Stage::Withdrawn), r#""state":"withdrawn","to":"bob""#),
    ] {
        spelled(said, None, inner);
    }
}
