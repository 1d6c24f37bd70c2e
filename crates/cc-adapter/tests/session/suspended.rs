//! A session that did not run for a while does not know whether its name is another's by now.

use serde_json::json;

use crate::session::{DEAF, Session};
use peerbus_test_support::scripted::Seen;

const QUIET: &str = r#"{"text":"pay it","priority":"quiet"}"#;

/// A session that slept while it held a message that nobody was shown.
async fn slept(settings: &[(&str, &str)]) -> Session {
    let mut session = Session::greeted(settings).await;
    session.deliver(QUIET);
    session.waiting(1).await;
    session.bus.doubt();
    session
}

#[tokio::test]
async fn what_it_holds_is_a_repeat_wherever_it_shows_it_after_its_name_was_taken() {
    let taken = async || {
        let session = slept(&[DEAF]).await;
        session.broker.take_over();
        session
    };
    let mut session = taken().await;
    let read = session.inbox(json!({})).await;
    assert_eq!(read["messages"][0]["shown_before"], true, "{read}");

    let mut session = taken().await;
    let text = session.settle().await.expect("it comes along");
    assert!(text.contains("\"pay it\" (shown before) [m1]"), "{text}");

    let session = taken().await;
    let (offered, _) = session.home.hook("PostToolUse").await;
    let text = offered.expect("it is offered");
    assert!(text.contains("\"pay it\" (shown before) [m1]"), "{text}");
}

#[tokio::test]
async fn what_it_holds_is_new_when_the_broker_says_that_the_name_is_still_its_own() {
    let mut session = slept(&[DEAF]).await;
    let read = session.inbox(json!({})).await;
    assert_eq!(read["messages"][0].get("shown_before"), None, "{read}");
}

#[tokio::test]
async fn a_push_asks_first() {
    let mut session = Session::start(&[]).await;
    session.broker.registered().await;
    session.deliver("\"pay it\"");
    session.broker.take_over();
    let left = |seen| matches!(seen, Seen::Left).then_some(());
    session.broker.saw("that it left", left).await;
    // Nothing is pushed before the client is ready.
    session.client.greet("claude-code").await;
    session.client.push().await;
    let push = session.client.push().await;
    assert_eq!(push["content"], "📨 bob: \"pay it\"");
    assert_eq!(push["meta"]["repeat"], "true", "{push}");
}
