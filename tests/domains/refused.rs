//! What NATS does not have, or does not let a bridge do: each is a sentence.

use std::path::Path;

use async_nats::jetstream::stream;
use async_nats::{Client, jetstream};
use peerbus_bridge::account;
use peerbus_bridge::nats::{Server, consumer, set_up};
use peerbus_test_support::nats::Nats;

fn server(nats: &Nats, key: Option<&Path>) -> Server {
    Server {
        url: nats.url(),
        creds: key.map(Into::into),
        ca: None,
    }
}

async fn here(nats: &Nats) -> Client {
    server(nats, None).connect(None).await.expect("loopback")
}

fn domains() -> [String; 1] {
    ["alpha".to_owned()]
}

#[tokio::test]
async fn a_server_without_jetstream_cannot_be_set_up() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(nats) = Nats::plain(dir.path()) else {
        return;
    };
    let client = here(&nats).await;
    let why = set_up(&client, &domains(), 1).await.expect_err("no stream");
    assert!(why.starts_with("this NATS has no JetStream: "), "{why}");
}

#[tokio::test]
async fn a_stream_of_another_layout_is_left_alone_and_a_missing_consumer_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(nats) = Nats::start(dir.path(), None) else {
        return;
    };
    let client = here(&nats).await;
    let context = jetstream::new(client.clone());
    let why = consumer(&context, "alpha")
        .await
        .expect_err("none is there");
    assert!(
        why.contains("has no consumer alpha for this key: `peerbus bridge setup` makes it"),
        "{why}"
    );
    let foreign = stream::Config {
        name: "PEERBUS".into(),
        subjects: vec!["something.else".into()],
        ..stream::Config::default()
    };
    context.create_stream(foreign).await.expect("a stream");
    let why = set_up(&client, &domains(), 1)
        .await
        .expect_err("it is not ours");
    assert!(
        why.contains("the stream PEERBUS has another layout"),
        "{why}"
    );
    let mut left = context.get_stream("PEERBUS").await.expect("it is there");
    let info = left.info().await.expect("it answers");
    assert_eq!(info.config.subjects, ["something.else"]);
}

#[tokio::test]
async fn a_key_that_may_too_little_and_one_that_nobody_knows_are_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let keys = account::write(&dir.path().join("keys"), &domains()).expect("our directory");
    // As an operator may have written it who forgot what a bridge asks.
    let text = std::fs::read_to_string(&keys.accounts).expect("our file");
    let narrow = text.replace("$JS.API.CONSUMER.INFO.PEERBUS.alpha", "peerbus.nothing");
    assert_ne!(narrow, text);
    std::fs::write(&keys.accounts, narrow).expect("our file");
    let Some(nats) = Nats::start(&dir.path().join("server"), Some(&keys.accounts)) else {
        return;
    };
    let admin = server(&nats, Some(&keys.setup)).connect(None).await;
    set_up(&admin.expect("its key"), &domains(), 1)
        .await
        .expect("a stream");
    let alpha = server(&nats, Some(&keys.domains["alpha"]));
    let alpha = alpha.connect(Some("alpha")).await.expect("its key");
    let context = jetstream::new(alpha);
    let why = consumer(&context, "alpha")
        .await
        .expect_err("it may not ask");
    assert!(why.contains("is it the key of alpha?"), "{why}");

    let strangers = account::write(&dir.path().join("others"), &domains()).expect("our directory");
    let stranger = server(&nats, Some(&strangers.domains["alpha"]));
    let why = stranger
        .connect(Some("alpha"))
        .await
        .expect_err("it is not known");
    assert!(
        why.starts_with("the NATS at nats://") && why.contains("does not know the key"),
        "{why}"
    );
}
