//! How long results are: clients cut long ones, or give their model the name of a file instead.

use peerbus_test_support::mcp::Client;
use peerbus_test_support::scripted::Broker;
use peerbus_wire::Stage;
use serde_json::{Value, json};

use super::greeted;

/// Calls a tool, whose result has to be short; gives its structured content.
async fn short(client: &mut Client, tool: &str, arguments: Value) -> Value {
    let result = client.call(tool, arguments).await;
    bounded(&result)
}

fn bounded(result: &Value) -> Value {
    let text = result["content"][0]["text"].as_str().unwrap();
    let along = result["content"][1]["text"].as_str().unwrap_or_default();
    let along = Value::from(along).to_string().len();
    assert!(text.len() + along <= 8_192, "{} {along}", text.len());
    result["structuredContent"].clone()
}

/// Waits until so many messages and notices wait, without looking at one.
async fn waiting(client: &mut Client, count: u64) {
    let mut remaining = Value::Null;
    for _ in 0..10_000 {
        let nothing = json!({ "ids": ["no-such-id"] });
        let result = client.call("bus.inbox", nothing).await;
        remaining = result["structuredContent"]["remaining"].clone();
        if remaining.as_u64() >= Some(count) {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{remaining} wait, and not {count}");
}

fn from(result: &Value, sender: &str) -> usize {
    let messages = result["messages"].as_array().unwrap().iter();
    messages.filter(|message| message["from"] == sender).count()
}

/// A text that takes more room escaped than it says, with as much of that around it.
fn large(text: &str, escaped: &str) -> String {
    let meta: serde_json::Map<_, _> = (0..4)
        .map(|n| (format!("k{n}"), escaped.repeat(500 / escaped.len()).into()))
        .collect();
    json!({ "text": text, "priority": "now", "meta": meta }).to_string()
}

#[tokio::test]
async fn a_list_has_room_for_everybody_whatever_one_sender_writes() {
    for escaped in ["\u{1}", "\"", "<", "\u{e000}", "@"] {
        for (tool, arguments) in [
            ("bus.inbox", json!({ "peek": true })),
            ("bus.inbox", json!({})),
            ("bus.inbox", json!({ "max": 50 })),
            ("bus.drain", json!({})),
        ] {
            let mut broker = Broker::start(true).await;
            let mut client = greeted(&broker).await;
            for n in 0..50 {
                let text = if n % 2 == 0 {
                    "hi".to_owned()
                } else {
                    escaped.repeat(3_000)
                };
                broker.deliver_from("eve", &large(&text, escaped));
            }
            broker.deliver_from("alice", "\"are you there?\"");
            waiting(&mut client, 51).await;
            let read = short(&mut client, tool, arguments).await;
            assert_eq!(from(&read, "alice"), 1, "{tool} {escaped:?}");
            assert!(from(&read, "eve") > 0, "{tool} {escaped:?}");
        }
    }
}

#[tokio::test]
async fn a_drain_gives_a_long_message_in_parts_and_owes_it_until_the_last() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    let text = "\"é\u{1}<\n".repeat(9_000);
    broker.deliver(&Value::from(text.as_str()).to_string());
    waiting(&mut client, 1).await;
    let mut read = String::new();
    while read.len() < text.len() {
        assert_eq!(broker.acks(), [], "{}", read.len());
        let drained = short(&mut client, "bus.drain", json!({})).await;
        let message = &drained["messages"][0];
        assert_eq!(message["offset"], read.chars().count(), "{drained}");
        assert_eq!(message["size"], text.chars().count());
        read.push_str(message["body"].as_str().unwrap());
        let more = message["next_offset"].is_number();
        assert_eq!(
            (more, drained["remaining"] == 1),
            (read.len() < text.len(), more)
        );
    }
    assert_eq!(read, text);
    short(&mut client, "bus.peers", json!({})).await;
    assert_eq!(broker.ack().await.0, "1");
}

#[tokio::test]
async fn a_long_answer_is_its_beginning_and_its_rest_is_read_in_the_inbox() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    let ask = json!({ "name": "bus.ask", "arguments": { "to": "bob", "body": "ready?" } });
    let call = client.ask("tools/call", ask).await;
    let question = broker.envelope().await.id;
    let text = format!("{} THE END", "x".repeat(60_000));
    broker.deliver(&json!({ "text": text, "reply_to": question.as_str() }).to_string());
    let answered = bounded(&client.answer(call).await["result"].take());
    let mut read = answered["answer"]["body"].as_str().unwrap().to_owned();
    assert!(read.len() > 5_000, "{answered}");
    assert!(
        answered["note"].as_str().unwrap().contains("`next_offset`"),
        "{answered}"
    );
    assert_eq!(answered["answer"]["next_offset"], read.len());
    while read.len() < text.len() {
        assert_eq!(broker.acks(), [], "{}", read.len());
        let arguments = json!({ "ids": ["m1"], "offset": read.len() });
        let result = short(&mut client, "bus.inbox", arguments).await;
        read.push_str(result["messages"][0]["text"].as_str().unwrap());
    }
    assert_eq!(read, text);
    short(&mut client, "bus.peers", json!({})).await;
    assert_eq!(broker.ack().await.0, "1");
}

#[tokio::test]
async fn notices_and_debts_have_room_and_the_rest_of_them_comes_with_the_next() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    let odd = "\u{e000}".repeat(400);
    for n in 0..16 {
        broker.request(&json!({ "text": format!("{n}{odd}") }).to_string());
    }
    waiting(&mut client, 16).await;
    short(&mut client, "bus.inbox", json!({})).await;
    for n in 1..=16 {
        let working = json!({ "msg_id": format!("m{n}"), "outcome": "working", "body": odd });
        client.call("bus.reply", working).await;
    }
    for n in 0..40 {
        let why = odd.clone();
        broker.receipt_of("bob", &format!("s{n}"), Stage::Dead { why });
    }
    broker.deliver(&Value::from(odd.repeat(40)).to_string());
    waiting(&mut client, 21).await;
    let (mut notices, mut shown) = (0, 0);
    while notices < 20 {
        let read = short(&mut client, "bus.inbox", json!({})).await;
        assert_eq!(read["owed"].as_array().unwrap().len(), 4, "{read}");
        let count = read["notices"].as_array().unwrap().len();
        assert!(count > 0, "{read}");
        (notices, shown) = (notices + count, shown + from(&read, "bob"));
    }
    assert!(shown > 0);
}

#[tokio::test]
async fn what_goes_along_is_bounded_as_it_is_written() {
    for escaped in ["@", " @", "\"", "\u{1}", "\n", "pb-0123456789abcdef "] {
        let mut broker = Broker::start(true).await;
        let mut client = greeted(&broker).await;
        broker.deliver(&Value::from(escaped.repeat(40_000 / escaped.len())).to_string());
        broker.deliver(&Value::from(escaped.repeat(8_000 / escaped.len())).to_string());
        for _ in 0..4 {
            broker.deliver(&large(&escaped.repeat(1_500 / escaped.len()), escaped));
        }
        waiting(&mut client, 6).await;
        let mut shown = 0;
        for n in 0..40 {
            // Each call names the long one: its next part goes, too.
            let result = client.call("bus.reply", json!({ "msg_id": "m1" })).await;
            bounded(&result);
            let along = result["content"][1]["text"].as_str().unwrap_or_default();
            assert!(along.len() <= 7_000, "{n} {escaped:?}: {}", along.len());
            shown += along.matches("[m").count();
        }
        assert!(shown >= 6, "{escaped:?} {shown}");
    }
}
