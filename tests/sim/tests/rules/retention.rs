//! What is kept for a while, and then goes.

use peerbus_core::audit::{Block, Verifier};
use peerbus_core::store::{Store, Txn};
use peerbus_sim::{Audit, Backend};
use peerbus_wire::{ClientFrame, EnvelopeHash, RefusalCode, Seq, Stage};

use crate::rig::{DAY, Rig, SECOND, envelope};

fn is_stored(rig: &mut Rig, seq: u64) -> bool {
    rig.store.begin().unwrap();
    let stored = rig.store.message(Seq(seq)).unwrap().is_some();
    rig.store.rollback();
    stored
}

fn verified(rig: &mut Rig) -> (u64, Vec<Block>) {
    let Audit::Chain(head, blocks) = rig.store.audit().unwrap() else {
        panic!("a chain")
    };
    let mut verifier = Verifier::new(&rig.config.audit_key, head).unwrap();
    for block in &blocks {
        verifier.block(block).unwrap();
    }
    (verifier.finish().unwrap().anchor, blocks)
}

#[test]
fn without_a_history_a_message_is_known_ten_minutes_for_dedupe_and_then_deleted() {
    let mut rig = Rig::with(|config| config.history_ms = 0);
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    rig.send(ada, "ada", "bob", "m1");
    rig.send(ada, "ada", "bob", "owed");
    rig.ack(bob, 1);
    rig.pass(61 * SECOND);
    assert_eq!(
        texts(&rig),
        envelope("ada", "bob", "owed", "1").len() as u64
    );
    rig.pass(539 * SECOND);
    assert!(is_stored(&mut rig, 1));
    rig.pass(130 * SECOND);
    assert!(!is_stored(&mut rig, 1));
    assert!(is_stored(&mut rig, 2), "what is owed stays");
}

#[test]
fn a_message_is_kept_for_seven_days_after_its_last_end_over_restarts() {
    let mut rig = Rig::new();
    let (ada, bob, cyd) = (rig.ext("ada"), rig.v1("bob"), rig.v1("cyd"));
    rig.send(ada, "ada", "*", "m1");
    rig.send(ada, "ada", "bob", "m2");
    rig.ack(bob, 1);
    rig.ack(bob, 2);
    rig.pass(2 * DAY);
    rig.ack(cyd, 1);
    rig.pass(5 * DAY - 300 * SECOND);
    rig.restart();
    let whole = |id: &str, to: &str| envelope("ada", to, id, "1").len() as u64;
    assert_eq!(texts(&rig), whole("m1", "*") + whole("m2", "bob"));
    rig.pass(600 * SECOND);
    assert!(is_stored(&mut rig, 1) && !is_stored(&mut rig, 2));
    rig.pass(2 * DAY);
    assert!(!is_stored(&mut rig, 1));
}

/// Bytes of texts that are stored.
fn texts(rig: &Rig) -> u64 {
    let messages = rig.store.tables().messages.values();
    let texts = messages.filter(|message| message.envelope.len() > EnvelopeHash::LETTERS);
    texts.map(|message| message.head.bytes).sum()
}

#[test]
fn the_texts_of_mail_that_ended_have_a_bound_and_nothing_is_taken_twice() {
    let size = envelope("ada", "bob", "m100", "1").len() as u64;
    let mut rig = Rig::with(|config| config.history_bytes = 20 * size);
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    rig.send(ada, "ada", "bob", "owed");
    for n in 100..200 {
        rig.send(ada, "ada", "bob", &format!("m{n}"));
        rig.ack(bob, n - 98);
        rig.pass(SECOND / 10);
        assert!(texts(&rig) <= 23 * size, "{} of {size}", texts(&rig));
    }
    rig.restart();
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    assert_eq!(rig.delivered(bob), [1], "what is owed has its text");
    for id in ["m100", "m199"] {
        rig.send(ada, "ada", "bob", id);
        let states = rig.states(ada);
        let is_known = |state: &Stage| matches!(state, Stage::Accepted(it) if it.duplicate);
        assert!(states.iter().any(is_known), "{id}: {states:?}");
        rig.text(ada, &envelope("ada", "bob", id, "2"));
        let states = rig.states(ada);
        let is_other =
            |state: &Stage| matches!(state, Stage::Refused(it) if it.code == RefusalCode::IdReused);
        assert!(states.iter().any(is_other), "{id}: {states:?}");
    }
    assert!(rig.delivered(bob).is_empty());
}

#[test]
fn a_broadcast_to_nobody_counts_as_mail_that_ended() {
    let size = envelope("ada", "*", "m100", "1").len() as u64;
    let mut rig = Rig::with(|config| config.history_bytes = 20 * size);
    let ada = rig.ext("ada");
    for n in 100..150 {
        rig.send(ada, "ada", "*", &format!("m{n}"));
        rig.pass(SECOND / 10);
    }
    assert!(texts(&rig) <= 22 * size);
}

#[test]
fn what_is_kept_of_rejected_mail_has_a_bound() {
    let size = envelope("ada", "bob", "m100", "1").len() as u64;
    let mut rig = Rig::with(|config| {
        (config.history_bytes, config.notices_max) = (20 * size, 20);
        config.dead_bytes = 20 * (size + 128 + "forged".len() as u64);
    });
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    for n in 100..200 {
        rig.send(ada, "ada", "bob", &format!("m{n}"));
        let key = Seq(n - 99).key();
        let reason = "forged".into();
        rig.frame(bob, ClientFrame::reject(key, reason));
        rig.pass(SECOND / 10);
    }
    rig.pass(120 * SECOND);
    let tables = rig.store.tables();
    let dead: Vec<_> = tables.dead.keys().map(|(seq, _)| seq.0).collect();
    assert_eq!(dead, (81..=100).collect::<Vec<_>>(), "the newest");
    let untold: Vec<_> = tables.notices.keys().map(|(_, number)| *number).collect();
    assert_eq!(untold, (81..=100).collect::<Vec<_>>(), "the newest");
    assert!(texts(&rig) <= 2 * 22 * size, "{}", texts(&rig));
}

#[test]
fn a_rejected_message_is_kept_for_the_operator_for_thirty_days() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.send(ada, "ada", "bob", "m1");
    let key = Seq(1).key();
    rig.frame(bob, ClientFrame::reject(key, "forged".into()));
    rig.pass(29 * DAY);
    assert!(is_stored(&mut rig, 1));
    rig.pass(DAY + 800 * SECOND);
    assert!(!is_stored(&mut rig, 1));
}

#[test]
fn a_statement_that_its_sender_never_fetches_goes_after_thirty_days() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.send(ada, "ada", "bob", "m1");
    rig.close(ada, true);
    let key = Seq(1).key();
    rig.frame(bob, ClientFrame::reject(key, "forged".into()));
    rig.pass(30 * DAY + 120 * SECOND);
    let ada = rig.ext("ada");
    assert!(rig.take(ada).receipts.is_empty());
}

#[test]
fn old_audit_blocks_go_from_the_front_and_the_rest_verifies_from_the_anchor() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    for n in 1..=400 {
        rig.send(ada, "ada", "bob", &format!("m{n}"));
        rig.ack(bob, n);
    }
    let (anchor, before) = verified(&mut rig);
    assert_eq!(anchor, 0);
    rig.pass(20 * DAY);
    rig.send(ada, "ada", "bob", "young");
    rig.pass(10 * DAY + 300 * SECOND);
    let (anchor, after) = verified(&mut rig);
    assert!(
        anchor > 256,
        "the anchor names the last block that went: {anchor}"
    );
    assert_eq!(after.first().map(|block| block.number), Some(anchor + 1));
    assert!(after.len() < before.len());
    rig.restart();
    let ada = rig.ext("ada");
    rig.send(ada, "ada", "bob", "after");
    let (again, _) = verified(&mut rig);
    assert_eq!(again, anchor, "the chain goes on after a restart");
}

#[test]
fn numbers_are_never_used_again() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    rig.send(ada, "ada", "bob", "m1");
    rig.ack(bob, 1);
    rig.pass(8 * DAY);
    assert!(!is_stored(&mut rig, 1));
    rig.restart();
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    rig.send(ada, "ada", "bob", "m2");
    assert_eq!(rig.delivered(bob), [2]);
}

#[test]
fn an_idle_broker_writes_nothing_but_the_time_twice_a_day() {
    let mut rig = Rig::new();
    rig.v1("ada");
    rig.pass(DAY);
    let commits = rig.commits;
    rig.pass(DAY);
    assert_eq!(rig.commits, commits + 2);
}
