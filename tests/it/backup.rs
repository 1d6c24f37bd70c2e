//! `peerbus backup` and `peerbus restore`, under load.

use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Broker, Home, Lines, PATIENCE};

fn text(home: &Home, name: &str) -> String {
    home.path().join(name).to_str().expect("utf-8").to_owned()
}

/// Reads mail of `b` until it is killed.
fn recv_b(home: &Home) -> (Child, Lines) {
    let recv = ["recv", "--name", "b", "--timeout", "300"];
    let recv = home.peerbus(&recv).stdout(Stdio::piped()).spawn();
    let mut recv = recv.expect("recv starts");
    let lines = Lines::of(recv.stdout.take().expect("a pipe"));
    (recv, lines)
}

/// The texts of the next messages that `recv` prints.
fn next(lines: &Lines, messages: usize) -> Vec<String> {
    let text = |_| {
        let line = lines.next(PATIENCE).expect("a line");
        let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        line["body"]["text"].as_str().expect("a text").to_owned()
    };
    (0..messages).map(text).collect()
}

/// Whether what was accepted before the backup is among them.
fn has_all(seen: &[String]) -> bool {
    (0..5).all(|number| seen.contains(&format!("before {number}")))
}

/// Makes a backup while two others send. Gives how many messages they sent.
fn back_up_under_load(home: &Home, file: &str) -> usize {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = |sender| {
            let stop = &stop;
            scope.spawn(move || {
                let mut sent = 0;
                while !stop.load(Ordering::Relaxed) {
                    home.run(&["send", "b", &format!("load {sender} {sent}")])
                        .ok();
                    sent += 1;
                }
                sent
            })
        };
        let senders = [load("x"), load("y")];
        let said = home.run(&["backup", file]);
        stop.store(true, Ordering::Relaxed);
        assert!(said.ok().contains("kept.backup: a private copy of"));
        let sent = senders.map(|sender| sender.join().expect("the load ends"));
        sent.into_iter().sum()
    })
}

#[test]
fn what_was_accepted_before_a_backup_under_load_comes_back_and_is_shown_once() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let file = text(&home, "kept.backup");
    home.run(&["recv", "--name", "b", "--timeout", "0.1"]).ok();
    for number in 0..5 {
        home.run(&["send", "b", &format!("before {number}")]).ok();
    }
    let load = back_up_under_load(&home, &file);
    let metadata = std::fs::metadata(&file).expect("a file");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);

    // An adapter that sees all of it, and runs on.
    let (mut recv, lines) = recv_b(&home);
    let seen = next(&lines, 5 + load);
    assert!(has_all(&seen), "{seen:?}");

    let said = home.run(&["restore", &file]).fails(2);
    assert!(said.contains("in use by another broker"), "{said}");
    broker.kill();
    let said = home.run(&["restore", &file]).ok();
    assert!(said.contains("what was there is in"), "{said}");
    let database = home.database().canonicalize().expect("it is there");
    let names = format!("restored {}: ", database.display());
    assert!(said.starts_with(&names), "{said}");
    let broker = Broker::start(&home);
    home.run(&["send", "b", "after"]).ok();
    assert_eq!(next(&lines, 1), ["after"], "shown twice");
    recv.kill().expect("recv is ours");
    recv.wait().expect("recv ends");
    let said = home.run(&["audit", "verify"]).ok();
    assert!(said.contains("losses acknowledged: 1"), "{said}");
    broker.stop();

    // For one that has seen nothing, all of it is there: in another place, too.
    let other = Home::new();
    other.run(&["restore", &file]).ok();
    let config = other.credentials();
    std::fs::create_dir_all(config.parent().expect("a directory")).expect("a directory");
    std::fs::copy(home.credentials(), config).expect("the credentials");
    let broker = Broker::start(&other);
    let (mut recv, lines) = recv_b(&other);
    let mut seen = Vec::new();
    while !has_all(&seen) {
        seen.extend(next(&lines, 1));
    }
    recv.kill().expect("recv is ours");
    recv.wait().expect("recv ends");
    broker.stop();
}

#[test]
fn a_backup_replaces_no_file_and_only_a_backup_is_restored() {
    let home = Home::new();
    Broker::start(&home).stop();
    let file = text(&home, "kept.backup");
    home.run(&["backup", &file]).ok();
    let said = home.run(&["backup", &file]).fails(2);
    assert!(said.contains("is there already"), "{said}");
    let before = std::fs::read(home.database()).expect("a database");
    let database = home.database();
    let said = home
        .run(&["restore", database.to_str().expect("utf-8")])
        .fails(2);
    assert!(said.contains("is no backup"), "{said}");
    let said = home.run(&["restore", &text(&home, "nope")]).fails(2);
    assert!(
        said.contains("nope: No such file") && said.contains("that `peerbus backup` made"),
        "{said}"
    );
    let cut = std::fs::read(&file).expect("a backup");
    std::fs::write(text(&home, "cut"), &cut[..cut.len() / 2]).expect("a file");
    let said = home.run(&["restore", &text(&home, "cut")]);
    assert_ne!(said.code, Some(0), "{}", said.stderr);
    assert_eq!(std::fs::read(home.database()).expect("a database"), before);
    let names = std::fs::read_dir(database.parent().expect("a directory")).expect("a directory");
    let names: Vec<_> = names
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert!(
        names
            .iter()
            .all(|name| !name.to_string_lossy().contains("restor")),
        "{names:?}"
    );
    assert!(home.run(&["restore", &file]).ok().contains("nothing yet"));
}
