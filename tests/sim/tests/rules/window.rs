//! How much a connection may hold.

use peerbus_core::broker::ConnId;
use peerbus_wire::{Received, Register};

use crate::rig::{Rig, SECOND, envelope, ext, window};

fn narrow(rig: &mut Rig, messages: u32, bytes: u32) -> (ConnId, ConnId) {
    let window = window(messages, bytes);
    let ada = rig.join(Register {
        window,
        ..ext("ada", "a")
    });
    (ada, rig.v1("bob"))
}

#[test]
fn messages_beyond_the_window_wait_for_acks() {
    let mut rig = Rig::new();
    let (ada, bob) = narrow(&mut rig, 4, 1_000_000);
    for id in ["m1", "m2", "m3", "m4"] {
        rig.send(bob, "bob", "ada", id);
    }
    assert_eq!(rig.delivered(ada), [1, 2]);
    rig.ack(ada, 2);
    assert_eq!(rig.delivered(ada), [3]);
    rig.ack(ada, 1);
    rig.ack(ada, 1);
    assert_eq!(
        rig.delivered(ada),
        [4],
        "an ack that is repeated frees nothing"
    );
}

#[test]
fn bytes_count_too_but_one_message_always_fits() {
    let mut rig = Rig::new();
    let (ada, bob) = narrow(&mut rig, 100, 1_000);
    let large = format!("\"{}\"", "x".repeat(2_000));
    for id in ["m1", "m2"] {
        rig.text(bob, &envelope("bob", "ada", id, &large));
    }
    assert_eq!(rig.delivered(ada), [1]);
    rig.ack(ada, 1);
    assert_eq!(rig.delivered(ada), [2]);
}

#[test]
fn a_live_message_does_not_overtake_what_waits() {
    let mut rig = Rig::new();
    let (ada, bob) = narrow(&mut rig, 100, 2_800);
    let large = format!("\"{}\"", "x".repeat(600));
    rig.text(bob, &envelope("bob", "ada", "m1", &large));
    rig.text(bob, &envelope("bob", "ada", "m2", &large));
    rig.send(bob, "bob", "ada", "small");
    assert_eq!(
        rig.delivered(ada),
        [1],
        "the third would fit, but comes after the second"
    );
    rig.ack(ada, 1);
    assert_eq!(rig.delivered(ada), [2, 3]);
}

#[test]
fn an_ack_on_a_new_connection_counts_for_what_the_old_one_held() {
    let mut rig = Rig::new();
    let (_, bob) = narrow(&mut rig, 1, 1_000_000);
    rig.send(bob, "bob", "ada", "m1");
    rig.send(bob, "bob", "ada", "m2");
    let window = window(1, 1_000_000);
    let ada = rig.join(Register {
        window,
        ..ext("ada", "a")
    });
    assert_eq!(rig.delivered(ada), [1]);
    rig.ack(ada, 2);
    assert!(rig.delivered(ada).is_empty());
    rig.ack(ada, 1);
    assert!(rig.delivered(ada).is_empty());
    assert!(rig.owed("ada").is_empty());
}

/// Fills the window of a v1 connection, a third of it each second.
fn fill(rig: &mut Rig) -> (ConnId, ConnId) {
    let (ada, bob) = (rig.v1("ada"), rig.v1("bob"));
    for n in 0..4_096 {
        if n == 1_000 || n == 2_000 {
            rig.pass(SECOND);
        }
        rig.send(bob, "bob", "ada", &format!("m{n}"));
    }
    rig.send(bob, "bob", "ada", "late");
    assert_eq!(rig.delivered(ada).len(), 4_096, "the window of v1");
    (ada, bob)
}

#[test]
fn what_a_v1_client_does_not_ack_stops_counting() {
    let mut rig = Rig::new();
    let (ada, bob) = fill(&mut rig);
    rig.pass(27 * SECOND);
    assert!(rig.delivered(ada).is_empty());
    rig.pass(SECOND);
    assert_eq!(rig.delivered(ada), [4_097], "after 30 s");
    rig.pass(60 * SECOND);
    for n in 0..5_000 {
        rig.send(bob, "bob", "ada", &format!("n{n}"));
    }
    rig.pass(600 * SECOND);
    assert_eq!(
        rig.delivered(ada).len(),
        4_095,
        "but no more than 4,096 of them"
    );
    rig.ack(ada, 1);
    assert_eq!(rig.owed("ada").len(), 4_097 + 5_000 - 1, "nothing is lost");
}

#[test]
fn acks_in_between_do_not_keep_the_rest_from_lapsing() {
    let mut rig = Rig::new();
    let (ada, bob) = fill(&mut rig);
    // Of the second batch all are acked but none of the first and the third.
    for seq in 1_001..=2_000 {
        rig.ack(ada, seq);
    }
    for n in 0..4_000 {
        rig.send(bob, "bob", "ada", &format!("n{n}"));
    }
    let more = rig.delivered(ada).len();
    assert_eq!(more, 1_000, "as many as were acked");
    rig.pass(120 * SECOND);
    let lapsed = rig.delivered(ada);
    assert_eq!(lapsed.len(), 3_001, "all that waited");
    assert_eq!(lapsed.last(), Some(&8_097));
}

#[test]
fn bytes_that_a_v1_client_does_not_ack_stop_counting_too() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.v1("ada"), rig.v1("bob"));
    let large = format!("\"{}\"", "x".repeat(1_000_000));
    for n in 1..=10 {
        rig.text(bob, &envelope("bob", "ada", &format!("m{n}"), &large));
        rig.pass(if n == 1 { 10 * SECOND } else { 0 });
    }
    assert_eq!(rig.delivered(ada).len(), 8, "8 MiB");
    rig.pass(5 * SECOND);
    rig.ack(ada, 1);
    assert_eq!(rig.delivered(ada), [9]);
    rig.pass(25 * SECOND - 1);
    assert!(rig.delivered(ada).is_empty());
    rig.pass(1);
    assert_eq!(rig.delivered(ada), [10], "30 s after the second");
}

#[test]
fn what_an_ext_client_does_not_ack_never_stops_counting() {
    let mut rig = Rig::new();
    let (ada, bob) = narrow(&mut rig, 1, 1_000_000);
    rig.send(bob, "bob", "ada", "m1");
    rig.send(bob, "bob", "ada", "m2");
    rig.pass(3_600 * SECOND);
    assert_eq!(rig.delivered(ada), [1]);
}

#[test]
fn one_message_that_is_never_acked_costs_no_memory_for_those_that_are() {
    let mut rig = Rig::new();
    let (ada, bob) = narrow(&mut rig, 4, 1_000_000);
    rig.send(bob, "bob", "ada", "kept");
    for n in 2..=500 {
        rig.send(bob, "bob", "ada", &format!("m{n}"));
        rig.ack(ada, n);
    }
    // The rig has the broker check itself after each step.
    assert_eq!(rig.owed("ada"), [1]);
}

#[test]
fn how_long_a_message_waited_is_said_from_a_second_on_whatever_the_wall_clock_does() {
    let mut rig = Rig::new();
    let alice = rig.ext("alice");
    let bob = rig.join(Register {
        window: window(1, 1_000),
        ..ext("bob", "i")
    });
    for id in ["m1", "m2", "m3"] {
        rig.send(alice, "alice", "bob", id);
    }
    let age = |rig: &mut Rig, conn| {
        let text = rig.take(conn).texts.pop().unwrap();
        let Received::Deliver(delivery) = Received::parse(text.as_bytes()) else {
            panic!("{text}")
        };
        (delivery.remarks.age_ms, text.contains("age_ms"))
    };
    assert_eq!(age(&mut rig, bob), (0, false));
    rig.pass(900);
    rig.ack(bob, 1);
    assert_eq!(age(&mut rig, bob), (0, false));
    rig.ahead_ms = -3_600_000;
    rig.pass(60_100);
    rig.ack(bob, 2);
    assert_eq!(age(&mut rig, bob), (61_000, true));
    let carol = rig.v1("carol");
    rig.close(carol, true);
    rig.send(alice, "alice", "carol", "m4");
    rig.pass(5_000);
    let carol = rig.v1("carol");
    assert_eq!(age(&mut rig, carol), (0, false), "version 1 knows no ages");
}
