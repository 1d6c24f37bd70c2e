//! What the key of one domain can do in NATS.

use std::path::Path;
use std::time::Duration;

use async_nats::jetstream::{self, Message};
use async_nats::{Client, HeaderMap};
use futures_util::StreamExt as _;
use peerbus_bridge::account::{self, Accounts};
use peerbus_bridge::nats::{Bound, NatsServer, bound, consumer, set_up};
use peerbus_bridge::subject::{self, SubjectKind};
use serde_json::{Value, json};
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
        world.set_up(&domains).await;
        // What is there is left as it is.
        world.set_up(&domains).await;
        Some(world)
    }

    async fn set_up(&self, domains: &[String]) {
        let admin = self.with(&self.accounts.setup, None).await;
        let server = self.server(&self.accounts.setup);
        let made = set_up(&server, &admin, domains, 1).await;
        made.expect("streams");
    }

    fn server(&self, key: &Path) -> NatsServer {
        NatsServer {
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
        Some((SubjectKind::Mail, "alpha"))
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
        let bound = bound(&world.server(key), &client, "alpha").await;
        assert_eq!(bound, is, "{key:?}");
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
    // To itself, and from there by its consumer to where beta listens, as if from gamma, and as if said.
    let context = jetstream::new(alpha.clone());
    for to in [
        subject::back("beta", "gamma"),
        subject::mail("beta", "gamma"),
        subject::back("beta", "alpha"),
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

/// What must be as it was, whatever beta does: the mail of the others for each other, and their consumers.
async fn of_others(admin: &Client) -> Vec<(Value, Value)> {
    let mut found = Vec::new();
    for domain in ["alpha", "gamma"] {
        let api = subject::api(domain);
        let ask = async |what: String, with: &'static str| {
            let asked = admin.request(format!("{api}.{what}"), with.into()).await;
            serde_json::from_slice::<Value>(&asked.expect("an answer").payload).expect("JSON")
        };
        let info = format!("STREAM.INFO.{}", subject::STREAM);
        let stream = ask(info, r#"{"subjects_filter":">"}"#).await;
        let consumer = ask(format!("CONSUMER.INFO.{}.{domain}", subject::STREAM), "").await;
        let mut mail = stream["state"]["subjects"].clone();
        if let Some(mail) = mail.as_object_mut() {
            // What beta sent itself stands under a subject that says so.
            mail.retain(|subject, _| !subject.ends_with(".beta"));
        }
        let stream = json!([stream["config"], stream["created"], mail]);
        let unacked = (&consumer["num_ack_pending"], &consumer["ack_floor"]);
        found.push((
            stream,
            json!([consumer["config"], consumer["created"], unacked]),
        ));
    }
    found
}

/// Where beta would have answers go.
fn worst() -> Vec<String> {
    let stream = subject::STREAM;
    let mut all = Vec::new();
    for domain in ["alpha", "gamma", "beta", "evil"] {
        all.extend([
            subject::mail("alpha", domain),
            subject::mail("gamma", domain),
            subject::back("alpha", domain),
            subject::here(domain),
            format!("{}.x", subject::inbox(domain)),
            format!("$JS.API.CONSUMER.DELETE.{stream}.{domain}"),
            format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{domain}"),
            format!("$JS.API.CONSUMER.CREATE.{stream}.{domain}"),
            format!("$JS.ACK.{stream}.{domain}.1.1.1.1.0"),
            format!("{}.STREAM.DELETE.{stream}", subject::api(domain)),
            format!("$JS.API.ACCOUNT.PURGE.{}", subject::account(domain)),
        ]);
    }
    let more = ["DELETE", "PURGE", "UPDATE", "MSG.DELETE", "LEADER.STEPDOWN"];
    all.extend(more.map(|what| format!("$JS.API.STREAM.{what}.{stream}")));
    all.extend(["$SYS.REQ.SERVER.PING", "$SYS.REQ.ACCOUNT.PING.CONNZ"].map(str::to_owned));
    all
}

#[tokio::test]
async fn no_answer_goes_where_a_domain_does_not_speak_itself() {
    let Some(world) = World::start().await else {
        return;
    };
    let (alpha, beta) = (world.bridge("alpha").await, world.bridge("beta").await);
    let gamma = world.bridge("gamma").await;
    let admin = world.with(&world.accounts.setup, None).await;
    for (client, to) in [
        (&gamma, subject::mail("alpha", "gamma")),
        (&gamma, subject::mail("beta", "gamma")),
        (&alpha, subject::mail("gamma", "alpha")),
    ] {
        let context = jetstream::new(client.clone());
        let sent = context.publish(to, "mail".into());
        sent.await.expect("it left").await.expect("it is kept");
    }
    let told = alpha.subscribe(subject::back("alpha", "*")).await;
    let here = alpha.subscribe(subject::here("*")).await;
    let all = futures_util::stream::select(told.expect("allowed"), here.expect("allowed"));
    // One that is not acked.
    let mail = next(&alpha, "alpha").await.expect("gamma's");
    assert_eq!(mail.subject.as_str(), subject::mail("alpha", "gamma"));
    let before = of_others(&admin).await;

    let own = subject::mail("beta", "beta");
    let pull = format!("$JS.API.CONSUMER.MSG.NEXT.{}.beta", subject::STREAM);
    let bodies = [
        "",
        "+TERM",
        r#"{"name":"PEERBUS","subjects":["peerbus.>"],"filter":">","seq":1}"#,
    ];
    for reply in worst() {
        let ask = async |to: &str, body: &'static str| {
            let sent = beta.publish_with_reply(to.to_owned(), reply.clone(), body.into());
            sent.await.expect("it left");
        };
        for may in subject::may_publish("beta") {
            let may = may.replace('>', "1.1.1.1.0");
            for to in ["alpha", "gamma"].map(|other| may.replace('*', other)) {
                for body in ["", "+NXT", "junk", r#"{"batch":1,"no_wait":true}"#] {
                    ask(&to, body).await;
                }
            }
        }
        for body in bodies {
            beta.publish(own.clone(), body.into())
                .await
                .expect("it left");
            ask(&pull, r#"{"batch":2,"no_wait":true}"#).await;
        }
        let mut traced = HeaderMap::new();
        traced.insert("Nats-Trace-Dest", reply.as_str());
        let to = subject::mail("alpha", "beta");
        let sent = beta.publish_with_headers(to, traced, "traced".into());
        sent.await.expect("it left");
    }
    beta.flush().await.expect("NATS is there");
    let mut heard = Box::pin(all);
    while let Ok(Some(message)) = timeout(SILENCE, heard.next()).await {
        let said = subject::sender(&message.subject, "alpha");
        let from = said.map(|(_, from)| from);
        assert!(matches!(from, None | Some("beta")), "{message:?}");
    }
    assert_eq!(of_others(&admin).await, before);
    mail.ack().await.expect("it leaves");
    let context = jetstream::new(gamma.clone());
    let sent = context.publish(subject::mail("alpha", "gamma"), "more".into());
    sent.await.expect("it left").await.expect("it is kept");
}

#[tokio::test]
async fn a_third_domain_joins_those_that_are_there_once_the_server_starts_anew() {
    let dir = tempfile::tempdir().expect("a directory");
    let keys = dir.path().join("keys");
    let two = ["alpha", "beta"].map(str::to_owned);
    let accounts = account::write(&keys, &two).expect("our directory");
    let server = dir.path().join("server");
    let Some(nats) = Nats::start(&server, Some(&accounts.accounts)) else {
        return;
    };
    let mut world = World {
        nats,
        accounts,
        _dir: dir,
    };
    world.set_up(&two).await;
    let context = jetstream::new(world.bridge("beta").await);
    let sent = context.publish(subject::mail("alpha", "beta"), "first".into());
    sent.await.expect("it left").await.expect("it is kept");
    let third = ["gamma".to_owned()];
    world.accounts = account::write(&keys, &third).expect("our directory");
    let beside = server.join("accounts.conf");
    std::fs::copy(&world.accounts.accounts, beside).expect("our file");
    world.nats.restart(false);
    world.set_up(&third).await;
    let (alpha, gamma) = (world.bridge("alpha").await, world.bridge("gamma").await);
    let mail = next(&alpha, "alpha").await.expect("it waited");
    assert_eq!(&*mail.payload, b"first");
    mail.ack().await.expect("it leaves");
    for (from, to, client, other) in [
        ("gamma", "alpha", &gamma, &alpha),
        ("alpha", "gamma", &alpha, &gamma),
    ] {
        let told = other.subscribe(subject::back(to, "*")).await;
        let mut told = told.expect("allowed");
        // An answer means that the server knows of the subscription.
        let context = jetstream::new(other.clone());
        consumer(&context, to).await.expect("its consumer");
        let say = client.publish(subject::back(to, from), "told".into());
        say.await.expect("it left");
        let told = told.next().await;
        let told = told.expect("it goes on");
        assert_eq!(
            subject::sender(&told.subject, to),
            Some((SubjectKind::Back, from))
        );
        let context = jetstream::new(client.clone());
        let sent = context.publish(subject::mail(to, from), "mail".into());
        sent.await.expect("it left").await.expect("it is kept");
        let mail = next(other, to).await.expect("it is there");
        assert_eq!(
            subject::sender(&mail.subject, to),
            Some((SubjectKind::Mail, from))
        );
        mail.ack().await.expect("it leaves");
    }
}
