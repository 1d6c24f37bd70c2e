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

fn says(session: &mut Session, words: &str) {
    session.broker.deliver_with(&Mail {
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
    assert_eq!(asked.get("missing"), None, "{asked}");
    // It is ours, not the client's.
    let id = asked["id"].as_str().unwrap().to_owned();
    says(&mut session, &format!("yes {id}"));
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
    says(&mut session, &format!("yes {id}"));
    let refused = sent(&mut session.broker).await["approval_refused"].take();
    assert!(
        refused["why"].as_str().unwrap().contains("not shown"),
        "{refused}"
    );
    says(&mut session, &format!("no {id}"));
    let denied = self::verdict(&mut session.client).await;
    assert_eq!(denied, json!({ "request_id": "asdfg", "behavior": "deny" }));
    // The agent has nothing of it.
    let inbox = session.inbox(json!({})).await;
    assert_eq!(inbox["messages"], json!([]), "{inbox}");
}

#[tokio::test]
async fn a_gate_that_was_closed_meanwhile_lets_no_verdict_through() {
    let (mut session, _) = begun("remote = [\"bob\"]").await;
    asks(&mut session.client, "qwert", r#"{"command":"ls"}"#).await;
    let asked = sent(&mut session.broker).await["approval"].take();
    let id = asked["id"].as_str().unwrap().to_owned();
    fs::remove_file(session.home.dir.path().join("sessions.toml")).unwrap();
    says(&mut session, &format!("yes {id}"));
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
