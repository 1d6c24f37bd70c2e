//! What shows that a client has the answers that it was given.

use std::time::Duration;

use peerbus_adapter::{How, Stage};
use peerbus_mcp::{AdapterOptions, Exit};
use peerbus_test_support::mcp::messages;
use peerbus_test_support::scripted::{Broker, Seen};
use peerbus_test_support::soon;
use serde_json::json;

use crate::{drain, greeted, start, start_with};

#[tokio::test]
async fn mail_is_acked_once_the_client_lives_on_after_its_answer() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
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
    assert_eq!(broker.acks(), [], "nothing shows it yet");
    client.lives().await;
    let path = || "drain".to_owned();
    let presented = Stage::Presented { path: path() };
    assert_eq!(broker.progress().await.1, presented, "the client took it");
    let again = client.call("bus.drain", json!({})).await;
    assert_eq!(again["structuredContent"]["messages"], json!([]));
    // Nothing shows that its model read it.
    let pushed = Some(How::Pushed { path: path() });
    assert_eq!(broker.ack().await, ("1".into(), pushed));
}

#[tokio::test]
async fn each_message_of_a_result_that_is_answered_is_seen() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    // How many have come when the drain is answered is open.
    let mut drained = Vec::new();
    for _ in 0..1_000 {
        broker.deliver("\"?\"");
        broker.deliver("\"?\"");
        let result = client.call("bus.drain", json!({})).await;
        drained = messages(&result);
        if drained.len() > 1 {
            break;
        }
    }
    assert!(drained.len() > 1, "two never came together");
    client.lives().await;
    for message in &drained {
        let id = message["id"].as_str().unwrap();
        let reply = json!({ "msg_id": id, "body": "yes" });
        client.call("bus.reply", reply).await;
        let of_it = |seen| match seen {
            Seen::Ack { key, how } if format!("m{key}") == id => Some(how),
            _ => None,
        };
        let how = broker.saw("the ack", of_it).await;
        let named = matches!(&how, Some(How::Seen { evidence, .. }) if evidence == "tool_call");
        assert!(named, "{how:?}");
    }
}

#[tokio::test]
async fn mail_whose_answer_is_stuck_in_the_pipe_is_not_acked() {
    let mut broker = Broker::start(true).await;
    // The adapter can write a little ahead of what the client reads, not a whole answer.
    let (mut client, adapter) = start_with(&broker, AdapterOptions::default(), 64);
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
    assert_eq!(soon(adapter).await.unwrap(), Exit::OutputClosed);
    let end = |seen| {
        assert!(!matches!(seen, Seen::Ack { .. }), "{seen:?}");
        matches!(seen, Seen::Left).then_some(())
    };
    broker.saw("end of the connection", end).await;
}

#[tokio::test]
async fn a_cancelled_drain_gives_its_mail_to_the_next_one() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
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
        let messages = messages(&result);
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
        let (mut client, adapter) = start(&broker);
        client.greet("some-bot").await;
        broker.registered().await;
        broker.deliver("\"hello\"");
        drain(&mut client).await;
        let ping = client.hear_any().await;
        assert_eq!(ping["method"], "ping", "{ping}");
        if answers {
            let pong = json!({ "jsonrpc": "2.0", "id": ping["id"], "result": {} });
            client.say(&pong).await;
            // Its library answers that, whatever it made of the line before.
            let took = broker.progress().await.1;
            assert!(matches!(took, Stage::Pushed { .. }), "{took:?}");
            // An answer that nothing hangs on asks for no sign.
            client.call("bus.drain", json!({})).await;
            let took = broker.progress().await.1;
            assert!(matches!(took, Stage::Presented { .. }), "{took:?}");
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
            assert!(
                !matches!(seen, Seen::Ack { .. }),
                "nobody is known to have seen it: {seen:?}"
            );
            matches!(seen, Seen::Left).then_some(())
        };
        broker.saw("end of the connection", end).await;
    }
}
