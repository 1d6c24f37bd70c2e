//! What is accepted, what is refused, and that the sender is told.

use peerbus_core::broker::{BrokerInput, BusEvent, CommitNeed};
use peerbus_wire::{Accepted, ClientFrame, RefusalCode, Stage};

use crate::rig::{Rig, accepted, envelope, message};

fn refusal(states: &[Stage]) -> Option<(RefusalCode, &str)> {
    match states {
        [Stage::Refused(refusal)] => Some((refusal.code, &refusal.reason)),
        _ => None,
    }
}

#[test]
fn it_is_on_disk_before_anybody_hears_of_it() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    let need = rig.batch([message(ada, "ada", "bob", "m1")]);
    assert_eq!(need, CommitNeed::Now);
    assert!(rig.states(ada).is_empty() && rig.delivered(bob).is_empty());
    rig.commit();
    assert_eq!(rig.states(ada)[0], accepted(1, 1));
    assert_eq!(rig.delivered(bob), [1]);
}

#[test]
fn what_is_delivered_is_the_canonical_form_with_its_signature() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.v1("ada"), rig.v1("bob"));
    let compact = envelope("ada", "bob", "m1", r#"{"b":"<&>","a":[1.0,1e2]}"#);
    let spaced = compact.replace("\":", "\" : ").replace(",\"", ",\n\t\"");
    rig.text(
        ada,
        &format!("{} ", spaced.replacen('{', "{\"more\":[],", 1)),
    );
    let told = rig.take(bob);
    let carried = compact
        .replace('<', "\\u003c")
        .replace('&', "\\u0026")
        .replace('>', "\\u003e");
    assert!(
        told.texts[0].ends_with(&format!(r#","envelope":{carried}}}"#)),
        "{}",
        told.texts[0]
    );
}

#[test]
fn mail_for_a_name_that_is_away_waits_even_through_a_crash() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.v1("Bob"));
    rig.close(bob, true);
    rig.send(ada, "ada", "bOB", "m1");
    assert_eq!(rig.states(ada), [accepted(1, 0)]);
    rig.restart();
    let bob = rig.v1("bob");
    assert_eq!(rig.delivered(bob), [1]);
}

#[test]
fn a_name_that_nobody_ever_had_is_refused() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    rig.send(ada, "ada", "bob", "m1");
    let states = rig.states(ada);
    let (code, reason) = refusal(&states).unwrap();
    assert_eq!(code, RefusalCode::UnknownRecipient);
    assert!(reason.contains("bob"), "{reason}");
    rig.v1("bob");
    rig.send(ada, "ada", "bob", "m1");
    assert_eq!(rig.states(ada)[0], accepted(1, 1), "the id was not used up");
}

#[test]
fn a_spoofed_sender_is_refused() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    rig.v1("bob");
    for from in ["bob", "ADA"] {
        rig.send(ada, from, "bob", "m1");
        let states = rig.states(ada);
        assert_eq!(
            refusal(&states).map(|(code, _)| code),
            Some(RefusalCode::From),
            "{from}"
        );
    }
    assert!(rig.owed("bob").is_empty());
}

#[test]
fn an_id_that_comes_again_with_the_same_bytes_gets_the_same_receipt() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    let again = |states: &[Stage]| {
        let [
            Stage::Accepted(Accepted {
                recipients: 1,
                duplicate: true,
                ..
            }),
        ] = states
        else {
            panic!("{states:?}");
        };
    };
    rig.send(ada, "ada", "bob", "m1");
    rig.take(ada);
    rig.send(ada, "ada", "bob", "m1");
    again(&rig.states(ada));
    rig.ack(bob, 1);
    rig.take(ada);
    rig.send(ada, "ada", "bob", "m1");
    again(&rig.states(ada));
    rig.restart();
    let ada = rig.ext("ada");
    rig.send(ada, "ada", "bob", "m1");
    again(&rig.states(ada));
    assert_eq!(rig.delivered(bob), [1], "it was queued once");
}

#[test]
fn a_duplicate_in_the_same_batch_waits_for_the_commit_too() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    rig.v1("bob");
    rig.batch([
        message(ada, "ada", "bob", "m1"),
        message(ada, "ada", "bob", "m1"),
    ]);
    assert!(rig.states(ada).is_empty());
    rig.commit();
    let duplicates = rig
        .states(ada)
        .iter()
        .filter(|s| **s != accepted(1, 1))
        .count();
    assert!(duplicates >= 1);
    assert_eq!(rig.owed("bob"), [1]);
}

#[test]
fn an_id_that_comes_again_with_other_bytes_is_refused() {
    let mut rig = Rig::new();
    let (ada, bob, cyd) = (rig.ext("ada"), rig.v1("bob"), rig.ext("cyd"));
    rig.send(ada, "ada", "bob", "m1");
    rig.take(ada);
    rig.text(ada, &envelope("ada", "bob", "m1", "2"));
    let states = rig.states(ada);
    assert_eq!(
        refusal(&states).map(|(code, _)| code),
        Some(RefusalCode::IdReused)
    );
    rig.send(cyd, "cyd", "bob", "m1");
    assert_eq!(
        rig.states(cyd)[0],
        accepted(1, 1),
        "another sender has ids of its own"
    );
    assert_eq!(rig.delivered(bob), [1, 2]);
}

#[test]
fn a_resend_is_confirmed_even_if_its_recipient_was_forgotten_since() {
    let mut rig = Rig::with(|config| config.expiry_generated_ms = 1_000);
    let ada = rig.ext("ada");
    let gen_1 = rig.join(peerbus_wire::Register {
        generated: true,
        ..crate::rig::ext("gen-1", "g")
    });
    rig.send(ada, "ada", "gen-1", "m1");
    rig.ack(gen_1, 1);
    rig.close(gen_1, true);
    rig.pass(70_000);
    assert_eq!(rig.row("gen-1"), None, "forgotten");
    rig.take(ada);
    rig.send(ada, "ada", "gen-1", "m1");
    assert!(matches!(
        rig.states(ada)[..],
        [Stage::Accepted(Accepted {
            duplicate: true,
            ..
        })]
    ));
    rig.send(ada, "ada", "gen-1", "m2");
    assert!(refusal(&rig.states(ada)).is_some(), "a new one is refused");
}

#[test]
fn a_full_queue_refuses_until_there_is_room() {
    let mut rig = Rig::with(|config| config.queue_max = 4);
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    rig.send(ada, "ada", "bob", "m1");
    rig.send(ada, "ada", "bob", "m2");
    rig.take(ada);
    rig.send(ada, "ada", "bob", "m3");
    let states = rig.states(ada);
    assert_eq!(
        refusal(&states).map(|(code, _)| code),
        Some(RefusalCode::QueueFull)
    );
    rig.ack(bob, 1);
    rig.take(ada);
    rig.send(ada, "ada", "bob", "m3");
    assert_eq!(rig.states(ada)[0], accepted(1, 1));
}

#[test]
fn what_breaks_a_rule_of_form_is_refused_under_its_id() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    rig.text(
        ada,
        &envelope("ada", "*", "m1", "1").replace("broadcast", "msg"),
    );
    let receipt = rig.take(ada).receipts.remove(0);
    assert_eq!(receipt.id.as_str(), "m1");
    assert!(
        matches!(receipt.stage, Stage::Refused(refusal) if refusal.code == RefusalCode::Invalid)
    );
}

#[test]
fn a_v1_sender_cannot_be_told_so_the_operator_is() {
    let mut rig = Rig::new();
    let ada = rig.v1("ada");
    rig.send(ada, "ada", "bob", "m1");
    assert_eq!(rig.closed(ada), None, "the connection stays");
    let told = rig.take(ada);
    assert!(told.receipts.is_empty() && told.delivered.is_empty());
    let refused = rig.counts.iter().any(|count| {
        matches!(count, BusEvent::Refused { from, told: false, reason } if from == "ada" && reason.contains("bob"))
    });
    assert!(refused, "{:?}", rig.counts);
}

#[test]
fn what_is_no_frame_is_ignored() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    for junk in [
        "",
        "{",
        "[1]",
        r#"{"type":"ack"}"#,
        r#"{"protocol_version":"v1","type":"deliver"}"#,
    ] {
        rig.text(ada, junk);
    }
    rig.input(BrokerInput::Frame(ada, ClientFrame::Binary));
    assert_eq!(rig.closed(ada), None);
    assert_eq!(
        rig.counts
            .iter()
            .filter(|count| **count == BusEvent::Ignored)
            .count(),
        6
    );
}

#[test]
fn first_deliveries_come_in_accept_order_whoever_sent_them() {
    let mut rig = Rig::new();
    let (ada, zoe, bob) = (rig.v1("ada"), rig.v1("zoe"), rig.v1("bob"));
    rig.close(bob, true);
    for n in 0..6 {
        let (conn, from) = if n % 2 == 0 {
            (zoe, "zoe")
        } else {
            (ada, "ada")
        };
        rig.send(conn, from, "bob", &format!("m{n}"));
    }
    let bob = rig.open();
    let joins = BrokerInput::Frame(bob, ClientFrame::Register(crate::rig::register("bob")));
    rig.batch([joins, message(ada, "ada", "bob", "live")]);
    rig.commit();
    assert_eq!(
        rig.delivered(bob),
        [1, 2, 3, 4, 5, 6, 7],
        "the live one last"
    );
}
