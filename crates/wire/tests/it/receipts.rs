//! How what became of a message is spelled.

use peerbus_wire::{
    BrokerFrame, DeliveryKey, How, MessageId, Receipt, Received, Refusal, RefusalCode, Seq, State,
};

#[test]
fn receipts_of_what_is_under_way_are_spelled_so() {
    let to = || "bob".to_owned();
    let seen = How::Seen {
        path: "drain".into(),
        evidence: "tool_result".into(),
    };
    let refusal = Refusal {
        code: RefusalCode::UnknownRecipient,
        reason: "nobody is bob".into(),
    };
    let accepted = |duplicate| State::Accepted {
        recipients: 2,
        online: 1,
        duplicate,
    };
    for (state, inner) in [
        (
            accepted(false),
            r#""state":"accepted","recipients":2,"online":1"#,
        ),
        (
            accepted(true),
            r#""state":"accepted","recipients":2,"online":1,"duplicate":true"#,
        ),
        (
            State::Refused(refusal),
            r#""state":"refused","code":"unknown_recipient","reason":"nobody is bob""#,
        ),
        (
            State::Delivered { to: to() },
            r#""state":"delivered","to":"bob""#,
        ),
        (
            State::Acked {
                to: to(),
                how: None,
            },
            r#""state":"acked","to":"bob""#,
        ),
        (
            State::Acked {
                to: to(),
                how: Some(How::Pushed {
                    path: "channel".into(),
                }),
            },
            r#""state":"acked","to":"bob","how":"pushed","path":"channel""#,
        ),
        (
            State::Acked {
                to: to(),
                how: Some(seen),
            },
            r#""state":"acked","to":"bob","how":"seen","path":"drain","evidence":"tool_result""#,
        ),
        (State::Queued { to: to() }, r#""state":"queued","to":"bob""#),
        (State::Unknown, r#""state":"unknown""#),
    ] {
        spelled(state, None, inner);
    }
}

#[test]
fn receipts_of_what_is_at_its_recipient_are_spelled_so() {
    let to = || "bob".to_owned();
    for (state, inner) in [
        (
            State::Pushed {
                to: to(),
                path: "socket".into(),
            },
            r#""state":"pushed","to":"bob","path":"socket""#,
        ),
        (
            State::Presented {
                to: to(),
                path: "hook".into(),
            },
            r#""state":"presented","to":"bob","path":"hook""#,
        ),
        (
            State::Held {
                to: to(),
                reason: "a loop".into(),
            },
            r#""state":"held","to":"bob","reason":"a loop""#,
        ),
        (
            State::Settled { recipients: 2 },
            r#""state":"settled","recipients":2"#,
        ),
    ] {
        spelled(state, None, inner);
    }
}

#[test]
fn receipts_of_what_came_to_nothing_are_spelled_so() {
    let reason = || "not acked for 30 days".to_owned();
    let to = || "bob".to_owned();
    for (state, inner) in [
        (
            State::Expired {
                to: to(),
                reason: reason(),
            },
            r#""state":"expired","to":"bob","reason":"not acked for 30 days","key":"9""#,
        ),
        (
            State::Dead {
                to: to(),
                reason: reason(),
            },
            r#""state":"dead","to":"bob","reason":"not acked for 30 days","key":"9""#,
        ),
    ] {
        spelled(state, Some(Seq(9).key()), inner);
    }
}

fn spelled(state: State, key: Option<DeliveryKey>, inner: &str) {
    let receipts = vec![Receipt {
        id: MessageId::parse("m1").unwrap(),
        state,
        key,
        at_ms: Some(1_779_105_600_000),
    }];
    let text = BrokerFrame::Receipts(receipts.clone()).encode();
    let start = r#"{"protocol_version":"v1","type":"receipts","receipts":[{"id":"m1","#;
    assert_eq!(&*text, format!("{start}{inner},\"at\":1779105600000}}]}}"));
    let Received::Receipts(again) = Received::parse(text.as_bytes()) else {
        panic!("{text}")
    };
    assert_eq!(again, receipts);
}
