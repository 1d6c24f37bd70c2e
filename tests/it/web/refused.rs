//! What the gateway refuses, and how.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use peerbus_test_support::tls::{Authority, Valid};
use serde_json::json;

use super::{Gateway, agent, bearer, token};
use crate::support::{Broker, Home, eventually, python};

/// Stands for the token of `ci`, and for a body that is too large.
const CI: &str = "Authorization: of ci";
const LARGE: &[u8] = b"large";
const JSON: &str = "Content-Type: application/json";

/// A request: its line, headers and body. The answer: its status, and part of its sentence.
type Refused = (
    &'static str,
    &'static [&'static str],
    &'static [u8],
    u16,
    &'static str,
);

const REFUSED: &[Refused] = &[
    ("GET /v1/replies", &[], b"", 401, "token"),
    (
        "GET /v1/messages/x",
        &["Authorization: Basic abc"],
        b"",
        401,
        "token",
    ),
    ("POST /hook/ann", &[CI], b"x", 403, "may not write to ann"),
    (
        "POST /v1/messages",
        &[CI],
        br#"{"to":"ann","body":1}"#,
        403,
        "may not write to ann",
    ),
    ("POST /hook/bobb", &[CI], b"x", 404, "Did you mean bob?"),
    (
        "POST /hook/nobody",
        &[CI],
        b"x",
        404,
        "nobody here is called nobody, or not any more: a peer can be written to once",
    ),
    ("POST /hook/%23api", &[CI], b"x", 400, "is a group"),
    (
        "POST /v1/messages",
        &[CI],
        br##"{"to":"#api","body":1}"##,
        400,
        "is a group",
    ),
    ("POST /hook/a%20b", &[CI], b"x", 400, "is no peer's name"),
    ("POST /hook/bob%ff", &[CI], b"x", 400, "not UTF-8"),
    ("POST /hook/bob", &[CI], b"", 400, "empty"),
    ("POST /hook/bob", &[CI], b"a\xff", 400, "no UTF-8 (byte 1)"),
    (
        "POST /hook/bob",
        &[CI, JSON],
        b"{\"a\":\n nul}",
        400,
        "line 2 column",
    ),
    (
        "POST /v1/messages",
        &[CI],
        b"{\"to\":7}",
        400,
        "line 1 column 7",
    ),
    (
        "POST /v1/messages",
        &[CI],
        br#"{"to":"bob","body":1,"x":2}"#,
        400,
        "unknown field `x`",
    ),
    (
        "POST /v1/messages",
        &[CI],
        br#"{"to":"*","body":1}"#,
        400,
        "is no peer's name",
    ),
    (
        "POST /v1/messages",
        &[CI],
        br#"{"to":"bob","body":1,"thread":"a b"}"#,
        400,
        "thread",
    ),
    (
        "POST /v1/messages",
        &[CI],
        br#"{"to":"bob","body":1,"priority":"x"}"#,
        400,
        "priority",
    ),
    ("POST /hook/bob", &[CI], LARGE, 413, "too large"),
    (
        "POST /hook/bob",
        &[CI, "Host: evil.example"],
        b"x",
        403,
        "this machine only",
    ),
    (
        "POST /hook/bob",
        &[CI, "Origin: http://evil.example"],
        b"x",
        403,
        "other origins",
    ),
    (
        "POST /hook/bob",
        &[CI, "Origin: null"],
        b"x",
        403,
        "other origins",
    ),
    (
        "GET /hook/bob",
        &[CI],
        b"",
        405,
        "there is no GET /hook/bob",
    ),
    ("GET /nowhere", &[CI], b"", 404, "there is no GET /nowhere"),
    (
        "POST /hook/bob",
        &[CI, "Idempotency-Key: "],
        b"x",
        400,
        "Idempotency-Key",
    ),
    (
        "GET /v1/messages/unknown",
        &[CI],
        b"",
        404,
        "no message unknown",
    ),
];

#[test]
fn what_is_refused_is_told_why_and_reaches_nobody() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let ci = bearer(&token(&home, &["ci", "--to", "bo*", "--to", "nobody"]));
    let gateway = Gateway::start(&home);
    let mut bob = agent(&home, "bob");
    let _ann = agent(&home, "ann");
    let ci = ci.as_str();
    let large = vec![b'x'; 1_048_577];
    let wrong = bearer(&"0".repeat(64));
    let missing = gateway.ask("POST /hook/bob", &[], b"x");
    missing.refused(401, "token");
    let unknown = gateway.ask("POST /hook/bob", &[&wrong], b"x");
    assert_eq!(
        (missing.status, &missing.body),
        (unknown.status, &unknown.body)
    );
    for (line, headers, body, status, says) in REFUSED {
        let header = |header: &&'static str| if *header == CI { ci } else { header };
        let headers: Vec<_> = headers.iter().map(header).collect();
        let body = if *body == LARGE {
            large.as_slice()
        } else {
            body
        };
        // Not faster than a token may.
        let answer = eventually("it is asked in time", || {
            let answer = gateway.ask(line, &headers, body);
            (answer.status != 429).then_some(answer)
        });
        answer.refused(*status, says);
    }
    let long = "q".repeat(2_100);
    let asked = gateway.ask(&format!("POST /hook/bob?k={long}"), &[ci], b"x");
    asked.refused(400, "at most 32 and 2048");
    assert_eq!(bob.call("bus.inbox", json!({}))["messages"], json!([]));
    broker.stop();
}

#[test]
fn a_token_has_its_pace_and_streams_their_number() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let [one, two, three] = ["one", "two", "three"].map(|name| token(&home, &[name]));
    let gateway = Gateway::start(&home);
    let ask = |token: &str| gateway.ask("GET /v1/messages/x", &[&bearer(token)], b"");
    let refused = eventually("it is too fast", || {
        let answer = ask(&one);
        (answer.status == 429).then_some(answer)
    });
    refused.refused(429, "20 requests a second");
    assert!(
        refused.head.contains("\r\nretry-after: 1"),
        "{}",
        refused.head
    );
    assert_eq!(ask(&two).status, 404, "another token has its own");

    let open = |_| {
        eventually("it is asked in time", || {
            let mut stream = gateway.connect();
            let (host, token) = (&gateway.address, bearer(&two));
            let head = format!("GET /v1/replies HTTP/1.0\r\nHost: {host}\r\n{token}\r\n\r\n");
            stream.write_all(head.as_bytes()).expect("it reads");
            let mut begin = [0; 12];
            stream.read_exact(&mut begin).expect("an answer");
            let slow = begin.ends_with(b"429");
            if slow {
                let rest = rest_of(stream);
                return rest.contains("4 streams").then_some(None);
            }
            assert!(begin.ends_with(b"200"));
            Some(Some(stream))
        })
    };
    let streams: Vec<_> = (0..5).map(open).collect();
    assert_eq!(streams.iter().filter(|stream| stream.is_some()).count(), 4);
    // Another token has its own.
    drop(gateway.replies(&three, &[]));
    drop(streams);
    eventually("there is room again", || open(0).is_some().then_some(()));
    broker.stop();
}

pub(super) fn rest_of(mut stream: TcpStream) -> String {
    let mut text = String::new();
    // The connection may be reset behind its answer.
    let _ = stream.read_to_string(&mut text);
    text
}

#[test]
fn other_machines_reach_it_with_tls_or_not_at_all() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let refused = home.run(&["web", "--listen", "0.0.0.0:0"]).fails(2);
    assert!(refused.contains("--tls-cert"), "{refused}");
    let authority = Authority::new(home.path(), "ca");
    let files = authority.sign("server", &["127.0.0.1"], Valid::Now);
    let (cert, key) = (
        files.cert.display().to_string(),
        files.key.display().to_string(),
    );
    let ci = token(&home, &["ci"]);
    let _bob = agent(&home, "bob");
    let gateway = Gateway::start_with(&home, &["--tls-cert", &cert, "--tls-key", &key]);
    let curl = format!(
        "curl --silent --cacert {} --header 'Authorization: Bearer {ci}' --data hello https://{}/hook/bob",
        authority.file().display(),
        gateway.address
    );
    let done = home
        .command("sh")
        .args(["-c", &curl])
        .output()
        .expect("curl");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.contains("\"accepted\""), "{said}");
    broker.stop();
}

#[test]
fn names_that_would_be_one_peer_are_refused_and_tokens_are_listed_without_their_text() {
    let home = Home::new();
    let text = token(&home, &["ci", "--to", "bob"]);
    let refused = home.run(&["web", "token", "add", "CI"]).fails(2);
    assert!(refused.contains("there is a token ci already"), "{refused}");
    let refused = home.run(&["web", "token", "add", "a\u{1b}[2Jb"]).fails(2);
    assert!(refused.contains("a\\u001b[2Jb"), "{refused}");
    let refused = home
        .run(&["web", "token", "add", "x", "--to", "a b"])
        .fails(2);
    assert!(refused.contains("\"a b\""), "{refused}");
    assert_eq!(
        home.run(&["web", "token", "list"]).ok(),
        "ci: writes to bob\n"
    );
    let listed = home.run(&["web", "token", "list", "--json"]).ok();
    assert!(
        listed.contains(r#""peer":"web:ci""#) && !listed.contains(&text),
        "{listed}"
    );
    home.run(&["web", "token", "revoke", "nobody"]).fails(2);
    let said = home.run(&["web", "token", "revoke", "CI"]).ok();
    assert!(said.contains("token ci is revoked"), "{said}");
    assert_eq!(home.run(&["web", "token", "list"]).ok(), "no tokens\n");
}

#[test]
fn what_a_token_loses_it_loses_whoever_reads_of_it() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let rights = || home.run(&["token", "list"]).ok();
    token(&home, &["ci"]);
    let _gateway = Gateway::start(&home);
    home.run_unread(&["web", "token", "add", "phone", "--approve"])
        .ok();
    assert!(rights().contains("send,approve"), "{}", rights());
    home.run_unread(&["web", "token", "revoke", "phone"]).ok();
    assert!(!rights().contains("approve"), "{}", rights());
    broker.stop();
}

#[test]
fn who_makes_a_token_for_a_name_that_nobody_has_is_told() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let _bob = agent(&home, "bob");
    eventually("bob is known", || {
        let peers = home.run(&["peers"]).ok();
        peers.contains("bob").then_some(())
    });
    let to = ["--to", "BOB", "--to", "bo*", "--to", "reviewer"];
    let made = home.run(&[&["web", "token", "add", "ci"], &to[..]].concat());
    let told: Vec<_> = made
        .stderr
        .lines()
        .filter(|line| line.contains("no peer is called"))
        .collect();
    let [told] = told.as_slice() else {
        panic!("{}", made.stderr);
    };
    assert!(told.contains("called reviewer now"), "{told}");
    made.ok();
    broker.stop();
}

#[test]
fn the_document_is_what_the_gateway_does() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let ci = token(&home, &["ci", "--watch", "--inject", "--approve"]);
    let gateway = Gateway::start(&home);
    let _bob = agent(&home, "bob");
    let settings = home.path().join("schemathesis.toml");
    std::fs::write(settings, "[parameters]\npeer = \"bob\"\n").expect("our file");
    let url = format!("http://{}", gateway.address);
    let mut check = home.command("schemathesis");
    check.args(["run", &format!("{url}/openapi.json"), "--url", &url]);
    check.args([
        "--header",
        &bearer(&ci),
        "--rate-limit",
        "18/s",
        "--seed",
        "1",
    ]);
    // A stream does not end.
    for stream in ["replies", "events_of_all", "events"] {
        check.args(["--exclude-operation-id", stream]);
    }
    check.args(["--max-examples", "20"]);
    let done = match check.output() {
        Err(_) if !python::in_ci() => return println!("skipped: schemathesis is not installed"),
        done => done.expect("schemathesis is installed"),
    };
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}");
    broker.stop();
}
