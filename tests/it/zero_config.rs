//! A fresh machine: no configuration, no variables, and it works.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::support::{Broker, Home, Lines, PATIENCE};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path)
        .expect("the file is there")
        .permissions()
        .mode()
        & 0o777
}

#[test]
fn serve_makes_what_it_needs_and_every_verb_finds_it() {
    let home = Home::new();
    let broker = Broker::start(&home);
    assert_eq!(mode(&home.credentials()), 0o600);
    assert_eq!(mode(&home.database()), 0o600);
    assert_eq!(
        mode(&home.path().join(".local/state/peerbus/peerbus.sock")),
        0o600
    );

    let mut recv = home
        .peerbus(&["recv", "--name", "bob", "--count", "2", "--timeout", "50"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("recv starts");
    let lines = Lines::of(recv.stdout.take().expect("a pipe"));
    crate::support::eventually("bob is listed", || {
        home.run(&["peers"]).ok().contains("bob").then_some(())
    });
    let said = home.run(&["send", "bob", "hello \u{202e}there"]).ok();
    assert!(said.starts_with("accepted "), "{said}");
    home.run(&["send", "bob", r#"{"text":"two"}"#]).ok();

    let line = lines.next(PATIENCE).expect("a line");
    assert!(line.contains("hello \\u202ethere"), "neutralised: {line}");
    let first: Value = serde_json::from_str(&line).expect("NDJSON");
    assert_eq!(
        (&first["body"], &first["kind"]),
        (&"hello \u{202e}there".into(), &"msg".into())
    );
    let second: Value = serde_json::from_str(&lines.next(PATIENCE).expect("a line")).expect("JSON");
    assert_eq!(second["body"]["text"], "two");
    assert!(recv.wait().expect("recv ends").success());
    broker.stop();
}

#[test]
fn what_recv_printed_is_acked_and_what_it_did_not_print_comes_again() {
    let home = Home::new();
    let broker = Broker::start(&home);
    home.run(&["recv", "--name", "bob", "--timeout", "0.1"])
        .ok();
    for text in ["one", "two", "three"] {
        home.run(&["send", "bob", text]).ok();
    }
    let first = home
        .run(&["recv", "--name", "bob", "--count", "1", "--timeout", "50"])
        .ok();
    assert!(first.contains("one") && !first.contains("two"), "{first}");
    let rest = home
        .run(&["recv", "--name", "bob", "--count", "2", "--timeout", "50"])
        .ok();
    let texts: Vec<_> = rest
        .lines()
        .map(|l| l.contains("two") || l.contains("three"))
        .collect();
    assert_eq!(texts, [true, true], "{rest}");
    let none = home.run(&["recv", "--name", "bob", "--count", "1", "--timeout", "0.3"]);
    assert!(none.fails(1).contains("0 of 1 message"));
    broker.stop();
}

#[test]
fn mail_outlives_a_restart_of_the_broker() {
    let home = Home::new();
    let broker = Broker::start(&home);
    home.run(&["recv", "--name", "bob", "--timeout", "0.1"])
        .ok();
    home.run(&["send", "bob", "still here"]).ok();
    broker.kill();
    let broker = Broker::start(&home);
    let got = home
        .run(&["recv", "--name", "bob", "--count", "1", "--timeout", "50"])
        .ok();
    assert!(got.contains("still here"), "{got}");
    broker.stop();
}
