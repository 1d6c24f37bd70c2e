//! Requests that the session has read: how they read, and how it is reminded of them.

use std::time::Duration;

use peerbus_test_support::scripted::Mail;
use serde_json::json;

use crate::home::{answer, line};
use crate::session::{Session, advance, seen};

const ASKED: &str = r#"{"text":"are the tests green?","wants":"result","within_ms":3600000}"#;

/// More than a minute without a turn.
const IDLE: Duration = Duration::from_secs(61);

/// A session whose model has read a request of bob's.
async fn asked(settings: &[(&str, &str)]) -> Session {
    let mut session = Session::at_home(settings).await;
    session.broker.deliver_with(&Mail {
        within_ms: 3_600_000,
        ..Mail::new(ASKED)
    });
    let push = session.client.push().await;
    let content = "📨 bob: \"are the tests green?\"";
    assert_eq!(push["content"], content);
    let wants = push["meta"]["wants"].as_str().unwrap();
    assert!(wants.contains("bus reply tool"), "{wants}");
    let mark = push["meta"]["push"].as_str().unwrap();
    session.home.write(&line("a", &format!("[{mark}]")));
    session.home.write(&answer("b", "a"));
    let ack = session.broker.ack().await;
    assert_eq!(ack, ("1".into(), seen("channel", "transcript")));
    session
}

#[tokio::test]
async fn an_idle_session_is_reminded_of_what_it_read() {
    let mut session = asked(&[]).await;
    advance(IDLE).await;
    let push = session.client.push().await;
    let content = push["content"].as_str().unwrap();
    let reminder = "📮 You still owe bob an answer to \"are the tests green?\" (m1): answer";
    assert!(content.starts_with(reminder), "{content}");
    assert!(content.contains("untrusted"), "{content}");
}

#[tokio::test]
async fn who_answered_is_not_reminded_nor_whose_user_wants_none() {
    for settings in [&[][..], &[("PEERBUS_REMIND", "off")]] {
        let mut session = asked(settings).await;
        if settings.is_empty() {
            let reply = json!({ "msg_id": "m1", "body": "they are" });
            session.call("bus.reply", reply).await;
        }
        advance(IDLE).await;
        session.deliver("\"and now?\"");
        let push = session.client.push().await;
        assert_eq!(push["content"], "📨 bob: \"and now?\"");
    }
}
