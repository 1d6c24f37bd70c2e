//! Demands of the first documents that no other test shows. The whole table is docs/SEEDS.md.

use peerbus_test_support::message::signed;
use peerbus_wire::Secret;
use serde_json::{Value, json};

use crate::sessions::{Node, listed, names};
use crate::support::{Broker, Home, Mcp, Raw, eventually};

#[test]
fn a_channel_answers_each_version_with_one_that_it_knows_and_says_who_it_is() {
    let home = Home::new();
    for (asked, answered) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let mut session = Mcp::spawn(&mut home.peerbus(&["adapter", "--adapter", "cc"]));
        let hello = json!({ "protocolVersion": asked, "capabilities": {},
            "clientInfo": { "name": "claude-code", "version": "1" } });
        let met = session.request("initialize", hello);
        assert_eq!(met["protocolVersion"], answered, "{asked}");
        let about = &met["serverInfo"];
        assert_eq!(
            (&about["name"], &about["version"]),
            (&json!("peerbus"), &json!(env!("CARGO_PKG_VERSION")))
        );
        session.close();
    }
}

/// A message of version 1 with a source of its own, as its sender writes it.
fn from_ci(secret: &str, id: &str, to: &str) -> String {
    let mut said = signed(secret, id, "bob", to, r#""plain text""#);
    said.source = "ci.build".into();
    let canonical = said.canonical().expect("a message");
    let hmac = Secret::new(secret.as_bytes())
        .expect("a secret")
        .sign(&canonical);
    let text = String::from_utf8(canonical).expect("text");
    let open = text.strip_suffix('}').expect("an object");
    format!(r#"{open},"hmac":"{hmac}"}}"#)
}

#[test]
fn what_a_client_of_version_1_sends_is_pushed_in_its_form() {
    const NAME: &str = "My.Odd_Name:1";
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut command = home.peerbus(&["adapter", "--adapter", "cc"]);
    let mut session = Mcp::spawn(command.env("PEERBUS_NAME", NAME));
    session.initialize("claude-code");
    let announced = session.notification("its name", |n| {
        (n["params"]["meta"]["kind"] == "system").then(|| n["params"].clone())
    });
    let wanted = json!({ "content": format!("📡 connected as {NAME}"),
        "meta": { "kind": "system", "self": NAME } });
    assert_eq!(announced, wanted);
    let secret = home.credential("hmac_secret");
    let mut bob = Raw::register_v1(&home, &broker, "bob");
    for (to, kind, from) in [(NAME, "msg", "bob"), ("*", "broadcast", "bob to all")] {
        bob.say(&from_ci(&secret, kind, to));
        let mut push = session.notification("a push", |n| {
            (n["params"]["meta"]["kind"] == kind).then(|| n.clone())
        });
        let mark = push["params"]["meta"]["push"].take();
        assert!(mark.is_string(), "{push}");
        let meta = json!({ "from": "bob", "source": "ci.build", "msg_id": kind, "kind": kind, "push": null });
        let params = json!({ "content": format!("📨 {from}: \"plain text\""), "meta": meta });
        let method = "notifications/claude/channel";
        let wanted = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        assert_eq!(push, wanted);
    }
    broker.stop();
}

#[test]
fn a_rule_is_about_who_writes_and_not_about_the_group() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut command = home.peerbus(&["adapter", "--adapter", "generic", "--name", "bob"]);
    let mut bob = Mcp::spawn(command.env("PEERBUS_FROM", "alice=allow *=drop"));
    bob.initialize("some-bot");
    bob.call("bus.join", json!({ "group": "#shop" }));
    for from in ["eve", "alice"] {
        home.run(&["send", "#shop", &format!("of {from}"), "--name", from])
            .ok();
    }
    let shown = bob.drained();
    assert_eq!(
        (&shown["from"], &shown["group"]),
        (&json!("alice"), &json!("shop"))
    );
    assert_eq!(bob.call("bus.drain", json!({}))["messages"], json!([]));
    broker.stop();
}

#[test]
fn a_program_puts_a_text_in_with_the_lines_of_the_proposal() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Mcp::start(&home, "generic", "bob", "some-bot");
    let entry = eventually("bob is listed", || {
        let there = names(&home) == ["bob"];
        there.then(|| listed(&home).remove(0))
    });
    for member in ["id", "socket", "started_at"] {
        assert!(entry[member].is_string(), "{member}: {entry}");
    }
    let params = json!({ "prompt": "Now explain the auth module", "source": "vscode-extension",
        "mode": "append" });
    let answer = Node::of(&entry).call("session/inject", params);
    let result = &answer["result"];
    assert_eq!(result["accepted"], true, "{answer}");
    let when = result["queued_at"].as_str().map(str::as_bytes);
    let when = when.expect("a time");
    assert_eq!((when.len(), when[10], when[23]), (24, b'T', b'Z'));
    let drained = eventually("it is there", || {
        let drained: Value = bob.call("bus.drain", json!({}));
        (drained["messages"] != json!([])).then(|| drained.to_string())
    });
    for shown in ["Now explain the auth module", "vscode-extension"] {
        assert!(drained.contains(shown), "{drained}");
    }
    broker.stop();
}
