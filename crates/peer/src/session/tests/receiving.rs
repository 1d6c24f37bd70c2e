use peerbus_wire::Kind;

use super::*;
use crate::session::CONTROL_MAX;
use crate::session::connection::REREAD_MS;
use crate::session::inbox::{ENDED_MAX, HELD_MAX};

#[test]
fn a_message_is_shown_with_what_it_says_and_acked_when_consumed() {
    let mut rig = Rig::online(true);
    rig.deliver("17", "m1");
    assert!(rig.wire().is_empty(), "arrival is not consumption");
    let inbound = rig.message();
    assert!(rig.wire().is_empty(), "nor is taking it");
    assert_eq!(
        (inbound.id.as_str(), inbound.from.as_str()),
        ("m1", "alice")
    );
    assert_eq!(
        (inbound.kind, inbound.body.as_str()),
        (Kind::Msg, "\"hello\"")
    );
    rig.ack(inbound.key, seen());
    assert_eq!(rig.wire(), ["ack 17 seen"]);
    rig.ack(inbound.key, pushed());
    assert!(rig.wire().is_empty(), "one ack is enough");
}

#[test]
fn what_strict_readers_refuse_verifies_and_is_shown_replaced() {
    let mut rig = Rig::online(true);
    let body = br#"{"\uDC00":"half \ud82d","n":1e999}"#;
    rig.text(&deliver_text("17", &wrong(|e| e.body = body.to_vec())));
    let inbound = rig.message();
    assert_eq!(inbound.body, r#"{"\ufffd":"half \ufffd","n":"1e999"}"#);
    rig.ack(inbound.key, seen());
    assert_eq!(rig.wire(), ["ack 17 seen"]);
}

#[test]
fn an_ack_to_a_v1_broker_claims_nothing() {
    let mut rig = Rig::online(false);
    rig.deliver("m1|bob", "m1");
    let inbound = rig.message();
    rig.ack(inbound.key, seen());
    assert_eq!(rig.wire(), ["ack m1|bob"]);
}

/// A message of alice's to bob with something altered after it was signed.
fn forged(alter: impl FnOnce(&mut Envelope)) -> Envelope {
    let mut envelope = signed("alice", "bob", "m1");
    alter(&mut envelope);
    envelope
}

/// A message that its sender signed although it breaks a rule.
fn wrong(alter: impl FnOnce(&mut Envelope)) -> Envelope {
    let mut envelope = forged(alter);
    let secret = Secret::new(SECRET).unwrap();
    envelope.hmac = secret.sign(&envelope.canonical().unwrap());
    envelope
}

#[test]
fn what_does_not_verify_or_breaks_a_rule_is_rejected_and_never_shown() {
    let cases = [
        (
            forged(|e| e.body = b"\"altered\"".to_vec()),
            "signature mismatch",
        ),
        (forged(|e| e.from = "mallory".into()), "signature mismatch"),
        (
            forged(|e| e.hmac = "00".into()),
            "hmac is not 64 hex digits",
        ),
        (wrong(|e| e.id = "a b".into()), "invalid id"),
        (wrong(|e| e.from = "system".into()), "invalid sender"),
        (wrong(|e| e.to = "*".into()), "goes to one peer"),
        (wrong(|e| e.to = "carol".into()), "addressed to carol"),
    ];
    for (envelope, says) in cases {
        for ext in [true, false] {
            let mut rig = Rig::online(ext);
            rig.text(&deliver_text("9", &envelope));
            assert_eq!(rig.session.poll_event(), None, "{says}");
            assert_eq!(rig.session.counters().rejected, 1);
            let wire = rig.wire().join("\n");
            if ext {
                assert!(
                    wire.starts_with("reject 9: ") && wire.contains(says),
                    "{wire}"
                );
            } else {
                assert_eq!(wire, "ack 9", "{says}");
            }
        }
    }
}

#[test]
fn names_match_without_regard_to_case_and_broadcasts_match_everyone() {
    let mut rig = Rig::online(true);
    rig.text(&deliver_text("1", &signed("alice", "BOB", "m1")));
    rig.text(&deliver_text("2", &signed("alice", "*", "m2")));
    assert_eq!(rig.message().kind, Kind::Msg);
    assert_eq!(rig.message().kind, Kind::Broadcast);
}

#[test]
fn a_duplicate_of_a_held_message_is_ignored_and_acked_together_with_it() {
    let mut rig = Rig::online(true);
    rig.deliver("1", "m1");
    let inbound = rig.message();
    rig.deliver("2", "m1");
    assert_eq!(rig.session.poll_event(), None);
    assert!(rig.wire().is_empty(), "it is still held");
    rig.ack(inbound.key, seen());
    assert_eq!(rig.wire(), ["ack 1 seen", "ack 2 seen"]);
    assert_eq!(rig.session.counters().duplicates, 1);
}

#[test]
fn a_broker_that_delivers_again_is_told_how_far_a_message_is() {
    let mut rig = Rig::online(true);
    rig.deliver("1", "m1");
    let key = rig.message().key;
    let say = |rig: &mut Rig, path: &str| {
        let (now, path) = (rig.now(), path.into());
        rig.session.reached(now, key, Stage::Pushed { path });
        rig.wire()
    };
    let pushed = |path: &str, age_ms: u32| {
        let stage = format!(r#"Pushed {{ path: "{path}" }}"#);
        format!(r#"Progress {{ key: DeliveryKey("1"), stage: {stage}, age_ms: {age_ms} }}"#)
    };
    assert_eq!(say(&mut rig, "channel"), [pushed("channel", 0)]);
    rig.ms += 10_000;
    assert_eq!(say(&mut rig, "socket"), [pushed("socket", 0)]);
    let said_ms = rig.ms;
    rig.ms += 1_000;
    assert_eq!(say(&mut rig, "socket"), [pushed("socket", 0)]);
    rig.cut();
    rig.redial();
    rig.register(true);
    assert!(rig.wire().is_empty(), "it may be another's by now");
    rig.deliver("1", "m1");
    let age_ms = u32::try_from(rig.ms - said_ms).unwrap();
    assert!(age_ms >= 1_000);
    assert_eq!(rig.wire(), [pushed("socket", age_ms)]);
    rig.cut();
    assert!(say(&mut rig, "drain").is_empty(), "nobody is there");
    let said_ms = rig.ms;
    rig.redial();
    rig.register(true);
    rig.deliver("1", "m1");
    let age_ms = u32::try_from(rig.ms - said_ms).unwrap();
    assert_eq!(rig.wire(), [pushed("drain", age_ms)]);
}

#[test]
fn a_duplicate_of_a_consumed_message_is_acked_again_with_the_same_claim() {
    let mut rig = Rig::online(true);
    rig.deliver("1", "m1");
    let inbound = rig.message();
    rig.ack(inbound.key, pushed());
    assert_eq!(rig.wire(), ["ack 1 pushed"]);
    rig.deliver("1", "m1");
    assert_eq!(rig.session.poll_event(), None);
    assert_eq!(rig.wire(), ["ack 1 pushed"]);
    rig.ack(inbound.key, seen());
    assert!(rig.wire().is_empty());
    rig.deliver("1", "m1");
    assert_eq!(
        rig.wire(),
        ["ack 1 seen"],
        "better evidence counts when the ack is repeated"
    );
}

#[test]
fn the_same_id_of_another_sender_is_another_message() {
    let mut rig = Rig::online(true);
    rig.deliver("1", "m1");
    rig.text(&deliver_text("2", &signed("carol", "bob", "m1")));
    assert_eq!(rig.message().from, "alice");
    assert_eq!(rig.message().from, "carol");
}

#[test]
fn what_another_secret_signed_is_judged_by_the_credentials_as_they_are_now() {
    let old = Secret::new(SECRET).unwrap();
    let new = Secret::new(&[b'n'; 32]).unwrap();
    let by = |secret: &Secret, key: &str, id: &str| {
        let mut envelope = signed("alice", "bob", id);
        envelope.hmac = secret.sign(&envelope.canonical().unwrap());
        deliver_text(key, &envelope)
    };
    let mut rig = Rig::online(true);
    rig.text(&by(&new, "1", "early"));
    let mismatch = "signature mismatch: signed with another secret, or altered on the way";
    assert_eq!(rig.wire(), [format!("reject 1: {mismatch}")], "nothing new");

    rig.secret = Some(new.clone().accepting(&old));
    rig.text(&by(&new, "2", "new"));
    rig.text(&by(&old, "3", "old"));
    assert_eq!(rig.message().id, "new");
    assert_eq!(rig.message().id, "old");
    assert!(rig.wire().is_empty());

    rig.secret = Some(new);
    rig.session.handle_secret(rig.now(), rig.secret.clone());
    rig.text(&by(&old, "4", "late"));
    assert_eq!(rig.session.poll_event(), None);
    assert_eq!(rig.wire(), [format!("reject 4: {mismatch}")]);
}

#[test]
fn what_waited_for_the_secret_when_the_connection_broke_comes_again() {
    let mut rig = Rig::online(true);
    let mut envelope = signed("alice", "bob", "m1");
    let new = Secret::new(&[b'n'; 32]).unwrap();
    envelope.hmac = new.sign(&envelope.canonical().unwrap());
    let text = deliver_text("1", &envelope);
    rig.session.handle_text(rig.now(), text.as_bytes());
    assert_eq!(rig.actions(), [Action::Reread]);
    assert!(!rig.session.wants_read());
    rig.cut();
    rig.session.handle_secret(rig.now(), Some(new.clone()));
    assert!(rig.session.poll_event().is_none() && rig.wire().is_empty());
    rig.redial();
    rig.register(true);
    assert!(matches!(
        rig.session.poll_event(),
        Some(SessionEvent::Registered { .. })
    ));
    rig.secret = Some(new);
    rig.text(&text);
    assert_eq!(rig.message().id, "m1");
}

#[test]
fn the_secret_is_read_again_once_a_minute() {
    let mut rig = Rig::online(true);
    let mut last = 0;
    for _ in 0..3 {
        while !rig.actions().contains(&Action::Reread) {
            rig.session.handle_alive(rig.now());
            rig.wait();
        }
        assert_eq!(rig.ms - last, REREAD_MS);
        last = rig.ms;
    }
}

#[test]
fn another_message_under_a_used_id_is_rejected() {
    let mut rig = Rig::online(true);
    // The sender is the same in any case.
    let mut other = signed("Alice", "bob", "m1");
    other.body = b"\"another\"".to_vec();
    other.hmac = Secret::new(SECRET)
        .unwrap()
        .sign(&other.canonical().unwrap());
    let other = deliver_text("2", &other);
    rig.deliver("1", "m1");
    let inbound = rig.message();
    rig.text(&other);
    let reject = ["reject 2: id reused for another message"];
    assert_eq!(rig.wire(), reject, "while the first is held");
    rig.ack(inbound.key, seen());
    assert_eq!(rig.wire(), ["ack 1 seen"]);
    rig.text(&other);
    assert_eq!(rig.wire(), reject, "nobody has seen it");
    assert_eq!(rig.session.poll_event(), None);
    assert_eq!(rig.session.counters().rejected, 2);
}

#[test]
fn a_v1_broker_that_reads_nothing_does_not_stop_the_reading() {
    let mut rig = Rig::online(false);
    let text = |n| deliver_text(&format!("k{n}"), &signed("alice", "bob", &format!("m{n}")));
    for n in 0..=CONTROL_MAX {
        assert!(rig.session.wants_read(), "{n}");
        rig.session.handle_text(rig.now(), text(n).as_bytes());
        let inbound = rig.message();
        rig.ack(inbound.key, seen());
    }
    assert!(rig.session.wants_read());
    let acks = rig.wire();
    assert_eq!(acks.len(), CONTROL_MAX);
    assert_eq!(acks[0], "ack k1", "the oldest had to go");
    rig.cut();
    rig.redial();
    rig.register(false);
    rig.text(&text(0));
    assert_eq!(rig.wire(), ["ack k0"], "and is made when it comes again");
}

#[test]
fn an_ack_without_a_connection_is_made_when_the_message_comes_again() {
    let mut rig = Rig::online(true);
    rig.deliver("1", "m1");
    rig.deliver("2", "m2");
    let inbound = rig.message();
    rig.cut();
    rig.ack(inbound.key, seen());
    assert!(rig.wire().is_empty());
    let done_ms = rig.ms;
    rig.ms += 60_000;
    rig.redial();
    rig.register(true);
    rig.deliver("1", "m1");
    rig.deliver("2", "m2");
    let age_ms = rig.ms - done_ms;
    assert_eq!(rig.wire(), [format!("ack 1 seen {age_ms} ms ago")]);
    assert!(matches!(
        rig.session.poll_event(),
        Some(SessionEvent::Registered { .. })
    ));
    assert_eq!(rig.message().id, "m2");
    assert_eq!(rig.session.poll_event(), None);
}

#[test]
fn reading_stops_while_too_much_is_held() {
    let mut rig = Rig::online(false);
    for n in 0..HELD_MAX {
        assert!(rig.session.wants_read(), "{n}");
        let text = deliver_text("1", &signed("alice", "bob", &format!("m{n}")));
        rig.session.handle_text(rig.now(), text.as_bytes());
    }
    assert!(!rig.session.wants_read());
    assert_eq!(rig.session.window.messages as usize, HELD_MAX);
    assert_eq!(
        rig.session.poll_timeout(),
        None,
        "what is not read cannot be silent"
    );
    rig.ms = 1_000_000;
    let inbound = rig.message();
    assert!(!rig.session.wants_read(), "taken is still held");
    rig.ack(inbound.key, seen());
    assert!(rig.session.wants_read());
    rig.session.handle_timeout(rig.now());
    assert_eq!(rig.actions(), [Action::Reread]);
    let at = rig.session.poll_timeout().unwrap();
    assert!(at > rig.ms, "the silence begins now");
    rig.session.check();
}

#[test]
fn the_last_consumed_messages_are_remembered_and_no_more() {
    let mut rig = Rig::online(true);
    for n in 0..=ENDED_MAX {
        let text = deliver_text("1", &signed("alice", "bob", &format!("m{n}")));
        rig.session.handle_text(rig.now(), text.as_bytes());
        let inbound = rig.message();
        rig.ack(inbound.key, seen());
        rig.session.poll_transmit();
    }
    rig.session.check();
    rig.deliver("1", "m1");
    assert_eq!(rig.session.poll_event(), None);
    assert_eq!(rig.wire(), ["ack 1"], "its claim is forgotten by now");
    rig.deliver("1", &format!("m{ENDED_MAX}"));
    assert_eq!(rig.wire(), ["ack 1 seen"]);
    rig.deliver("1", "m0");
    assert_eq!(rig.message().id, "m0");
}

#[test]
fn nothing_is_delivered_before_the_handshake_and_garbage_is_ignored() {
    let mut rig = Rig::new(false);
    rig.connect();
    rig.deliver("1", "m1");
    assert_eq!(rig.session.poll_event(), None);
    rig.text("garbage");
    rig.text("{}");
    assert_eq!(rig.session.counters().ignored, 3);
    assert!(rig.actions().is_empty());
}
