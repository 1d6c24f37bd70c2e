//! A client of which nothing is known, and settings.

use peerbus_test_support::scripted::Broker;
use serde_json::{Value, json};

use crate::{around, begin, drained, only, presence, start};

#[tokio::test]
async fn a_client_that_nobody_knows_drains_and_is_told_so() {
    let (mut broker, home) = (Broker::start(true).await, tempfile::tempdir().unwrap());
    let around = around(&[], home.path());
    let (mut client, greeting, _adapter) = start(&mut broker, "some-bot", around).await;
    let told = greeting["instructions"].as_str().unwrap();
    assert!(told.contains("nothing wakes you"), "{told}");
    broker.deliver("\"hi\"");
    let messages = drained(&mut client).await;
    assert_eq!(messages[0]["id"], "m1");
}

#[tokio::test]
async fn an_agent_is_not_told_that_it_wakes_where_the_user_wants_no_path() {
    let (mut broker, home) = (Broker::start(true).await, tempfile::tempdir().unwrap());
    let mut around = around(
        &[("QWEN_CODE_MESSAGING_SOCKET", "/nonexistent/1.sock")],
        home.path(),
    );
    around.wake = only("none");
    let name = "qwen-cli-mcp-client-peerbus";
    let (_client, greeting, _adapter) = begin(&broker, name, around).await;
    let told = greeting["instructions"].as_str().unwrap();
    assert!(told.contains("nothing wakes you"), "{told}");
    let wake = presence(&mut broker, "what it says of itself", |about| {
        Some(about["wake"].clone())
    });
    assert_eq!(wake.await, json!([]));
}

#[tokio::test]
async fn peers_of_an_agent_that_nothing_wakes_are_told_so() {
    let (mut broker, home) = (Broker::start(true).await, tempfile::tempdir().unwrap());
    let around = around(&[], home.path());
    let _session = begin(&broker, "gemini-cli-mcp-client", around).await;
    let why = |about: &Value| about["unwoken"].as_str().map(str::to_owned);
    let why = presence(&mut broker, "why nothing wakes it", why).await;
    assert!(why.contains("wakes Gemini CLI"), "{why}");
}
