//! The sender hears how far its messages got, with the next thing that it is shown.

use peerbus_adapter::{How, Stage};
use serde_json::{Value, json};

use crate::session::{DEAF, OVERDUE, Session, advance};

/// Bob's model has seen the message `q1`, zoe's got `q2`.
fn told(session: &Session) {
    let seen = How::Seen {
        path: "channel".into(),
        evidence: "transcript".into(),
    };
    session.broker.receipt("q1", Stage::Delivered);
    session.broker.receipt("q1", Stage::Acked(Some(seen)));
    let path = "hook".into();
    session
        .broker
        .receipt_of("zoe", "q2", Stage::Presented { path });
}

fn wanted() -> Value {
    json!([
        { "id": "q1", "to": "bob", "stage": "seen" },
        { "id": "q2", "to": "zoe", "stage": "presented" },
    ])
}

#[tokio::test]
async fn they_come_along_with_a_tools_result_once() {
    let mut session = Session::greeted(&[DEAF]).await;
    told(&session);
    let first = session.settle().await;
    let line = match first {
        Some(line) => line,
        None => session.settle().await.expect("they come along"),
    };
    assert_eq!(line, format!("📮 receipts: {}", wanted()));
    assert_eq!(session.settle().await, None, "once");
}

#[tokio::test]
async fn they_stand_in_what_is_read() {
    let mut session = Session::greeted(&[DEAF]).await;
    told(&session);
    let mut told = Vec::new();
    for _ in 0..10_000 {
        let read = session.inbox(json!({})).await;
        told.extend(read["receipts"].as_array().cloned().unwrap_or_default());
        if told.len() >= 2 {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(Value::from(told), wanted());
}

#[tokio::test]
async fn they_stand_beside_a_message_that_is_pushed() {
    let mut session = Session::greeted(&[]).await;
    told(&session);
    session.deliver("\"hi\"");
    let push = session.client.push().await;
    assert_eq!(push["content"], "📨 bob: \"hi\"");
    let receipts = "q1 bob seen, q2 zoe presented";
    assert_eq!(push["meta"]["receipts"], receipts, "{push}");
}

#[tokio::test]
async fn they_start_no_turn() {
    let mut session = Session::greeted(&[]).await;
    told(&session);
    advance(OVERDUE).await;
    session.deliver("\"hi\"");
    let push = session.client.push().await;
    assert_eq!(push["content"], "📨 bob: \"hi\"", "the first push");
}

#[tokio::test]
async fn what_a_peer_merely_claims_is_not_told_as_seen() {
    let mut session = Session::greeted(&[]).await;
    let claimed = How::Seen {
        path: "channel".into(),
        evidence: "believe_me".into(),
    };
    session.broker.receipt("q1", Stage::Acked(Some(claimed)));
    session.broker.deliver("\"hi\"");
    let push = session.client.push().await;
    let receipts = "q1 bob seen, not proven";
    assert_eq!(push["meta"]["receipts"], receipts, "{push}");
}
