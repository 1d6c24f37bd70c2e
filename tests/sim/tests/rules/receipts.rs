//! What a sender is told, when, and in how many frames.

use peerbus_core::broker::{BrokerInput, CommitNeed};
use peerbus_wire::{ClientFrame, How, Presence, Stage, rfc3339};

use crate::rig::{Rig, accepted, ack, ext, ids, message, on_the_wire};

#[test]
fn states_after_accepted_are_coalesced_in_one_frame_a_commit() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    rig.batch([
        message(ada, "ada", "bob", "m1"),
        message(ada, "ada", "bob", "m2"),
    ]);
    rig.commit();
    let told = rig.take(ada);
    assert_eq!(told.receipt_frames, 1);
    let states: Vec<_> = told
        .receipts
        .iter()
        .map(|r| (r.id.as_str(), &r.stage))
        .collect();
    let delivered = Stage::Delivered;
    assert_eq!(
        states,
        [
            ("m1", &accepted(1, 1)),
            ("m2", &accepted(1, 1)),
            ("m1", &delivered),
            ("m2", &delivered)
        ]
    );
    let _ = bob;
}

#[test]
fn an_ack_in_the_commit_of_the_delivery_replaces_delivered() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let bob = rig.v1("bob");
    rig.close(bob, true);
    rig.send(ada, "ada", "bob", "m1");
    let bob = rig.v1("bob");
    rig.take(ada);
    rig.batch([BrokerInput::Frame(bob, on_the_wire(&rig.ack_of(bob, 1)))]);
    rig.commit();
    let [receipt] = &rig.take(ada).receipts[..] else {
        panic!("one receipt");
    };
    assert_eq!(receipt.to.as_deref(), Some("bob"));
    assert_eq!(receipt.stage, Stage::Acked(None));
}

#[test]
fn an_ack_starts_no_commit_and_its_receipt_waits() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    rig.send(ada, "ada", "bob", "m1");
    rig.take(ada);
    let need = rig.batch([BrokerInput::Frame(bob, on_the_wire(&rig.ack_of(bob, 1)))]);
    assert_eq!(need, CommitNeed::Soon);
    assert!(rig.states(ada).is_empty());
    rig.commit();
    assert_eq!(rig.states(ada), [Stage::Acked(None)]);
}

#[test]
fn mail_that_was_committed_before_leaves_without_a_commit() {
    let mut rig = Rig::new();
    let ada = rig.v1("ada");
    let window = crate::rig::window(1, 1_000_000);
    let bob = rig.join(peerbus_wire::Register {
        window,
        ..crate::rig::ext("bob", "b")
    });
    rig.send(ada, "ada", "bob", "m1");
    rig.send(ada, "ada", "bob", "m2");
    rig.take(bob);
    let need = rig.batch([BrokerInput::Frame(bob, on_the_wire(&rig.ack_of(bob, 1)))]);
    assert_eq!(need, CommitNeed::Soon);
    assert_eq!(rig.delivered(bob), [2], "at once");
}

#[test]
fn the_receipt_repeats_how_it_was_acked() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    for (n, how) in [
        (
            1,
            How::Pushed {
                path: "channel".into(),
            },
        ),
        (
            2,
            How::Seen {
                path: "drain".into(),
                evidence: "tool_result".into(),
            },
        ),
    ] {
        rig.send(ada, "ada", "bob", &format!("m{n}"));
        rig.take(ada);
        rig.frame(bob, ack(n, Some(how.clone())));
        assert_eq!(rig.states(ada), [Stage::Acked(Some(how))]);
    }
}

#[test]
fn peers_is_answered_when_everything_before_it_is_committed() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.v1("ada"), rig.v1("bob"));
    let need = rig.batch([BrokerInput::Frame(ada, ClientFrame::Peers)]);
    assert_eq!(need, CommitNeed::None, "nothing to wait for");
    assert_eq!(rig.take(ada).peers[0].names, ["ada", "bob"]);
    rig.send(ada, "ada", "bob", "m1");
    let need = rig.batch([
        BrokerInput::Frame(bob, on_the_wire(&rig.ack_of(bob, 1))),
        BrokerInput::Frame(bob, ClientFrame::Peers),
    ]);
    assert_eq!(need, CommitNeed::Now, "it forces the commit");
    assert!(rig.take(bob).peers.is_empty());
    rig.commit();
    assert_eq!(rig.take(bob).peers.len(), 1);
    assert!(rig.owed("bob").is_empty());
}

#[test]
fn an_ext_client_is_told_more_of_each_peer() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    rig.close(bob, true);
    rig.send(ada, "ada", "bob", "m1");
    rig.pass(5_000);
    rig.take(ada);
    rig.frame(ada, ClientFrame::Peers);
    let answer = rig.take(ada).peers.remove(0);
    let entries = answer.peers.unwrap();
    let seen: Vec<_> = entries
        .iter()
        .map(|e| (e.name.as_str(), e.online, e.unacked, e.away_s))
        .collect();
    assert_eq!(
        seen,
        [
            ("ada", true, Some(0), Some(0)),
            ("bob", false, Some(1), Some(5))
        ]
    );
}

#[test]
fn how_a_peer_described_itself_stays_when_it_leaves() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let presence = Presence::parse(r#"{"client":"codex"}"#);
    let bob = rig.join(peerbus_wire::Register {
        presence: presence.clone(),
        ..ext("bob", "instance-of-bob")
    });
    rig.close(bob, false);
    let seen = |rig: &mut Rig| {
        rig.take(ada);
        rig.frame(ada, ClientFrame::Peers);
        rig.take(ada).peers.remove(0).peers.unwrap().remove(1)
    };
    let entry = seen(&mut rig);
    assert!(!entry.online && entry.presence == presence, "{entry:?}");
    rig.ext("bob");
    assert_eq!(seen(&mut rig).presence, None, "the new one says nothing");
}

#[test]
fn how_long_a_peer_does_what_it_says_is_told_of_those_that_are_here() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let describe = |text: &str| ClientFrame::Presence(Presence::parse(text).unwrap());
    let bob = rig.join(peerbus_wire::Register {
        presence: Presence::parse(r#"{"activity":"idle"}"#),
        ..ext("bob", "instance-of-bob")
    });
    let for_s = |rig: &mut Rig, passed_ms| {
        rig.pass(passed_ms);
        rig.take(ada);
        rig.frame(ada, ClientFrame::Peers);
        let entries = rig.take(ada).peers.remove(0).peers.unwrap();
        let bob = entries.into_iter().find(|entry| entry.name == "bob");
        bob.unwrap().activity_s
    };
    assert_eq!(for_s(&mut rig, 3_000), Some(3), "since it registered");
    rig.frame(bob, describe(r#"{"activity":"busy"}"#));
    assert_eq!(for_s(&mut rig, 9_000), Some(9), "since that changed");
    rig.frame(bob, describe(r#"{"branch":"main","activity":"busy"}"#));
    assert_eq!(for_s(&mut rig, 9_000), Some(18), "another member changed");
    rig.frame(bob, describe(r#"{"branch":"main"}"#));
    assert_eq!(for_s(&mut rig, 1_000), None, "it does not say");
    rig.frame(bob, describe(r#"{"activity":"busy"}"#));
    assert_eq!(for_s(&mut rig, 1_000), Some(1), "it says again");
    rig.close(bob, false);
    assert_eq!(for_s(&mut rig, 1_000), None, "it is away");
    let since = rfc3339(rig.now().wall_ms - 60_000);
    let bob = rig.join(peerbus_wire::Register {
        presence: Presence::parse(&format!(r#"{{"activity":"busy","since":"{since}"}}"#)),
        ..ext("bob", "instance-of-bob")
    });
    assert_eq!(
        for_s(&mut rig, 1_000),
        Some(61),
        "before this connection, too"
    );
    rig.frame(
        bob,
        describe(&format!(r#"{{"activity":"idle","since":"{since}"}}"#)),
    );
    assert_eq!(for_s(&mut rig, 1_000), Some(1), "since the broker was told");
}

#[test]
fn status_tells_of_ones_own_messages_and_of_nobody_elses() {
    let mut rig = Rig::new();
    let (ada, bob, cyd) = (rig.ext("ada"), rig.v1("bob"), rig.ext("cyd"));
    rig.send(ada, "ada", "bob", "m1");
    rig.close(bob, true);
    rig.send(ada, "ada", "bob", "m2");
    rig.take(ada);
    let ask = || ClientFrame::Status {
        ids: ids(&["m1", "m2", "m3"]),
    };
    rig.frame(ada, ask());
    let queued = Stage::Queued;
    let delivered = Stage::Delivered;
    assert_eq!(
        rig.states(ada),
        [
            accepted(1, 0),
            delivered.clone(),
            queued.clone(),
            accepted(1, 0),
            queued,
            Stage::Unknown
        ]
    );
    let bob = rig.v1("bob");
    rig.ack(bob, 1);
    rig.take(ada);
    rig.frame(ada, ask());
    let acked = Stage::Acked(None);
    assert_eq!(
        rig.states(ada),
        [
            accepted(1, 0),
            delivered.clone(),
            acked,
            accepted(1, 1),
            delivered,
            Stage::Unknown
        ]
    );
    rig.frame(cyd, ask());
    assert_eq!(
        rig.states(cyd),
        [Stage::Unknown, Stage::Unknown, Stage::Unknown]
    );
}

#[test]
fn receipts_are_not_kept_for_a_sender_that_is_away() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    rig.send(ada, "ada", "bob", "m1");
    rig.close(ada, true);
    rig.ack(bob, 1);
    let ada = rig.ext("ada");
    assert!(rig.states(ada).is_empty());
}
