//! JSON that strict readers refuse is carried as it is, and leaves by no surface.

use std::io::Write as _;
use std::process::Stdio;

use peerbus_test_support::message::envelope;
use serde_json::{Value, json};

use crate::support::{Broker, Home, Mcp, Raw};
use crate::web::{Gateway, token};

/// Bodies with half of a surrogate pair, in values and names, and with numbers beyond double.
const ODD: [&str; 4] = [
    r#""half \ud82d""#,
    r#"{"text":"\uDC00","\uD82d":"\ud83d\ude00"}"#,
    r#"{"n":[1e999,-1E999]}"#,
    r#"[[[["\udfff"]]]]"#,
];

/// Every line, read as serde_json reads.
#[track_caller]
fn strict(text: &str) -> Vec<Value> {
    let read = |line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
    text.lines().map(read).collect()
}

#[test]
fn no_command_writes_what_a_strict_reader_refuses() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let bob = Raw::register(&home, &broker, "bob");
    drop(bob);
    let secret = home.credential("hmac_secret");
    let mut eve = Raw::register(&home, &broker, "eve");
    for (n, body) in ODD.iter().enumerate() {
        let text = envelope(&secret, &format!("m{n}"), "eve", "bob", body);
        eve.say(&text);
        assert_eq!(eve.answer()["state"], "accepted", "{body}");
        assert!(text.contains(body), "carried as it is: {text}");
    }
    for args in [
        &["history", "--json"][..],
        &["tail", "--json"],
        &["inbox", "bob", "--json"],
    ] {
        let told = strict(&home.run(args).ok());
        let told = told.iter().filter(|line| line["from"] == "eve");
        let bodies: Vec<_> = told.map(|line| line["body"].clone()).collect();
        assert!(
            bodies.contains(&json!("half \u{fffd}")),
            "{args:?}: {bodies:?}"
        );
        assert!(
            bodies.contains(&json!({ "n": ["1e999", "-1E999"] })),
            "{args:?}: {bodies:?}"
        );
    }
    let status = home.run(&["status", "m0", "--json"]).ok();
    strict(&status);
    let recv = [
        "recv",
        "--name",
        "bob",
        "--json",
        "--count",
        "4",
        "--timeout",
        "50",
    ];
    let told = strict(&home.run(&recv).ok());
    assert_eq!(
        told[1]["body"],
        json!({ "text": "\u{fffd}", "\u{fffd}": "😀" })
    );
    broker.stop();
}

#[test]
fn a_shell_and_a_webhook_are_told_what_was_replaced_in_what_they_send() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Mcp::start(&home, "generic", "bob", "some-bot");
    bob.call("bus.peers", json!({}));
    let sent = home.run(&["send", "bob", r#"{"t":"\ud82d"}"#]);
    assert!(
        sent.stderr.contains("U+FFFD for half of a surrogate pair"),
        "{}",
        sent.stderr
    );
    sent.ok();
    let mut command = home.peerbus(&["send", "bob", "-"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let file = "\u{feff}{\"t\":\"of a file\"}\r\n";
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(file.as_bytes())
        .expect("it reads");
    assert!(child.wait().expect("it ends").success());
    let ci = token(&home, &["ci"]);
    let gateway = Gateway::start(&home);
    let bearer = format!("Authorization: Bearer {ci}");
    let head = [bearer.as_str(), "Content-Type: application/json"];
    for (line, body) in [
        ("POST /v1/messages", r#"{"to":"bob","body":{"t":"\ud82d"}}"#),
        ("POST /hook/bob", r#"{"n":1e999}"#),
    ] {
        let answer = gateway.ask(line, &head, body.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.body);
        let told: Value = serde_json::from_str(&answer.body).expect("JSON");
        let said = told["replaced"].as_str().unwrap_or_default();
        assert!(said.contains("half of a surrogate pair"), "{told}");
    }
    let plain = gateway.ask("POST /hook/bob", &head, br#"{"n":1}"#);
    assert!(!plain.body.contains("replaced"), "{}", plain.body);
    let wanted = [
        json!({ "t": "\u{fffd}" }),
        json!({ "t": "of a file" }),
        json!({ "t": "\u{fffd}" }),
    ];
    for body in wanted {
        assert_eq!(bob.drained()["body"]["t"], body["t"]);
    }
    assert_eq!(bob.drained()["body"]["content"], json!({ "n": "1e999" }));
    drop(gateway);
    broker.stop();
}
