//! What shows that a client has the answers that it was given.

mod support;

use std::time::Duration;

use peerbus_adapter::{How, Stage};
use peerbus_mcp::{Exit, Options, run_generic_over};
use serde_json::{Value, json};
use support::{Broker, Client, PATIENCE, Seen, client};
use tokio::task::JoinHandle;

/// An adapter that is running, with its client.
fn start(broker: &Broker, room: usize) -> (Client, JoinHandle<Exit>) {
    let (client, input, output) = client(room);
    let adapter = run_generic_over(broker.bus(), Options::default(), input, output);
    (client, tokio::spawn(adapter))
}

/// Drains until something comes.
async fn drain(client: &mut Client) -> Value {
    for _ in 0..10_000 {
        let result = client.call("bus.drain", json!({})).await;
        if result["structuredContent"]["messages"] != json!([]) {
            return result;
        }
        tokio::task::yield_now().await;
    }
    panic!("nothing was ever drained");
}

fn is_ack(seen: &Seen) -> bool {
    matches!(seen, Seen::Ack { .. })
}

#[tokio::test]
async fn mail_is_acked_once_the_client_lives_on_after_its_answer() {
    let mut broker = Broker::start(true).await;
    let (mut client, _adapter) = start(&broker, 1 << 20);
    client.greet("some-bot").await;
    broker.registered().await;
    broker.deliver(r#"{"big":123456789012345678901,"t":"</x>\n"}"#);
    let result = drain(&mut client).await;
    let message = &result["structuredContent"]["messages"][0];
    assert_eq!(
        (&message["from"], &message["id"]),
        (&json!("bob"), &json!("m1"))
    );
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains(r#""body":{"big":123456789012345678901,"t":"\u003c/x\u003e\n"}"#),
        "{text}"
    );
    assert!(text.contains("untrusted"), "{text}");
    assert!(!broker.noticed().iter().any(is_ack), "nothing shows it yet");
    client.lives().await;
    let path = || "drain".to_owned();
    let presented = Stage::Presented { path: path() };
    assert_eq!(step(&mut broker).await, presented, "the client took it");
    let again = client.call("bus.drain", json!({})).await;
    assert_eq!(again["structuredContent"]["messages"], json!([]));
    // Nothing shows that its model read it.
    let pushed = Some(How::Pushed { path: path() });
    assert_eq!(broker.ack().await, ("1".into(), pushed));
}

/// The next step that the sender of a message is told.
async fn step(broker: &mut Broker) -> Stage {
    let step = |seen| match seen {
        Seen::Progress { stage, .. } => Some(stage),
        _ => None,
    };
    broker.saw("a step", step).await
}

#[tokio::test]
async fn mail_whose_answer_is_stuck_in_the_pipe_is_not_acked() {
    let mut broker = Broker::start(true).await;
    // The adapter can write a little ahead of what the client reads, not a whole answer.
    let (mut client, adapter) = start(&broker, 64);
    client.greet("some-bot").await;
    broker.registered().await;
    broker.deliver(&format!("\"{}\"", "x".repeat(50_000)));
    loop {
        client
            .ask("tools/call", json!({ "name": "bus.drain" }))
            .await;
        // An empty answer is read whole; the one with mail only far enough to know it.
        let mut head = vec![0; 4_000];
        let mut read = 0;
        while read < head.len() && !head[..read].contains(&b'\n') {
            read += client.read_some(&mut head[read..]).await;
        }
        if !head[..read].contains(&b'\n') {
            break;
        }
    }
    drop(client);
    assert_eq!(
        tokio::time::timeout(PATIENCE, adapter)
            .await
            .unwrap()
            .unwrap(),
        Exit::OutputClosed
    );
    let end = |seen| {
        assert!(!matches!(seen, Seen::Ack { .. }), "{seen:?}");
        matches!(seen, Seen::Left).then_some(())
    };
    broker.saw("end of the connection", end).await;
}

#[tokio::test]
async fn a_cancelled_drain_gives_its_mail_to_the_next_one() {
    let mut broker = Broker::start(true).await;
    let (mut client, _adapter) = start(&broker, 1 << 20);
    client.greet("some-bot").await;
    broker.registered().await;
    broker.deliver("1");
    broker.deliver("2");
    // The cancellation follows the call at once; it may find it answered or not.
    let mut bodies = Vec::new();
    for _ in 0..10_000 {
        let id = client
            .ask("tools/call", json!({ "name": "bus.drain" }))
            .await;
        client
            .notify("notifications/cancelled", json!({ "requestId": id }))
            .await;
        let result = client.call("bus.drain", json!({})).await;
        let messages = result["structuredContent"]["messages"]
            .as_array()
            .unwrap()
            .clone();
        bodies.extend(messages.iter().map(|message| message["body"].clone()));
        if bodies.len() >= 2 {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(
        bodies,
        [json!(1), json!(2)],
        "in order, and each once in an answer that counts"
    );
}

#[tokio::test]
async fn a_client_that_says_nothing_more_is_asked_once_whether_it_lives() {
    for answers in [true, false] {
        let mut broker = Broker::start(true).await;
        let (mut client, adapter) = start(&broker, 1 << 20);
        client.greet("some-bot").await;
        broker.registered().await;
        broker.deliver("\"hello\"");
        drain(&mut client).await;
        let ping = client.hear_any().await;
        assert_eq!(ping["method"], "ping", "{ping}");
        if answers {
            let pong = json!({ "jsonrpc": "2.0", "id": ping["id"], "result": {} });
            client.say(&pong).await;
            let took = step(&mut broker).await;
            assert!(matches!(took, Stage::Presented { .. }), "{took:?}");
            // An answer that nothing hangs on asks for no sign.
            client.call("bus.drain", json!({})).await;
            assert_eq!(broker.ack().await.0, "1");
        }
        for _ in 0..10 {
            tokio::time::pause();
            tokio::time::advance(Duration::from_secs(2)).await;
            tokio::time::resume();
            tokio::task::yield_now().await;
        }
        client.hang_up();
        let rest = client.rest().await;
        assert_eq!(rest, "", "it is not asked again");
        assert_eq!(adapter.await.unwrap(), Exit::InputClosed);
        let end = |seen| {
            assert!(!is_ack(&seen), "nobody is known to have seen it: {seen:?}");
            matches!(seen, Seen::Left).then_some(())
        };
        broker.saw("end of the connection", end).await;
    }
}
