//! Conversation through the tools: reply, ask, status, priority.

use peerbus_adapter::How;
use peerbus_test_support::mcp::{Client, messages};
use peerbus_test_support::scripted::Broker;
use serde_json::{Value, json};

use crate::{drain, greeted};

/// The body that the signature covers.
pub(crate) async fn body(broker: &mut Broker) -> Value {
    let carried: Value = serde_json::from_str(&broker.envelope().await.text).unwrap();
    carried["body"].clone()
}

/// What a failed call says.
pub(crate) fn sentence(result: &Value) -> &str {
    assert_eq!(result["isError"], true, "{result}");
    result["content"][0]["text"].as_str().unwrap()
}

/// The messages that are drained, once there are some.
async fn drained(client: &mut Client) -> Vec<Value> {
    messages(&drain(client).await)
}

#[tokio::test]
async fn what_is_said_of_a_conversation_is_in_the_signed_body() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    let send = json!({
        "to": "bob", "body": "hi", "priority": "quiet", "thread": "t1", "reply_to": "elsewhere"
    });
    client.call("bus.send", send).await;
    assert_eq!(
        body(&mut broker).await,
        json!({
            "text": "hi", "reply_to": "elsewhere", "thread": "t1", "priority": "quiet", "hops": 1
        })
    );
    // The argument wins over the body.
    let send = json!({ "to": "bob", "body": { "n": 1, "priority": "quiet" }, "priority": "next" });
    client.call("bus.send", send).await;
    assert_eq!(body(&mut broker).await, json!({ "n": 1 }));
    let all = json!({ "body": [1], "priority": "now" });
    client.call("bus.broadcast", all).await;
    assert_eq!(
        body(&mut broker).await,
        json!({ "content": [1], "priority": "now" })
    );
}

#[tokio::test]
async fn arguments_that_make_no_sense_are_refused_with_a_sentence() {
    let broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    for (tool, arguments, expected) in [
        (
            "bus.send",
            json!({ "to": "bob", "body": "x", "priority": "urgent" }),
            "priority must be now, next or quiet, got \"urgent\"",
        ),
        (
            "bus.broadcast",
            json!({ "body": "x", "priority": 1 }),
            "priority must be a string",
        ),
        (
            "bus.send",
            json!({ "to": "bob", "body": "x", "thread": "a b" }),
            "thread has not the form of an id",
        ),
        ("bus.reply", json!({ "body": "x" }), "msg_id is missing"),
        (
            "bus.reply",
            json!({ "msg_id": "never-seen", "body": "x" }),
            "use the bus send tool with `to`",
        ),
        (
            "bus.ask",
            json!({ "to": "bob", "body": "x", "timeout_s": 900 }),
            "timeout_s must be at most 600, got 900",
        ),
        (
            "bus.ask",
            json!({ "to": "nobody", "body": "x" }),
            "nobody holds or has held that name",
        ),
        (
            "bus.ask",
            json!({ "to": "bob", "body": "x", "timeout": 1 }),
            "no argument \"timeout\"; did you mean timeout_s?",
        ),
        (
            "bus.send",
            json!({ "to": "bob", "body": "x", "zzz\n": 1, "_meta": {} }),
            "no argument \"zzz\\u000a\". It has: body, one, priority, reply_to, thread, to",
        ),
        ("bus.status", json!({}), "which message"),
        (
            "bus.status",
            json!({ "ids": 7 }),
            "ids must be a list of strings, got a number",
        ),
        (
            "bus.send",
            json!({ "to": "bob", "body": { "approval": { "id": "abcde", "preview": "ls" } } }),
            "how this session's adapter asks",
        ),
        (
            "bus.ask",
            json!({ "to": "bob", "body": "{\"n\":1,\"approv\\u0061l_resolved\":{}}" }),
            "`approval_resolved`",
        ),
        ("bus.rename", json!({ "name": "a b" }), "not renamed"),
    ] {
        let result = client.call(tool, arguments).await;
        assert!(sentence(&result).contains(expected), "{tool}: {result}");
    }
}

#[tokio::test]
async fn a_reply_goes_to_the_sender_in_its_thread_and_counts_as_having_seen() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    broker.deliver(r#"{"text":"how are you?","thread":"talk","hops":2}"#);
    let messages = drained(&mut client).await;
    assert_eq!(messages[0]["id"], "m1");
    let reply = json!({ "msg_id": "m1", "body": "well", "priority": "quiet" });
    let result = client.call("bus.reply", reply).await;
    assert_eq!(result["structuredContent"]["to"], "bob", "{result}");
    let (key, how) = broker.ack().await;
    assert_eq!(key, "1");
    assert!(matches!(how, Some(How::Seen { evidence, .. }) if evidence == "tool_call"));
    assert_eq!(
        body(&mut broker).await,
        json!({
            "text": "well", "reply_to": "m1", "thread": "talk", "priority": "quiet", "hops": 3
        })
    );
    // One that arrived and was not read yet: naming it shows that it was seen.
    broker.deliver(r#""second""#);
    let shown = async {
        for _ in 0..10_000 {
            let result = client.call("bus.peers", json!({})).await;
            if result.to_string().contains("[m2]") {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("the second message never arrived");
    };
    shown.await;
    let reply = json!({ "msg_id": "m2", "body": "again" });
    let result = client.call("bus.reply", reply).await;
    assert_eq!(result["isError"], false, "{result}");
    let (key, how) = broker.ack().await;
    assert_eq!(key, "2");
    assert!(matches!(how, Some(How::Seen { evidence, .. }) if evidence == "tool_call"));
}

#[tokio::test]
async fn an_answer_is_the_result_of_the_question_and_nothing_else() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    let ask = json!({ "name": "bus.ask", "arguments": { "to": "bob", "body": "ready?" },
        "_meta": { "progressToken": "p1" } });
    let call = client.ask("tools/call", ask).await;
    let question = broker.envelope().await.id;
    broker.deliver(r#""something else""#);
    broker.deliver(&format!(
        r#"{{"text":"yes, 1.50 <b>","reply_to":"{question}","thread":"{question}","hops":1}}"#
    ));
    let answer = client.answer(call).await["result"].take();
    let told = &answer["structuredContent"];
    assert_eq!(
        (&told["answered"], &told["id"]),
        (&json!(true), &json!(question.as_str()))
    );
    assert_eq!(told["answer"]["from"], "bob", "{answer}");
    assert_eq!(told["answer"]["body"]["text"], "yes, 1.50 <b>");
    let shown = answer["content"][0]["text"].as_str().unwrap();
    assert!(shown.contains(r"yes, 1.50 \u003cb\u003e"), "{shown}");
    client.call("bus.ack", json!({ "ids": ["m2"] })).await;
    let (key, how) = broker.ack().await;
    assert_eq!(key, "2", "the answer is acked, not what else came");
    assert!(
        matches!(how, Some(How::Seen { path, evidence }) if path == "ask" && evidence == "tool_call")
    );
    let unseen = told["unseen"].as_str().unwrap();
    assert!(unseen.contains("\"something else\" [m1]"), "{unseen}");
}

#[tokio::test]
async fn a_question_that_waits_tells_how_far_it_is_and_ends_without_an_error() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    let ask = json!({ "name": "bus.ask",
        "arguments": { "to": "bob", "body": "ready?", "timeout_s": 1 },
        "_meta": { "progressToken": "p1" } });
    let call = client.ask("tools/call", ask).await;
    let question = broker.envelope().await.id;
    let answer = client.answer(call).await["result"].take();
    assert_eq!(answer["isError"], false, "{answer}");
    let told = &answer["structuredContent"];
    assert_eq!(told["answered"], false, "{answer}");
    let note = told["note"].as_str().unwrap();
    assert!(
        note.starts_with("no answer within 1 s: bob got it"),
        "{note}"
    );
    assert!(note.contains("comes as a message"), "{note}");
    assert_eq!(told["steps"][1]["state"], "delivered", "{answer}");
    let progress = &client.pushed[0];
    assert_eq!(progress["method"], "notifications/progress");
    assert_eq!(progress["params"]["progressToken"], "p1");
    assert!(
        progress["params"]["message"]
            .as_str()
            .unwrap()
            .contains("bob"),
        "{progress}"
    );
    // The late answer is a message as any other.
    broker.deliver(&format!(r#"{{"text":"late","reply_to":"{question}"}}"#));
    let messages = drained(&mut client).await;
    assert_eq!(messages[0]["body"]["text"], "late");
}

#[tokio::test]
async fn after_a_cancelled_question_the_answer_is_an_ordinary_message() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    let ask = json!({ "name": "bus.ask", "arguments": { "to": "bob", "body": "ready?" } });
    let call = client.ask("tools/call", ask).await;
    let question = broker.envelope().await.id;
    client
        .notify("notifications/cancelled", json!({ "requestId": call }))
        .await;
    // An answer to a later request: the cancellation was taken before it.
    client.call("bus.peers", json!({})).await;
    broker.deliver(&format!(r#"{{"text":"yes","reply_to":"{question}"}}"#));
    let messages = drained(&mut client).await;
    assert_eq!(messages[0]["body"]["text"], "yes");
    assert!(client.pushed.is_empty(), "{:?}", client.pushed);
}

#[tokio::test]
async fn only_the_peer_that_was_asked_can_answer() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    let ask = json!({ "name": "bus.ask", "arguments": { "to": "bob", "body": "ready?" } });
    let call = client.ask("tools/call", ask).await;
    let question = broker.envelope().await.id;
    broker.deliver_from(
        "mallory",
        &format!(r#"{{"text":"no","reply_to":"{question}"}}"#),
    );
    let messages = drained(&mut client).await;
    assert_eq!(messages[0]["from"], "mallory");
    broker.deliver(&format!(r#"{{"text":"yes","reply_to":"{question}"}}"#));
    let answer = client.answer(call).await;
    let told = &answer["result"]["structuredContent"]["answer"];
    assert_eq!(
        (&told["from"], &told["body"]["text"]),
        (&json!("bob"), &json!("yes"))
    );
}

#[tokio::test]
async fn behind_a_v1_broker_a_question_works_and_its_way_is_not_known() {
    let mut broker = Broker::start(false).await;
    let mut client = greeted(&broker).await;
    let ask =
        json!({ "name": "bus.ask", "arguments": { "to": "bob", "body": "a", "timeout_s": 1 } });
    let call = client.ask("tools/call", ask).await;
    broker.envelope().await;
    let answer = client.answer(call).await["result"].take();
    let note = answer["structuredContent"]["note"].as_str().unwrap();
    assert!(
        note.contains("a broker of peerbus v1, which tells nothing more"),
        "{note}"
    );
    let ask = json!({ "name": "bus.ask", "arguments": { "to": "bob", "body": "b" } });
    let call = client.ask("tools/call", ask).await;
    let question = broker.envelope().await.id;
    broker.deliver(&format!(r#"{{"text":"yes","reply_to":"{question}"}}"#));
    let answer = client.answer(call).await["result"].take();
    assert_eq!(answer["structuredContent"]["answered"], true, "{answer}");
    let status = client
        .call("bus.status", json!({ "id": question.as_str() }))
        .await;
    assert!(sentence(&status).contains("v1"), "{status}");
}

#[tokio::test]
async fn a_status_is_the_steps_and_a_sentence() {
    let broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    let result = client
        .call("bus.status", json!({ "id": "q1", "ids": ["q2"] }))
        .await;
    let messages = messages(&result);
    assert_eq!(messages.len(), 2, "{result}");
    assert_eq!(messages[0]["id"], "q1");
    let states: Vec<_> = messages[0]["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| &s["state"])
        .collect();
    assert_eq!(states, ["accepted", "delivered"]);
    assert_eq!(messages[0]["steps"][0]["at"], "2025-11-22T00:00:00.000Z");
    assert!(messages[0]["note"].as_str().unwrap().contains("bob got it"));
}

#[tokio::test]
async fn a_status_says_that_the_peer_waits_for_its_user() {
    let broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    for (activity, waits) in [("busy", false), ("waiting", true)] {
        broker.set_presence("bob", &json!({ "activity": activity }));
        let result = client.call("bus.status", json!({ "id": "q1" })).await;
        let note = &result["structuredContent"]["messages"][0]["note"];
        let note = note.as_str().unwrap();
        assert!(note.starts_with("bob's adapter got it"), "{note}");
        assert_eq!(note.contains("waits for its user"), waits, "{note}");
    }
}

#[tokio::test]
async fn two_that_ask_each_other_do_not_wait_until_the_end() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    let ask = json!({ "name": "bus.ask",
        "arguments": { "to": "bob", "body": "ready?", "timeout_s": 600 } });
    let call = client.ask("tools/call", ask).await;
    broker.envelope().await;
    broker.deliver_from("zoe", r#""not from bob""#);
    broker.deliver(r#""are YOU ready?""#);
    let answer = client.answer(call).await["result"].take();
    let told = &answer["structuredContent"];
    assert_eq!(told["answered"], false, "{answer}");
    let note = told["note"].as_str().unwrap();
    assert!(note.starts_with("bob wrote m2 meanwhile"), "{note}");
    let unseen = told["unseen"].as_str().unwrap();
    assert!(unseen.contains("are YOU ready?"), "{unseen}");
}
