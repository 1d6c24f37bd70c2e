//! Requests of several who ask one peer: whose an answer is, and which are listed.

use peerbus_core::broker::ConnId;
use peerbus_core::store::Store as _;
use peerbus_wire::{Register, Stage, Token};

use crate::domains::{alpha, bridge};
use crate::requests::{HOUR, another, answer, ask, id, is_over, request};
use crate::rig::{OTHER_TOKEN, Rig, TOKEN, accepted, ext};

/// Eve asks bob under another one's id from a temporary name, and leaves.
fn ask_and_leave(rig: &mut Rig, bob: ConnId, id: &str) {
    let temporary = Register {
        ephemeral: true,
        ..ext("tmp", "tmp")
    };
    let eve = rig.join(temporary);
    ask(rig, eve, ("tmp", "bob"), id);
    rig.close(eve, true);
    rig.take(bob);
}

#[test]
fn a_request_of_one_who_has_left_takes_no_answer_to_another_one() {
    for asks in [true, false] {
        let mut rig = Rig::new();
        let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
        match asks {
            true => ask(&mut rig, ada, ("ada", "bob"), "q1"),
            false => rig.send(ada, "ada", "bob", "q1"),
        }
        ask_and_leave(&mut rig, bob, "q1");
        rig.take(ada);
        answer(&mut rig, bob, ("bob", "ada"), ("a1", "q1"));
        assert!(rig.states(bob).contains(&accepted(1, 1)));
        let told = rig.take(ada);
        assert_eq!(told.delivered, [3]);
        let done = Stage::Done { reply: id("a1") };
        let is_done = told.receipts.iter().any(|receipt| receipt.stage == done);
        assert_eq!(is_done, asks);
        // Her own ends by what is for her.
        answer(&mut rig, bob, ("bob", "TMP"), ("a2", "q1"));
        assert!(rig.states(bob).contains(&accepted(0, 0)));
        assert!(rig.store.tables().leases.is_empty());
    }
}

#[test]
fn whoever_asks_again_under_a_name_of_another_token_gets_no_answer_to_the_first() {
    for thief in [true, false] {
        let mut rig = Rig::new();
        let bob = rig.ext("bob");
        ask_and_leave(&mut rig, bob, "q1");
        let token = if thief { OTHER_TOKEN } else { TOKEN };
        let again = rig.join(Register {
            token: Token::parse(token),
            ephemeral: true,
            ..ext("TMP", "again")
        });
        ask(&mut rig, again, ("TMP", "bob"), "q1");
        rig.take(bob);
        answer(&mut rig, bob, ("bob", "tmp"), ("a1", "q1"));
        assert_eq!(rig.delivered(again).is_empty(), thief);
        let kept = accepted(u32::from(!thief), u32::from(!thief));
        assert!(rig.states(bob).contains(&kept), "{thief}");
    }
}

#[test]
fn an_answer_to_another_domain_ends_what_that_name_there_asked() {
    let mut rig = alpha();
    let (beta, bob) = (rig.join(bridge("beta", "B1")), rig.ext("bob"));
    let asked = request("cyd@beta", "bob@alpha", "q1", HOUR);
    let take =
        format!(r#"{{"protocol_version":"v1","type":"take","mark":"B1.1","envelope":{asked}}}"#);
    rig.text(beta, &take);
    rig.take(bob);
    let to_dan = ("bob@alpha", "dan@beta");
    answer(&mut rig, bob, to_dan, ("a1", "q1"));
    assert!(!is_over(&rig), "it is for another one there");
    ask_and_leave(&mut rig, bob, "q2");
    answer(&mut rig, bob, to_dan, ("a2", "q2"));
    assert!(rig.states(bob).contains(&accepted(1, 1)));
    answer(&mut rig, bob, ("bob@alpha", "cyd@beta"), ("a3", "q1"));
    answer(&mut rig, bob, ("bob", "tmp@alpha"), ("a4", "q2"));
    assert!(rig.store.tables().leases.is_empty());
}

#[test]
fn open_requests_of_one_token_hide_nobody_elses() {
    let mut rig = Rig::new();
    let eve = Register {
        token: Token::parse(OTHER_TOKEN),
        ..another("eve")
    };
    let (eve, ada, _bob) = (rig.join(eve), rig.ext("ada"), rig.ext("bob"));
    for n in 0..1_000 {
        ask(&mut rig, eve, ("eve", "bob"), &format!("e{n}"));
    }
    ask(&mut rig, ada, ("ada", "bob"), "q1");
    let open = |rig: &mut Rig, named| {
        rig.store.begin().unwrap();
        let open = rig.broker.open_requests(rig.now(), &mut rig.store, named);
        rig.store.rollback();
        open.unwrap()
    };
    let (all, more) = open(&mut rig, None);
    assert!(all.len() == 1_000 && more, "{}", all.len());
    assert!(all.iter().any(|request| request.from == "ada"));
    let (named, more) = open(&mut rig, Some("e999"));
    assert!(!more && named.len() == 1 && named[0].id == id("e999"));
    let (all, more) = open(&mut rig, Some("q1"));
    assert!(!more && all.len() == 1);
}
