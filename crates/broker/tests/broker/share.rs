//! What one sender may take of a recipient's window, and what is known of it after an end.

use peerbus_test_support::socket::{Socket, registration};
use serde_json::{Value, json};

use crate::support::{Broker, TOKEN, is_clean, message};

/// A client that speaks `ext`, greeted.
async fn join(broker: &Broker, name: &str) -> Socket {
    let mut client = broker.connect().await;
    let mut register = registration(name, TOKEN);
    register["ext"] = json!(1);
    client.send(register).await;
    assert_eq!(client.next().await["ext"], 1);
    client
}

/// Sends, and waits until it is accepted.
async fn say(from: &mut Socket, name: &str, id: &str, body: Value) {
    from.send(message(id, name, "bob", body)).await;
    loop {
        let frame = from.next().await;
        let receipts = frame["receipts"].as_array().unwrap();
        if receipts.iter().any(|r| r["state"] == "accepted") {
            return;
        }
    }
}

/// The ids of the next deliveries up to the one with this id, and whether they come again.
async fn until(client: &mut Socket, id: &str) -> Vec<(String, bool)> {
    let mut seen = Vec::new();
    loop {
        let frame = client.next().await;
        assert_eq!(frame["type"], "deliver", "{frame}");
        let found = frame["envelope"]["id"].as_str().unwrap().to_owned();
        let last = found == id;
        seen.push((found, frame["again"] == true));
        if last {
            return seen;
        }
    }
}

#[tokio::test]
async fn a_message_gets_past_a_flood_of_somebody_else() {
    let broker = Broker::start().await;
    let mut bob = join(&broker, "bob").await;
    let (mut eve, mut alice) = (join(&broker, "eve").await, join(&broker, "alice").await);
    for n in 0..300 {
        let quiet = json!({"text": "spam", "priority": "quiet"});
        say(&mut eve, "eve", &format!("e{n}"), quiet).await;
    }
    let now = json!({"text": "help", "priority": "now"});
    say(&mut alice, "alice", "a1", now).await;
    // Nothing is acked.
    assert_eq!(until(&mut bob, "a1").await.len(), 129);
}

#[tokio::test]
async fn a_message_gets_past_two_long_ones_of_somebody_else() {
    let broker = Broker::start().await;
    let mut bob = join(&broker, "bob").await;
    let (mut eve, mut alice) = (join(&broker, "eve").await, join(&broker, "alice").await);
    for id in ["e1", "e2"] {
        let quiet = json!({"text": "x".repeat(700_000), "priority": "quiet"});
        say(&mut eve, "eve", id, quiet).await;
    }
    say(&mut alice, "alice", "a1", json!({"priority": "now"})).await;
    let seen = until(&mut bob, "a1").await;
    assert_eq!(seen, [("e1".to_owned(), false), ("a1".to_owned(), false)]);
}

#[tokio::test]
async fn a_broker_that_was_stopped_knows_what_it_delivered() {
    let broker = Broker::start().await;
    let mut bob = join(&broker, "bob").await;
    let mut alice = join(&broker, "alice").await;
    say(&mut alice, "alice", "shown", json!(1)).await;
    until(&mut bob, "shown").await;
    let (report, dir) = broker.stop().await;
    assert!(is_clean(&report), "{report:?}");

    let broker = Broker::start_in(dir, |_| ()).await;
    let mut alice = join(&broker, "alice").await;
    say(&mut alice, "alice", "new", json!(2)).await;
    let mut bob = join(&broker, "bob").await;
    let seen = until(&mut bob, "new").await;
    assert_eq!(
        seen,
        [("shown".to_owned(), true), ("new".to_owned(), false)]
    );
}
