//! What NATS does not have, or does not let a bridge do: each is a sentence.

use std::path::Path;

use async_nats::jetstream::stream;
use async_nats::{Client, jetstream};
use nkeys::KeyPair;
use peerbus_bridge::account;
use peerbus_bridge::nats::{Bound, NatsServer, bound, consumer, set_up};
use peerbus_test_support::nats::Nats;

fn server(nats: &Nats, key: Option<&Path>) -> NatsServer {
    NatsServer {
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
    let server = server(&nats, None);
    let client = here(&nats).await;
    let why = set_up(&server, &client, &domains(), 1)
        .await
        .expect_err("no stream");
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
    let why = set_up(&server(&nats, None), &client, &domains(), 1)
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
async fn an_account_that_all_domains_share_is_told_with_the_way_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let keys = account::write(&dir.path().join("keys"), &domains()).expect("our directory");
    let key = |path: &Path| {
        let seed = account::seed(path).expect("our key");
        KeyPair::from_seed(&seed).expect("our key").public_key()
    };
    let (setup, alpha) = (key(&keys.setup), key(&keys.domains["alpha"]));
    let shared = dir.path().join("shared.conf");
    let text = format!(
        "accounts {{ PEERBUS {{ jetstream: enabled, users: [ {{ nkey: {setup} }}, {{ nkey: {alpha}, permissions: {{ \
         publish: {{ allow: [\"$JS.API.CONSUMER.INFO.PEERBUS.alpha\"] }} }} }} ] }} }}"
    );
    std::fs::write(&shared, text).expect("our file");
    let Some(nats) = Nats::start(&dir.path().join("server"), Some(&shared)) else {
        return;
    };
    let setup = server(&nats, Some(&keys.setup));
    let admin = setup.connect(None).await.expect("its key");
    let why = set_up(&setup, &admin, &domains(), 1)
        .await
        .expect_err("it is shared");
    for part in [
        "one account of this NATS holds all domains",
        "write accounts.conf anew with `peerbus bridge account`",
    ] {
        assert!(why.contains(part), "{why}");
    }
    let alpha = server(&nats, Some(&keys.domains["alpha"]));
    let client = alpha.connect(Some("alpha")).await.expect("its key");
    assert_eq!(bound(&alpha, &client, "alpha").await, Bound::Wide);
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
    let setup = server(&nats, Some(&keys.setup));
    let admin = setup.connect(None).await.expect("its key");
    set_up(&setup, &admin, &domains(), 1)
        .await
        .expect("a stream");
    let why = set_up(&setup, &admin, &["omega".to_owned()], 1)
        .await
        .expect_err("it has no account");
    assert!(
        why.contains(
            "omega stands in no accounts.conf that this nats-server has read since its start"
        ),
        "{why}"
    );
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
