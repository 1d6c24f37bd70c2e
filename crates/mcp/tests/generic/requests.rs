//! Requests through the tools: asked, worked at, ended, taken back.

use peerbus_adapter::Stage;
use peerbus_test_support::mcp::{Client, messages};
use peerbus_test_support::scripted::{Broker, Seen};
use peerbus_wire::MessageId;
use serde_json::{Value, json};

use crate::conversation::{body, sentence};
use crate::{drain, greeted};

/// The note of a result.
fn note(result: &Value) -> &str {
    assert_eq!(result["isError"], false, "{result}");
    let note = &result["structuredContent"]["note"];
    note.as_str().unwrap_or_else(|| panic!("{result}"))
}

/// A request of bob's that the agent has drained. Gives its id.
async fn asked(broker: &mut Broker, client: &mut Client) -> String {
    broker.request(r#""are the tests green?""#);
    let drained = messages(&drain(client).await);
    let wants = drained[0]["wants"].as_str().unwrap_or_default();
    assert!(
        wants.starts_with("a request, which wants a result until"),
        "{drained:?}"
    );
    drained[0]["id"].as_str().unwrap().to_owned()
}

/// What the inbox says that this session owes.
async fn owed(client: &mut Client) -> Vec<Value> {
    let listed = client.call("bus.inbox", json!({ "peek": true })).await;
    let owed = listed["structuredContent"]["owed"].as_array();
    owed.cloned().unwrap_or_default()
}

#[tokio::test]
async fn a_request_says_so_and_its_answer_comes_as_a_message_to_one_who_does_not_wait() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    for (within, within_ms) in [(json!({}), 3_600_000), (json!({ "within_s": 60 }), 60_000)] {
        let mut ask = json!({ "to": "bob", "body": "ready?", "timeout_s": 0 });
        ask.as_object_mut()
            .unwrap()
            .extend(within.as_object().unwrap().clone());
        let result = client.call("bus.ask", ask).await;
        let told = note(&result);
        assert!(told.starts_with("not waited for: bob got it"), "{told}");
        assert!(told.contains("stays owed until 20"), "{told}");
        assert_eq!(result["structuredContent"]["answered"], false);
        let sent = broker.envelope().await;
        assert_eq!(sent.within_ms, Some(within_ms), "the broker reads no body");
        let sent: Value = serde_json::from_str(&sent.text).unwrap();
        let said = &sent["body"];
        let said = (&said["text"], &said["wants"], &said["within_ms"]);
        assert_eq!(
            said,
            (&json!("ready?"), &json!("result"), &json!(within_ms))
        );
        let answer = json!({ "text": "yes", "reply_to": sent["id"] });
        broker.deliver(&answer.to_string());
        let answer = messages(&drain(&mut client).await);
        assert_eq!(answer[0]["body"]["reply_to"], sent["id"]);
    }
}

#[tokio::test]
async fn a_question_that_has_no_result_ends_at_once_and_says_why() {
    let why = || "not my repository".to_owned();
    let reply = || MessageId::parse("a1").unwrap();
    for (stage, says) in [
        (
            Stage::Declined { why: why() },
            "no answer will come: it was declined",
        ),
        (
            Stage::Dead { why: why() },
            "no answer will come: it was rejected",
        ),
        (
            Stage::Unanswered { why: why() },
            "it has no result, and none is waited for: not my repository. An answer that comes all the same",
        ),
        (Stage::Withdrawn, "it was taken back"),
        (
            Stage::Done { reply: reply() },
            "message a1 is the result. It comes as a message, unless its signature does not hold here; where it found no room",
        ),
    ] {
        let mut broker = Broker::start(true).await;
        let mut client = greeted(&broker).await;
        let ask = json!({ "name": "bus.ask",
            "arguments": { "to": "bob", "body": "ready?", "timeout_s": 600 } });
        let call = client.ask("tools/call", ask).await;
        let question = broker.envelope().await.id;
        broker.set_stages(vec![stage.clone()]);
        broker.receipt(question.as_str(), stage);
        let answer = client.answer(call).await["result"].take();
        assert_eq!(answer["structuredContent"]["answered"], false, "{answer}");
        assert!(note(&answer).contains(says), "{answer}");
    }
}

#[tokio::test]
async fn an_answer_that_says_so_is_a_failure() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    let ask = json!({ "name": "bus.ask", "arguments": { "to": "bob", "body": "ready?" } });
    let call = client.ask("tools/call", ask).await;
    let question = broker.envelope().await.id;
    let reply = MessageId::parse("m1").unwrap();
    broker.set_stages(vec![Stage::Failed { reply }]);
    broker.deliver(&format!(
        r#"{{"text":"no compiler","reply_to":"{question}","outcome":"failed"}}"#
    ));
    let answer = client.answer(call).await["result"].take();
    assert_eq!(answer["structuredContent"]["answered"], true, "{answer}");
    assert!(
        note(&answer).starts_with("failed, as the peer says"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_question_back_is_no_answer() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    let ask = json!({ "name": "bus.ask", "arguments": { "to": "bob", "body": "deploy it" } });
    let call = client.ask("tools/call", ask).await;
    let question = broker.envelope().await.id;
    broker.request(&format!(r#"{{"text":"where?","reply_to":"{question}"}}"#));
    let answer = client.answer(call).await["result"].take();
    assert!(note(&answer).starts_with("asked back"), "{answer}");
    let told = &answer["structuredContent"];
    assert_eq!(told["answered"], false, "{answer}");
    assert_eq!(told["answer"]["body"]["text"], "where?", "{answer}");
}

#[tokio::test]
async fn work_at_a_request_that_was_only_listed_is_told_to_nobody() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    broker.request(r#""review it""#);
    let id = loop {
        let listed = client.call("bus.inbox", json!({ "peek": true })).await;
        if let Some(message) = messages(&listed).first() {
            break message["id"].clone();
        }
        tokio::task::yield_now().await;
    };
    let works = json!({ "msg_id": id, "from": "bob", "outcome": "working", "body": "x" });
    let result = client.call("bus.reply", works).await;
    assert!(sentence(&result).contains("not read all of"), "{result}");
}

#[tokio::test]
async fn of_a_group_that_one_answers_that_has_it_and_no_other() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    let ask = json!({ "name": "bus.ask", "arguments": { "to": "#shop", "body": "ready?" } });
    let call = client.ask("tools/call", ask).await;
    let question = broker.envelope().await.id;
    let answer = format!(r#"{{"text":"yes","reply_to":"{question}"}}"#);
    broker.deliver_from("eve", &answer);
    broker.deliver_from("carol", &answer);
    let reply = MessageId::parse("m2").unwrap();
    broker.receipt_of("carol", question.as_str(), Stage::Done { reply });
    let answer = client.answer(call).await["result"].take();
    let unseen = answer["structuredContent"]["unseen"].as_str().unwrap();
    assert!(unseen.contains("📨 eve: \"yes\""), "{unseen}");
    assert_eq!(
        answer["structuredContent"]["answer"]["from"], "carol",
        "{answer}"
    );
}

#[tokio::test]
async fn what_waits_for_its_user_is_not_said_to_answer_soon() {
    let broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    broker.set_presence("bob", &json!({ "activity": "waiting" }));
    broker.set_stages(vec![Stage::Owed]);
    let ask = json!({ "to": "bob", "body": "ready?", "timeout_s": 0 });
    let result = client.call("bus.ask", ask).await;
    assert!(
        note(&result).contains("bob acked it and owes an answer"),
        "{result}"
    );
    assert!(note(&result).contains("waits for its user"), "{result}");
}

#[tokio::test]
async fn a_request_is_worked_at_and_then_declined() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    let id = asked(&mut broker, &mut client).await;
    let tell = |outcome, body| json!({ "msg_id": id, "outcome": outcome, "body": body });
    let result = client
        .call("bus.reply", tell("working", "half \"way\""))
        .await;
    assert!(
        note(&result).contains("you still owe the answer"),
        "{result}"
    );
    assert_eq!(
        result["structuredContent"].get("id"),
        None,
        "no message left"
    );
    let working = |seen| match seen {
        Seen::Progress {
            stage: Stage::Working { said },
            ..
        } => Some(said),
        Seen::Envelope(sent) => panic!("a message left: {sent:?}"),
        _ => None,
    };
    assert_eq!(broker.saw("word of work", working).await, "half \"way\"");
    let debts = owed(&mut client).await;
    assert_eq!(
        (&debts[0]["from"], &debts[0]["id"], &debts[0]["text"]),
        (&json!("bob"), &json!(id), &json!("are the tests green?"))
    );
    assert_eq!(debts[0]["working"], "half \"way\"");
    let result = client.call("bus.reply", tell("declined", "not mine")).await;
    assert!(note(&result).contains("you owe nothing for it"), "{result}");
    let declined = |seen| match seen {
        Seen::Reject(key) => Some(key),
        Seen::Envelope(sent) => panic!("a message left: {sent:?}"),
        _ => None,
    };
    assert_eq!(broker.saw("its end", declined).await, "1");
    assert_eq!(owed(&mut client).await, [Value::Null; 0]);
    let again = client.call("bus.reply", tell("working", "x")).await;
    assert!(
        sentence(&again).contains("no request that you owe"),
        "{again}"
    );
}

#[tokio::test]
async fn a_reply_ends_a_request_and_a_question_back_does_not() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    for (tool, arguments, failed, ends) in [
        ("bus.reply", json!({ "body": "yes" }), false, true),
        (
            "bus.reply",
            json!({ "body": "no compiler", "outcome": "failed" }),
            true,
            true,
        ),
        (
            "bus.send",
            json!({ "to": "bob", "body": "yes" }),
            false,
            true,
        ),
        (
            "bus.ask",
            json!({ "to": "bob", "body": "which?", "timeout_s": 0 }),
            false,
            false,
        ),
    ] {
        let id = asked(&mut broker, &mut client).await;
        let mut call = arguments;
        let names = if tool == "bus.reply" {
            "msg_id"
        } else {
            "reply_to"
        };
        call[names] = json!(id);
        let result = client.call(tool, call).await;
        assert_eq!(result["isError"], false, "{result}");
        let sent = body(&mut broker).await;
        assert_eq!(sent["reply_to"], json!(id), "{sent}");
        let outcome = failed.then(|| json!("failed"));
        assert_eq!(sent.get("outcome"), outcome.as_ref(), "{sent}");
        assert_eq!(owed(&mut client).await.is_empty(), ends, "{tool}");
    }
}

#[tokio::test]
async fn a_message_that_is_no_request_cannot_be_worked_at() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    broker.deliver(r#""hello""#);
    let id = messages(&drain(&mut client).await)[0]["id"].take();
    for outcome in ["working", "declined"] {
        let tell = json!({ "msg_id": id, "outcome": outcome, "body": "x" });
        let result = client.call("bus.reply", tell).await;
        let why = sentence(&result);
        assert!(why.starts_with("nobody was told"), "{why}");
        assert!(why.contains("leave `outcome` away"), "{why}");
    }
    let odd = json!({ "msg_id": id, "outcome": "finished", "body": "x" });
    let odd = client.call("bus.reply", odd).await;
    let says = "outcome must be done, failed, working or declined, got \"finished\"";
    assert!(sentence(&odd).contains(says), "{odd}");
    let failed = json!({ "msg_id": id, "outcome": "failed", "body": "x" });
    assert!(note(&client.call("bus.reply", failed).await).contains("accepted"));
    assert_eq!(body(&mut broker).await["outcome"], "failed");
}

#[tokio::test]
async fn a_request_is_taken_back_by_its_id_alone() {
    let mut broker = Broker::start(true).await;
    let mut client = greeted(&broker).await;
    let why = || "x".to_owned();
    for (stage, says) in [
        (Stage::Withdrawn, "taken back: it was taken back"),
        (
            Stage::Declined { why: why() },
            "not taken back, since it has ended before: it was declined",
        ),
        (
            Stage::Acked(None),
            "nothing was taken back, q1 is no open request of yours: bob acked it",
        ),
        (
            Stage::Unknown,
            "nothing was taken back, q1 is no open request of yours: the broker knows no message",
        ),
    ] {
        broker.set_stages(vec![stage]);
        let result = client.call("bus.ask", json!({ "cancel": "q1" })).await;
        assert!(note(&result).starts_with(says), "{result}");
        let withdrawn = |seen| match seen {
            Seen::Withdraw(id) => Some(id),
            Seen::Envelope(sent) => panic!("it asks: {sent:?}"),
            _ => None,
        };
        let id = broker.saw("word of it", withdrawn).await;
        assert_eq!(id.as_str(), "q1");
    }
    let both = json!({ "cancel": "q1", "to": "bob", "body": "ready?" });
    let both = client.call("bus.ask", both).await;
    assert!(sentence(&both).contains("leave `body` away"), "{both}");
    let neither = client.call("bus.ask", json!({ "body": "ready?" })).await;
    assert!(
        sentence(&neither).contains("the argument to is missing"),
        "{neither}"
    );

    let v1 = Broker::start(false).await;
    let mut client = greeted(&v1).await;
    let result = client.call("bus.ask", json!({ "cancel": "q1" })).await;
    assert!(sentence(&result).contains("knows no requests"), "{result}");
}
