//! What an attacker, or a broken client, tries.

use std::process::Stdio;

use peerbus_test_support::message::envelope;
use peerbus_test_support::socket::Heard;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::support::{Broker, Home, Lines, Mcp, Raw};

const WRONG_SECRET: &str = "not the secret that the adapters share";

#[test]
fn a_forged_or_altered_envelope_is_never_shown_and_its_sender_is_told() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut victim = Mcp::start(&home, "generic", "victim", "some-bot");
    victim.call("bus.peers", json!({}));
    let secret = home.credential("hmac_secret");
    let mut forger = Raw::register(&home, &broker, "forger");

    forger.say(&envelope(
        WRONG_SECRET,
        "forged",
        "forger",
        "victim",
        r#""evil""#,
    ));
    let dead = forger.receipt("dead");
    assert_eq!(
        (&dead["id"], &dead["to"]),
        (&json!("forged"), &json!("victim"))
    );
    assert!(
        dead["reason"]
            .as_str()
            .expect("a reason")
            .contains("signature"),
        "{dead}"
    );

    let altered =
        envelope(&secret, "altered", "forger", "victim", r#""good""#).replace("good", "evil");
    forger.say(&altered);
    assert_eq!(forger.receipt("dead")["id"], "altered");

    forger.say(&envelope(&secret, "true", "forger", "victim", r#""good""#));
    let drained = crate::support::eventually("the true one arrives", || {
        let drained = victim.call("bus.drain", json!({}));
        (drained["messages"] != json!([])).then_some(drained)
    });
    assert!(!drained.to_string().contains("evil"), "{drained}");
    assert_eq!(drained["messages"][0]["id"], "true");
    broker.stop();
}

#[test]
fn a_spoofed_sender_is_refused_to_its_face() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let secret = home.credential("hmac_secret");
    let mut mallory = Raw::register(&home, &broker, "mallory");
    let _alice = Raw::register(&home, &broker, "alice");
    mallory.say(&envelope(&secret, "spoof", "alice", "mallory", "1"));
    let refused = mallory.receipt("refused");
    assert_eq!(
        (&refused["id"], &refused["code"]),
        (&json!("spoof"), &json!("from"))
    );
    assert!(
        refused["reason"]
            .as_str()
            .expect("a reason")
            .contains("mallory"),
        "{refused}"
    );
    broker.stop();
}

#[test]
fn an_ack_for_anothers_delivery_changes_nothing() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let secret = home.credential("hmac_secret");
    let mut bob = Raw::register(&home, &broker, "bob");
    let mut mallory = Raw::register(&home, &broker, "mallory");
    mallory.say(&envelope(&secret, "one", "mallory", "bob", "1"));
    mallory.receipt("accepted");
    let deliver = bob.next();
    let ack = json!({ "protocol_version": "v1", "type": "ack", "id": deliver["delivery_key"] });
    mallory.say(&ack.to_string());
    // The answer to `peers` is a barrier behind the ack.
    mallory.say(r#"{"protocol_version":"v1","type":"peers"}"#);
    let unacked = loop {
        let frame = mallory.next();
        if frame["type"] == "peers" {
            let peers = frame["peers"].as_array().expect("entries").clone();
            break peers.into_iter().find(|p| p["name"] == "bob").expect("bob")["unacked"].clone();
        }
    };
    assert_eq!(unacked, 1);
    broker.stop();
}

#[test]
fn a_frame_over_the_limit_closes_the_connection_that_sent_it_and_no_other() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bystander = Raw::register(&home, &broker, "bystander");
    let mut large = Raw::register(&home, &broker, "large");
    large.say(&"x".repeat(1_048_577));
    let Heard::Closed(code, text) = large.hear() else {
        panic!("still open")
    };
    assert_eq!(code, 1009, "{text}");
    bystander.say(r#"{"protocol_version":"v1","type":"peers"}"#);
    bystander.next();
    broker.stop();
}

#[test]
fn a_message_that_grows_over_the_limit_is_refused_and_blocks_nobody() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let secret = home.credential("hmac_secret");
    let mut bob = Raw::register(&home, &broker, "bob");
    let mut alice = Raw::register(&home, &broker, "alice");
    let signed = envelope(
        &secret,
        "grows",
        "alice",
        "bob",
        &format!("\"{}\"", "<".repeat(200_000)),
    );
    // Raw `<` is as good as its escape on the wire, and six times shorter.
    alice.say(&signed.replace("\\u003c", "<"));
    assert_eq!(alice.receipt("refused")["code"], "too_large");
    alice.say(&envelope(&secret, "small", "alice", "bob", "1"));
    let deliver = bob.next();
    assert_eq!(deliver["envelope"]["id"], "small");
    broker.stop();
}

#[test]
fn garbage_is_ignored_after_the_handshake_and_refused_before_it() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut peer = Raw::register(&home, &broker, "peer");
    for garbage in [
        "",
        "{",
        "[]",
        "null",
        "\u{0}",
        r#"{"type":"launch"}"#,
        r#"{"type":"ack"}"#,
    ] {
        peer.say(garbage);
    }
    peer.send(Message::binary(vec![0, 159, 146, 150]));
    peer.say(r#"{"protocol_version":"v1","type":"peers"}"#);
    while peer.next()["type"] != "peers" {}
    let mut early = Raw::connect(&broker);
    early.say("{");
    assert_eq!(
        early.hear(),
        Heard::Closed(1007, "malformed handshake".into())
    );
    broker.stop();
}

#[test]
fn a_wrong_token_is_refused_and_secrets_are_nowhere_in_the_log() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut thief = Raw::connect(&broker);
    thief.say(
        r#"{"protocol_version":"v1","type":"register","token":"guessed-token","name":"thief"}"#,
    );
    assert_eq!(
        thief.hear(),
        Heard::Closed(1008, "invalid bearer token".into())
    );
    let (token, secret) = (home.credential("token"), home.credential("hmac_secret"));
    let mut log = String::new();
    let stderr = broker.stop_and_read();
    stderr.iter().for_each(|line| log.push_str(line));
    for hidden in ["guessed-token", token.as_str(), secret.as_str()] {
        assert!(!log.contains(hidden), "{hidden} is in the log");
    }
}

#[test]
fn a_token_that_can_be_guessed_gets_a_warning() {
    let home = Home::new();
    let long = "0123456789abcdef";
    for (list, short) in [
        (long, None),
        ("a", Some(1)),
        ("0123456789abcdef, abcdefg", Some(7)),
    ] {
        let mut serve = home.peerbus(&["serve", "--listen", "127.0.0.1:0"]);
        serve.env("PEERBUS_TOKENS", list).stderr(Stdio::piped());
        let mut serve = serve.spawn().expect("serve starts");
        let stderr = Lines::of(serve.stderr.take().expect("a pipe"));
        let mut said = String::new();
        stderr.find("address", |line| {
            said += line;
            line.starts_with("listening on ws").then_some(())
        });
        serve.kill().expect("our child");
        serve.wait().expect("our child");
        let warning = short.map(|bytes| format!("PEERBUS_TOKENS has a token of {bytes} bytes"));
        match warning {
            Some(warning) => assert!(said.contains(&warning), "{said}"),
            None => assert!(!said.contains("warning"), "{said}"),
        }
        assert!(!said.contains("abcdefg"), "{said}");
    }
}

#[test]
fn an_empty_list_of_tokens_is_an_error_and_makes_no_credentials() {
    let home = Home::new();
    for list in ["", " ", ",", " , "] {
        let mut serve = home.peerbus(&["serve", "--listen", "127.0.0.1:0"]);
        let output = serve
            .env("PEERBUS_TOKENS", list)
            .output()
            .expect("peerbus starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{list:?}: {said}");
        assert!(
            said.contains("PEERBUS_TOKENS is set and holds no token"),
            "{said}"
        );
        assert!(!home.credentials().exists(), "{list:?} made credentials");
    }
}
