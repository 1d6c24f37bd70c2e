//! The three servers that `deploy/nats` describes.

use std::path::Path;
use std::time::{Duration, Instant};

use async_nats::Client;
use async_nats::jetstream;
use futures_util::StreamExt as _;
use peerbus_bridge::account;
use peerbus_bridge::nats::{NatsServer, consumer, set_up};
use peerbus_bridge::subject;
use peerbus_test_support::PATIENCE;
use peerbus_test_support::nats::Nats;
use tokio::time::timeout;

fn server(nodes: &[Nats], key: &Path) -> NatsServer {
    let urls: Vec<_> = nodes.iter().map(Nats::url).collect();
    NatsServer {
        url: urls.join(","),
        creds: Some(key.to_owned()),
        ca: None,
    }
}

/// What is told outside of the stream gets lost at times, and is told again after so long.
const SOON: Duration = Duration::from_millis(300);

async fn connect(nodes: &[Nats], key: &Path, domain: Option<&str>) -> Client {
    let server = server(nodes, key);
    server.connect(domain).await.expect("the key is known")
}

#[tokio::test]
async fn what_one_of_three_servers_took_is_there_without_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let domains = ["alpha", "beta"].map(str::to_owned);
    let keys = account::write(&dir.path().join("keys"), &domains).expect("our directory");
    let Some(mut nodes) = Nats::cluster(dir.path(), Some(&keys.accounts)) else {
        return;
    };
    let admin = connect(&nodes, &keys.setup, None).await;
    let start = Instant::now();
    // They elect one of them first.
    let setup = server(&nodes, &keys.setup);
    while let Err(why) = set_up(&setup, &admin, &domains, 3).await {
        assert!(start.elapsed() < PATIENCE, "{why}");
    }
    let alpha = connect(&nodes, &keys.domains["alpha"], Some("alpha")).await;
    // Each at a server of its own: what is told reaches the other one once the two know of each other.
    let far = connect(&nodes[2..], &keys.domains["beta"], Some("beta")).await;
    let near = connect(&nodes[..1], &keys.domains["alpha"], Some("alpha")).await;
    let told = far.subscribe(subject::back("beta", "*")).await;
    let mut told = told.expect("allowed");
    loop {
        let say = near.publish(subject::back("beta", "alpha"), "told".into());
        say.await.expect("it left");
        if let Ok(told) = timeout(SOON, told.next()).await {
            let told = told.expect("it goes on");
            assert_eq!(told.subject.as_str(), subject::back("beta", "alpha"));
            break;
        }
        assert!(start.elapsed() < PATIENCE, "it is never told");
    }
    let context = jetstream::new(alpha);
    let to = subject::mail("beta", "alpha");
    let kept = loop {
        let sent = context.publish(to.clone(), "hello".into()).await;
        match sent.expect("it left").await {
            Ok(kept) => break kept,
            Err(why) => assert!(start.elapsed() < PATIENCE, "{why}"),
        }
    };
    assert_eq!(kept.sequence, 1);
    nodes[0].kill();
    let beta = connect(&nodes[1..], &keys.domains["beta"], Some("beta")).await;
    let context = jetstream::new(beta);
    let mut mails = loop {
        let found = consumer(&context, "beta").await;
        match found {
            Ok(found) => break found.messages().await.expect("a stream"),
            Err(why) => assert!(start.elapsed() < PATIENCE, "{why}"),
        }
    };
    let mail = mails.next().await.expect("it goes on").expect("a message");
    assert_eq!(&*mail.payload, b"hello");
}
