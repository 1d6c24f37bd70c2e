//! `peerbus run` over a WebSocket, with a stand-in for Claude Code that cuts it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{Driven, home, is_ready, is_seen, send, told, turns};
use crate::nodes::NOBODY;
use crate::support::{Broker, Home, Lines, PATIENCE, eventually};

/// The arguments that the stand-in was started with, and a variable of its environment.
fn started(home: &Home, variable: &str) -> (Vec<Value>, Value) {
    let started = eventually("it is started", || {
        told(home).into_iter().find(|told| told["argv"].is_array())
    });
    let argv = started["argv"].as_array().cloned().unwrap_or_default();
    (argv, started["environment"][variable].clone())
}

#[test]
fn a_stream_over_a_socket_that_is_cut_twenty_times_loses_and_doubles_nothing() {
    const CUTS: usize = 20;
    let home = home();
    let broker = Broker::start(&home);
    let cuts = CUTS.to_string();
    let args = ["--transport", "sdk-url", "hello", "--", "--cuts", &cuts];
    let driven = Driven::start(&home, &args);
    driven
        .out
        .find("the answer", |line| (line == "heard it").then_some(()));
    is_ready(&home);
    let cut = || {
        told(&home)
            .iter()
            .filter(|told| told["cut"].is_u64())
            .count()
    };
    let mut sent = Vec::new();
    while cut() < CUTS {
        let number = sent.len();
        assert!(number < 100, "{} cuts", cut());
        let text = format!("message {number}: use a bus tool, use a tool");
        let id = send(&home, &text);
        is_seen(&home, &id);
        sent.push(id);
    }
    let turns = turns(&home);
    assert_eq!(turns.len(), 1 + sent.len(), "{turns:?}");
    for (turn, id) in turns[1..].iter().zip(&sent) {
        assert!(
            turn.contains(&id[24..]) && !turn.contains("(shown before)"),
            "{turn}"
        );
    }
    let told = told(&home);
    let of = |what: &str| -> Vec<Value> {
        let all = told.iter().filter_map(|told| told.get(what));
        all.cloned().collect()
    };
    let called = of("called");
    assert_eq!(called.len(), sent.len());
    assert!(
        called.iter().all(|called| called["subtype"] == "success"),
        "{called:?}"
    );
    let verdicts = of("verdict");
    let allowed = verdicts
        .iter()
        .filter(|verdict| verdict["response"]["behavior"] == "allow");
    assert_eq!(allowed.count(), sent.len());
    assert_eq!(of("argv").len(), 1, "one client lived through it");
    let mut heard = 1;
    for _ in &sent {
        heard += usize::from(driven.out.next(PATIENCE).as_deref() == Some("heard it"));
    }
    driven.stop();
    assert_eq!(heard, turns.len());
    broker.stop();
}

/// Where the client was told to connect.
fn place(argv: &[Value]) -> String {
    let url = argv.iter().skip_while(|word| *word != "--sdk-url").nth(1);
    let url = url.and_then(Value::as_str).expect("--sdk-url");
    let place = url
        .strip_prefix("ws://")
        .and_then(|url| url.strip_suffix('/'));
    place.expect("a place").to_owned()
}

#[test]
fn only_the_client_with_its_token_gets_to_the_socket() {
    let home = home();
    let broker = Broker::start(&home);
    let args = ["--transport", "sdk-url", "--", "--without-the-token"];
    let driven = Driven::start(&home, &args);
    is_ready(&home);
    let refused = told(&home)
        .iter()
        .find_map(|told| told.get("refused").cloned());
    assert_eq!(refused, Some(json!(401)));
    let (argv, token) = started(&home, "CLAUDE_CODE_SESSION_ACCESS_TOKEN");
    let token = token.as_str().expect("a token");
    assert_eq!(token.len(), 64);
    assert!(
        !argv
            .iter()
            .any(|word| word.as_str().is_some_and(|word| word.contains(token)))
    );
    let place = place(&argv);
    assert!(place.starts_with("127.0.0.1:"), "{place}");
    let mut stream = TcpStream::connect(&place).expect("it listens");
    write!(
        stream,
        "GET / HTTP/1.1\r\nHost: {place}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
         Authorization: Bearer {token}\r\n\r\n"
    )
    .expect("written");
    let mut said = [0; 12];
    stream.read_exact(&mut said).expect("an answer");
    assert_eq!(String::from_utf8_lossy(&said), "HTTP/1.1 403");
    let id = send(&home, "still there?");
    is_seen(&home, &id);
    driven.stop();
    broker.stop();
}

#[test]
fn another_users_connections_take_no_place_that_the_client_needs() {
    if !rustix::process::getuid().is_root() {
        // Only root can be somebody else.
        return;
    }
    let home = home();
    let broker = Broker::start(&home);
    let driven = Driven::start(&home, &["--transport", "sdk-url"]);
    is_ready(&home);
    let place = place(&started(&home, "HOME").0);
    let (host, port) = place.split_once(':').expect("a port");
    let crowd = "import socket, sys\n\
        crowd = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(64)]\n\
        print('there', flush=True)\n\
        sys.stdin.read()";
    let mut others = Command::new("/usr/bin/python3")
        .args(["-c", crowd, host, port])
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    let said = Lines::of(others.stdout.take().expect("a pipe"));
    assert_eq!(said.next(PATIENCE).as_deref(), Some("there"));
    // Who comes after them is heard all the same.
    let mut stream = TcpStream::connect(&place).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("it is set");
    write!(
        stream,
        "GET / HTTP/1.1\r\nHost: {place}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    .expect("written");
    let mut said = [0; 12];
    stream.read_exact(&mut said).expect("an answer");
    assert_eq!(String::from_utf8_lossy(&said), "HTTP/1.1 401");
    drop(others.stdin.take());
    others.wait().expect("our child");
    let id = send(&home, "still there?");
    is_seen(&home, &id);
    driven.stop();
    broker.stop();
}

#[test]
fn connections_that_say_nothing_keep_the_client_from_no_place() {
    let home = home();
    let broker = Broker::start(&home);
    let driven = Driven::start(&home, &["--transport", "sdk-url"]);
    is_ready(&home);
    let place = place(&started(&home, "HOME").0);
    let connect = || TcpStream::connect(&place).expect("it listens");
    let _crowd: Vec<_> = (0..64).map(|_| connect()).collect();
    let mut stream = connect();
    stream.set_read_timeout(Some(PATIENCE)).expect("it is set");
    write!(
        stream,
        "GET / HTTP/1.1\r\nHost: {place}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    .expect("written");
    let mut said = [0; 12];
    let heard = stream.read_exact(&mut said);
    heard.expect("an answer while the crowd is there");
    assert_eq!(String::from_utf8_lossy(&said), "HTTP/1.1 401");
    let id = send(&home, "still there?");
    is_seen(&home, &id);
    driven.stop();
    broker.stop();
}

#[test]
fn variables_that_would_lead_the_client_elsewhere_do_not_reach_it() {
    let home = home();
    let broker = Broker::start(&home);
    let elsewhere = [
        "CLAUDE_CODE_POST_FOR_SESSION_INGRESS_V2",
        "CLAUDE_CODE_REMOTE",
        "CLAUDE_CODE_REMOTE_SESSION_ID",
    ];
    let driven = Driven::start_with(&home, &[], &elsewhere.map(|name| (name, "1")));
    is_ready(&home);
    for name in elsewhere {
        assert_eq!(started(&home, name).1, Value::Null, "{name}");
    }
    drop(driven);
    broker.stop();
}
