//! Under which keys a version 1 client acks.

use peerbus_wire::limits::{ENVELOPE_BYTES_MAX, FRAME_BYTES_MAX};
use peerbus_wire::{ClientFrame, DeliveryKey};

use crate::rig::{Rig, envelope};

/// The keys of what a connection was given, by message.
fn keys(rig: &Rig, conn: peerbus_core::broker::ConnId) -> Vec<String> {
    let keys = rig.told[&conn].keys.values();
    keys.map(|key| key.as_str().to_owned()).collect()
}

fn ack_by(rig: &mut Rig, conn: peerbus_core::broker::ConnId, key: &str) {
    let key = DeliveryKey::parse(key).unwrap();
    rig.frame(conn, ClientFrame::ack(key, None));
}

#[test]
fn a_direct_message_goes_by_its_id_and_a_copy_by_its_recipient_too() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.v1("Bob"));
    rig.send(ada, "ada", "bob", "m1");
    rig.send(ada, "ada", "*", "m2");
    assert_eq!(keys(&rig, bob), ["m1", "m2|Bob"]);
    ack_by(&mut rig, bob, "m2|Bob");
    assert_eq!(rig.owed("bob"), [1]);
    ack_by(&mut rig, bob, "m1");
    assert!(rig.owed("bob").is_empty());
}

#[test]
fn what_waits_for_a_connection_has_such_keys_too() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    rig.close(bob, false);
    rig.send(ada, "ada", "bob", "m1");
    rig.send(ada, "ada", "*", "m2");
    let bob = rig.v1("bob");
    assert_eq!(keys(&rig, bob), ["m1", "m2|bob"]);
}

#[test]
fn a_key_that_was_not_given_does_nothing() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    rig.send(ada, "ada", "bob", "m1");
    rig.send(ada, "ada", "bob", "1");
    for key in ["2", "n1", "m1|bob", "m1#1", "#1", "M1"] {
        ack_by(&mut rig, bob, key);
        assert_eq!(rig.owed("bob"), [1, 2], "{key}");
    }
    ack_by(&mut rig, bob, "1");
    assert_eq!(rig.owed("bob"), [1], "an id is no number");
}

#[test]
fn an_id_of_two_senders_is_two_keys_and_those_of_an_earlier_connection_are_gone() {
    let mut rig = Rig::new();
    let (ada, cleo, bob) = (rig.ext("ada"), rig.ext("cleo"), rig.v1("bob"));
    rig.send(ada, "ada", "bob", "same");
    rig.send(cleo, "cleo", "bob", "same");
    assert_eq!(keys(&rig, bob), ["same", "same#2"]);
    ack_by(&mut rig, bob, "same");
    assert_eq!(rig.owed("bob"), [2]);
    rig.close(bob, false);
    let bob = rig.v1("bob");
    assert_eq!(keys(&rig, bob), ["same"]);
    ack_by(&mut rig, bob, "same#2");
    rig.close(bob, false);
    let bob = rig.v1("bob");
    assert_eq!(rig.delivered(bob), [2], "it comes again");
    ack_by(&mut rig, bob, "same");
    assert!(rig.owed("bob").is_empty());
}

#[test]
fn the_frame_of_the_longest_envelope_is_no_longer_for_its_key() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    let id = "i".repeat(128);
    let empty = envelope("ada", "bob", &id, "\"\"").len();
    for short in [0, 200] {
        let body = format!("\"{}\"", "x".repeat(ENVELOPE_BYTES_MAX - empty - short));
        let id = &id[..128 - usize::from(short > 0)];
        rig.text(ada, &envelope("ada", "bob", id, &body));
    }
    let texts = rig.told[&bob].texts.iter().map(String::len);
    assert!(texts.clone().all(|bytes| bytes <= FRAME_BYTES_MAX));
    assert_eq!(keys(&rig, bob), ["#1".to_owned(), id[..127].to_owned()]);
    ack_by(&mut rig, bob, "#1");
    assert_eq!(rig.owed("bob"), [2]);
}
