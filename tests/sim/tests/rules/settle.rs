//! How a delivery ends: acked, rejected, handed back.

use peerbus_wire::{ClientFrame, DeliveryKey, Seq, Stage};

use crate::rig::{Rig, ack};

fn reject(seq: u64) -> ClientFrame {
    ClientFrame::reject(Seq(seq).key(), "signature mismatch".into())
}

#[test]
fn only_the_recipient_can_end_it() {
    let mut rig = Rig::new();
    let (ada, bob, eve) = (rig.ext("ada"), rig.v1("bob"), rig.ext("eve"));
    rig.send(ada, "ada", "bob", "m1");
    for frame in [
        ack(1, None),
        reject(1),
        ClientFrame::Release {
            key: Seq(1).key(),
            again: false,
        },
    ] {
        rig.frame(eve, frame.clone());
        rig.frame(ada, frame);
    }
    assert_eq!(rig.owed("bob"), [1]);
    rig.close(bob, false);
    let bob = rig.v1("bob");
    assert_eq!(rig.delivered(bob), [1]);
}

#[test]
fn an_unknown_or_repeated_key_changes_nothing() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    rig.send(ada, "ada", "bob", "m1");
    rig.ack(bob, 1);
    rig.take(ada);
    let commits = rig.commits;
    for key in [
        "1",
        "2",
        "99999999999999999999999",
        "01",
        "+1",
        "x|y",
        "n1",
        "n",
        "-1",
    ] {
        let key = DeliveryKey::parse(key).unwrap();
        rig.frame(bob, ClientFrame::ack(key, None));
    }
    assert!(rig.states(ada).is_empty());
    assert_eq!(rig.commits, commits, "nothing was written");
}

#[test]
fn what_is_not_acked_comes_again_and_what_is_acked_does_not() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.v1("ada"), rig.v1("bob"));
    for id in ["m1", "m2", "m3"] {
        rig.send(ada, "ada", "bob", id);
    }
    rig.ack(bob, 2);
    rig.close(bob, false);
    let bob = rig.v1("bob");
    assert_eq!(rig.delivered(bob), [1, 3], "from the oldest on");
    rig.restart();
    let bob = rig.v1("bob");
    assert_eq!(rig.delivered(bob), [1, 3], "and after a crash");
}

#[test]
fn an_ack_that_dies_with_the_broker_costs_a_redelivery() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.v1("ada"), rig.v1("bob"));
    rig.send(ada, "ada", "bob", "m1");
    let ack = rig.ack_of(bob, 1);
    rig.batch([peerbus_core::broker::BrokerInput::Frame(bob, ack)]);
    rig.restart();
    let bob = rig.v1("bob");
    assert_eq!(rig.delivered(bob), [1]);
}

#[test]
fn a_reject_is_dead_mail_and_the_sender_is_told_until_it_takes_note() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.send(ada, "ada", "bob", "m1");
    rig.take(ada);
    rig.frame(bob, reject(1));
    let receipt = rig.take(ada).receipts.remove(0);
    let dead = Stage::Dead {
        why: "signature mismatch".into(),
    };
    assert_eq!(
        (receipt.to.as_deref(), &receipt.stage),
        (Some("bob"), &dead)
    );
    let key = receipt.key.unwrap();
    assert!(rig.owed("bob").is_empty(), "it does not come again");
    rig.restart();
    let ada = rig.ext("ada");
    let again = rig.take(ada).receipts;
    assert_eq!(
        (again.len(), &again[0].stage, again[0].key.as_ref()),
        (1, &dead, Some(&key))
    );
    rig.frame(ada, ClientFrame::ack(key, None));
    let ada = rig.ext("ada");
    assert!(rig.take(ada).receipts.is_empty());
}

#[test]
fn a_statement_is_acked_by_its_owner_alone() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.send(ada, "ada", "bob", "m1");
    rig.frame(bob, reject(1));
    let key = DeliveryKey::parse("n1").unwrap();
    rig.frame(bob, ClientFrame::ack(key, None));
    let ada = rig.ext("ada");
    assert_eq!(rig.take(ada).receipts.len(), 1);
}

#[test]
fn v1_cannot_reject_or_hand_back() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.v1("ada"), rig.v1("bob"));
    rig.send(ada, "ada", "bob", "m1");
    rig.frame(bob, reject(1));
    rig.frame(
        bob,
        ClientFrame::Release {
            key: Seq(1).key(),
            again: false,
        },
    );
    assert_eq!(rig.owed("bob"), [1]);
}

#[test]
fn what_is_handed_back_comes_with_the_next_connection_and_frees_its_place() {
    let mut rig = Rig::new();
    let ada = rig.v1("ada");
    let window = crate::rig::window(1, 1_000_000);
    let bob = rig.join(peerbus_wire::Register {
        window,
        ..crate::rig::ext("bob", "b")
    });
    rig.send(ada, "ada", "bob", "m1");
    rig.send(ada, "ada", "bob", "m2");
    assert_eq!(rig.delivered(bob), [1]);
    rig.frame(
        bob,
        ClientFrame::Release {
            key: Seq(1).key(),
            again: false,
        },
    );
    assert_eq!(rig.delivered(bob), [2]);
    assert_eq!(rig.owed("bob"), [1, 2]);
    let bob = rig.join(crate::rig::ext("bob", "b"));
    assert_eq!(rig.delivered(bob)[0], 1);
}

#[test]
fn more_statements_than_fit_at_once_come_as_the_first_are_acked() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    for n in 0..700 {
        rig.send(ada, "ada", "bob", &format!("m{n}"));
    }
    rig.close(ada, true);
    for seq in 1..=700 {
        rig.frame(bob, reject(seq));
    }
    let ada = rig.ext("ada");
    let mut told = Vec::new();
    for _ in 0..10 {
        let receipts = rig.take(ada).receipts;
        if receipts.is_empty() {
            break;
        }
        for receipt in receipts {
            told.push(receipt.id.as_str().to_owned());
            let key = receipt.key.unwrap();
            rig.frame(ada, ClientFrame::ack(key, None));
        }
    }
    assert_eq!(told, (0..700).map(|n| format!("m{n}")).collect::<Vec<_>>());
}
