//! What the key of one domain can do in NATS.

use std::path::Path;
use std::time::Duration;

use async_nats::jetstream::{self, Message};
use async_nats::{Client, HeaderMap};
use futures_util::StreamExt as _;
use peerbus_bridge::account::{self, Accounts};
use peerbus_bridge::nats::{Bound, Server, bound, consumer, set_up};
use peerbus_bridge::subject::{self, Kind};
use tokio::time::timeout;

use peerbus_test_support::nats::Nats;

/// How long something is waited for that must not come. It would come within a millisecond.
const SILENCE: Duration = Duration::from_millis(300);

struct World {
    nats: Nats,
    accounts: Accounts,
    _dir: tempfile::TempDir,
}

impl World {
    async fn start() -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        let domains = ["alpha", "beta", "gamma"].map(str::to_owned);
        let accounts = account::write(&dir.path().join("nats"), &domains).expect("our directory");
        let nats = Nats::start(&dir.path().join("server"), Some(&accounts.accounts))?;
        let world = Self {
            nats,
            accounts,
            _dir: dir,
        };
        let admin = world.with(&world.accounts.setup, None).await;
        set_up(&admin, &domains, 1).await.expect("a stream");
        // What is there is left as it is.
        set_up(&admin, &domains, 1).await.expect("the same stream");
        Some(world)
    }

    fn server(&self, key: &Path) -> Server {
        Server {
            url: self.nats.url(),
            creds: Some(key.to_owned()),
            ca: None,
        }
    }

    async fn with(&self, key: &Path, domain: Option<&str>) -> Client {
        let server = self.server(key);
        server.connect(domain).await.expect("the key is known")
    }

    async fn bridge(&self, domain: &str) -> Client {
        self.with(&self.accounts.domains[domain], Some(domain))
            .await
    }
}

/// The next message of a domain's own.
async fn next(client: &Client, domain: &str) -> Option<Message> {
    let context = jetstream::new(client.clone());
    let consumer = consumer(&context, domain).await.expect("its consumer");
    let mut mails = consumer.messages().await.expect("a stream");
    let next = timeout(SILENCE, mails.next()).await.ok()?;
    Some(next.expect("it goes on").expect("a message"))
}

#[tokio::test]
async fn a_key_is_bound_to_its_domain() {
    let Some(world) = World::start().await else {
        return;
    };
    let (alpha, beta) = (world.bridge("alpha").await, world.bridge("beta").await);
    let gamma = world.bridge("gamma").await;
    let mut overheard = Vec::new();
    for other in [
        subject::mail("beta", "*"),
        subject::back("beta", "*"),
        "_INBOX_beta.>".into(),
    ] {
        overheard.push(alpha.subscribe(other).await.expect("it left"));
    }
    alpha.flush().await.expect("NATS is there");
    let context = jetstream::new(alpha.clone());
    let own = subject::mail("beta", "alpha");
    let sent = context.publish_with_headers(own.clone(), HeaderMap::new(), "hello".into());
    sent.await.expect("it left").await.expect("it is kept");

    for other in [
        subject::mail("beta", "gamma"),
        subject::back("beta", "gamma"),
        subject::here("gamma"),
        format!("$JS.API.CONSUMER.MSG.NEXT.{}.beta", subject::STREAM),
        format!("$JS.API.CONSUMER.INFO.{}.beta", subject::STREAM),
        format!("$JS.API.CONSUMER.CREATE.{}.spy", subject::STREAM),
        format!("$JS.API.CONSUMER.DELETE.{}.beta", subject::STREAM),
        format!("$JS.API.STREAM.INFO.{}", subject::STREAM),
        format!("$JS.API.STREAM.MSG.GET.{}", subject::STREAM),
        format!("$JS.API.STREAM.MSG.DELETE.{}", subject::STREAM),
        format!("$JS.API.STREAM.PURGE.{}", subject::STREAM),
        format!("$JS.API.STREAM.DELETE.{}", subject::STREAM),
        format!("$JS.API.DIRECT.GET.{}", subject::STREAM),
        format!("$JS.API.DIRECT.GET.{}.{own}", subject::STREAM),
    ] {
        let answer = timeout(SILENCE, alpha.request(other.clone(), r#"{"seq":1}"#.into())).await;
        assert!(answer.is_err(), "{other}: {answer:?}");
    }
    // An ack of what another one has not taken yet.
    let ack = format!("$JS.ACK.{}.beta.1.1.1.1.0", subject::STREAM);
    alpha.publish(ack, "".into()).await.expect("it left");
    let message = next(&beta, "beta").await.expect("it is there still");
    assert_eq!(
        (&*message.payload, message.subject.as_str()),
        (&b"hello"[..], own.as_str())
    );
    assert_eq!(
        subject::sender(&message.subject, "beta"),
        Some((Kind::Mail, "alpha"))
    );
    let told = gamma.publish(subject::back("beta", "gamma"), "told".into());
    told.await.expect("it left");
    gamma.flush().await.expect("NATS is there");
    for mut heard in overheard {
        let heard = timeout(SILENCE, heard.next()).await.ok().flatten();
        assert!(heard.is_none(), "{heard:?}");
    }
}

#[tokio::test]
async fn a_bridge_knows_whether_its_key_may_do_more_than_it_needs() {
    let Some(world) = World::start().await else {
        return;
    };
    for (key, is) in [
        (&world.accounts.domains["alpha"], Bound::Bound),
        (&world.accounts.setup, Bound::Wide),
    ] {
        let client = world.with(key, Some("alpha")).await;
        assert_eq!(bound(&world.server(key), &client).await, is, "{key:?}");
    }
}

#[tokio::test]
async fn a_message_that_is_sent_on_by_a_consumer_shows_who_wrote_it() {
    let Some(world) = World::start().await else {
        return;
    };
    let (alpha, beta) = (world.bridge("alpha").await, world.bridge("beta").await);
    let mut back = beta
        .subscribe(subject::back("beta", "*"))
        .await
        .expect("allowed");
    beta.flush().await.expect("NATS is there");
    // To itself, and from there by its consumer to where beta listens, as if from gamma.
    let context = jetstream::new(alpha.clone());
    for to in [
        subject::back("beta", "gamma"),
        subject::mail("beta", "gamma"),
    ] {
        let sent = context
            .publish(subject::mail("alpha", "alpha"), "forged".into())
            .await;
        sent.expect("it left").await.expect("it is kept");
        let ask = format!("$JS.API.CONSUMER.MSG.NEXT.{}.alpha", subject::STREAM);
        alpha
            .publish_with_reply(ask, to, r#"{"batch":1}"#.into())
            .await
            .expect("it left");
    }
    let heard = timeout(SILENCE, back.next())
        .await
        .expect("NATS lets it through");
    let heard = heard.expect("it goes on");
    assert_eq!(&*heard.payload, b"forged");
    assert_eq!(
        subject::sender(&heard.subject, "beta"),
        None,
        "{}",
        heard.subject
    );
    let kept = next(&beta, "beta").await;
    assert!(kept.is_none(), "{kept:?}");
}
