//! What one sender may have in flight while others want to be heard.

use peerbus_core::broker::{BrokerInput, ConnId};
use peerbus_wire::{Register, Token};

use crate::rig::{OTHER_TOKEN, Rig, envelope, ext, register, window};

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
    large(&mut rig, alice, "alice", "long", 300_000);
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
            rig.input(BrokerInput::Shutdown);
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
    assert_eq!(rig.delivered(bob), [1, 2, 3], "the last place is kept");
    rig.send(alice, "alice", "bob", "a1");
    assert_eq!(rig.delivered(bob), [11]);
    rig.send(alice, "alice", "bob", "a2");
    assert!(rig.delivered(bob).is_empty(), "the window is full");
    rig.ack(bob, 2);
    assert_eq!(rig.delivered(bob), [4], "who has least in flight is next");
    rig.ack(bob, 1);
    assert_eq!(rig.delivered(bob), [5], "then the oldest");
}

/// Sends a message that says how soon it wants to be seen.
fn wish(rig: &mut Rig, conn: ConnId, from: &str, id: &str, bytes: usize, priority: &str) {
    let body = format!(
        r#"{{"text":"{}","priority":"{priority}"}}"#,
        "x".repeat(bytes)
    );
    rig.text(conn, &envelope(from, "bob", id, &body));
}

/// Peers called `word` and a number, each of which sends as many messages of as many bytes.
fn crowd(rig: &mut Rig, word: &str, peers: usize, (messages, bytes): (usize, usize)) {
    for peer in 0..peers {
        let name = format!("{word}{peer}");
        let conn = rig.ext(&name);
        for n in 0..messages {
            wish(rig, conn, &name, &format!("{name}-{n}"), bytes, "quiet");
        }
    }
}

#[test]
fn two_names_that_flood_leave_room_for_others_and_for_what_is_urgent() {
    for (messages, bytes) in [(200, 20), (4, 300_000)] {
        let mut rig = Rig::new();
        let (bob, alice) = (rig.ext("bob"), rig.ext("alice"));
        crowd(&mut rig, "eve", 2, (messages, bytes));
        rig.take(bob);
        wish(&mut rig, alice, "alice", "a1", bytes, "now");
        wish(&mut rig, alice, "alice", "a2", 20, "now");
        let urgent = 2 * messages as u64 + 1;
        assert_eq!(rig.delivered(bob), [urgent, urgent + 1], "{bytes}");
        let cyd = rig.ext("cyd");
        wish(&mut rig, cyd, "cyd", "c1", 20, "quiet");
        assert_eq!(rig.delivered(bob), [urgent + 2], "her first one");
        for n in 0..10 {
            wish(&mut rig, cyd, "cyd", &format!("c{}", n + 2), 20, "now");
        }
        if bytes == 20 {
            let more = rig.delivered(bob).len();
            assert!(more < 5, "she has {more} of what is kept");
        }
    }
}

#[test]
fn quiet_mail_of_any_number_of_names_leaves_room_for_what_is_urgent() {
    let mut rig = Rig::new();
    let (bob, alice) = (rig.ext("bob"), rig.ext("alice"));
    crowd(&mut rig, "eve", 300, (3, 20));
    assert!(rig.take(bob).delivered.len() < 256);
    wish(&mut rig, alice, "alice", "a1", 20, "now");
    assert_eq!(rig.delivered(bob), [901]);
    // What another token sends finds room, whatever it says.
    let cyd = rig.join(Register {
        token: Token::parse(OTHER_TOKEN),
        ..ext("cyd", "c")
    });
    wish(&mut rig, cyd, "cyd", "c1", 20, "quiet");
    assert_eq!(rig.delivered(bob), [902]);
}

#[test]
fn no_token_takes_all_that_is_kept() {
    let mut rig = Rig::new();
    let bob = rig.ext("bob");
    let cyd = rig.join(Register {
        token: Token::parse(OTHER_TOKEN),
        ..ext("cyd", "c")
    });
    crowd(&mut rig, "eve", 2, (200, 20));
    for peer in 0..60 {
        let name = format!("mallory{peer}");
        let conn = rig.ext(&name);
        wish(&mut rig, conn, &name, &format!("{name}-1"), 20, "now");
        wish(&mut rig, conn, &name, &format!("{name}-2"), 400_000, "now");
    }
    rig.take(bob);
    wish(&mut rig, cyd, "cyd", "c1", 300_000, "next");
    assert_eq!(rig.delivered(bob), [521]);
}

#[test]
fn a_token_pays_for_names_that_have_left() {
    let mut rig = Rig::new();
    let bob = rig.ext("bob");
    rig.close(bob, false);
    crowd(&mut rig, "eve", 230, (1, 20));
    for peer in 0..40 {
        let name = format!("mallory{peer}");
        let leaves = peer < 20;
        let conn = rig.join(Register {
            ephemeral: leaves,
            ..ext(&name, &name)
        });
        wish(&mut rig, conn, &name, &format!("{name}-1"), 20, "now");
        if leaves {
            rig.close(conn, true);
        }
    }
    let bob = rig.ext("bob");
    rig.take(bob);
    let cyd = rig.join(Register {
        token: Token::parse(OTHER_TOKEN),
        ..ext("cyd", "c")
    });
    wish(&mut rig, cyd, "cyd", "c1", 20, "now");
    assert_eq!(rig.delivered(bob), [271]);
}

#[test]
fn what_is_urgent_is_found_behind_what_was_delivered() {
    let mut rig = Rig::new();
    let bob = rig.join(Register {
        window: window(8, 1_000_000),
        ..ext("bob", "b")
    });
    let (ann, ben) = (rig.ext("ann"), rig.ext("ben"));
    for n in 0..4 {
        wish(&mut rig, ann, "ann", &format!("a{n}"), 20, "quiet");
    }
    for n in 0..3 {
        wish(&mut rig, ben, "ben", &format!("b{n}"), 20, "quiet");
    }
    wish(&mut rig, ann, "ann", "a4", 20, "quiet");
    wish(&mut rig, ann, "ann", "a5", 20, "now");
    assert_eq!(rig.delivered(bob), [1, 2, 3, 4, 5, 6, 7]);
    rig.ack(bob, 5);
    assert!(rig.delivered(bob).is_empty(), "ann has half of the window");
    rig.ack(bob, 1);
    assert_eq!(rig.delivered(bob), [8, 9]);
}

#[test]
fn what_waits_comes_into_what_is_kept_when_it_has_room() {
    let mut rig = Rig::new();
    let bob = rig.join(Register {
        window: window(8, 1_000_000),
        ..ext("bob", "b")
    });
    let alice = rig.ext("alice");
    crowd(&mut rig, "eve", 3, (5, 20));
    // Seven in the rest of the window, and the first of the third name.
    assert_eq!(rig.delivered(bob).len(), 8);
    wish(&mut rig, alice, "alice", "a1", 20, "now");
    assert!(rig.delivered(bob).is_empty());
    let third = 11;
    rig.ack(bob, third);
    assert_eq!(rig.delivered(bob), [16], "what is urgent goes first");
    rig.ack(bob, 16);
    assert_eq!(
        rig.delivered(bob),
        [12],
        "then the oldest first one of a sender"
    );
    rig.close(bob, false);
    let bob = rig.join(Register {
        window: window(8, 1_000_000),
        ..ext("bob", "b")
    });
    let main = [1, 2, 3, 4, 6, 12, 7];
    assert_eq!(rig.delivered(bob), main, "one place is kept");
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
