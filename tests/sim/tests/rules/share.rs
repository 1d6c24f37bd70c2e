//! What one sender may have in flight while others want to be heard.

use peerbus_core::broker::{ConnId, Input};
use peerbus_wire::Register;

use crate::rig::{Rig, envelope, ext, register, window};

/// Sends so many messages from eve, whose first has number 1.
fn flood(rig: &mut Rig, eve: ConnId, to: &str, messages: u64) {
    for n in 1..=messages {
        rig.send(eve, "eve", to, &format!("e{n}"));
    }
}

fn large(rig: &mut Rig, conn: ConnId, from: &str, id: &str, bytes: usize) {
    let body = format!("\"{}\"", "x".repeat(bytes));
    rig.text(conn, &envelope(from, "bob", id, &body));
}

#[test]
fn one_senders_flood_leaves_room_for_the_message_of_another() {
    let mut rig = Rig::new();
    let (bob, eve, alice) = (rig.ext("bob"), rig.ext("eve"), rig.ext("alice"));
    flood(&mut rig, eve, "bob", 300);
    assert_eq!(rig.delivered(bob), Vec::from_iter(1..=128));
    rig.send(alice, "alice", "bob", "now");
    assert_eq!(rig.delivered(bob), [301], "at once");
    rig.send(alice, "alice", "bob", "more");
    assert_eq!(rig.delivered(bob), [302]);
    rig.ack(bob, 301);
    assert!(rig.delivered(bob).is_empty(), "that is not eve's to take");
    rig.ack(bob, 1);
    assert_eq!(rig.delivered(bob), [129], "her own is");
}

#[test]
fn long_messages_leave_room_too() {
    let mut rig = Rig::new();
    let (bob, eve, alice) = (rig.ext("bob"), rig.ext("eve"), rig.ext("alice"));
    large(&mut rig, eve, "eve", "e1", 700_000);
    large(&mut rig, eve, "eve", "e2", 700_000);
    rig.send(alice, "alice", "bob", "now");
    assert_eq!(rig.delivered(bob), [1, 3]);
    // One that is longer than half of the window counts as half.
    large(&mut rig, alice, "alice", "long", 400_000);
    assert_eq!(rig.delivered(bob), [4]);
    rig.ack(bob, 1);
    assert_eq!(rig.delivered(bob), [2]);
}

/// What was delivered since the last call, and which of it is said to come again.
fn told(rig: &mut Rig, conn: ConnId) -> Vec<(u64, bool)> {
    let told = rig.take(conn);
    let again = told
        .texts
        .iter()
        .map(|text| text.contains(r#""again":true"#));
    told.delivered.iter().copied().zip(again).collect()
}

#[test]
fn what_waits_behind_a_share_is_not_said_to_come_again() {
    let mut rig = Rig::new();
    let (bob, eve, alice) = (rig.ext("bob"), rig.ext("eve"), rig.ext("alice"));
    flood(&mut rig, eve, "bob", 130);
    rig.send(alice, "alice", "bob", "a1");
    rig.close(bob, false);
    let bob = rig.ext("bob");
    let all = |seqs: &mut dyn Iterator<Item = u64>, again| {
        let seqs: Vec<_> = seqs.map(|seq| (seq, again)).collect();
        seqs
    };
    let first = [all(&mut (1..=128), true), vec![(131, true)]].concat();
    assert_eq!(told(&mut rig, bob), first);
    rig.ack(bob, 1);
    assert_eq!(told(&mut rig, bob), [(129, false)]);
    rig.close(bob, true);
    let bob = rig.ext("bob");
    let second = [all(&mut (2..=129), true), vec![(131, true)]].concat();
    assert_eq!(told(&mut rig, bob), second);
    rig.ack(bob, 2);
    assert_eq!(told(&mut rig, bob), [(130, false)]);
}

#[test]
fn what_was_delivered_is_known_after_a_stop_and_feared_after_a_crash() {
    for stop in [true, false] {
        let mut rig = Rig::new();
        let (_bob, eve, alice) = (rig.ext("bob"), rig.ext("eve"), rig.ext("alice"));
        let cyd = rig.ext("cyd");
        rig.send(eve, "eve", "cyd", "e0");
        rig.close(cyd, true);
        rig.send(eve, "eve", "cyd", "away");
        flood(&mut rig, eve, "bob", 130);
        rig.send(alice, "alice", "bob", "a1");
        if stop {
            rig.input(Input::Shutdown);
        }
        rig.restart();
        let cyd = rig.ext("cyd");
        assert_eq!(told(&mut rig, cyd), [(1, true), (2, false)], "stop: {stop}");
        let bob = rig.ext("bob");
        let again = told(&mut rig, bob);
        assert!(again.len() == 129 && again.iter().all(|(_, again)| *again));
        rig.ack(bob, 3);
        assert_eq!(told(&mut rig, bob), [(131, !stop)], "stop: {stop}");
        let eve = rig.ext("eve");
        rig.send(eve, "eve", "bob", "new");
        rig.ack(bob, 4);
        rig.ack(bob, 5);
        assert_eq!(told(&mut rig, bob), [(132, !stop), (134, false)]);
    }
}

#[test]
fn a_sender_comes_between_two_that_flood() {
    let mut rig = Rig::new();
    let window = window(4, 1_000_000);
    let bob = rig.join(Register {
        window,
        ..ext("bob", "b")
    });
    let (eve, mallory, alice) = (rig.ext("eve"), rig.ext("mallory"), rig.ext("alice"));
    for n in 1..=5 {
        rig.send(eve, "eve", "bob", &format!("e{n}"));
        rig.send(mallory, "mallory", "bob", &format!("m{n}"));
    }
    assert_eq!(rig.delivered(bob), [1, 2, 3, 4]);
    rig.send(alice, "alice", "bob", "a1");
    assert!(rig.delivered(bob).is_empty(), "the window is full");
    rig.ack(bob, 1);
    assert_eq!(rig.delivered(bob), [11], "who has least in flight is next");
    rig.ack(bob, 2);
    assert_eq!(rig.delivered(bob), [5], "then the oldest");
}

#[test]
fn a_backlog_comes_in_the_order_of_acceptance_while_there_is_room() {
    let mut rig = Rig::new();
    let bob = rig.ext("bob");
    let (eve, alice) = (rig.ext("eve"), rig.ext("alice"));
    rig.close(bob, true);
    for n in 0..30 {
        let (conn, from) = [(eve, "eve"), (alice, "alice")][n % 3 / 2];
        rig.send(conn, from, "bob", &format!("m{n}"));
    }
    let bob = rig.ext("bob");
    assert_eq!(rig.delivered(bob), Vec::from_iter(1..=30));
}

#[test]
fn each_senders_mail_comes_in_its_order_however_it_is_acked() {
    let mut rig = Rig::new();
    let window = window(6, 2_000);
    let bob = rig.join(Register {
        window,
        ..ext("bob", "b")
    });
    let (eve, alice) = (rig.ext("eve"), rig.ext("alice"));
    for n in 0..40_usize {
        let (conn, from) = [(eve, "eve"), (alice, "alice")][usize::from(n % 7 == 0)];
        large(&mut rig, conn, from, &format!("m{n}"), 37 * n % 900);
    }
    let mut open = rig.delivered(bob);
    let mut seen = open.clone();
    while let Some(seq) = open.pop() {
        rig.ack(bob, seq);
        let more = rig.delivered(bob);
        open.extend(&more);
        seen.extend(more);
    }
    let of = |alice: bool| {
        seen.iter()
            .filter(move |seq| ((**seq - 1) % 7 == 0) == alice)
    };
    assert!(of(true).is_sorted() && of(false).is_sorted(), "{seen:?}");
    assert_eq!(seen.len(), 40);
}

#[test]
fn a_v1_connection_has_no_shares() {
    let mut rig = Rig::new();
    let bob = rig.join(register("bob"));
    let (eve, alice) = (rig.ext("eve"), rig.ext("alice"));
    flood(&mut rig, eve, "bob", 4_095);
    rig.send(alice, "alice", "bob", "a1");
    rig.send(eve, "eve", "bob", "late");
    assert_eq!(rig.delivered(bob), Vec::from_iter(1..=4_096));
    rig.ack(bob, 7);
    assert_eq!(rig.delivered(bob), [4_097]);
}
