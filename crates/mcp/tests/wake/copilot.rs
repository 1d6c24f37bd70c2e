//! A session of Copilot CLI, with the extension that runs beside it.

use peerbus_test_support::scripted::Broker;
use serde_json::{Value, json};

use crate::opencode::{Home, unwoken};
use crate::{begin, presence, presented, seen};

const CLIENT: &str = "copilot-cli";

#[tokio::test]
async fn a_message_goes_to_the_extension_and_is_seen_when_its_own_turn_answers() {
    let (mut broker, home) = (Broker::start(true).await, Home::new());
    let (_client, _, _adapter) = begin(&broker, CLIENT, home.around()).await;
    let mut extension = home.plugin().await;
    let wakes = |about: &Value| (about["wake"] == json!(["extension"])).then_some(());
    presence(&mut broker, "the path", wakes).await;
    broker.deliver("\"hi\"");
    let (text, mark) = extension.shown().await;
    assert!(text.contains("\"hi\" [m1]"), "{text}");
    extension.line("u1", None, "user", &[&mark]).await;
    assert_eq!(presented(&mut broker).await, "extension");
    // The service was away; another prompt is answered.
    extension.line("u2", None, "user", &[]).await;
    extension.line("a2", Some("u2"), "assistant", &[]).await;
    extension.line("a1", Some("u1"), "assistant", &[]).await;
    assert_eq!(broker.ack().await.1, seen("extension"));
}

#[tokio::test]
async fn without_the_extension_peers_are_told_what_loads_it() {
    let (mut broker, home) = (Broker::start(true).await, Home::new());
    let (_client, _, _adapter) = begin(&broker, CLIENT, home.around()).await;
    let why = |about: &Value| unwoken(about).filter(|why| why.contains("`--experimental`"));
    presence(&mut broker, "why not", why).await;
}
