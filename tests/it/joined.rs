//! Two brokers with a domain each, joined by bridges over a real nats-server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use peerbus_test_support::message::envelope;
use peerbus_test_support::nats::Nats;
use serde_json::{Value, json};

use crate::support::{Broker, Home, Raw, eventually};

/// `peerbus-bridge`, which is built beside the binary when the workspace is.
fn program() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_peerbus")).with_file_name("peerbus-bridge");
    assert!(beside.is_file(), "build it: cargo build -p peerbus-bridge");
    beside
}

/// A machine: a broker with a domain, and its bridge.
struct Machine {
    home: Home,
    domain: &'static str,
    broker: Option<Broker>,
    bridge: Option<Child>,
    /// The port, once it is known.
    listen: String,
}

impl Machine {
    fn start(domain: &'static str, nats: &Nats) -> Self {
        let mut machine = Self {
            home: Home::new(),
            domain,
            broker: None,
            bridge: None,
            listen: "127.0.0.1:0".into(),
        };
        machine.start_broker();
        machine.start_bridge(nats);
        machine
    }

    fn start_broker(&mut self) {
        let args = ["serve", "--domain", self.domain, "--listen", &self.listen];
        let broker = Broker::spawn(&mut self.home.peerbus(&args));
        self.listen.clone_from(&broker.address);
        self.broker = Some(broker);
    }

    fn start_bridge(&mut self, nats: &Nats) {
        program();
        let bridge = self
            .home
            .peerbus(&["bridge", "--nats", &nats.url()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.bridge = Some(bridge.expect("it starts"));
    }

    fn kill_broker(&mut self) {
        self.broker.take().expect("it runs").kill();
    }

    fn kill_bridge(&mut self) {
        let mut bridge = self.bridge.take().expect("it runs");
        bridge.kill().expect("our child");
        bridge.wait().expect("our child");
    }

    fn peer(&self, name: &str) -> Peer {
        let broker = self.broker.as_ref().expect("it runs");
        Peer {
            raw: Raw::register(&self.home, broker, name),
            secret: self.home.credential("hmac_secret"),
            address: format!("{name}@{}", self.domain),
        }
    }

    /// Waits until the bridge to another domain is there.
    fn joined(&self, other: &str) {
        eventually("the domain is joined", || {
            let peers = self.home.run(&["peers", "--json"]).ok();
            let peers: Value = serde_json::from_str(&peers).expect("JSON");
            let all = peers["domains"].as_array()?;
            let there = |domain: &Value| domain["domain"] == other && domain["reachable"] == true;
            all.iter().any(there).then_some(())
        });
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(mut bridge) = self.bridge.take() {
            // It may have ended already.
            let _ = bridge.kill();
            let _ = bridge.wait();
        }
    }
}

/// A peer that speaks the wire itself.
struct Peer {
    raw: Raw,
    secret: String,
    address: String,
}

impl Peer {
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
    let (alpha, beta) = (
        Machine::start("alpha", &nats),
        Machine::start("beta", &nats),
    );
    alpha.joined("beta");
    beta.joined("alpha");
    let (mut alice, mut bob) = (alpha.peer("alice"), beta.peer("bob"));
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
fn what_waits_crosses_once_and_in_order_whoever_is_killed() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(mut nats) = Nats::start(dir.path(), None) else {
        return;
    };
    let mut alpha = Machine::start("alpha", &nats);
    let mut beta = Machine::start("beta", &nats);
    alpha.joined("beta");
    let mut shown = Vec::new();
    let mut sent = Vec::new();
    for round in 0..5 {
        let mut alice = alpha.peer("alice");
        let mut bob = beta.peer("bob");
        let ids: Vec<_> = (0..10).map(|n| format!("r{round}-{n}")).collect();
        for (n, id) in ids.iter().enumerate() {
            if n == 5 {
                match round {
                    0 => alpha.kill_bridge(),
                    1 => beta.kill_bridge(),
                    2 => nats.restart(false),
                    3 => nats.restart(true),
                    _ => beta.kill_broker(),
                }
            }
            alice.send("bob@beta", id);
        }
        sent.extend(ids);
        match round {
            0 => alpha.start_bridge(&nats),
            1 => beta.start_bridge(&nats),
            4 => {
                beta.start_broker();
                bob = beta.peer("bob");
            }
            _ => {}
        }
        while shown.len() < sent.len() {
            let (from, id, again) = bob.take();
            assert_eq!(from, "alice@alpha");
            // After a kill of the broker what bob had acked may come once more, and says so.
            if !shown.contains(&id) {
                shown.push(id);
            } else {
                assert!(again, "{id} came twice as new");
            }
        }
        assert_eq!(shown, sent, "round {round}");
    }
}

#[test]
fn who_is_in_another_domain_can_be_asked() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(nats) = Nats::start(dir.path(), None) else {
        return;
    };
    let (alpha, beta) = (
        Machine::start("alpha", &nats),
        Machine::start("beta", &nats),
    );
    let _bob = beta.peer("bob");
    drop(beta.peer("carol"));
    alpha.joined("beta");
    let told = eventually("beta tells who is there", || {
        let told = alpha
            .home
            .run(&["peers", "--domain", "beta", "--json"])
            .ok();
        let told: Value = serde_json::from_str(&told).expect("JSON");
        (told["peers"] != json!([])).then_some(told)
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
    let alpha = Machine::start("alpha", &nats);
    let mut beta = Machine::start("beta", &nats);
    beta.kill_bridge();
    let file = beta.home.credentials();
    let mut text = fs::read_to_string(&file).expect("credentials");
    text.push_str("\n[domains.alpha]\nallow = [\"alice -> bob\"]\n");
    fs::write(&file, text).expect("credentials can be written");
    beta.start_bridge(&nats);
    alpha.joined("beta");
    beta.joined("alpha");
    let (mut alice, mut bob) = (alpha.peer("alice"), beta.peer("bob"));
    let _carol = beta.peer("carol");
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
