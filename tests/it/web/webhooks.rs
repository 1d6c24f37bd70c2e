//! Webhooks as their senders send them.

use std::io::{Read as _, Write as _};
use std::process::Stdio;

use serde_json::json;

use super::{Answer, Gateway, JSON, agent, bearer, read, token};
use crate::support::{Broker, Home};

/// A token's name, what it is made with, and the command of the document that sends with it.
const SENDERS: &[(&str, &[&str], &str)] = &[
    (
        "github",
        &["--by", "signature", "--header", "X-GitHub-Event"],
        r#"BODY='{"action":"opened"}'
SIGNED=$(printf %s "$BODY" | openssl dgst -sha256 -hmac "$TOKEN" -r | cut -c1-64)
curl -H "X-Hub-Signature-256: sha256=$SIGNED" -H "X-GitHub-Event: issues" -H "Content-Type: application/json" -d "$BODY" http://127.0.0.1:47822/hook/reviewer"#,
    ),
    (
        "gitlab",
        &[
            "--by",
            "header:X-Gitlab-Token",
            "--header",
            "X-Gitlab-Event",
        ],
        r#"curl -H "X-Gitlab-Token: $TOKEN" -H "X-Gitlab-Event: Push Hook" -H "Content-Type: application/json" -d '{"ref":"main"}' http://127.0.0.1:47822/hook/reviewer"#,
    ),
    (
        "alerts",
        &["--by", "basic"],
        r#"curl -u "alerts:$TOKEN" -d "the disk is full" http://127.0.0.1:47822/hook/reviewer"#,
    ),
];

fn sh(home: &Home, script: &str, token: &str) -> String {
    let mut sh = home.command("sh");
    sh.args(["-c", script])
        .env("TOKEN", token)
        .stderr(Stdio::null());
    let done = sh.output().expect("a shell");
    String::from_utf8(done.stdout).expect("UTF-8")
}

/// The header with which GitHub would sign.
fn signed(home: &Home, token: &str, body: &str) -> String {
    let script = r#"printf %s "$BODY" | openssl dgst -sha256 -hmac "$TOKEN" -r | cut -c1-64"#;
    let digits = sh(home, &format!("BODY='{body}'; {script}"), token);
    assert_eq!(digits.trim().len(), 64);
    format!("X-Hub-Signature-256: sha256={}", digits.trim())
}

fn basic(home: &Home, user: &str, token: &str) -> String {
    let base64 = sh(
        home,
        &format!(r#"printf %s "{user}:$TOKEN" | base64 -w 0"#),
        token,
    );
    format!("Authorization: Basic {base64}")
}

#[test]
fn senders_of_webhooks_show_tokens_in_their_way_and_in_no_other() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let add = |(name, by, _): &(&str, &[&str], &str)| {
        token(&home, &[&[*name, "--to", "reviewer"], *by].concat())
    };
    let tokens: Vec<_> = SENDERS.iter().map(add).collect();
    let ci = token(&home, &["ci"]);
    let gateway = Gateway::start(&home);
    let mut reviewer = agent(&home, "reviewer");
    for ((name, _, command), token) in SENDERS.iter().zip(&tokens) {
        let answer = sh(
            &home,
            &command.replace("127.0.0.1:47822", &gateway.address),
            token,
        );
        assert!(answer.contains("\"accepted\""), "{name}: {answer}");
        assert_eq!(read(&mut reviewer)["from"], format!("web:{name}"));
    }
    let [github, gitlab, alerts] = tokens.as_slice() else {
        panic!("three tokens");
    };
    let right = signed(&home, github, "x");
    let own = signed(&home, &ci, "x");
    let header = |token: &str| format!("X-Gitlab-Token: {token}");
    for (what, headers) in [
        ("a token that signs, shown", bearer(github)),
        ("the same as a password", basic(&home, "github", github)),
        ("the same in a header", header(github)),
        ("another body's signature", signed(&home, github, "y")),
        ("the signature of a token that does not sign", own),
        (
            "no signature at all",
            "X-Hub-Signature-256: sha256=".to_owned(),
        ),
        ("a token of a header, shown", bearer(gitlab)),
        ("a password, shown", bearer(alerts)),
        ("a shown token as a password", basic(&home, "ci", &ci)),
        ("two of them", format!("{right}\r\n{right}")),
    ] {
        let refused = gateway.ask("POST /hook/reviewer", &[&headers], b"x");
        assert_eq!(refused.status, 401, "{what}: {}", refused.body);
        // Some clients send a password only when they are asked for one.
        let asks = refused.head.contains("www-authenticate: basic");
        assert!(asks, "{}", refused.head);
    }
    // A signature is of a body; who saw one may not read with it.
    for line in ["GET /v1/replies", "GET /v1/messages/x", "POST /v1/messages"] {
        let refused = gateway.ask(line, &[&right], b"x");
        assert_eq!(refused.status, 401, "{line}");
    }
    gateway
        .ask("POST /hook/reviewer", &[&right], b"x")
        .accepted();
    let other = gateway.ask("POST /hook/somebody", &[&right], b"x");
    other.refused(403, "may not write to somebody");
    home.apart(&["web", "token", "revoke", "github"]).ok();
    let ended = gateway.ask("POST /hook/reviewer", &[&right], b"x");
    assert_eq!(ended.status, 401);
    broker.stop();
}

#[test]
fn bodies_that_do_not_come_keep_no_signed_one_out() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let github = token(&home, &["github", "--by", "signature"]);
    let gateway = Gateway::start(&home);
    let _reviewer = agent(&home, "reviewer");
    let digits = "0".repeat(64);
    let host = &gateway.address;
    let head = format!(
        "POST /hook/reviewer HTTP/1.1\r\nHost: {host}\r\nX-Hub-Signature-256: {digits}\r\n\
         Connection: close\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
    );
    let mut slow: Vec<_> = (0..64)
        .map(|_| {
            let mut stream = gateway.connect();
            stream.write_all(head.as_bytes()).expect("it reads");
            let mut goes_on = [0; 25];
            stream.read_exact(&mut goes_on).expect("its body is read");
            stream
        })
        .collect();
    let right = signed(&home, &github, "x");
    let asked = gateway.ask("POST /hook/reviewer", &[&right], b"x");
    asked.accepted();
    Answer::read(slow.swap_remove(0)).refused(429, "send it again");
    broker.stop();
}

#[test]
fn a_token_that_signs_stands_in_the_file_and_its_maker_is_told() {
    let home = Home::new();
    let made = home.run(&[
        "web",
        "token",
        "add",
        "github",
        "--by",
        "signature",
        "--to",
        "bob",
    ]);
    assert!(made.stderr.contains("holds it as it is"), "{}", made.stderr);
    let text = made.stdout.trim().to_owned();
    let file = home.credentials().with_file_name("web.toml");
    assert!(
        std::fs::read_to_string(&file)
            .expect("our file")
            .contains(&text)
    );
    let ci = token(&home, &["ci"]);
    assert!(
        !std::fs::read_to_string(&file)
            .expect("our file")
            .contains(&ci)
    );
    let listed = home.run(&["web", "token", "list"]).ok();
    assert_eq!(
        listed,
        "ci: writes to everybody\ngithub: writes to bob; by signature\n"
    );
    let listed = home.run(&["web", "token", "list", "--json"]).ok();
    assert!(
        !listed.contains(&text) && listed.contains(r#""by":"signature""#),
        "{listed}"
    );
    for (args, says) in [
        (["--by", "digest"], "no way to show a token"),
        (["--header", "authorization"], "its receiver would see it"),
        (["--by=signature", "--approve"], "leave out --approve"),
    ] {
        let refused = home
            .run(&[&["web", "token", "add", "x"], &args[..]].concat())
            .fails(2);
        assert!(refused.contains(says), "{refused}");
    }
}

#[test]
fn a_delivery_that_comes_again_is_one_message_also_after_a_restart() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let ci = bearer(&token(&home, &["ci"]));
    let other = bearer(&token(&home, &["other"]));
    let mut gateway = Gateway::start(&home);
    let mut bob = agent(&home, "bob");
    let ask = |gateway: &Gateway, token: &str, header: &str, body: &str| -> Answer {
        gateway.ask("POST /hook/bob", &[token, header], body.as_bytes())
    };
    for header in [
        "X-GitHub-Delivery: 7",
        "Webhook-Id: 7",
        "X-Gitlab-Event-UUID: 7",
    ] {
        let id = ask(&gateway, &ci, header, "one").accepted();
        assert_eq!(ask(&gateway, &ci, header, "one").accepted(), id);
        gateway = Gateway::start(&home);
        assert_eq!(ask(&gateway, &ci, header, "one").accepted(), id);
        // Others may use the same name, and so may one sender for several messages.
        assert_ne!(ask(&gateway, &other, header, "one").accepted(), id);
        assert_ne!(ask(&gateway, &ci, header, "two").accepted(), id);
        let texts: Vec<_> = (0..3).map(|_| read(&mut bob)["text"].clone()).collect();
        assert_eq!(texts, ["one", "one", "two"]);
        assert_eq!(bob.call("bus.inbox", json!({}))["messages"], json!([]));
    }
    broker.stop();
}

#[test]
fn bodies_are_read_as_they_are_written_and_what_is_not_taken_is_named() {
    const FORM: &str = "Content-Type: application/x-www-form-urlencoded";
    let home = Home::new();
    let broker = Broker::start(&home);
    let ci = bearer(&token(&home, &["ci"]));
    let gateway = Gateway::start(&home);
    let mut bob = agent(&home, "bob");
    let ask = |header: &str, body: &[u8]| gateway.ask("POST /hook/bob/", &[&ci, header], body);
    for (header, body, text) in [
        (FORM, "payload=%7B%22a%22%3A+1%7D", "{\"a\": 1}"),
        (FORM, "build failed", "build failed"),
        (JSON, "\u{feff}{\"a\":1}", "{\"a\":1}"),
    ] {
        ask(header, body.as_bytes()).accepted();
        let heard = read(&mut bob);
        let said = heard["text"].as_str().expect("a text").replace(' ', "");
        assert_eq!(said, text.replace(' ', ""), "{heard}");
        let meta = heard["meta"].as_str().expect("where it came from");
        assert!(meta.contains(r#"path="/hook/bob/""#), "{meta}");
    }
    for encoding in ["gzip", "br", "x, identity"] {
        let refused = ask(&format!("Content-Encoding: {encoding}"), b"text");
        refused.refused(415, encoding);
        assert!(
            refused.head.contains("accept-encoding: identity"),
            "{}",
            refused.head
        );
    }
    ask("Content-Type: text/plain; charset=latin1", b"text").refused(415, "latin1");
    ask(FORM, b"payload=7+kg").refused(400, "JSON");
    assert_eq!(bob.call("bus.inbox", json!({}))["messages"], json!([]));
    broker.stop();
}
