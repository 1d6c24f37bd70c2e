use peerbus_wire::{Refusal, RefusalCode};

use super::*;
use crate::session::outbox::{BYTES_MAX, GIVE_UP_MS, MESSAGES_MAX, ON_WIRE_MAX};

fn outcomes(rig: &mut Rig) -> Vec<(String, SendResult)> {
    let sent = |reply| match reply {
        Reply::Sent { id, outcome } => (id.to_string(), outcome),
        other => panic!("{other:?}"),
    };
    rig.replies().into_iter().map(sent).collect()
}

fn accepted() -> SendResult {
    Ok(Some(Accepted {
        recipients: 1,
        online: 1,
        duplicate: false,
    }))
}

#[test]
fn what_is_sent_is_signed_and_answered_by_its_receipt() {
    let mut rig = Rig::online(true);
    rig.send("m1", 60_000);
    let frames = rig.frames();
    let decoded = decode(&frames[0]);
    Secret::new(SECRET)
        .unwrap()
        .verify(&decoded.envelope)
        .unwrap();
    assert_eq!(decoded.envelope.from, "Bob");
    assert_eq!(decoded.envelope.to, "alice");
    assert_eq!(decoded.envelope.kind, "msg");
    assert!(
        outcomes(&mut rig).is_empty(),
        "nothing is known before the receipt"
    );
    rig.accept("m1");
    assert_eq!(outcomes(&mut rig), [("m1".into(), accepted())]);
}

#[test]
fn a_refusal_is_told_and_ends_the_message() {
    let mut rig = Rig::online(true);
    rig.send("m1", 60_000);
    rig.wire();
    let refusal = Refusal {
        code: RefusalCode::UnknownRecipient,
        reason: "nobody".into(),
    };
    rig.receipt("m1", Stage::Refused(refusal.clone()), None);
    assert_eq!(
        outcomes(&mut rig),
        [("m1".into(), Err(Unsent::Refused(refusal)))]
    );
    rig.cut();
    rig.redial();
    rig.register(true);
    assert!(rig.wire().is_empty());
}

#[test]
fn unreceipted_messages_are_sent_again_in_order_with_the_same_bytes() {
    let mut rig = Rig::online(true);
    for message in ["m1", "m2", "m3"] {
        rig.send(message, 60_000);
    }
    let first: Vec<_> = rig.frames().iter().map(ClientFrame::encode).collect();
    rig.accept("m2");
    rig.cut();
    rig.send("m4", 60_000);
    assert!(rig.wire().is_empty(), "nothing leaves without a connection");
    rig.redial();
    rig.register(true);
    // The broker would take another signature for another message.
    let new = Secret::new(&[b'n'; 32]).unwrap();
    rig.session.handle_secret(rig.now(), Some(new.clone()));
    let again: Vec<_> = rig.frames().iter().map(ClientFrame::encode).collect();
    assert_eq!(again[..2], [first[0].clone(), first[2].clone()]);
    assert!(again[2].contains(r#""id":"m4""#));
    assert_eq!(rig.session.counters().resent, 2);
}

#[test]
fn a_send_whose_deadline_passes_before_it_left_is_dropped() {
    let mut rig = Rig::new(false);
    rig.session
        .handle_unreachable(rig.now(), true, "refused".into());
    rig.send("m1", 5);
    rig.ms += 5;
    rig.session.handle_timeout(rig.now());
    assert_eq!(outcomes(&mut rig), [("m1".into(), Err(Unsent::NeverLeft))]);
    while rig.actions() != [Action::Dial] {
        rig.wait();
    }
    rig.register(true);
    assert!(
        rig.wire().is_empty(),
        "the caller was told that it will not be sent"
    );
}

#[test]
fn a_send_that_left_and_times_out_is_sent_again_until_it_gives_up() {
    let mut rig = Rig::online(true);
    rig.send("m1", 1_000);
    assert_eq!(rig.wire(), ["m1"]);
    rig.cut();
    rig.ms = 1_000;
    rig.session.handle_timeout(rig.now());
    let left = Err(Unsent::Unconfirmed {
        resent_for_ms: GIVE_UP_MS - 1_000,
    });
    assert_eq!(outcomes(&mut rig), [("m1".into(), left)]);
    while rig.actions() != [Action::Dial] {
        rig.wait();
    }
    rig.register(true);
    assert_eq!(rig.wire(), ["m1"]);
    assert!(matches!(
        rig.session.poll_event(),
        Some(SessionEvent::Registered { .. })
    ));
    rig.ms = GIVE_UP_MS;
    rig.session.handle_timeout(rig.now());
    assert_eq!(
        rig.session.poll_event(),
        Some(SessionEvent::GaveUp { id: "m1".into() })
    );
    assert!(outcomes(&mut rig).is_empty(), "the caller is answered once");
}

#[test]
fn no_deadline_is_later_than_the_last_resend() {
    let mut rig = Rig::online(true);
    rig.send("m1", 10 * GIVE_UP_MS);
    rig.wire();
    rig.ms = GIVE_UP_MS;
    rig.session.handle_timeout(rig.now());
    let open = Err(Unsent::Unconfirmed { resent_for_ms: 0 });
    assert_eq!(outcomes(&mut rig), [("m1".into(), open)]);
    assert_eq!(rig.session.poll_event(), None, "the caller knows already");
    rig.cut();
    while rig.actions() != [Action::Dial] {
        rig.wait();
    }
    rig.register(true);
    assert!(rig.wire().is_empty());
}

#[test]
fn a_receipt_after_the_caller_gave_up_is_an_event() {
    let mut rig = Rig::online(true);
    rig.send("m1", 1_000);
    rig.wire();
    rig.wait();
    outcomes(&mut rig);
    rig.accept("m1");
    assert!(matches!(
        rig.session.poll_event(),
        Some(SessionEvent::Notice {
            receipt: Receipt {
                stage: Stage::Accepted(_),
                ..
            },
            id: None,
        })
    ));
    assert!(outcomes(&mut rig).is_empty());
}

#[test]
fn at_most_so_many_are_on_the_wire_without_a_receipt() {
    let mut rig = Rig::online(true);
    for n in 0..ON_WIRE_MAX + 2 {
        rig.send(&format!("m{n}"), 60_000);
    }
    assert_eq!(rig.wire().len(), ON_WIRE_MAX);
    rig.accept("m0");
    assert_eq!(rig.wire(), [format!("m{ON_WIRE_MAX}")]);
    assert!(rig.wire().is_empty());
}

#[test]
fn too_many_or_too_large_is_overload_and_changes_nothing() {
    let mut rig = Rig::online(true);
    for n in 0..MESSAGES_MAX {
        rig.send(&format!("m{n}"), 60_000);
    }
    let error = rig
        .session
        .send(rig.now(), draft("more"), 60_000)
        .unwrap_err();
    assert_eq!(error.waiting, MESSAGES_MAX);
    rig.wire();
    rig.accept("m0");
    rig.send("fits", 60_000);

    let mut rig = Rig::online(true);
    for n in 0..BYTES_MAX / 1_000_000 {
        let body = "1".repeat(1_000_000);
        let draft = Draft {
            body,
            ..draft(&format!("m{n}"))
        };
        rig.session.send(rig.now(), draft, 60_000).unwrap();
    }
    let body = "1".repeat(1_000_000);
    let draft = Draft {
        body,
        ..draft("more")
    };
    let error = rig.session.send(rig.now(), draft, 60_000).unwrap_err();
    assert!(error.bytes > BYTES_MAX - 1_000_000, "{error:?}");
}

#[test]
fn a_v1_broker_gets_a_message_once_and_the_caller_hears_written_after_the_flush() {
    let mut rig = Rig::online(false);
    rig.send("m1", 60_000);
    rig.send("m2", 60_000);
    assert_eq!(rig.wire(), ["m1", "m2"]);
    assert!(outcomes(&mut rig).is_empty(), "taken is not flushed");
    rig.session.handle_flushed();
    let written = |m: &str| (m.to_owned(), Ok(None));
    assert_eq!(outcomes(&mut rig), [written("m1"), written("m2")]);
    rig.cut();
    rig.redial();
    rig.register(false);
    assert!(rig.wire().is_empty());
}

#[test]
fn a_v1_message_that_was_not_flushed_is_sent_again() {
    let mut rig = Rig::online(false);
    rig.send("m1", 60_000);
    assert_eq!(rig.wire(), ["m1"]);
    rig.cut();
    rig.redial();
    rig.register(false);
    assert_eq!(rig.wire(), ["m1"]);
}

#[test]
fn a_flush_says_nothing_where_there_are_receipts() {
    let mut rig = Rig::online(true);
    rig.send("m1", 60_000);
    rig.wire();
    rig.session.handle_flushed();
    assert!(outcomes(&mut rig).is_empty());
}

#[test]
fn validation_puts_the_body_into_canonical_form_or_says_why_not() {
    let mut good = Draft {
        body: "{ \"a\" : \"<\" }".into(),
        ..draft("m")
    };
    good.validate(&name("Bob")).unwrap();
    assert_eq!(good.body, r#"{"a":"\u003c"}"#);

    let bad = |body: String| {
        Draft { body, ..draft("m") }
            .validate(&name("Bob"))
            .unwrap_err()
    };
    assert_eq!(bad("{".into()).code, RefusalCode::Invalid);
    assert_eq!(
        bad("[".repeat(65) + &"]".repeat(65)).code,
        RefusalCode::Invalid
    );
    assert_eq!(
        bad(format!("\"{}\"", "<".repeat(200_000))).code,
        RefusalCode::TooLarge
    );
}

#[test]
fn statements_that_the_broker_keeps_are_shown_once_and_acked_when_told() {
    let mut rig = Rig::online(true);
    let dead = || Stage::Dead {
        why: "forged".into(),
    };
    rig.receipt("m1", dead(), Some("n1"));
    rig.receipt("m1", dead(), Some("n1"));
    assert!(rig.wire().is_empty(), "not acked before the host has it");
    let notice = notice(&mut rig);
    rig.receipt("m1", dead(), Some("n1"));
    assert_eq!(rig.session.poll_event(), None);
    assert!(rig.wire().is_empty(), "taken is not told");
    rig.session.ack_notice(notice);
    rig.session.ack_notice(notice);
    assert_eq!(rig.wire(), ["ack n1"]);
    assert_eq!(rig.session.poll_event(), None);
    rig.receipt("m1", dead(), Some("n1"));
    assert_eq!(rig.wire(), ["ack n1"]);
    assert_eq!(rig.session.poll_event(), None);
}

/// Takes a statement that the broker keeps.
fn notice(rig: &mut Rig) -> NoticeId {
    match rig.session.poll_event() {
        Some(SessionEvent::Notice { id: Some(id), .. }) => id,
        other => panic!("expected a statement that is kept, got {other:?}"),
    }
}

#[test]
fn a_statement_that_is_told_between_two_connections_is_acked_on_the_next() {
    let mut rig = Rig::online(true);
    let dead = || Stage::Dead {
        why: "forged".into(),
    };
    rig.receipt("m1", dead(), Some("n1"));
    let notice = notice(&mut rig);
    rig.cut();
    rig.session.ack_notice(notice);
    rig.session.check();
    rig.redial();
    rig.register(true);
    rig.receipt("m1", dead(), Some("n1"));
    assert_eq!(rig.wire(), ["ack n1"]);
    assert!(matches!(
        rig.session.poll_event(),
        Some(SessionEvent::Registered { .. })
    ));
    assert_eq!(rig.session.poll_event(), None, "it is told once");
}

#[test]
fn statements_that_are_not_told_are_bounded() {
    let mut rig = Rig::online(true);
    let max = crate::session::queries::NOTICES_MAX;
    for n in 0..max + 1 {
        let dead = Stage::Dead {
            why: "forged".into(),
        };
        rig.receipt(&format!("m{n}"), dead, Some(&format!("n{n}")));
        if n < max {
            notice(&mut rig);
        }
    }
    assert_eq!(rig.session.poll_event(), None, "left to the broker");
    assert!(rig.wire().is_empty());
}

#[test]
fn passing_statements_make_room_for_newer_ones() {
    let mut rig = Rig::online(true);
    for n in 0..5_000 {
        rig.receipt(&format!("m{n}"), Stage::Delivered, None);
    }
    let Some(SessionEvent::Notice { receipt: first, .. }) = rig.session.poll_event() else {
        panic!("no event")
    };
    assert_eq!(
        first.id.as_str(),
        format!("m{}", 5_000 - crate::session::queries::NOTICES_MAX)
    );
}
