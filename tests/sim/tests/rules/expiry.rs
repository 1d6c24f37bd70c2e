//! Mail that nobody takes.

use peerbus_wire::{ClientFrame, Register, Stage};

use crate::rig::{DAY, Rig, SECOND, accepted, ext};

const MONTH: i64 = 31 * 86_400_000;

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
    rig.frame(ada, ClientFrame::ack(key, None));
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
    rig.batch([peerbus_core::broker::BrokerInput::Tick]);
    assert!(
        rig.delivered(bob).is_empty(),
        "a lost commit would bring m1 back after it"
    );
    rig.commit();
    assert_eq!(rig.delivered(bob), [2]);
}

#[test]
fn a_wall_clock_that_is_a_month_ahead_for_a_moment_expires_nothing() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    let passing = rig.join(generated("calm-owl-x1"));
    rig.close(bob, true);
    rig.close(passing, true);
    for to in ["bob", "calm-owl-x1"] {
        rig.send(ada, "ada", to, &format!("for-{to}"));
    }
    rig.take(ada);
    rig.ahead_ms = MONTH;
    rig.pass(65 * SECOND);
    assert_eq!(
        (rig.owed("bob"), rig.owed("calm-owl-x1")),
        (vec![1], vec![2])
    );
    assert!(rig.states(ada).is_empty());
}

#[test]
fn a_wall_clock_that_is_put_back_keeps_nothing_for_longer() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    rig.close(bob, true);
    rig.send(ada, "ada", "bob", "m1");
    rig.ahead_ms = -MONTH;
    rig.pass(30 * DAY);
    assert_eq!(rig.owed("bob"), [1]);
    rig.pass(120 * SECOND);
    assert!(rig.owed("bob").is_empty());
}

#[test]
fn a_machine_that_sleeps_most_of_the_time_ages_its_mail() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    rig.close(bob, true);
    rig.send(ada, "ada", "bob", "m1");
    for day in 0..30 {
        assert_eq!(rig.owed("bob"), [1], "day {day}");
        rig.pass(DAY / 24);
        rig.slept_ms += DAY * 23 / 24;
    }
    rig.pass(120 * SECOND);
    assert!(rig.owed("bob").is_empty());
}

/// How many days a message has until it expires, after what happens to a broker that is stopped.
fn days_left(stopped: impl FnOnce(&mut Rig)) -> u64 {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    rig.close(bob, true);
    rig.send(ada, "ada", "bob", "m1");
    rig.pass(DAY / 2);
    rig.input(peerbus_core::broker::BrokerInput::Shutdown);
    stopped(&mut rig);
    rig.restart();
    let days = (0..40).find(|_| {
        rig.pass(DAY);
        rig.owed("bob").is_empty()
    });
    days.expect("it expires")
}

#[test]
fn a_stop_ages_mail_by_its_length_but_at_most_by_a_day() {
    assert_eq!(days_left(|_| ()), 29);
    assert_eq!(days_left(|rig| rig.ms += DAY / 2 + DAY / 4), 28);
    assert_eq!(days_left(|rig| rig.ms += 20 * DAY), 28);
    assert_eq!(days_left(|rig| rig.ahead_ms = MONTH), 28);
    assert_eq!(days_left(|rig| rig.ahead_ms = -MONTH), 29);
    // However often it starts while the clock is wrong.
    let again = |rig: &mut Rig| {
        rig.ahead_ms = MONTH;
        for ms in [0, 0, 120 * SECOND, 0] {
            rig.restart();
            rig.pass(ms);
        }
    };
    assert_eq!(days_left(again), 28);
}
