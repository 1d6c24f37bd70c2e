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
    assert!(line.contains("hello \\u202ethere"), "escaped: {line}");
    let first: Value = serde_json::from_str(&line).expect("NDJSON");
    assert_eq!(
        (&first["body"]["text"], &first["kind"]),
        (&"hello \u{202e}there".into(), &"msg".into())
    );
    let second: Value = serde_json::from_str(&lines.next(PATIENCE).expect("a line")).expect("JSON");
    assert_eq!(second["body"]["text"], "two");
    assert!(recv.wait().expect("recv ends").success());
    broker.stop();
}

#[test]
fn a_broker_says_who_finds_its_credentials_and_what_new_ones_do_not_reach() {
    let home = Home::new();
    let said = |more: &[&str]| {
        let broker = Broker::start_with(&home, more);
        broker.stop_and_read().join("\n")
    };
    assert!(said(&[]).contains("adapters and commands of this user find them"));
    let broker = Broker::start(&home);
    home.run(&["recv", "--name", "bob", "--timeout", "0.1"])
        .ok();
    broker.stop();
    let other = home.path().join("other.toml").display().to_string();
    let new = said(&["--credentials", &other]);
    assert!(new.contains("take them with --credentials FILE"), "{new}");
    assert!(!new.contains("of this user find them"), "{new}");
    assert!(
        new.contains(&format!("warning: the credentials in {other} are new"))
            && new.contains("1 name of another token"),
        "{new}"
    );
    assert!(!said(&["--credentials", &other]).contains("warning"));
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

#[test]
fn a_token_that_was_found_goes_to_no_port_that_anybody_may_listen_on() {
    let home = Home::new();
    Broker::start(&home).stop();
    let said = home.run(&["peers", "--timeout", "0.5"]).fails(1);
    assert!(said.contains("no broker is running"), "{said}");
    assert!(said.contains("`peerbus serve`"), "{said}");
    assert!(said.contains("PEERBUS_URL"), "{said}");
    assert!(!said.contains("ws://"), "{said}");
}

#[test]
fn a_name_is_freed_at_a_broker_that_was_started_without_a_runtime_directory() {
    let home = Home::new();
    let broker = Broker::start(&home);
    home.run(&["recv", "--name", "bob", "--timeout", "0.1"])
        .ok();
    let mut release = home.peerbus(&["names", "release", "bob"]);
    release.env("XDG_RUNTIME_DIR", home.path().join("run"));
    let output = release.output().expect("peerbus starts");
    assert!(output.status.success(), "{output:?}");
    broker.stop();
    let output = release.output().expect("peerbus starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("run/peerbus/peerbus.sock")
            && said.contains(".local/state/peerbus/peerbus.sock"),
        "{said}"
    );
}

#[test]
fn a_brokers_hmac_secret_is_ignored_and_kept_nowhere() {
    const SECRET: &str = "hush-hush-a-secret-of-more-than-32-bytes";
    let home = Home::new();
    // The credentials exist, so that nothing is made of the variable either.
    Broker::start(&home).stop();
    let mut serve = home.peerbus(&["serve", "--listen", "127.0.0.1:0"]);
    serve
        .env("PEERBUS_HMAC_SECRET", SECRET)
        .env("PEERBUS_LOG", "trace")
        .stderr(Stdio::piped());
    let mut child = serve.spawn().expect("serve starts");
    let lines = Lines::of(child.stderr.take().expect("a pipe"));
    let mut log = Vec::new();
    lines.find("state line", |line| {
        log.push(line.to_owned());
        line.starts_with("state in ").then_some(())
    });
    home.run(&["recv", "--name", "bob", "--timeout", "0.1"])
        .ok();
    home.run(&["send", "bob", "hello"]).ok();
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::TERM,
    )
    .expect("the broker is ours");
    assert!(child.wait().expect("the broker ends").success());
    log.extend(std::iter::from_fn(|| lines.next(PATIENCE)));
    let log = log.join("\n");
    assert!(
        log.contains("PEERBUS_HMAC_SECRET is set and ignored"),
        "{log}"
    );
    assert!(!log.contains(SECRET), "{log}");
    let state = home.database();
    let state = state.parent().expect("a directory");
    let mut read = 0;
    for file in std::fs::read_dir(state).expect("the state directory") {
        let path = file.expect("a file").path();
        let bytes = std::fs::read(&path).expect("the file is ours");
        let found = bytes.windows(SECRET.len()).any(|w| w == SECRET.as_bytes());
        assert!(!found, "{}", path.display());
        read += bytes.len();
    }
    assert!(read > 4_096, "the database was read");
}
