//! Sessions over HTTP: who may see them, put texts in and answer what they ask.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::sync::mpsc::RecvTimeoutError;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use super::{Gateway, bearer, event, token};
use crate::orphans::Session;
use crate::sessions::{listed, names};
use crate::support::{Broker, Home, Lines, Mcp, PATIENCE, eventually, freeze};

/// A stream of a session's events, or of all.
fn watch(gateway: &Gateway, token: &str, which: &str, cursor: Option<&str>) -> Lines {
    let mut stream = gateway.connect();
    let host = &gateway.address;
    let cursor = cursor.map(|id| format!("Last-Event-ID: {id}\r\n"));
    let cursor = cursor.unwrap_or_default();
    let head = format!(
        "GET /v1/sessions/{which} HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n{cursor}\r\n"
    );
    stream.write_all(head.as_bytes()).expect("it reads");
    let lines = Lines::of(stream);
    lines.find("a stream", |line| line.contains(" 200 ").then_some(()));
    lines
}

fn is_there(home: &Home, name: &str) {
    eventually("it is listed", || {
        names(home).contains(&name.to_owned()).then_some(())
    });
}

/// Checks that a stream has ended.
fn over(lines: &Lines) {
    loop {
        match lines.poll(PATIENCE) {
            Ok(line) if line.starts_with("event:") => panic!("{line}"),
            Ok(_) => {}
            Err(end) => return assert_eq!(end, RecvTimeoutError::Disconnected),
        }
    }
}

fn gates(home: &Home, text: &str) {
    let file = home.credentials().with_file_name("sessions.toml");
    fs::write(file, text).expect("our file");
}

fn inject(gateway: &Gateway, token: &str, id: &str, text: &str) -> Value {
    let line = format!("POST /v1/sessions/{id}/inject");
    let body = json!({ "prompt": text }).to_string();
    let answer = gateway.ask(&line, &[&bearer(token)], body.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

/// The event in which this text that was put in gets as far as this.
fn reaches(lines: &Lines, id: &Value, stage: &str) -> (String, Value) {
    loop {
        let (cursor, told) = event(lines, "bus");
        if told["id"] == *id && told["stage"] == stage {
            return (cursor, told);
        }
    }
}

/// The chain says that this was done by the token of this peer.
fn is_audited(home: &Home, what: &str, by: &str) {
    eventually("it is written", || {
        let said = home.run(&["audit", "sessions"]).ok();
        let is = |line: &str| line.contains(what) && line.contains(by);
        said.lines().any(is).then_some(())
    });
}

#[test]
fn a_phone_lists_watches_and_answers_a_session_and_no_gate_is_passed() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let phone = token(&home, &["phone", "--watch", "--approve", "--inject"]);
    let asks = |gateway: &Gateway, line: &str, body: &str| {
        gateway.ask(line, &[&bearer(&phone)], body.as_bytes())
    };
    let gateway = Gateway::start(&home);
    let mut bob = Session::start(&home, "bob");
    is_there(&home, "bob");
    let lines = watch(&gateway, &phone, "bob/events", None);
    event(&lines, "session");
    let ask = json!({
        "hook_event_name": "PermissionRequest", "tool_name": "Bash",
        "tool_input": { "command": "make \u{202e}\u{9b}" },
    });
    bob.tell(&format!("hook 1 {ask}"));
    let raw = lines.find("what is asked", |line| {
        line.contains("approval_request\"").then(|| line.to_owned())
    });
    assert!(raw.contains(r"make \u202e\u009b"), "{raw}");
    // Who comes later sees it in the list.
    let list = asks(&gateway, "GET /v1/sessions", "");
    assert!(list.body.contains(r"make \u202e\u009b"), "{}", list.body);
    let list = list.json();
    let [session] = list["sessions"].as_array().expect("a list").as_slice() else {
        panic!("{list}");
    };
    let asked = &session["approvals"][0];
    let id = session["id"].as_str().expect("an id");
    assert!(
        raw.contains(asked["digest"].as_str().expect("a digest")),
        "{raw}"
    );
    let line = format!("POST /v1/sessions/{id}/approve");
    let mut wish = json!({
        "request_id": asked["request_id"], "decision": "allow", "digest": asked["digest"],
    });
    let closed = asks(&gateway, &line, &wish.to_string());
    closed.refused(403, "the gate `approve` is closed: a person opens it");
    gates(&home, "approve = true\ninject = false");
    let mut other = wish.clone();
    other["digest"] = "00".into();
    let other = asks(&gateway, &line, &other.to_string());
    other.refused(400, "digest");
    let done = asks(&gateway, &line, &wish.to_string());
    assert_eq!(
        (done.status, done.json()["by"].clone()),
        (200, json!("node")),
        "{}",
        done.body
    );
    assert!(bob.hear("hook 1").contains(r#""behavior":"allow""#));
    let (_, resolved) = event(&lines, "approval_resolved");
    assert_eq!(resolved["decision"], "allow", "{resolved}");
    assert_eq!(resolved["source"], "web:phone", "{resolved}");
    is_audited(&home, "approve allow", "web:phone");
    wish["decision"] = "deny".into();
    asks(&gateway, &line, &wish.to_string()).refused(409, "");
    let text = r#"{"prompt":"hello"}"#;
    let line = format!("POST /v1/sessions/{id}/inject");
    asks(&gateway, &line, text).refused(403, "the gate `inject` is closed");
    let line = format!("POST /v1/sessions/{id}/interrupt");
    asks(&gateway, &line, "").refused(403, "the gate `interrupt` is closed");
    asks(&gateway, "POST /v1/sessions/eve/interrupt", "").refused(404, "no session");
    broker.stop();
}

#[test]
fn a_text_that_is_sent_twice_with_one_key_is_put_in_once() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let phone = token(&home, &["phone", "--inject"]);
    let gateway = Gateway::start(&home);
    let _ann = Mcp::start(&home, "generic", "ann", "some-bot");
    is_there(&home, "ann");
    let put = |prompt: &str| {
        let body = json!({ "prompt": prompt }).to_string();
        let headers = [&*bearer(&phone), "Idempotency-Key: once"];
        gateway.ask("POST /v1/sessions/ann/inject", &headers, body.as_bytes())
    };
    let [first, second] = [put("hello"), put("hello")].map(|answer| answer.json()["id"].clone());
    assert!(first.is_string() && first == second, "{first} {second}");
    put("another").refused(409, "Idempotency-Key");
    broker.stop();
}

#[test]
fn a_text_with_a_key_is_put_in_once_also_for_a_client_that_went_away() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let phone = token(&home, &["phone", "--inject"]);
    let gateway = Gateway::start(&home);
    let mut ann = Mcp::start(&home, "generic", "ann", "some-bot");
    is_there(&home, "ann");
    let headers = [&*bearer(&phone), "Idempotency-Key: once"];
    let (line, body) = ("POST /v1/sessions/ann/inject", json!({ "prompt": "hello" }));
    let body = body.to_string();
    let socket = listed(&home)[0]["socket"]
        .as_str()
        .expect("a path")
        .to_owned();
    // Ends of connections that the session has not taken yet, too.
    let ends = || {
        let all = fs::read_to_string("/proc/net/unix").expect("Linux");
        all.lines().filter(|line| line.ends_with(&socket)).count()
    };
    freeze(ann.pid());
    let before = ends();
    let mut client = gateway.connect();
    let head = [
        line.to_owned() + " HTTP/1.1",
        format!("Host: {}", gateway.address),
    ];
    let length = format!("Content-Length: {}", body.len());
    let head = [&head[..], &[length], &headers.map(str::to_owned)]
        .concat()
        .join("\r\n");
    client
        .write_all(format!("{head}\r\n\r\n{body}").as_bytes())
        .expect("it reads");
    eventually("the gateway asks the session", || {
        (ends() > before).then_some(())
    });
    client.shutdown(Shutdown::Write).expect("a socket");
    let mut answer = String::new();
    client
        .read_to_string(&mut answer)
        .expect("the gateway hangs up");
    assert_eq!(answer, "");
    kill_process(ann.pid(), Signal::CONT).expect("it lives");
    let again = gateway.ask(line, &headers, body.as_bytes());
    assert!(again.json()["id"].is_string(), "{}", again.body);
    let inbox = ann.call("bus.inbox", json!({}));
    assert_eq!(
        inbox["messages"].as_array().map(Vec::len),
        Some(1),
        "{inbox}"
    );
    broker.stop();
}

#[test]
fn a_stream_over_all_sessions_goes_on_where_its_reader_was_over_a_restart() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let phone = token(&home, &["phone", "--watch", "--inject"]);
    let mut gateway = Gateway::start(&home);
    let _ann = Mcp::start(&home, "generic", "ann", "some-bot");
    is_there(&home, "ann");
    let all = watch(&gateway, &phone, "events", None);
    assert_eq!(event(&all, "session").1["name"], "ann");
    let bob = Mcp::start(&home, "generic", "bob", "some-bot");
    let (_, session) = event(&all, "session");
    let bob_node = session["node"].as_str().expect("a node").to_owned();
    let image = json!({ "type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo=" });
    let blocks = json!({ "prompt": [{ "type": "image", "source": image }] }).to_string();
    let line = "POST /v1/sessions/ann/inject";
    let refused = gateway.ask(line, &[&bearer(&phone)], blocks.as_bytes());
    refused.refused(409, "takes no images");
    // As much as a session takes, and no more.
    for (bytes, status, why) in [(3 << 20, 409, "takes no images"), (4 << 20, 413, "3670016")] {
        let blocks = blocks.replace("iVBORw0KGgo=", &"A".repeat(bytes));
        let refused = gateway.ask(line, &[&bearer(&phone)], blocks.as_bytes());
        refused.refused(status, why);
    }
    let one = inject(&gateway, &phone, "ann", "one");
    let (_, told) = reaches(&all, &one["id"], "delivered");
    assert_ne!(told["node"], bob_node.as_str(), "{told}");
    let two = inject(&gateway, &phone, &bob_node, "two");
    let (cursor, told) = reaches(&all, &two["id"], "delivered");
    assert_eq!(
        (&told["node"], &told["from"]),
        (&json!(bob_node), &json!("peerbus"))
    );
    drop(all);
    // Nobody watches, and then the gateway is another one.
    let missed = ["ann", "bob"].map(|name| inject(&gateway, &phone, name, "missed")["id"].clone());
    gateway = Gateway::start(&home);
    let all = watch(&gateway, &phone, "events", Some(&cursor));
    let mut told = Vec::new();
    while told.len() < 2 {
        let (_, event) = event(&all, "bus");
        if event["stage"] == "delivered" {
            told.push(event["id"].clone());
        }
    }
    for id in &missed {
        assert!(told.contains(id), "{told:?} {missed:?}");
    }
    // One that began meanwhile is told from its beginning.
    let carol = Mcp::start(&home, "generic", "carol", "some-bot");
    is_there(&home, "carol");
    let first = inject(&gateway, &phone, "carol", "first");
    let again = watch(&gateway, &phone, "events", Some(&cursor));
    reaches(&again, &first["id"], "delivered");
    let only = watch(&gateway, &phone, "bob/events", None);
    event(&only, "session");
    drop(bob);
    assert_eq!(event(&only, "over").1["ended"], true);
    over(&only);
    assert_eq!(event(&all, "over").1["node"], bob_node.as_str());
    for wrong in ["x", "a:b", "a:1,", "a b:1", ":1", "a:99999999999999999999"] {
        let cursor = format!("Last-Event-ID: {wrong}");
        let asked = gateway.ask("GET /v1/sessions/events", &[&bearer(&phone), &cursor], b"");
        asked.refused(400, "Last-Event-ID");
    }
    drop(carol);
    broker.stop();
}

#[test]
fn a_token_sees_and_does_what_it_was_made_for_with_the_sessions_that_it_was_made_for() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let names_of = |args: &[&str]| token(&home, args);
    let none = names_of(&["none", "--approve"]);
    let watcher = names_of(&["watcher", "--watch", "--to", "bo*"]);
    let writer = names_of(&["writer", "--inject", "--to", "bob"]);
    let gateway = Gateway::start(&home);
    let _ann = Mcp::start(&home, "generic", "ann", "some-bot");
    is_there(&home, "ann");
    let mut bob = Mcp::start(&home, "generic", "bob", "some-bot");
    is_there(&home, "bob");
    let ask =
        |line: &str, token: &str, body: &str| gateway.ask(line, &[&bearer(token)], body.as_bytes());
    let (text, wish) = (
        r#"{"prompt":"hi"}"#,
        r#"{"request_id":"abcde","decision":"deny"}"#,
    );
    for (line, token, right) in [
        ("GET /v1/sessions", &none, "watch"),
        ("GET /v1/sessions", &writer, "watch"),
        ("GET /v1/sessions/events", &none, "watch"),
        ("GET /v1/sessions/bob/events", &writer, "watch"),
        ("POST /v1/sessions/bob/inject", &watcher, "inject"),
        ("POST /v1/sessions/bob/interrupt", &watcher, "inject"),
        // What is approved is what was seen.
        ("POST /v1/sessions/bob/approve", &none, "watch"),
        ("POST /v1/sessions/bob/approve", &watcher, "approve"),
    ] {
        let body = if line.ends_with("approve") {
            wish
        } else {
            text
        };
        ask(line, token, body).refused(403, &format!("has not the right `{right}`"));
    }
    let list = ask("GET /v1/sessions", &watcher, "").json();
    let seen: Vec<_> = list["sessions"]
        .as_array()
        .expect("a list")
        .iter()
        .collect();
    assert_eq!((seen.len(), &seen[0]["name"]), (1, &json!("bob")), "{list}");
    assert_eq!(seen[0]["socket"], Value::Null);
    ask("GET /v1/sessions/ann/events", &watcher, "").refused(404, "no session");
    ask("POST /v1/sessions/ann/inject", &writer, text).refused(404, "no session");
    let unknown = ask(
        "POST /v1/sessions/bob/inject",
        &writer,
        r#"{"prompt":"x","wait":1}"#,
    );
    unknown.refused(400, "unknown field `wait`");
    let wrong = ask(
        "POST /v1/sessions/bob/inject",
        &writer,
        r#"{"prompt":"x","mode":"now"}"#,
    );
    wrong.refused(400, "mode");
    ask("POST /v1/sessions/bob/interrupt", &writer, "").refused(409, "cannot be interrupted");
    ask("POST /v1/sessions/bob/inject", &writer, text);
    let drained = bob.call("bus.drain", json!({})).to_string();
    assert!(drained.contains("web:writer"), "{drained}");
    // A stream ends with its right.
    let lines = watch(&gateway, &watcher, "events", None);
    assert_eq!(event(&lines, "session").1["name"], "bob");
    assert_eq!(listed(&home).len(), 2);
    let file = home.credentials().with_file_name("web.toml");
    let text = fs::read_to_string(&file).expect("our file");
    fs::write(&file, text.replace("watch = true\n", "")).expect("our file");
    over(&lines);
    broker.stop();
}

#[test]
fn a_stream_ends_with_the_name_that_its_token_is_for() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let rights = ["phone", "--watch", "--approve", "--inject", "--to", "bob"];
    let phone = token(&home, &rights);
    let gateway = Gateway::start(&home);
    let mut bob = Session::start(&home, "bob");
    is_there(&home, "bob");
    gates(&home, "approve = true\ninject = true");
    let streams = ["events", "bob/events"].map(|which| watch(&gateway, &phone, which, None));
    let [id, _] = streams
        .each_ref()
        .map(|lines| event(lines, "session").1["id"].clone());
    bob.tell("rename private");
    let renamed = bob.hear("renamed");
    assert!(renamed.contains("private"), "{renamed}");
    let ask = json!({
        "hook_event_name": "PermissionRequest", "tool_name": "Bash",
        "tool_input": { "command": "make secret" },
    });
    bob.tell(&format!("hook 1 {ask}"));
    for lines in &streams {
        lines.find("its end", |line| {
            assert!(!line.contains("make secret"), "{line}");
            (line == "event: over").then_some(())
        });
    }
    let [_, one] = &streams;
    over(one);
    let id = id.as_str().expect("an id");
    let wish = json!({ "request_id": "abcde", "decision": "deny" });
    for (what, body) in [
        ("inject", json!({ "prompt": "x" })),
        ("approve", wish),
        ("interrupt", json!({})),
    ] {
        let line = format!("POST /v1/sessions/{id}/{what}");
        let answer = gateway.ask(&line, &[&bearer(&phone)], body.to_string().as_bytes());
        answer.refused(404, "no session");
    }
    broker.stop();
}

#[test]
fn the_rights_of_a_token_are_listed_and_one_that_signs_has_none() {
    let home = Home::new();
    let broker = Broker::start(&home);
    token(&home, &["writer", "--inject", "--watch", "--to", "bob"]);
    let signs = ["web", "token", "add", "ci", "--by", "signature"];
    for right in ["--watch", "--inject"] {
        let why = home.run(&[&signs[..], &[right]].concat()).fails(2);
        assert!(why.contains(right), "{why}");
    }
    let table = home.run(&["web", "token", "list"]).ok();
    assert!(
        table.contains("writer: writes to bob; may watch, inject"),
        "{table}"
    );
    broker.stop();
}
