//! Two brokers with a domain each, joined by bridges over a real nats-server.

mod ledger;
mod machine;
mod member;
mod rounds;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::Command;

use async_nats::jetstream;
use peerbus_test_support::message::envelope;
use peerbus_test_support::nats::Nats;
use rustix::fs::OFlags;
use serde_json::{Value, json};

use crate::support::bridge::{Bridge, token};
use crate::support::{Raw, eventually};
use machine::Machine;

/// A machine whose bridge uses no key.
fn machine(domain: &'static str, nats: &Nats) -> Machine {
    Machine::start(domain, &["--nats", &nats.url()])
}

/// A peer that speaks the wire itself.
struct Peer {
    raw: Raw,
    secret: String,
    address: String,
}

impl Peer {
    fn at(machine: &Machine, name: &str) -> Self {
        Self {
            raw: Raw::register(&machine.home, machine.broker(), name),
            secret: machine.home.credential("hmac_secret"),
            address: format!("{name}@{}", machine.domain),
        }
    }

    fn send(&mut self, to: &str, id: &str) {
        let text = envelope(&self.secret, id, &self.address, to, r#""hello""#);
        self.raw.say(&text);
        let answer = self.raw.answer();
        assert_eq!(answer["state"], "accepted", "{answer}");
    }

    /// The next message: from whom, and its id. It is acked as seen.
    fn take(&mut self) -> (String, String, bool) {
        let frame = self.raw.delivery();
        let ack = json!({
            "protocol_version": "v1", "type": "ack", "id": frame["delivery_key"],
            "how": "seen", "path": "test", "evidence": "transcript",
        });
        self.raw.say(&ack.to_string());
        let text = |member: &str| {
            frame["envelope"][member]
                .as_str()
                .expect("a text")
                .to_owned()
        };
        (text("from"), text("id"), frame["again"] == true)
    }
}

#[test]
fn a_message_crosses_and_that_it_was_seen_comes_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(nats) = Nats::start(dir.path(), None) else {
        return;
    };
    let (alpha, beta) = (machine("alpha", &nats), machine("beta", &nats));
    alpha.joined("beta");
    beta.joined("alpha");
    let (mut alice, mut bob) = (Peer::at(&alpha, "alice"), Peer::at(&beta, "bob"));
    alice.send("bob@beta", "m1");
    assert_eq!(bob.take(), ("alice@alpha".into(), "m1".into(), false));
    let acked = alice.raw.receipt("acked");
    assert_eq!(
        (&acked["how"], &acked["to"]),
        (&json!("seen"), &json!("bob@beta"))
    );
    let history = alpha.home.run(&["history", "--json"]).ok();
    let steps = history.matches(r#""to":"bob@beta""#).count();
    assert!(
        history.contains(r#""state":"forwarded""#) && steps > 2,
        "{history}"
    );
    // The way back is the same one.
    bob.send("alice@alpha", "m1");
    assert_eq!(alice.take().0, "bob@beta");
    alice.send("nobody@beta", "m2");
    let dead = alice.raw.receipt("dead");
    assert!(dead["reason"].to_string().contains("nobody"), "{dead}");
}

#[test]
fn who_is_in_another_domain_can_be_asked() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(nats) = Nats::start(dir.path(), None) else {
        return;
    };
    let (alpha, beta) = (machine("alpha", &nats), machine("beta", &nats));
    let mut bob = Peer::at(&beta, "bob");
    drop(Peer::at(&beta, "carol"));
    let asks = json!({ "protocol_version": "v1", "type": "presence",
        "presence": { "activity": "waiting" } });
    bob.raw.say(&asks.to_string());
    alpha.joined("beta");
    let told = eventually("beta tells who is there", || {
        let told = alpha
            .home
            .run(&["peers", "--domain", "beta", "--json"])
            .ok();
        let told: Value = serde_json::from_str(&told).expect("JSON");
        (told["peers"][0]["state"] == "waits for its user").then_some(told)
    });
    let peers = told["peers"].as_array().expect("a list").iter();
    let peers: Vec<_> = peers.map(|it| (&it["name"], &it["online"])).collect();
    assert_eq!(
        peers,
        [
            (&json!("bob@beta"), &json!(true)),
            (&json!("carol@beta"), &json!(false))
        ]
    );
    let table = alpha.home.run(&["peers", "--domain", "beta", "--all"]).ok();
    let away = |line: &str| line.contains("carol@beta") && line.contains("away");
    assert!(table.lines().any(away), "{table}");
    let note = told["note"].as_str().expect("a sentence");
    assert!(note.starts_with("as beta told "), "{note}");
    let said = alpha.home.run(&["peers", "--domain", "gamma"]).fails(1);
    assert!(
        said.contains("the domain gamma was never joined to this broker; joined are beta"),
        "{said}"
    );
    let said = alpha.home.run(&["peers", "--domain", "alpha"]).fails(1);
    assert!(said.contains("alpha is this broker's own domain"), "{said}");
}

#[test]
fn a_domain_lets_in_whom_its_rules_name_and_keeps_who_was_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(nats) = Nats::start(dir.path(), None) else {
        return;
    };
    let alpha = machine("alpha", &nats);
    let mut beta = machine("beta", &nats);
    beta.kill_bridge();
    let file = beta.home.credentials();
    let mut text = fs::read_to_string(&file).expect("credentials");
    text.push_str("\n[domains.alpha]\nallow = [\"alice -> bob\"]\n");
    fs::write(&file, text).expect("credentials can be written");
    beta.start_bridge();
    alpha.joined("beta");
    beta.joined("alpha");
    let (mut alice, mut bob) = (Peer::at(&alpha, "alice"), Peer::at(&beta, "bob"));
    let _carol = Peer::at(&beta, "carol");
    alice.send("carol@beta", "m1");
    let dead = alice.raw.receipt("dead");
    let why = dead["reason"].as_str().expect("a reason");
    assert!(
        why.contains("alice@alpha may not write to carol@beta"),
        "{why}"
    );
    alice.send("bob@beta", "m2");
    assert_eq!(bob.take().1, "m2");
    let record = eventually("it stands in the audit chain", || {
        let kept = beta.home.run(&["audit", "sessions"]).ok();
        let mut lines = kept.lines().map(ToOwned::to_owned);
        lines.find(|line| line.contains("admit refused"))
    });
    assert!(
        record.contains("bridge@alpha") && record.contains("request_id m1"),
        "{record}"
    );
}

#[test]
fn mail_of_a_domain_whose_bridge_is_refused_waits_and_holds_up_no_other_domains() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(nats) = Nats::start(dir.path(), None) else {
        return;
    };
    let mut alpha = machine("alpha", &nats);
    let (beta, gamma) = (machine("beta", &nats), machine("gamma", &nats));
    for (one, other) in [(&alpha, "beta"), (&beta, "alpha"), (&gamma, "alpha")] {
        one.joined(other);
    }
    let mut alice = Peer::at(&alpha, "alice");
    alpha.kill_bridge();
    let mut bob = Peer::at(&beta, "bob");
    for n in 0..200 {
        bob.send("alice@alpha", &format!("b{n}"));
    }
    // Somebody else has the name of the bridge to beta.
    let token = token(&alpha.home);
    let free = ["names", "release", "bridge@beta"];
    alpha.home.run(&free).ok();
    drop(Bridge::join(alpha.broker(), &token, "beta", "0"));
    alpha.start_bridge();
    let log = alpha.log();
    eventually("it is refused", || {
        let log = fs::read_to_string(&log).expect("our file");
        log.contains("claimed under a different token")
            .then_some(())
    });
    let mut carol = Peer::at(&gamma, "carol");
    carol.send("alice@alpha", "g1");
    assert_eq!(alice.take().1, "g1");
    alpha.home.run(&free).ok();
    for n in 0..200 {
        assert_eq!(alice.take().1, format!("b{n}"));
    }
}

/// The stream holds two messages of a domain for another, and no more.
async fn narrow(nats: &Nats) {
    let client = async_nats::connect(nats.url()).await.expect("loopback");
    let context = jetstream::new(client);
    let stream = context.get_stream("PEERBUS").await.expect("it is there");
    let mut config = stream.cached_info().config.clone();
    config.max_messages_per_subject = 2;
    context.update_stream(config).await.expect("it may");
}

#[test]
fn what_a_full_stream_does_not_take_waits_at_home_and_comes_in_order() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(nats) = Nats::start(dir.path(), None) else {
        return;
    };
    let (alpha, mut beta) = (machine("alpha", &nats), machine("beta", &nats));
    alpha.joined("beta");
    beta.joined("alpha");
    let (mut alice, mut bob) = (Peer::at(&alpha, "alice"), Peer::at(&beta, "bob"));
    beta.kill_bridge();
    let runtime = tokio::runtime::Runtime::new().expect("it starts");
    runtime.block_on(narrow(&nats));
    for n in 0..10 {
        alice.send("bob@beta", &format!("m{n}"));
    }
    eventually("the operator is told", || {
        let log = fs::read_to_string(alpha.log()).expect("our file");
        log.contains("the stream takes no message now")
            .then_some(())
    });
    beta.start_bridge();
    for n in 0..10 {
        assert_eq!(bob.take(), ("alice@alpha".into(), format!("m{n}"), false));
    }
    let mut seen = 0;
    while seen < 10 {
        let frame = alice.raw.next();
        let told = frame["receipts"].as_array().into_iter().flatten();
        seen += told.filter(|it| it["how"] == "seen").count();
    }
}

#[test]
fn while_the_stream_cannot_be_used_the_other_domain_cannot_be_reached() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(mut nats) = Nats::start(dir.path(), None) else {
        return;
    };
    let (alpha, beta) = (machine("alpha", &nats), machine("beta", &nats));
    alpha.joined("beta");
    beta.joined("alpha");
    let (mut alice, mut bob) = (Peer::at(&alpha, "alice"), Peer::at(&beta, "bob"));
    nats.kill();
    eventually("it is told", || {
        let told = alpha.home.run(&["peers", "--json"]).ok();
        told.contains("beta cannot be reached: its bridge cannot use the stream in NATS")
            .then_some(())
    });
    alice.send("bob@beta", "m1");
    nats.start_again();
    assert_eq!(bob.take().1, "m1");
    alpha.joined("beta");
}

/// Says what no bridge says, for domains that do not exist, and of some what a bridge does say, but no hello.
async fn invent(nats: &Nats) {
    let client = async_nats::connect(nats.url()).await.expect("loopback");
    let say = async |subject: String, text: &'static str| {
        let said = client.publish(subject, text.into()).await;
        said.expect("it left");
    };
    let status = r#"{"type":"io.nats.jetstream.api.v1.consumer_info_response"}"#;
    for n in 0..300 {
        for text in ["", status] {
            say(format!("peerbus.here.eve{n}"), text).await;
            say(format!("peerbus.back.alpha.eve{n}"), text).await;
            say(format!("peerbus.v1.alpha.eve{n}"), text).await;
        }
    }
    let roster = r#"{"protocol_version":"v1","type":"roster","peers":[]}"#;
    for n in 0..256 {
        say(format!("peerbus.here.mute{n}"), roster).await;
    }
    client.flush().await.expect("NATS is there");
}

#[test]
fn what_no_bridge_says_joins_no_domain_and_a_silent_one_gives_way_to_a_real_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(nats) = Nats::start(dir.path(), None) else {
        return;
    };
    let alpha = machine("alpha", &nats);
    eventually("the bridge is up", || {
        let log = fs::read_to_string(alpha.log()).expect("our file");
        log.contains("the bridge is up").then_some(())
    });
    let runtime = tokio::runtime::Runtime::new().expect("it starts");
    runtime.block_on(invent(&nats));
    let beta = machine("beta", &nats);
    alpha.joined("beta");
    beta.joined("alpha");
    let (mut alice, mut bob) = (Peer::at(&alpha, "alice"), Peer::at(&beta, "bob"));
    alice.send("bob@beta", "m1");
    assert_eq!(bob.take().1, "m1");
    let peers = alpha.home.run(&["peers", "--json"]).ok();
    assert_eq!(peers.matches("eve").count(), 0);
    let log = fs::read_to_string(alpha.log()).expect("our file");
    assert!(log.contains("256 domains are the most"), "{log}");
}

#[test]
fn a_log_that_nobody_reads_holds_up_no_mail_and_not_the_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(nats) = Nats::start(dir.path(), None) else {
        return;
    };
    let (mut alpha, beta) = (machine("alpha", &nats), machine("beta", &nats));
    alpha.kill_bridge();
    let path = dir.path().join("pipe");
    let made = Command::new("mkfifo").arg(&path).status();
    assert!(made.expect("mkfifo is there").success());
    let mut options = File::options();
    options.write(true);
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let held = options
        .clone()
        .read(true)
        .custom_flags(nonblocking)
        .open(&path);
    let mut held = held.expect("the pipe");
    while held.write(&[b'x'; 4_096]).is_ok() {}
    alpha.start_bridge_with(options.open(&path).expect("it has a reader"));
    alpha.joined("beta");
    beta.joined("alpha");
    let (mut alice, mut bob) = (Peer::at(&alpha, "alice"), Peer::at(&beta, "bob"));
    alice.send("bob@beta", "m1");
    assert_eq!(bob.take().1, "m1");
    assert_eq!(alpha.end_bridge(), Some(0));
}
