//! The relay of dialogs over the channel, with a client that has it.

use std::fs;

use peerbus_adapter::How;
use peerbus_test_support::mcp::Client;
use peerbus_test_support::scripted::{Broker, Mail};
use serde_json::{Value, json};

use crate::home::Home;
use crate::session::Session;

const CHANNEL: (&str, &str) = ("PEERBUS_WAKE", "channel");
const RELAY: &str = "claude/channel/permission";
const ASKED: &str = "notifications/claude/channel/permission_request";
const VERDICT: &str = "notifications/claude/channel/permission";

/// A session that was started with these gates, and what it declares.
async fn begun(gates: &str) -> (Session, Value) {
    let home = Home::new();
    fs::write(home.dir.path().join("sessions.toml"), gates).unwrap();
    let mut session = Session::start_in(home, false, &[CHANNEL]).await;
    session.broker.registered().await;
    let answer = session.client.greet("claude-code").await;
    session.client.push().await;
    let declares = answer["capabilities"]["experimental"].clone();
    (session, declares)
}

async fn asks(client: &mut Client, id: &str, preview: &str) {
    let params = json!({ "request_id": id, "tool_name": "Bash", "description": "lists",
        "input_preview": preview });
    client.notify(ASKED, params).await;
}

/// What bob is sent.
async fn sent(broker: &mut Broker) -> Value {
    let envelope = broker.envelope().await;
    let body: Value = serde_json::from_str(&envelope.text).unwrap();
    let body = body["body"].clone();
    match body.as_str() {
        Some(text) => serde_json::from_str(text).unwrap(),
        None => body,
    }
}

fn says(broker: &mut Broker, words: &str) {
    broker.deliver_with(&Mail {
        token: Some("phone"),
        approves: true,
        ..Mail::new(&json!(words).to_string())
    });
}

#[tokio::test]
async fn without_open_gates_it_is_never_declared() {
    for (gates, declared) in [
        ("", false),
        ("inject = true\ninterrupt = true", false),
        ("approve = maybe", false),
        ("approve = true", true),
        ("remote = [\"bob\"]", true),
    ] {
        let (_session, declares) = begun(gates).await;
        assert_eq!(
            declares.get(RELAY).is_some(),
            declared,
            "{gates}: {declares}"
        );
    }
}

#[tokio::test]
async fn a_peer_that_the_user_named_answers_what_came_over_the_channel() {
    let (mut session, _) = begun("remote = [\"bob\"]").await;
    asks(&mut session.client, "qwert", r#"{"command":"ls"}"#).await;
    let asked = sent(&mut session.broker).await["approval"].take();
    assert_eq!(asked["preview"], r#"{"command":"ls"}"#);
    for (member, value) in [
        ("tool", "Bash"),
        ("description", "lists"),
        ("session", "me"),
    ] {
        assert_eq!(asked[member], value, "{asked}");
    }
    assert_eq!(asked.get("missing"), None, "{asked}");
    // It is ours, not the client's.
    let id = asked["id"].as_str().unwrap().to_owned();
    says(&mut session.broker, &format!("yes {id}"));
    let verdict = verdict(&mut session.client).await;
    assert_eq!(
        verdict,
        json!({ "request_id": "qwert", "behavior": "allow" })
    );
    let how = Some(How::Pushed {
        path: "approval".into(),
    });
    assert_eq!(session.broker.ack().await.1, how);
    // What may be cut can only be denied.
    asks(&mut session.client, "asdfg", r#"{"command":"rm -rf "#).await;
    assert_eq!(
        sent(&mut session.broker).await["approval_resolved"]["decision"],
        "allow"
    );
    let asked = sent(&mut session.broker).await["approval"].take();
    assert_eq!(asked["missing"], 1, "{asked}");
    let id = asked["id"].as_str().unwrap().to_owned();
    says(&mut session.broker, &format!("yes {id}"));
    let refused = sent(&mut session.broker).await["approval_refused"].take();
    assert!(
        refused["why"].as_str().unwrap().contains("not shown"),
        "{refused}"
    );
    says(&mut session.broker, &format!("no {id}"));
    let denied = self::verdict(&mut session.client).await;
    assert_eq!(denied, json!({ "request_id": "asdfg", "behavior": "deny" }));
    // The agent has nothing of it.
    let inbox = session.inbox(json!({})).await;
    assert_eq!(inbox["messages"], json!([]), "{inbox}");
}

#[tokio::test]
async fn a_verdict_on_one_call_answers_no_other_that_begins_alike() {
    let (mut session, _) = begun("remote = [\"bob\"]").await;
    let command = |end: &str| json!({ "command": format!("{} {end}", "x".repeat(300)) });
    let (seen, unseen) = (command("harmless"), command("harmful"));
    let asked = json!({ "tool": "Bash", "input": seen.to_string() });
    let on = json!({ "hook_event_name": "PermissionRequest", "asked": asked });
    let asks_too = async {
        let asked = sent(&mut session.broker).await["approval"].take();
        assert_eq!(asked["preview"], seen.to_string());
        // The dialog of another call, of which the channel tells the beginning.
        asks(&mut session.client, "qwert", &unseen.to_string()[..200]).await;
        // What comes after it was heard after it.
        asks(&mut session.client, "asdfg", r#"{"command":"ls"}"#).await;
        let last = sent(&mut session.broker).await["approval"].take();
        assert_eq!(last["preview"], r#"{"command":"ls"}"#);
        for id in [&asked["id"], &last["id"]] {
            says(
                &mut session.broker,
                &format!("yes {}", id.as_str().unwrap()),
            );
        }
        verdict(&mut session.client).await
    };
    let ((offered, _hook), first) = tokio::join!(session.home.hook_on(&on), asks_too);
    assert!(offered.unwrap().contains(r#""behavior":"allow""#));
    assert_eq!(first["request_id"], "asdfg", "{first}");
}

#[tokio::test]
async fn a_gate_that_was_closed_meanwhile_lets_no_verdict_through() {
    let (mut session, _) = begun("remote = [\"bob\"]").await;
    asks(&mut session.client, "qwert", r#"{"command":"ls"}"#).await;
    let asked = sent(&mut session.broker).await["approval"].take();
    let id = asked["id"].as_str().unwrap().to_owned();
    fs::remove_file(session.home.dir.path().join("sessions.toml")).unwrap();
    says(&mut session.broker, &format!("yes {id}"));
    let refused = sent(&mut session.broker).await["approval_refused"].take();
    assert!(
        refused["why"].as_str().unwrap().contains("`remote`"),
        "{refused}"
    );
    asks(&mut session.client, "asdfg", r#"{"command":"ls"}"#).await;
    // Words that name no request are mail.
    session.broker.deliver("\"yes zzzzz\"");
    let push = session.client.push().await;
    assert!(
        push["content"].as_str().unwrap().contains("yes zzzzz"),
        "{push}"
    );
}

/// The next verdict.
async fn verdict(client: &mut Client) -> Value {
    loop {
        let mut message = client.hear().await;
        if message["method"] == VERDICT {
            return message["params"].take();
        }
    }
}
