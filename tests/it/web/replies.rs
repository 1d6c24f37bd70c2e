//! What comes for a token's peer: told until a reader confirms it.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;

use peerbus_test_support::message::envelope;
use serde_json::Value;

use super::{Gateway, bearer, event, token};
use crate::support::{Broker, Home, Lines, PATIENCE, Raw, eventually};

type Reader = (Lines, TcpStream);

fn hang_up((_, end): Reader) {
    end.shutdown(Shutdown::Both).expect("a socket");
}

/// Makes `web:ci` a peer.
fn introduce(home: &Home, gateway: &Gateway, token: &str) {
    let reader = gateway.reader(token, &[]);
    eventually("web:ci is a peer", || {
        let peers = home.run(&["peers"]).stdout;
        peers.contains("web:ci").then_some(())
    });
    hang_up(reader);
}

/// The next messages of a stream: their event's ids, and their texts.
fn texts(lines: &Lines, count: usize) -> Vec<(String, String)> {
    let all = (0..count).map(|_| event(lines, "message"));
    let text = |data: &Value| data["text"].as_str().expect("a text").to_owned();
    all.map(|(id, data)| (id, text(&data))).collect()
}

fn confirm(gateway: &Gateway, token: &str, id: &str) -> u16 {
    let cursor = format!("Last-Event-ID: {id}");
    let asked = gateway.ask("POST /v1/replies", &[&bearer(token), &cursor], b"");
    asked.status
}

/// Sends `web:ci` these messages of 9 KB, and waits until they are accepted. A text begins with its number.
fn send_many(home: &Home, eve: &mut Raw, numbers: Range<usize>) {
    let secret = home.credential("hmac_secret");
    for n in numbers {
        let body = format!(r#"{{"text":"{n:03} {}"}}"#, "x".repeat(9_190));
        eve.say(&envelope(&secret, &format!("m{n}"), "eve", "web:ci", &body));
        assert_eq!(eve.answer()["state"], "accepted");
    }
}

fn number(text: &str) -> usize {
    let word = text.split(' ').next().expect("a word");
    word.parse().expect("a number")
}

#[test]
fn what_no_reader_confirmed_is_told_again_over_kills_of_the_gateway() {
    const ALL: usize = 300;
    let home = Home::new();
    let broker = Broker::start(&home);
    let ci = token(&home, &["ci"]);
    let mut gateway = Gateway::start(&home);
    introduce(&home, &gateway, &ci);
    send_many(&home, &mut Raw::register(&home, &broker, "eve"), 0..ALL);
    // No event is read, and all of them are on their way.
    let mut deaf = gateway.connect();
    let head = format!(
        "GET /v1/replies HTTP/1.0\r\n{}\r\nHost: {}\r\n\r\n",
        bearer(&ci),
        gateway.address
    );
    deaf.write_all(head.as_bytes()).expect("it reads");
    let mut begin = Vec::new();
    while !begin.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        deaf.read_exact(&mut byte).expect("an answer");
        begin.extend(byte);
    }
    let begin = String::from_utf8(begin).expect("UTF-8").to_lowercase();
    assert!(begin.contains("x-accel-buffering: no"), "{begin}");
    drop(deaf);
    let mut seen = BTreeSet::new();
    let mut cursor = None;
    for read in [3, 40, 1, 80, ALL] {
        let more: Vec<_> = cursor
            .iter()
            .map(|id| format!("Last-Event-ID: {id}"))
            .collect();
        let more: Vec<_> = more.iter().map(String::as_str).collect();
        let (lines, end) = gateway.reader(&ci, &more);
        let enough = ALL.min(seen.len() + read);
        while seen.len() < enough {
            let (id, text) = next(&lines).expect("a message");
            let number = number(&text);
            assert!(number <= seen.len(), "nothing is left out");
            seen.insert(number);
            cursor = Some(id);
        }
        hang_up((lines, end));
        gateway = Gateway::start(&home);
    }
    let status = home.run(&["status", "m299"]).ok();
    assert!(!status.contains("acked"), "{status}");
    assert_eq!(confirm(&gateway, &ci, &cursor.expect("a cursor")), 204);
    let lines = gateway.replies(&ci, &[]);
    eventually("it is acked", || {
        let status = home.run(&["status", "m299"]).ok();
        status.contains("acked").then_some(())
    });
    drop(lines);
    broker.stop();
}

#[test]
fn a_cursor_of_before_takes_along_nothing_that_its_reader_was_not_sent() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let ci = token(&home, &["ci"]);
    let mut gateway = Gateway::start(&home);
    introduce(&home, &gateway, &ci);
    drop(Raw::register(&home, &broker, "oldname"));
    let send = |to: &str, text: &str| home.run(&["send", to, text, "--name", "bob"]).ok();
    send("oldname", "older");
    send("web:ci", "newer");
    let reader = gateway.reader(&ci, &[]);
    let newer = texts(&reader.0, 1).remove(0);
    assert_eq!(newer.1, "newer");
    hang_up(reader);
    // Another name's mail comes before it now.
    home.run(&["names", "retire", "oldname", "--to", "web:ci"])
        .ok();
    gateway = Gateway::start(&home);
    let cursor = format!("Last-Event-ID: {}", newer.0);
    let (lines, _end) = gateway.reader(&ci, &[&cursor]);
    assert_eq!(texts(&lines, 1)[0].1, "older");
    broker.stop();
}

/// The next message, or the end of the stream.
fn next(lines: &Lines) -> Option<(String, String)> {
    let mut id = String::new();
    loop {
        let line = lines.poll(PATIENCE).ok()?;
        if let Some(text) = line.strip_prefix("id: ") {
            text.clone_into(&mut id);
        }
        if let Some(data) = line.strip_prefix("data: ") {
            let data: Value = serde_json::from_str(data).expect("JSON on one line");
            return Some((id, data["text"].as_str()?.to_owned()));
        }
    }
}

#[test]
fn a_stream_ends_when_much_is_unconfirmed_and_goes_on_when_it_is_confirmed() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let ci = token(&home, &["ci"]);
    let gateway = Gateway::start(&home);
    introduce(&home, &gateway, &ci);
    let mut eve = Raw::register(&home, &broker, "eve");
    // Of 9 KB each, 2 MiB are 228.
    send_many(&home, &mut eve, 0..300);
    let lines = gateway.replies(&ci, &[]);
    let first = texts(&lines, 228);
    let said = lines.find("what to do", |line| {
        line.contains("unconfirmed").then(|| line.to_owned())
    });
    assert!(
        said.starts_with(": 228 events") && said.contains("Last-Event-ID"),
        "{said}"
    );
    assert!(next(&lines).is_none(), "it ends");
    // It goes on behind what it had.
    let cursor = format!("Last-Event-ID: {}", first[99].0);
    let lines = gateway.replies(&ci, &[&cursor]);
    let rest = texts(&lines, 200);
    assert_eq!(rest[..128], first[100..]);
    // A reader that confirms meanwhile is not cut off.
    assert_eq!(confirm(&gateway, &ci, &rest[199].0), 204);
    send_many(&home, &mut eve, 300..500);
    assert_eq!(number(&texts(&lines, 200)[199].1), 499);
    broker.stop();
}

#[test]
fn replies_go_on_behind_the_last_one_and_end_with_the_token() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let ci = token(&home, &["ci"]);
    let mut gateway = Gateway::start(&home);
    let send = |text: &str| home.run(&["send", "web:ci", text, "--name", "bob"]).ok();
    introduce(&home, &gateway, &ci);
    for text in ["one", "two", "three"] {
        send(text);
    }
    let reader = gateway.reader(&ci, &[]);
    let first = texts(&reader.0, 3);
    hang_up(reader);
    assert_eq!(first[2].1, "three");
    let cursor = format!("Last-Event-ID: {}", first[0].0);
    let reader = gateway.reader(&ci, &[&cursor]);
    let again = texts(&reader.0, 2);
    hang_up(reader);
    assert_eq!(again, first[1..]);
    // What is confirmed is acked, and never called seen.
    let id = send("four")
        .split([' ', ':'])
        .nth(1)
        .expect("an id")
        .to_owned();
    let lines = gateway.replies(&ci, &[]);
    let rest = texts(&lines, 3);
    assert_eq!(rest[..2], first[1..], "what nobody confirmed");
    assert_eq!(rest[2].1, "four");
    let status = home.run(&["status", &id]).ok();
    assert!(!status.contains("acked"), "{status}");
    assert_eq!(confirm(&gateway, &ci, &rest[2].0), 204);
    assert_eq!(confirm(&gateway, &ci, &first[0].0), 204, "it is already");
    let status = eventually("it is acked", || {
        let status = home.run(&["status", &id]).ok();
        status.contains("acked").then_some(status)
    });
    assert!(!status.contains("seen "), "{status}");

    gateway = Gateway::start(&home);
    send("five");
    // A cursor of before is none of another stream's; it begins with what nobody confirmed.
    let reader = gateway.reader(&ci, &[&cursor]);
    assert_eq!(texts(&reader.0, 1)[0].1, "five");
    hang_up(reader);
    for bad in ["five", "0-", "0-1-"] {
        assert_eq!(confirm(&gateway, &ci, bad), 400, "{bad}");
        let cursor = format!("Last-Event-ID: {bad}");
        let asked = gateway.ask("GET /v1/replies", &[&bearer(&ci), &cursor], b"");
        asked.refused(400, "no event's id");
    }
    let asked = gateway.ask("POST /v1/replies", &[&bearer(&ci)], b"");
    asked.refused(400, "missing");
    let lines = gateway.replies(&ci, &[]);
    home.run(&["web", "token", "revoke", "ci"]).ok();
    while lines.poll(PATIENCE).is_ok() {}
    let ended = lines.poll(PATIENCE).expect_err("nothing comes");
    assert_eq!(ended, std::sync::mpsc::RecvTimeoutError::Disconnected);
    assert_eq!(
        gateway.ask("GET /v1/replies", &[&bearer(&ci)], b"").status,
        401
    );
    eventually("its peer leaves", || {
        let peers = home.run(&["peers", "--all"]).ok();
        let line = peers
            .lines()
            .find(|line| line.contains("web:ci"))?
            .to_owned();
        line.contains("away").then_some(())
    });
    broker.stop();
}
