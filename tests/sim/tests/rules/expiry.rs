//! Mail that nobody takes.

use peerbus_wire::{Ack, ClientFrame, Register, Stage};

use crate::rig::{DAY, Rig, SECOND, accepted, ext};

fn generated(name: &str) -> Register {
    Register {
        generated: true,
        ..ext(name, name)
    }
}

#[test]
fn unacked_mail_expires_after_thirty_days_and_its_sender_is_told_until_it_takes_note() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    rig.send(ada, "ada", "bob", "m1");
    rig.close(bob, true);
    rig.pass(DAY);
    rig.send(ada, "ada", "bob", "m2");
    rig.close(ada, true);
    rig.pass(29 * DAY + 120 * SECOND);
    assert_eq!(rig.owed("bob"), [2]);
    let ada = rig.ext("ada");
    let receipt = rig.take(ada).receipts.remove(0);
    assert_eq!(receipt.id.as_str(), "m1");
    assert_eq!(receipt.to.as_deref(), Some("bob"));
    assert!(matches!(&receipt.stage, Stage::Expired { why } if why == "not acked within 30 days"));
    rig.close(ada, false);
    rig.restart();
    let ada = rig.ext("ada");
    let key = rig.take(ada).receipts.remove(0).key.unwrap();
    rig.frame(ada, ClientFrame::Ack(Ack { key, how: None }));
    rig.restart();
    let ada = rig.ext("ada");
    assert!(rig.take(ada).receipts.is_empty());
}

#[test]
fn mail_that_is_held_expires_too_and_makes_room() {
    let mut rig = Rig::with(|config| config.expiry_ms = 100 * SECOND);
    let ada = rig.ext("ada");
    let window = crate::rig::window(1, 1_000_000);
    let bob = rig.join(Register {
        window,
        ..ext("bob", "b")
    });
    rig.send(ada, "ada", "bob", "m1");
    rig.pass(90 * SECOND);
    rig.send(ada, "ada", "bob", "m2");
    rig.take(ada);
    assert_eq!(rig.delivered(bob), [1]);
    rig.pass(60 * SECOND);
    assert_eq!(rig.delivered(bob), [2]);
    assert!(matches!(rig.states(ada)[0], Stage::Expired { .. }));
}

#[test]
fn more_than_a_slice_expires_in_one_go() {
    let mut rig = Rig::with(|config| config.expiry_ms = 100 * SECOND);
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    rig.close(bob, true);
    for n in 0..1_000 {
        rig.send(ada, "ada", "bob", &format!("m{n}"));
    }
    rig.take(ada);
    rig.pass(161 * SECOND);
    assert!(rig.owed("bob").is_empty());
    assert_eq!(rig.states(ada).len(), 1_000);
}

#[test]
fn a_generated_name_is_forgotten_after_seven_days_with_its_mail() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let passing = rig.join(generated("calm-owl-x1"));
    rig.close(passing, true);
    rig.send(ada, "ada", "calm-owl-x1", "m1");
    rig.take(ada);
    rig.pass(7 * DAY);
    assert_eq!(rig.owed("calm-owl-x1"), [1]);
    rig.pass(120 * SECOND);
    assert_eq!(rig.row("calm-owl-x1"), None);
    assert!(
        matches!(&rig.states(ada)[..], [Stage::Expired { why: reason }]
        if reason.contains("generated name was not here for 7 days"))
    );
}

#[test]
fn a_generated_name_that_is_connected_stays() {
    let mut rig = Rig::new();
    rig.join(generated("calm-owl-x1"));
    rig.pass(20 * DAY);
    assert!(rig.row("calm-owl-x1").is_some());
}

#[test]
fn a_generated_name_that_was_connected_when_the_broker_died_keeps_its_seven_days() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    rig.join(generated("calm-owl-x1"));
    rig.pass(20 * DAY);
    rig.send(ada, "ada", "calm-owl-x1", "m1");
    rig.restart();
    rig.pass(6 * DAY);
    assert_eq!(
        rig.owed("calm-owl-x1"),
        [1],
        "its registration is long ago, its end is not"
    );
    rig.pass(DAY + 120 * SECOND);
    assert_eq!(rig.row("calm-owl-x1"), None);
}

#[test]
fn a_chosen_name_is_never_forgotten() {
    let mut rig = Rig::with(|config| config.sweep_ms = DAY);
    let ada = rig.ext("ada");
    let bob = rig.v1("bob");
    rig.close(bob, true);
    rig.pass(400 * DAY);
    rig.take(ada);
    rig.send(ada, "ada", "bob", "m1");
    assert_eq!(rig.states(ada), [accepted(1, 0)]);
}

#[test]
fn what_follows_expired_mail_waits_for_the_commit_of_the_expiry() {
    let mut rig = Rig::with(|config| config.expiry_ms = 100 * SECOND);
    let ada = rig.v1("ada");
    let window = crate::rig::window(1, 1_000_000);
    let bob = rig.join(Register {
        window,
        ..ext("bob", "b")
    });
    for (id, pause) in [("m1", 0), ("m2", 90), ("m3", 0)] {
        rig.pass(pause * SECOND);
        rig.send(ada, "ada", "bob", id);
    }
    rig.take(bob);
    rig.ms += 60 * SECOND;
    rig.batch([peerbus_core::broker::Input::Tick]);
    assert!(
        rig.delivered(bob).is_empty(),
        "a lost commit would bring m1 back after it"
    );
    rig.commit();
    assert_eq!(rig.delivered(bob), [2]);
}
