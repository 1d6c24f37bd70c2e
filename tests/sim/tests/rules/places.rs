//! How many requests a peer has at once, which comes next, and those whose peers end.

use peerbus_wire::{Register, Stage, Token};

use crate::leases::member;
use crate::requests::{answer, ask, is_over};
use crate::retire::retire;
use crate::rig::{OTHER_TOKEN, Rig, accepted, ext};

#[test]
fn a_peer_has_so_many_of_one_token_and_the_next_one_comes_with_an_answer() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    for n in 1..=18 {
        ask(&mut rig, ada, ("ada", "bob"), &format!("q{n}"));
    }
    assert_eq!(rig.delivered(bob), (1..=16).collect::<Vec<_>>());
    // What is no request passes them.
    rig.send(ada, "ada", "bob", "m1");
    assert_eq!(rig.delivered(bob), [19]);
    for n in 1..=16 {
        rig.ack(bob, n);
    }
    assert!(rig.delivered(bob).is_empty(), "they are owed");
    answer(&mut rig, bob, ("bob", "ada"), ("a1", "q3"));
    assert_eq!(rig.delivered(bob), [17]);
    rig.restart();
    let bob = rig.ext("bob");
    assert_eq!(rig.delivered(bob), [17, 19]);
}

#[test]
fn requests_that_wait_hold_up_no_other_tokens() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    let eve = rig.join(Register {
        token: Token::parse(OTHER_TOKEN),
        ..ext("eve", "eve")
    });
    for n in 1..=18 {
        ask(&mut rig, ada, ("ada", "bob"), &format!("q{n}"));
    }
    assert_eq!(rig.delivered(bob).len(), 16);
    for n in 1..=17 {
        ask(&mut rig, eve, ("eve", "bob"), &format!("e{n}"));
    }
    assert_eq!(rig.delivered(bob), (19..=34).collect::<Vec<_>>());
    answer(&mut rig, bob, ("bob", "eve"), ("b1", "e1"));
    assert_eq!(rig.delivered(bob), [35]);
    answer(&mut rig, bob, ("bob", "ada"), ("a1", "q1"));
    assert_eq!(rig.delivered(bob), [17], "in the order that they were sent");
}

#[test]
fn what_a_member_owes_alone_takes_no_place_of_its_groups() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let bob = member(&mut rig, "bob");
    for n in 1..=16 {
        ask(&mut rig, ada, ("ada", "bob"), &format!("q{n}"));
        rig.ack(bob, n);
    }
    rig.take(bob);
    rig.send(ada, "ada", "#shop!", "m1");
    assert_eq!(rig.delivered(bob), [17]);
}

#[test]
fn a_request_that_nobody_read_ends_unanswered_with_its_recipients_name() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.close(bob, true);
    ask(&mut rig, ada, ("ada", "bob"), "q1");
    rig.take(ada);
    retire(&mut rig, "bob", None).unwrap();
    let [Stage::Unanswered { why }] = &rig.states(ada)[..] else {
        panic!("it waits for ever, or expired as mail does");
    };
    assert!(why.contains("bob"), "{why}");
    assert!(is_over(&rig));
}

#[test]
fn the_next_peer_of_an_askers_name_gets_none_of_its_answers() {
    let mut rig = Rig::new();
    let temporary = |instance: &str| Register {
        ephemeral: true,
        ..ext("shell", instance)
    };
    let (shell, bob) = (rig.join(temporary("one")), rig.ext("bob"));
    ask(&mut rig, shell, ("shell", "bob"), "q1");
    rig.ack(bob, 1);
    rig.close(shell, true);
    // Who had which name is not known any more.
    rig.restart();
    let (other, bob) = (rig.join(temporary("other")), rig.ext("bob"));
    answer(&mut rig, bob, ("bob", "shell"), ("a1", "q1"));
    assert_eq!(rig.states(bob), [accepted(0, 0)]);
    assert!(rig.delivered(other).is_empty());
    assert!(is_over(&rig));
    // What answers nothing of the old one's reaches the new one.
    answer(&mut rig, bob, ("bob", "shell"), ("a2", "q9"));
    assert_eq!(rig.delivered(other).len(), 1);
}
