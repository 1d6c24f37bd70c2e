//! Clients that do not answer, do not read, or do both at once.

use std::time::Duration;

use futures_util::StreamExt;
use peerbus_test_support::PATIENCE;
use peerbus_test_support::socket::{ack, registration};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use crate::support::{Broker, TOKEN, message};

#[tokio::test]
async fn a_client_that_answers_no_ping_is_given_up_and_one_that_does_is_not() {
    let broker = Broker::start_with(|options| {
        options.times.ping_every = Duration::from_millis(50);
        options.times.silence_max = Duration::from_millis(2_000);
    })
    .await;
    let mut alive = broker.join("alive").await;
    // Its WebSocket layer answers pings only while it is polled, which happens no more.
    let mut dead = broker.join("dead").await;
    // Only its pongs keep it, for longer than a silent one is kept.
    for _ in 0..60 {
        let next = timeout(PATIENCE, alive.ws.next()).await.expect("no ping");
        let next = next.expect("given up").expect("broken");
        assert!(next.is_ping(), "{next:?}");
    }
    broker.until_metric("peerbus_peers 1").await;
    assert_eq!(alive.peers().await, ["alive"]);
    // Past the WebSocket layer, which would answer the pings now and fail at that.
    let mut bytes = Vec::new();
    let read = timeout(PATIENCE, dead.ws.get_mut().read_to_end(&mut bytes)).await;
    read.expect("still open").unwrap();
    assert!(
        bytes.ends_with(b"\x0f\xa2no answer to ping"),
        "4002 and its text"
    );
}

#[tokio::test]
async fn a_client_that_does_not_read_slows_nobody_else() {
    let broker = Broker::start().await;
    let mut alice = broker.join("alice").await;
    let mut slow = broker.join_narrow("slow").await;
    let mut bob = broker.join("bob").await;
    // More than the window and the socket's buffers take.
    let count = 1_500;
    let body = "z".repeat(16 * 1_024);
    for n in 0..count {
        alice
            .send(message(
                &format!("s{n}"),
                "alice",
                "slow",
                format!("{n} {body}"),
            ))
            .await;
        alice
            .send(message(&format!("b{n}"), "alice", "bob", n))
            .await;
        let (key, got) = bob.delivery().await;
        assert_eq!(got, n);
        bob.send(ack(&key)).await;
    }
    // And it loses nothing by it.
    for n in 0..count {
        let (key, got) = slow.delivery().await;
        let (first, _) = got.as_str().unwrap().split_once(' ').unwrap();
        assert_eq!(first, n.to_string());
        slow.send(ack(&key)).await;
    }
}

#[tokio::test]
async fn a_client_may_write_without_reading_while_its_backlog_is_sent() {
    let broker = Broker::start().await;
    let mut alice = broker.join("alice").await;
    broker.join("bob").await.leave().await;
    let count = 1_000;
    let body = "z".repeat(16 * 1_024);
    for n in 0..count {
        alice
            .send(message(
                &format!("m{n}"),
                "alice",
                "bob",
                format!("{n} {body}"),
            ))
            .await;
    }
    alice.peers().await;

    let mut bob = broker.join_narrow("bob").await;
    // Far more than the socket's buffers hold, all of it while the broker has much to send.
    let unknown = ack(&"0".repeat(4_000));
    for n in 0..5_000 {
        bob.send(unknown.clone()).await;
        if n % 10 == 0 {
            // The answers must not land inside a delivery.
            bob.send_raw(Message::Ping(b"here".as_slice().into())).await;
        }
    }
    for n in 0..count {
        let (key, got) = bob.delivery().await;
        assert!(
            got.as_str().unwrap().starts_with(&format!("{n} ")),
            "{n} was due"
        );
        bob.send(ack(&key)).await;
    }
    assert_eq!(bob.peers().await, ["alice", "bob"]);
}

#[tokio::test]
async fn a_name_goes_to_its_owners_new_connection_while_the_old_one_hangs() {
    let broker = Broker::start().await;
    let mut alice = broker.join("alice").await;
    let mut hung = broker.join_narrow("bob").await;
    let body = "z".repeat(16 * 1_024);
    for n in 0..1_000 {
        alice
            .send(message(
                &format!("m{n}"),
                "alice",
                "bob",
                format!("{n} {body}"),
            ))
            .await;
    }
    alice.peers().await;
    let mut bob = broker.join("bob").await;
    let (_, got) = bob.delivery().await;
    assert!(
        got.as_str().unwrap().starts_with("0 "),
        "everything unacked comes again"
    );
    // The old connection is not left to linger although it never reads.
    broker.until_metric("peerbus_connections 2").await;
    let left = timeout(PATIENCE, async {
        while let Some(Ok(_)) = hung.ws.next().await {}
    });
    left.await.expect("the old connection is still open");
}

#[tokio::test]
async fn a_contested_name_stays_with_a_holder_that_answers_and_leaves_one_that_does_not() {
    let broker = Broker::tuned(|config| config.takeover_ms = 1_000).await;
    let register = |instance: &str| {
        let mut register = registration("bob", TOKEN);
        register["ext"] = json!(1);
        register["instance"] = json!(instance);
        register
    };
    let mut holder = broker.connect().await;
    holder.send(register("first")).await;
    assert_eq!(holder.next().await["names"], json!(["bob"]));

    let mut newcomer = broker.connect().await;
    newcomer.send(register("second")).await;
    let refused = tokio::select! {
        // Polled, so that it answers pings.
        next = holder.next() => panic!("the holder got {next}"),
        refused = newcomer.closed() => refused,
    };
    assert_eq!(refused.0, 1008);
    assert!(refused.1.starts_with("name in use"), "{}", refused.1);

    let mut newcomer = broker.connect().await;
    newcomer.send(register("second")).await;
    assert_eq!(newcomer.next().await["names"], json!(["bob"]));
    assert_eq!(holder.closed().await.0, 4000);
}

#[tokio::test]
async fn pongs_that_nobody_asked_for_do_not_reach_the_engine() {
    let broker = Broker::start().await;
    let mut alice = broker.join("alice").await;
    for _ in 0..100 {
        alice.send_raw(Message::Pong("holder".into())).await;
    }
    alice.peers().await;
    // The connection, its registration and its question.
    broker.until_metric("peerbus_inputs_total 3").await;
}
