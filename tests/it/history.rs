//! What is known of a message outlives the processes through which it went.

use serde_json::{Value, json};

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::process::Stdio;
use std::thread;

use crate::requests::{Holder, detached};
use crate::support::{Broker, Home, Lines, Mcp, Raw, eventually};

/// The last step of the message as `peer` is told it, once it is `state`.
#[track_caller]
fn last_step(peer: &mut Mcp, id: &str, state: &str) -> Value {
    eventually(state, || {
        let status = peer.call("bus.status", json!({ "id": id }));
        let last = status["messages"][0]["steps"].as_array()?.last()?.clone();
        (last["state"] == state).then_some(last)
    })
}

#[test]
fn that_a_message_was_seen_is_known_after_kills_of_broker_and_sender() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Raw::register(&home, &broker, "bob");
    let mut alice = Mcp::start(&home, "generic", "alice", "some-bot");
    let sent = alice.call("bus.send", json!({ "to": "bob", "body": "hi" }));
    let id = sent["id"].as_str().expect("an id").to_owned();
    let delivery = bob.delivery()["delivery_key"].clone();
    let ack = json!({
        "protocol_version": "v1", "type": "ack", "id": delivery,
        "how": "seen", "path": "inbox", "evidence": "tool_call",
    });
    bob.say(&ack.to_string());
    let seen = last_step(&mut alice, &id, "seen");
    assert_eq!(
        (&seen["path"], &seen["evidence"]),
        (&json!("inbox"), &json!("tool_call"))
    );

    drop(alice);
    broker.kill();
    let broker = Broker::start(&home);
    let mut alice = Mcp::start(&home, "generic", "alice", "some-bot");
    assert_eq!(last_step(&mut alice, &id, "seen"), seen, "also when");
    let status = home.run(&["status", &id]).ok();
    let line = status
        .lines()
        .find(|line| line.contains("seen"))
        .expect("a step");
    assert!(
        line.starts_with(seen["at"].as_str().expect("a time")),
        "{line}"
    );
    assert!(line.ends_with("bob  by inbox  (tool_call)"), "{line}");
    assert!(status.contains("from alice to bob"), "{status}");
    assert!(
        status.contains("bob's model has seen it")
            && status.contains("by inbox, which named it in a tool call"),
        "{status}"
    );
    let again = home.run(&["status", &id, "--json"]).ok();
    let again: Value = serde_json::from_str(&again).expect("JSON");
    let steps = again["messages"][0]["trail"]["steps"].as_array();
    assert_eq!(steps.and_then(|steps| steps.last()), Some(&seen));
    broker.stop();
}

/// Sends as `from`, which must have registered, and gives the message's id.
fn send(home: &Home, from: &str, to: &str, body: &str, more: &[&str]) -> String {
    let args = ["send", "--name", from, "--json", to, body];
    let sent = home.run(&[&args[..], more].concat()).ok();
    let sent: Value = serde_json::from_str(&sent).expect("JSON");
    sent["id"].as_str().expect("an id").to_owned()
}

/// Has `name` read `count` messages.
fn read(home: &Home, name: &str, count: &str) {
    let args = ["recv", "--name", name, "--count", count, "--timeout", "20"];
    home.run(&args).ok();
    eventually("the acks are on disk", || {
        let all = history(home, &["--with", name]);
        let waits =
            |line: &String| line.contains(&format!("→ {name}  ")) && !line.contains("  pushed  ");
        (!all.iter().any(waits)).then_some(())
    });
}

/// A broker that was killed after two of three messages were read; and the ids of the first and the
/// last, which answers it and waits.
fn three_messages(home: &Home) -> (Broker, String, String) {
    let broker = Broker::start(home);
    for name in ["alice", "bob", "cyd"] {
        drop(Raw::register(home, &broker, name));
    }
    let first = send(home, "alice", "bob", "are the tests green?", &[]);
    send(home, "alice", "cyd", "something \u{1b}[2Jelse", &[]);
    let to_first = ["--reply-to", &first];
    let answer = send(home, "bob", "alice", "all 412 pass", &to_first);
    read(home, "bob", "1");
    read(home, "cyd", "1");
    broker.kill();
    (Broker::start(home), first, answer)
}

fn history(home: &Home, args: &[&str]) -> Vec<String> {
    let args = [&["history"], args].concat();
    home.run(&args).ok().lines().map(str::to_owned).collect()
}

#[test]
fn what_was_read_is_found_with_its_body_after_a_kill() {
    let home = Home::new();
    let (broker, first, answer) = three_messages(&home);
    let lines = |args: &[&str]| history(&home, args);
    let all = lines(&[]);
    assert_eq!(all.len(), 3, "{all:#?}");
    assert!(
        all[0].contains("alice → bob  pushed  \"are the tests green?\""),
        "{}",
        all[0]
    );
    assert!(
        all[1].contains("alice → cyd") && !all[1].contains('\u{1b}'),
        "{}",
        all[1]
    );
    assert!(
        all[2].contains("bob → alice") && all[2].contains("all 412 pass"),
        "{}",
        all[2]
    );
    let wide = all.iter().find(|line| line.chars().count() > 80);
    assert_eq!(wide, None);
    assert_eq!(lines(&["--with", "CYD"]), all[1..2]);
    assert_eq!(lines(&["--with", "bob"]), [&all[0][..], &all[2]]);
    assert_eq!(lines(&["--thread", &first]), [&all[0][..], &all[2]]);
    assert_eq!(lines(&["--grep", "GREEN"]), all[..1]);
    assert_eq!(lines(&["--limit", "1"]), all[2..]);
    assert_eq!(lines(&["--since", "1h"]), all);
    assert_eq!(lines(&["--with", "nobody"]), ["no messages"]);
    let json = lines(&["--json", "--thread", &first])
        .pop()
        .expect("a line");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (
            &json["id"],
            &json["verified"],
            &json["body"]["text"],
            &json["reply_to"]
        ),
        (
            &json!(answer),
            &json!(true),
            &json!("all 412 pass"),
            &json!(first)
        )
    );
    broker.stop();
}

#[test]
fn a_purge_deletes_what_was_read_and_a_body_is_shown_by_its_signature_alone() {
    let home = Home::new();
    let (broker, first, _) = three_messages(&home);
    let status = home.run(&["status", &first]).ok();
    assert!(
        status.contains("pushed") || status.contains("acked"),
        "{status}"
    );
    assert!(status.contains("\"are the tests green?\""), "{status}");

    home.apart(&["history", "purge"]).ok();
    let left = history(&home, &[]);
    assert_eq!(left.len(), 1, "what waits: {left:?}");
    let status = home.run(&["status", &first]).ok();
    assert!(
        status.contains("its text is not shown: its text is gone"),
        "{status}"
    );
    let mut hidden = home.peerbus(&["history"]);
    hidden.env("PEERBUS_HMAC_SECRET", "another secret, of thirty-two bytes");
    let hidden = hidden.output().expect("peerbus starts");
    let hidden = String::from_utf8(hidden.stdout).expect("UTF-8");
    assert!(
        hidden.contains("not shown: its signature") && !hidden.contains("412"),
        "{hidden}"
    );
    broker.stop();
}

#[test]
fn a_broker_that_keeps_no_history_shows_what_waits_and_nothing_else() {
    let home = Home::new();
    let broker = Broker::start_with(&home, &["--history", "0"]);
    drop(Raw::register(&home, &broker, "bob"));
    send(&home, "alice", "bob", "read", &[]);
    send(&home, "alice", "bob", "waits", &[]);
    let args = ["recv", "--name", "bob", "--count", "1", "--timeout", "20"];
    home.run(&args).ok();
    let shown = eventually("only what waits is left", || {
        let shown = home.run(&["history"]).ok();
        (shown.lines().count() == 1).then_some(shown)
    });
    assert!(shown.contains("waits"), "{shown}");
    broker.stop();
}

#[test]
fn a_tail_follows_messages_and_steps_over_a_restart_of_the_broker() {
    let home = Home::new();
    let broker = Broker::start(&home);
    drop(Raw::register(&home, &broker, "bob"));
    send(&home, "alice", "bob", "before", &[]);
    let mut command = home.peerbus(&["tail", "--follow"]);
    let mut tail = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("tail");
    let lines = Lines::of(tail.stdout.take().expect("a pipe"));
    let said = Lines::of(tail.stderr.take().expect("a pipe"));
    let wait = |text: &str| lines.find(text, |line| line.contains(text).then_some(()));
    wait("alice → bob  \"before\"");
    send(&home, "alice", "bob", "live", &[]);
    wait("alice → bob  \"live\"");
    read(&home, "bob", "2");
    wait("alice → bob  delivered");
    wait("alice → bob  pushed by recv");
    broker.kill();
    said.find("that it waits", |line| {
        line.contains("waiting for it").then_some(())
    });
    let broker = Broker::start(&home);
    send(&home, "alice", "bob", "after", &[]);
    wait("alice → bob  \"after\"");
    read(&home, "bob", "1");
    wait("alice → bob  delivered");
    broker.stop();
    tail.kill().expect("it is ours");
    tail.wait().expect("it is ours");
}

#[test]
fn a_tail_names_a_sender_that_has_left() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Holder::new(&home, &broker, "bob");
    home.run(&["send", "bob", "first"]).ok();
    (0..20).for_each(|_| drop(send(&home, "alice", "bob", "before", &[])));
    let spawn = |args: &[&str]| home.peerbus(args).stdout(Stdio::piped()).spawn();
    let mut tail = spawn(&["tail", "--follow"]).expect("tail");
    let lines = Lines::of(tail.stdout.take().expect("a pipe"));
    lines.find("before", |line| line.contains("before").then_some(()));
    home.run(&["send", "bob", "ready?"]).ok();
    let sender = lines.find("the question", |line| {
        let (head, _) = line.split_once(" → bob  \"ready?\"")?;
        head.split(' ').next_back().map(str::to_owned)
    });
    lines.find("that it left", |line| {
        line.ends_with(&format!("{sender} left")).then_some(())
    });
    bob.gets();
    bob.reads();
    let first = |line: &str| line.contains("→ bob  seen").then(|| line.to_owned());
    let first = lines.find("what became of the first", first);
    assert!(first.contains(" shell-"), "{first}");
    (0..21).for_each(|_| bob.gets());
    bob.reads();
    let seen = lines.find("what became of it", |line| {
        line.contains("→ bob  seen").then(|| line.to_owned())
    });
    assert!(seen.contains(&format!(" {sender} → bob")), "{seen}");
    broker.stop();
    tail.kill().expect("it is ours");
    tail.wait().expect("it is ours");
}

/// It without what goes on by itself.
fn ageless(shown: &str) -> Vec<&str> {
    let parts = shown.split("  ");
    parts.filter(|part| !part.ends_with(" ago")).collect()
}

#[test]
fn an_inbox_shows_what_waits_for_one_name_and_takes_nothing() {
    let home = Home::new();
    let broker = Broker::start(&home);
    for name in ["alice", "bob", "cyd"] {
        drop(Raw::register(&home, &broker, name));
    }
    send(&home, "alice", "bob", "was read", &[]);
    send(&home, "alice", "cyd", "for another", &[]);
    read(&home, "bob", "1");
    // One that lost its connection is not away yet.
    drop(Raw::register(&home, &broker, "bob"));
    let mut cyd = Raw::register(&home, &broker, "cyd");
    home.run(&["broadcast", "--name", "alice", "to \u{1b}[2Jall"])
        .ok();
    let second = send(&home, "dan", "BOB", "still here", &[]);
    let inbox = |args: &[&str]| home.run(&[&["inbox"], args].concat()).ok();
    let shown = inbox(&["bob"]);
    let again = inbox(&["bob"]);
    assert_eq!(ageless(&again), ageless(&shown), "nothing was taken");
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 4, "{shown}");
    assert!(
        lines[0].contains("from alice  ") && lines[0].contains("  queued  "),
        "{shown}"
    );
    assert!(lines[1].ends_with(r#""to \u001b[2Jall""#), "{shown}");
    assert!(lines[2].contains("from dan  "), "{shown}");
    assert!(lines[2].contains(" s ago  queued  "), "{shown}");
    assert!(
        lines[2].ends_with(&second) && lines[3].ends_with("\"still here\""),
        "{shown}"
    );
    let newest = home.run(&["inbox", "bob", "--limit", "1"]);
    let says = newest.stderr.contains("older ones wait");
    assert!(says && !newest.ok().contains("alice"), "the newest");

    cyd.delivery();
    cyd.delivery();
    let shown = eventually("both are delivered", || {
        let shown = inbox(&["cyd"]);
        (shown.matches("cyd got it").count() == 2).then_some(shown)
    });
    assert!(!shown.contains("bob"), "what is said of another: {shown}");
    let line = inbox(&["cyd", "--json"]);
    let line: Value = serde_json::from_str(line.lines().next().expect("a line")).expect("JSON");
    assert_eq!(
        (
            &line["from"],
            &line["body"],
            &line["verified"],
            &line["state"]
        ),
        (
            &json!("alice"),
            &json!("for another"),
            &json!(true),
            &json!("delivered")
        )
    );

    assert_eq!(inbox(&["alice"]), "nothing waits for alice\n");
    let said = home.run(&["inbox", "bop"]).fails(1);
    assert!(
        said.contains("nobody here is called bop") && said.contains("mean bob?"),
        "{said}"
    );
    home.apart(&["names", "retire", "bob", "--to", "cyd"]).ok();
    eventually("it moves", || {
        inbox(&["cyd"]).contains("still here").then_some(())
    });
    assert!(inbox(&["bob"]).contains("still here"), "by its old name");
    broker.stop();
}

#[test]
fn what_a_client_that_is_gone_had_is_queued_wherever_it_is_told() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = Raw::register(&home, &broker, "bob");
    let id = detached(&home, &["bob", "well?"]);
    bob.delivery();
    drop(bob);
    eventually("the broker has it back", || {
        let steps = home.run(&["status", &id]).ok();
        steps.contains("  queued     bob").then_some(())
    });
    for args in [
        &["status"][..],
        &["status", "bob"],
        &["inbox", "bob"],
        &["history"],
        &["requests"],
    ] {
        let told = home.run(args).ok();
        assert!(
            told.contains("queued") && !told.contains("delivered"),
            "{args:?}: {told}"
        );
    }
    broker.stop();
}

#[test]
fn a_broker_of_an_older_version_is_called_that_with_the_remedy() {
    let home = Home::new();
    let socket = home.path().join("old.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let message =
        r#"{"seq":1,"id":"m1","from":"ada","at":1,"recipients":1,"frames":[],"envelope":null}"#;
    let messages = format!(r#"{{"before":null,"messages":[{message}]}}"#);
    for (status, body) in [
        ("404 Not Found", "peerbus has no GET /v1/messages/m1\n"),
        ("200 OK", messages.as_str()),
    ] {
        let said = thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("a command");
                let mut asked = BufReader::new(&stream).lines().map_while(Result::ok);
                assert!(asked.any(|line| line.is_empty()), "a whole request");
                let length = body.len();
                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).expect("it listens");
            });
            let socket = socket.to_str().expect("UTF-8");
            home.run(&["status", "m1", "--socket", socket]).fails(1)
        });
        assert!(
            said.contains("another version") && said.contains("peerbus stop"),
            "{said}"
        );
    }
}

#[test]
fn nothing_of_the_history_is_told_over_tcp() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let targets = [
        "/v1/events",
        "/v1/messages",
        "/v1/messages/m1",
        "/v1/names/bob",
        "/v1/peers",
    ];
    for target in targets {
        let mut stream = std::net::TcpStream::connect(&broker.address).expect("a broker");
        let request = format!("GET {target} HTTP/1.0\r\nHost: {}\r\n\r\n", broker.address);
        stream.write_all(request.as_bytes()).expect("a request");
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).expect("an answer");
        assert!(answer.contains(" 404 "), "{target}: {answer}");
    }
    broker.stop();
}

/// A stream of the operator's, from now on or behind a cursor: its lines, the head among them.
fn events(home: &Home, cursor: Option<&str>) -> Lines {
    let socket = home.path().join(".local/state/peerbus/peerbus.sock");
    let mut stream = std::os::unix::net::UnixStream::connect(socket).expect("a broker");
    let cursor = cursor.map(|cursor| format!("Last-Event-ID: {cursor}\r\n"));
    let cursor = cursor.unwrap_or_default();
    let request = format!("GET /v1/events HTTP/1.0\r\nHost: localhost\r\n{cursor}\r\n");
    stream.write_all(request.as_bytes()).expect("a request");
    Lines::of(stream)
}

/// The cursor of the first event whose data has this text.
#[track_caller]
fn cursor_of(lines: &Lines, text: &str) -> String {
    let mut cursor = String::new();
    lines.find(text, |line| {
        if let Some(id) = line.strip_prefix("id: ") {
            id.clone_into(&mut cursor);
        }
        line.contains(text).then_some(())
    });
    cursor
}

#[test]
fn the_operators_stream_goes_on_behind_a_cursor_or_says_that_it_is_gone() {
    let home = Home::new();
    let broker = Broker::start(&home);
    drop(Raw::register(&home, &broker, "bob"));
    let lines = events(&home, None);
    cursor_of(&lines, "event: ready");
    let first = send(&home, "alice", "bob", "one", &[]);
    let cursor = cursor_of(&lines, &first);
    let second = send(&home, "alice", "bob", "two", &[]);
    let third = send(&home, "alice", "bob", "three", &[]);
    cursor_of(&lines, &third);
    let again = events(&home, Some(&cursor));
    let mut seen = Vec::new();
    again.find("what came meanwhile", |line| {
        let which = [&first, &second, &third]
            .into_iter()
            .find(|id| line.contains(*id));
        seen.extend(which.cloned());
        (which == Some(&third)).then_some(())
    });
    assert!(seen.contains(&second), "{seen:?}");
    broker.kill();
    let broker = Broker::start(&home);
    for cursor in [cursor.as_str(), "nonsense", "7-7"] {
        let gone = events(&home, Some(cursor));
        gone.find("410", |line| line.contains(" 410 ").then_some(()));
        gone.find("from where", |line| {
            line.contains("go on without one, or from").then_some(())
        });
    }
    broker.stop();
}
