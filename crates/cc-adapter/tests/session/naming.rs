//! Whom an id means, and what naming it proves.

use serde_json::{Value, json};

use crate::session::{DEAF, Session, seen};

/// Delivers a message and waits until it is here, unshown.
async fn arrive(session: &mut Session, from: &str, id: &str) {
    session.broker.deliver_as(from, id, "\"important\"");
    session.waiting(1).await;
}

async fn ack(session: &mut Session, id: &str) -> Value {
    let arguments = json!({ "ids": [id] });
    let result = session.call("bus.ack", arguments).await;
    result["structuredContent"].clone()
}

#[tokio::test]
async fn what_was_not_shown_is_not_seen_whoever_names_it() {
    let mut session = Session::greeted(&[DEAF]).await;
    arrive(&mut session, "bob", "x1").await;
    let said = ack(&mut session, "x1").await;
    assert_eq!(
        (&said["acked"], &said["not_shown"]),
        (&json!([]), &json!(["x1"])),
        "{said}"
    );
    let along = said["unseen"].as_str().expect("it comes along");
    assert!(along.contains("\"important\" [x1]"), "{along}");
    assert_eq!(session.broker.acks(), []);
    assert_eq!(ack(&mut session, "x1").await["acked"], json!(["x1"]));
    let how = seen("piggyback", "tool_call");
    assert_eq!(session.broker.ack().await, ("1".into(), how));

    arrive(&mut session, "bob", "x2").await;
    let reply = json!({ "msg_id": "x2", "body": "ok" });
    // A message that is forgotten here may be meant, and this one's sender took its id.
    let result = session.call("bus.reply", reply.clone()).await;
    let sentence = result["content"][0]["text"].as_str().unwrap();
    assert!(sentence.contains("x2 of bob may not be"), "{result}");
    assert!(result.to_string().contains("important"), "{result}");
    let result = session.call("bus.reply", reply).await;
    assert_eq!(result["structuredContent"]["to"], "bob", "{result}");
    let how = seen("piggyback", "tool_call");
    assert_eq!(session.broker.ack().await, ("2".into(), how));
}

#[tokio::test]
async fn an_id_that_two_senders_used_means_neither() {
    let mut session = Session::greeted(&[DEAF]).await;
    arrive(&mut session, "bob", "x1").await;
    assert!(session.settle().await.is_some(), "it is shown");
    arrive(&mut session, "mallory", "x1").await;
    let reply = json!({ "msg_id": "x1", "body": "ok" });
    let result = session.call("bus.reply", reply).await;
    assert_eq!(result["isError"], true, "{result}");
    let sentence = result["content"][0]["text"].as_str().unwrap();
    assert!(sentence.contains("x1 of mallory, x1 of bob"), "{sentence}");
    let said = ack(&mut session, "x1").await;
    assert_eq!(
        (&said["acked"], &said["several_senders"]),
        (&json!([]), &json!(["x1"])),
        "{said}"
    );
    let named = session.broker.noticed().into_iter().find(|seen| {
        let how = format!("{seen:?}");
        how.contains("tool_call")
    });
    assert!(named.is_none(), "{named:?}");
    let reply = json!({ "msg_id": "x1", "from": "bob", "body": "ok" });
    let result = session.call("bus.reply", reply).await;
    assert_eq!(result["structuredContent"]["to"], "bob", "{result}");
}

#[tokio::test]
async fn what_is_held_back_is_named_by_whom_it_was_shown_to_and_a_list_shows_nothing() {
    let mut session = Session::greeted(&[DEAF, ("PEERBUS_BUDGET", "1")]).await;
    for n in 1..=2 {
        let arguments = json!({ "to": "bob", "body": n });
        session.call("bus.send", arguments).await;
        session.deliver("\"answer\"");
        session.settle().await;
    }
    let said = ack(&mut session, "m2").await;
    assert_eq!(said["not_shown"], json!(["m2"]), "{said}");
    let peek = json!({ "peek": true, "ids": ["m2"] });
    session.call("bus.inbox", peek).await;
    let said = ack(&mut session, "m2").await;
    assert_eq!(said["not_shown"], json!(["m2"]), "{said}");
    session.call("bus.inbox", json!({ "ids": ["m2"] })).await;
    assert_eq!(ack(&mut session, "m2").await["acked"], json!(["m2"]));
}
