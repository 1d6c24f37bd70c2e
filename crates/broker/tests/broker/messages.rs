//! What v1 clients do with each other, and receipts.

use std::collections::BTreeSet;

use peerbus_test_support::socket::{Socket, ack, registration};
use serde_json::json;

use crate::support::{Broker, TOKEN, is_clean, message};

#[tokio::test]
async fn a_message_reaches_its_recipient_and_is_gone_once_acked() {
    let broker = Broker::start().await;
    let mut alice = broker.join("alice").await;
    let mut bob = broker.join("bob").await;
    assert_eq!(alice.peers().await, ["alice", "bob"]);

    alice
        .send(message("m1", "alice", "bob", json!({"text": "hi <b>"})))
        .await;
    let (key, body) = bob.delivery().await;
    assert_eq!(body, json!({"text": "hi <b>"}));
    bob.ack(&key).await;
    bob.leave().await;

    let mut bob = broker.join("bob").await;
    assert_eq!(
        bob.peers().await,
        ["alice", "bob"],
        "nothing is delivered again"
    );
    let (report, _dir) = broker.stop().await;
    assert!(is_clean(&report), "{report:?}");
}

#[tokio::test]
async fn what_was_not_acked_comes_again_in_order_even_after_a_restart() {
    let broker = Broker::start().await;
    let mut alice = broker.join("alice").await;
    let mut bob = broker.join("bob").await;
    for n in 1..=3 {
        alice
            .send(message(&format!("m{n}"), "alice", "bob", n))
            .await;
    }
    let mut keys = Vec::new();
    for n in 1..=3 {
        let (key, body) = bob.delivery().await;
        assert_eq!(body, n);
        keys.push(key);
    }
    bob.ack(&keys[1]).await;
    // The socket breaks, without a word.
    drop(bob);

    let mut bob = broker.join("bob").await;
    assert_eq!(bob.delivery().await, (keys[0].clone(), json!(1)));
    assert_eq!(bob.delivery().await, (keys[2].clone(), json!(3)));

    let (_, dir) = broker.stop().await;
    let broker = Broker::start_in(dir, |_| ()).await;
    let mut bob = broker.join("bob").await;
    assert_eq!(bob.delivery().await, (keys[0].clone(), json!(1)));
    assert_eq!(bob.delivery().await, (keys[2].clone(), json!(3)));
}

#[tokio::test]
async fn a_broadcast_reaches_everyone_else() {
    let broker = Broker::start().await;
    let mut alice = broker.join("alice").await;
    let mut others = Vec::new();
    for name in ["bob", "carol", "dave"] {
        let mut other = broker.connect().await;
        let mut register = registration(name, TOKEN);
        register["ext"] = 1.into();
        other.send(register).await;
        other.next().await;
        others.push(other);
    }
    let mut eve = broker.join("eve").await;
    alice.send(message("m1", "alice", "*", "all")).await;
    let mut keys = BTreeSet::new();
    for other in &mut others {
        let (key, body) = other.delivery().await;
        assert_eq!(body, "all");
        keys.insert(key);
    }
    assert_eq!(keys.len(), 1, "one frame, encoded once, for all");
    let of_v1 = eve.delivery().await;
    assert_eq!(of_v1, ("m1|eve".into(), json!("all")));
    assert_eq!(alice.peers().await.len(), 5, "and nothing for its sender");
}

#[tokio::test]
async fn the_unix_socket_carries_the_same_bus() {
    let broker = Broker::start().await;
    let mut alice = Socket::connect_unix(&broker.unix()).await.unwrap();
    alice.register("alice", TOKEN).await;
    let mut bob = broker.join("bob").await;
    alice.send(message("m1", "alice", "bob", "over")).await;
    assert_eq!(bob.delivery().await.1, "over");
    bob.send(message("m1", "bob", "alice", "back")).await;
    assert_eq!(alice.delivery().await.1, "back");
}

#[tokio::test]
async fn an_ack_on_a_quiet_bus_is_told_without_anything_else_happening() {
    // No deadline of the core wakes the engine either.
    let broker = Broker::tuned(|config| {
        config.handshake_ms = 3_600_000;
        config.exempt_ms = 3_600_000;
        config.sweep_ms = 3_600_000;
    })
    .await;
    let mut bob = broker.join("bob").await;
    let mut alice = broker.connect().await;
    let mut register = registration("alice", TOKEN);
    register["ext"] = json!(1);
    alice.send(register).await;
    alice.next().await;
    alice.send(message("m1", "alice", "bob", "hi")).await;
    let (key, _) = bob.delivery().await;
    bob.send(ack(&key)).await;
    let mut states = Vec::new();
    while !states.contains(&json!("acked")) {
        for receipt in alice.next().await["receipts"].as_array().unwrap() {
            states.push(receipt["state"].clone());
        }
    }
    assert_eq!(states[0], "accepted", "{states:?}");
}

#[tokio::test]
async fn an_ext_sender_is_told_the_fate_of_each_message() {
    let broker = Broker::start().await;
    let mut bob = broker.join("bob").await;
    let mut alice = broker.connect().await;
    let mut register = registration("alice", TOKEN);
    register["ext"] = json!(1);
    alice.send(register).await;
    let welcome = alice.next().await;
    assert_eq!(
        (&welcome["ext"], &welcome["names"]),
        (&json!(1), &json!(["alice"]))
    );

    // More than may be unanswered at once: answers make room for the next.
    for n in 0..600 {
        alice
            .send(message(&format!("m{n}"), "alice", "bob", n))
            .await;
        let (key, _) = bob.delivery().await;
        bob.ack(&key).await;
    }
    alice.send(message("m600", "alice", "nobody", "x")).await;
    let mut accepted = 0;
    let refused = loop {
        let frame = alice.next().await;
        let receipts = frame["receipts"].as_array().expect("receipts").clone();
        accepted += receipts.iter().filter(|r| r["state"] == "accepted").count();
        if let Some(refused) = receipts.into_iter().find(|r| r["state"] == "refused") {
            break refused;
        }
    };
    assert_eq!(accepted, 600);
    assert_eq!(refused["id"], "m600");
    assert!(
        refused["reason"].as_str().unwrap().contains("nobody"),
        "{refused}"
    );
}
