//! Peers of two domains: real brokers, adapters and commands, and between them a bridge that a test plays.

mod requests;

use std::fs;

use peerbus_test_support::message::envelope;
use peerbus_test_support::socket::{Heard, registration};
use serde_json::{Value, json};

use crate::support::bridge::{Bridge, token};
use crate::support::{Broker, Home, Mcp, Raw, eventually};

const PAIR: &str = "what alpha and beta share with each other";

/// A broker with a domain.
fn domain(name: &str) -> (Home, Broker) {
    let home = Home::new();
    let broker = Broker::start_with(&home, &["--domain", name]);
    (home, broker)
}

/// Adds a secret that is shared with another domain to the credentials.
fn share(home: &Home, other: &str, secret: &str) {
    let file = home.credentials();
    let mut text = fs::read_to_string(&file).expect("credentials");
    text.push_str(&format!(
        "\n[domains.{other}]\nhmac_secret = \"{secret}\"\n"
    ));
    fs::write(&file, text).expect("credentials can be written");
}

fn peer(home: &Home, name: &str) -> Mcp {
    let mut mcp = Mcp::start(home, "generic", name, "some-bot");
    mcp.call("bus.peers", json!({}));
    mcp
}

/// The bridges bring the next message from one side to the other; gives its key.
fn carry(from: &mut Bridge, to: &mut Bridge) -> String {
    let (key, envelope) = from.delivery();
    assert_eq!(to.take(&envelope)["state"], "accepted");
    from.says(&key, json!({ "state": "forwarded" }));
    key
}

/// What the status tool says of a message: the sentence, and the states.
fn status(mcp: &mut Mcp, id: &Value) -> (String, Vec<String>) {
    let told = mcp.call("bus.status", json!({ "id": id }))["messages"][0].take();
    let states = told["steps"].as_array().expect("steps").iter();
    let states = states.map(|step| step["state"].as_str().unwrap_or_default().to_owned());
    let note = told["note"].as_str().expect("a sentence").to_owned();
    (note, states.collect())
}

#[test]
fn a_message_and_its_answer_cross_domains_that_share_nothing_but_a_secret() {
    let ((a, alpha), (b, beta)) = (domain("alpha"), domain("beta"));
    share(&a, "beta", PAIR);
    share(&b, "alpha", PAIR);
    let mut to_beta = Bridge::join(&alpha, &token(&a), "beta", "B1");
    let mut to_alpha = Bridge::join(&beta, &token(&b), "alpha", "A1");
    let (mut alice, mut bob) = (peer(&a, "alice"), peer(&b, "bob"));

    let sent = alice.call(
        "bus.send",
        json!({ "to": "bob@beta", "body": { "z": 1, "text": "hi" } }),
    );
    let note = sent["note"].as_str().expect("a sentence");
    assert!(note.contains("to go to beta"), "{note}");
    let (note, _) = status(&mut alice, &sent["id"]);
    assert_eq!(
        note,
        "it waits at this broker for beta, which has not confirmed it yet"
    );
    let key = carry(&mut to_beta, &mut to_alpha);
    let (note, states) = status(&mut alice, &sent["id"]);
    assert!(note.starts_with("beta got it "), "{note}");
    assert_eq!(states, ["accepted", "forwarded"]);

    let mail = bob.drained();
    assert_eq!(
        (&mail["from"], &mail["body"]["z"]),
        (&json!("alice@alpha"), &json!(1))
    );
    assert_eq!(
        mail["sent_to"],
        Value::Null,
        "bob@beta is bob's address, no old name"
    );
    bob.call("bus.ack", json!({ "ids": [sent["id"]] }));
    let acked = to_alpha.raw.receipt("acked");
    assert_eq!(
        (&acked["how"], &acked["to"]),
        (&json!("seen"), &json!("bob"))
    );
    let mut stage = acked.clone();
    stage.as_object_mut().expect("a receipt").remove("id");
    to_beta.says(&key, stage);
    let (note, states) = status(&mut alice, &sent["id"]);
    assert!(note.starts_with("bob@beta's model has seen it"), "{note}");
    assert_eq!(states, ["accepted", "forwarded", "seen"]);

    let reply = json!({ "msg_id": sent["id"], "body": "well, hello" });
    assert_eq!(bob.call("bus.reply", reply)["to"], "alice@alpha");
    carry(&mut to_alpha, &mut to_beta);
    let mail = alice.drained();
    assert_eq!(
        (&mail["from"], &mail["body"]["reply_to"]),
        (&json!("bob@beta"), &sent["id"])
    );
    // At home she is who she always was, by either name.
    let own = a
        .run(&["send", "alice@alpha", "again", "--name", "carol"])
        .ok();
    assert!(
        own.contains("; alice is connected; nothing wakes alice: "),
        "{own}"
    );
    assert_eq!(alice.drained()["from"], "carol");
}

#[test]
fn what_another_domain_signs_with_the_wrong_secret_is_shown_to_nobody() {
    let (home, broker) = domain("alpha");
    share(&home, "beta", PAIR);
    let mut bridge = Bridge::join(&broker, &token(&home), "beta", "B1");
    let mut alice = peer(&home, "alice");
    let at_home = home.credential("hmac_secret");
    let forged =
        |id: &str, from: &str, secret: &str| envelope(secret, id, from, "alice@alpha", "1");
    bridge.take(&forged("m1", "eve@beta", &at_home));
    let dead = bridge.raw.receipt("dead");
    assert_eq!((&dead["id"], &dead["to"]), (&json!("m1"), &json!("alice")));
    let why = dead["reason"].as_str().expect("a reason");
    assert!(why.contains("signature mismatch"), "{why}");
    let refused = bridge.take(&forged("m2", "eve@gamma", PAIR));
    assert_eq!(refused["code"], "from", "{refused}");
    assert_eq!(
        bridge.take(&forged("m3", "bob@beta", PAIR))["state"],
        "accepted"
    );
    assert_eq!(alice.drained()["from"], "bob@beta");
}

#[test]
fn a_command_says_whether_another_domain_can_be_reached_and_who_has_its_message() {
    let (home, broker) = domain("alpha");
    let token = token(&home);
    let send = |to: &str| home.run(&["send", to, "hi", "--name", "ada"]);
    let why = send("bob@beta").fails(1);
    for part in [
        "the domain beta was never joined",
        "can join beta to it by a bridge",
    ] {
        assert!(why.contains(part), "{why}");
    }
    let why = send("bob@alpha").fails(1);
    assert!(
        why.contains("alpha is this broker's own domain: it knows no bob"),
        "{why}"
    );

    let mut bridge = Bridge::join(&broker, &token, "beta", "B1");
    let said = send("bob@beta").ok();
    assert!(said.ends_with("; it goes to beta\n"), "{said}");
    let id = said.split([' ', ':']).nth(1).expect("an id").to_owned();
    let status = || home.run(&["status", &id]).ok();
    let (key, _) = bridge.delivery();
    assert!(
        status().contains("waits at this broker for beta"),
        "{}",
        status()
    );
    bridge.does("waiting");
    let deaf = "beta cannot be reached: its bridge does not hear the broker there";
    assert!(status().contains(deaf), "{}", status());
    bridge.says(&key, json!({ "state": "forwarded" }));
    bridge.does("idle");
    let said = status();
    assert!(
        said.contains("  forwarded  bob@beta\nbeta got it "),
        "{said}"
    );
    drop(bridge);
    let gone = "beta cannot be reached: its bridge is not connected to this broker";
    eventually("the bridge is gone", || {
        status().contains(gone).then_some(())
    });
    let said = send("bob@beta").ok();
    assert!(
        said.ends_with("; beta cannot be reached now, it is queued\n"),
        "{said}"
    );
    broker.kill();
    let broker = Broker::start_with(&home, &["--domain", "alpha"]);
    let said = status();
    assert!(
        said.contains("beta has it: ") || said.contains("beta got it "),
        "{said}"
    );
    let mut bridge = Bridge::join(&broker, &token, "beta", "B1");
    assert_ne!(bridge.delivery().0, key, "beta has that one");
    drop(bridge);
    let mut bridge = Bridge::join(&broker, &token, "beta", "B2");
    assert_eq!(bridge.delivery().0, key, "this beta has not");
}

#[test]
fn what_a_bridge_brought_is_known_with_its_mark_after_a_kill() {
    let (home, broker) = domain("alpha");
    let token = token(&home);
    let secret = home.credential("hmac_secret");
    drop(Raw::register(&home, &broker, "alice"));
    let mut bridge = Bridge::join(&broker, &token, "beta", "B1");
    let mail = |id: &str, to: &str| envelope(&secret, id, "bob@beta", to, "1");
    assert_eq!(bridge.take(&mail("m1", "alice@alpha"))["state"], "accepted");
    assert_eq!(
        bridge.take(&mail("m2", "nobody@alpha"))["state"],
        "accepted"
    );
    broker.kill();
    let broker = Broker::start_with(&home, &["--domain", "alpha"]);
    let mut again = Bridge::join(&broker, &token, "beta", "B1");
    assert_eq!(again.greeting["mark"], "mark-2");
    assert_eq!(again.greeting["epoch"], bridge.greeting["epoch"]);
    let dead = again.raw.receipt("dead");
    assert_eq!(
        (&dead["id"], &dead["to"]),
        (&json!("m2"), &json!("nobody@alpha"))
    );
    assert_eq!(again.take(&mail("m1", "alice@alpha"))["duplicate"], true);
    let mut alice = Raw::register(&home, &broker, "alice");
    assert_eq!(alice.delivery()["envelope"]["from"], "bob@beta");
}

#[test]
fn clients_of_version_1_stay_at_home_and_nobody_gets_a_name_or_a_bridge_that_is_not_his() {
    let (home, broker) = domain("alpha");
    let token = token(&home);
    let mut bridge = Bridge::join(&broker, &token, "beta", "B1");
    let mut dave = Raw::register_v1(&home, &broker, "dave");
    let mut alice = Raw::register(&home, &broker, "alice");
    let secret = home.credential("hmac_secret");
    for from in ["dave", "dave@alpha"] {
        dave.say(&envelope(&secret, from, from, "bob@beta", "1"));
    }
    dave.say(&envelope(&secret, "m1", "dave", "alice@alpha", "1"));
    assert_eq!(
        alice.delivery()["envelope"]["id"],
        "m1",
        "dave's are through"
    );
    alice.say(&envelope(&secret, "m2", "alice@alpha", "bob@beta", "1"));
    assert_eq!(alice.answer()["state"], "accepted");
    let (_, first) = bridge.delivery();
    assert!(first.contains(r#""id":"m2""#), "{first}");
    bridge.bring(&envelope(&secret, "m3", "bob@beta", "dave@alpha", "1"));
    let dead = bridge.raw.receipt("dead");
    let why = dead["reason"].as_str().expect("a reason");
    assert!(why.contains("speaks version 1"), "{why}");

    let own = home.credential("token");
    for (name, token, epoch, says) in [
        ("carol@beta", &own, None, "peer name"),
        ("bridge@gamma", &own, None, "peer name"),
        (
            "bridge@gamma",
            &own,
            Some("G1"),
            "cannot bridge: its token lacks the right",
        ),
        (
            "bridge@alpha",
            &token,
            Some("A1"),
            "cannot bridge: this broker itself",
        ),
    ] {
        let mut register = registration(name, token);
        register["ext"] = 2.into();
        if let Some(epoch) = epoch {
            register["bridge"] = epoch.into();
        }
        let mut raw = Raw::connect(&broker);
        raw.say(&register.to_string());
        match raw.hear() {
            Heard::Closed(1008, text) => assert!(text.starts_with(says), "{name}: {text}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn a_broker_has_the_domain_of_the_credentials_unless_it_is_told_another() {
    let home = Home::new();
    Broker::start(&home).stop();
    let text = fs::read_to_string(home.credentials()).expect("credentials");
    let write = |more: &str| {
        fs::write(home.credentials(), format!("{text}{more}\n")).expect("they can be written");
    };
    let domain_of = |args: &[&str]| {
        let broker = Broker::start_with(&home, args);
        let peers = home.run(&["peers", "--json"]).ok();
        broker.stop();
        let peers: Value = serde_json::from_str(&peers).expect("JSON");
        peers["domain"].clone()
    };
    assert_eq!(domain_of(&[]), Value::Null);
    write(r#"domain = "office""#);
    assert_eq!(domain_of(&[]), "office");
    assert_eq!(domain_of(&["--domain", "alpha"]), "alpha");
    write(r#"domain = "Office 3""#);
    let said = home.run(&["serve"]).fails(2);
    assert!(
        said.contains("has a wrong `domain`: Office 3 names no domain"),
        "{said}"
    );
}

#[test]
fn metrics_tell_how_mail_gets_to_each_domain() {
    let (home, broker) = domain("alpha");
    let token = token(&home);
    let mut bridge = Bridge::join(&broker, &token, "beta", "B1");
    drop(Bridge::join(&broker, &token, "delta", "D1"));
    let presence = json!({ "client": "bridge", "resent": 3, "doubled": 2, "taken": "many" });
    bridge.raw.say(
        &json!({ "protocol_version": "v1", "type": "presence", "presence": presence }).to_string(),
    );
    bridge.settle();
    home.run(&["send", "bob@beta", "hi", "--name", "alice"])
        .ok();
    let metrics = || {
        let mut curl = home.command("curl");
        curl.args(["--silent", &format!("http://{}/metrics", broker.address)]);
        String::from_utf8(curl.output().expect("curl").stdout).expect("text")
    };
    let text = eventually("the bridge to delta is gone", || {
        let text = metrics();
        text.contains(r#"peerbus_domain_up{domain="delta"} 0"#)
            .then_some(text)
    });
    for line in [
        r#"peerbus_domain_up{domain="beta"} 1"#,
        r#"peerbus_domain_waiting{domain="beta"} 1"#,
        r#"peerbus_domain_waiting{domain="delta"} 0"#,
        r#"peerbus_domain_resent_total{domain="beta"} 3"#,
        r#"peerbus_domain_doubled_total{domain="beta"} 2"#,
        r#"peerbus_domain_taken_total{domain="beta"} 0"#,
    ] {
        assert!(text.lines().any(|it| it == line), "{line}: {text}");
    }
}

#[test]
fn the_lists_of_peers_and_the_doctor_tell_of_domains_and_of_names_that_look_like_addresses() {
    let home = Home::new();
    let broker = Broker::start(&home);
    drop(Raw::register(&home, &broker, "old@beta"));
    broker.stop();
    let broker = Broker::start_with(&home, &["--domain", "alpha"]);
    share(&home, "gamma", PAIR);
    let token = token(&home);
    let mut bridge = Bridge::join(&broker, &token, "beta", "B1");
    bridge.raw.say(r#"{"protocol_version":"v1","type":"presence","presence":{"client":"bridge","key":"wide"}}"#);
    drop(Bridge::join(&broker, &token, "delta", "D1"));
    let mut alice = peer(&home, "alice");
    let told = eventually("the bridge to delta is gone", || {
        let told = alice.call("bus.peers", json!({}));
        (told["domains"][1]["reachable"] == false).then_some(told)
    });
    assert_eq!(
        (&told["domain"], &told["peers"]),
        (&json!("alpha"), &json!([]))
    );
    assert_eq!(
        told["domains"][0],
        json!({ "domain": "beta", "reachable": true })
    );
    assert!(!told["details"].to_string().contains("bridge@"), "{told}");

    let said = home.run(&["peers"]);
    for line in [
        "domain: alpha; from elsewhere a peer is NAME@alpha",
        "domain: beta is joined, a peer there is NAME@beta",
        "domain: delta cannot be reached: its bridge is not connected to this broker",
    ] {
        assert!(said.stderr.contains(line), "{}", said.stderr);
    }
    assert!(!said.stdout.contains("bridge@"), "{}", said.stdout);
    let json: Value = serde_json::from_str(&home.run(&["peers", "--json"]).ok()).expect("JSON");
    assert_eq!(
        (&json["domain"], &json["domains"]),
        (&told["domain"], &told["domains"])
    );

    let said = home.run(&["doctor"]).stdout;
    for line in [
        "this broker is alpha: from elsewhere its peers are NAME@alpha",
        "beta is joined, and its bridge is connected",
        "NATS does not say that the account of the bridge's key keeps the mail of alpha only",
        "run `peerbus bridge setup`",
        "delta cannot be reached",
        "the peer old@beta of this broker has a name that looks like an address",
        "`peerbus names retire old@beta`",
        "[domains.gamma], and that domain was never joined",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    // Mail for the old name goes to who has it.
    let said = home.run(&["send", "old@beta", "hi", "--name", "ada"]).ok();
    assert!(said.contains("accepted"), "{said}");
    drop(bridge);
}

#[test]
fn without_a_domain_an_address_is_a_name_and_nothing_is_said_of_domains() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Raw::register(&home, &broker, "bob@beta");
    let said = home.run(&["send", "bob@beta", "hi", "--name", "ada"]).ok();
    assert!(said.ends_with("; bob@beta is connected\n"), "{said}");
    assert_eq!(bob.delivery()["envelope"]["from"], "ada");
    let why = home.run(&["send", "carol@beta", "hi"]).fails(1);
    assert!(why.contains("nobody here is called carol@beta"), "{why}");
    assert!(
        why.contains("its operator starts it with `--domain`"),
        "{why}"
    );
    let mut alice = peer(&home, "alice");
    let why = alice.call_fails("bus.send", json!({ "to": "carol@beta", "body": "hi" }));
    assert!(
        why.contains("its operator starts it with `--domain`"),
        "{why}"
    );
    let told = alice.call("bus.peers", json!({}));
    assert_eq!(
        (&told["domain"], &told["domains"]),
        (&Value::Null, &Value::Null)
    );
    for args in [&["peers"][..], &["doctor"]] {
        let said = home.run(args);
        assert!(!(said.stdout + &said.stderr).contains("domain"), "{args:?}");
    }
    let mut register = registration("eve", &home.credential("token"));
    register["ext"] = 2.into();
    let mut raw = Raw::connect(&broker);
    raw.say(&register.to_string());
    let greeting = raw.next();
    let members = greeting.as_object().expect("a frame").keys();
    assert!(
        members
            .clone()
            .all(|it| !["domain", "epoch", "mark"].contains(&it.as_str()))
    );
}

#[test]
fn a_name_that_can_never_be_had_and_a_secret_that_is_none_end_with_what_helps() {
    let home = Home::new();
    let broker = Broker::start_with(&home, &["--domain", "alpha"]);
    let said = home.run(&["recv", "--name", "al@beta"]).fails(1);
    assert!(said.contains("looks like an address in a domain"), "{said}");
    let mut bridge = Bridge::join(&broker, &token(&home), "beta", "B1");
    bridge.does("waiting");
    let said = home.run(&[
        "send", "bob@beta", "hi", "--name", "ada", "--wait", "seen=1",
    ]);
    let said = said.fails(1);
    assert!(said.contains("does not hear the broker there"), "{said}");
    share(&home, "beta", "short");
    let said = home.run(&["doctor"]).stdout;
    assert!(said.contains("the rest of it can stay"), "{said}");
    drop(bridge);
}
