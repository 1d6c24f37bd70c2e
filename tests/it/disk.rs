//! A database that others hold, and a disk that is full.

use std::fs::{self, File};
use std::path::Path;

use peerbus_test_support::message::envelope;
use peerbus_test_support::socket::Heard;
use rusqlite::Connection;

use crate::support::{Broker, Home, Raw, Small};

const SECRET: &str = "no matter which, the broker cannot tell";

/// A message of so many bytes of text.
fn message(id: &str, from: &str, to: &str, bytes: usize) -> String {
    envelope(SECRET, id, from, to, &format!("\"{}\"", "x".repeat(bytes)))
}

#[test]
fn a_lock_that_another_program_holds_is_waited_for_with_a_warning() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut ann = Raw::register(&home, &broker, "ann");
    let other = Connection::open(home.database()).expect("the database");
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    ann.say(&message("m1", "ann", "ann", 1));
    broker.stderr.find("a warning", |line| {
        let warned = line.contains("another program holds the database's lock");
        (warned && line.contains("peerbus.db")).then_some(())
    });
    other.execute_batch("ROLLBACK").expect("gives it back");
    assert_eq!(ann.receipt("accepted")["id"], "m1");
    broker.stop();
}

#[test]
fn a_wal_that_a_reader_makes_grow_is_warned_of_once() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let reader = Connection::open(home.database()).expect("the database");
    let snapshot = "BEGIN; SELECT count(*) FROM messages";
    reader.execute_batch(snapshot).expect("a snapshot");
    let mut ann = Raw::register(&home, &broker, "ann");
    drop(Raw::register(&home, &broker, "bob"));
    for n in 0..100 {
        ann.say(&message(&format!("m{n}"), "ann", "bob", 1_000_000));
        ann.receipt("accepted");
    }
    drop(reader);
    let said = broker.stop_and_read().join("\n");
    assert_eq!(said.matches("the WAL grows").count(), 1, "{said}");
}

/// What is done to the files of a database, the file that is named then, and what is said of it.
type Act = (fn(&Path, &Path), &'static str, &'static str);

const ACTS: [Act; 7] = [
    (
        |db, _| fs::remove_file(db).expect("removed"),
        "peerbus.db",
        "removed or moved away",
    ),
    (
        |db, _| {
            // Moved first: the broker may be making a file in it.
            let directory = db.parent().expect("a directory");
            let away = directory.with_extension("away");
            fs::rename(directory, &away).expect("moved");
            fs::remove_dir_all(away).expect("removed");
        },
        "peerbus.db",
        "removed or moved away",
    ),
    (|db, _| cut(db), "peerbus.db", "truncated"),
    (
        |db, _| {
            fs::copy(db, db.with_extension("copy")).expect("copied");
            fs::rename(db.with_extension("copy"), db).expect("replaced");
        },
        "peerbus.db",
        "replaced by another file",
    ),
    (
        |db, _| fs::hard_link(db, db.with_extension("link")).expect("linked"),
        "peerbus.db",
        "a second name (a hard link)",
    ),
    (
        |_, wal| fs::remove_file(wal).expect("removed"),
        "peerbus.db-wal",
        "removed or moved away",
    ),
    (|_, wal| cut(wal), "peerbus.db-wal", "truncated"),
];

fn cut(path: &Path) {
    let file = File::options().write(true).open(path);
    file.and_then(|file| file.set_len(0)).expect("truncated");
}

/// A broker with a message on disk and its sender.
fn with_mail(home: &Home) -> (Broker, Raw) {
    let broker = Broker::start(home);
    drop(Raw::register(home, &broker, "bob"));
    let mut ann = Raw::register(home, &broker, "ann");
    ann.say(&message("m0", "ann", "bob", 1));
    ann.receipt("accepted");
    (broker, ann)
}

fn act_on(home: &Home, act: fn(&Path, &Path)) {
    let db = home.database();
    act(&db, &db.with_extension("db-wal"));
}

#[test]
fn nothing_is_accepted_once_a_file_of_the_database_has_gone() {
    for (act, file, what) in ACTS {
        let home = Home::new();
        let (broker, mut ann) = with_mail(&home);
        act_on(&home, act);
        ann.say(&message("m1", "ann", "bob", 1));
        loop {
            match ann.hear() {
                Heard::Frame(frame) => {
                    assert_ne!(frame["receipts"][0]["id"], "m1", "{what}: {frame}")
                }
                Heard::Closed(code, _) => break assert_eq!(code, 1011, "{what}"),
            }
        }
        let (code, said) = broker.ended();
        let named = said
            .lines()
            .any(|line| line.contains(&format!("{file} ")) && line.contains(what));
        assert!(code == Some(1) && named, "{file} {what}: {code:?}\n{said}");
    }
}

#[test]
fn an_idle_broker_notices_that_a_file_of_its_database_has_gone() {
    for (act, file, what) in ACTS {
        let home = Home::new();
        let (broker, _ann) = with_mail(&home);
        act_on(&home, act);
        let (code, said) = broker.ended();
        let named = said
            .lines()
            .any(|line| line.contains(&format!("{file} ")) && line.contains(what));
        assert!(code == Some(1) && named, "{file} {what}: {code:?}\n{said}");
    }
}

#[test]
fn a_broker_whose_lock_file_is_removed_stops_and_has_everything() {
    let home = Home::new();
    let (broker, _ann) = with_mail(&home);
    act_on(&home, |db, _| {
        fs::remove_file(db.with_extension("db.lock")).expect("removed");
    });
    let (code, said) = broker.ended();
    let named = said.contains("the lock file") && said.contains("another broker could open");
    assert!(code == Some(1) && named, "{code:?}\n{said}");
    let broker = Broker::start(&home);
    let mut bob = Raw::register(&home, &broker, "bob");
    assert_eq!(bob.delivery()["envelope"]["id"], "m0");
    broker.stop();
}

#[test]
fn a_database_that_was_moved_away_has_everything() {
    let home = Home::new();
    let (broker, _ann) = with_mail(&home);
    act_on(&home, |db, _| {
        fs::rename(db, db.with_extension("moved")).expect("moved")
    });
    broker.ended();
    act_on(&home, |db, _| {
        fs::rename(db.with_extension("moved"), db).expect("moved back")
    });
    let broker = Broker::start(&home);
    let mut bob = Raw::register(&home, &broker, "bob");
    assert_eq!(bob.delivery()["envelope"]["id"], "m0");
    broker.stop();
}

#[test]
fn what_another_program_does_by_the_rules_is_no_loss() {
    let home = Home::new();
    let (broker, mut ann) = with_mail(&home);
    let other = Connection::open(home.database()).expect("the database");
    let act = "PRAGMA wal_checkpoint(TRUNCATE); VACUUM; PRAGMA wal_checkpoint(TRUNCATE)";
    other.execute_batch(act).expect("it is let");
    for n in 1..4 {
        ann.say(&message(&format!("m{n}"), "ann", "bob", 1));
        ann.receipt("accepted");
    }
    broker.stop();
}

/// Sends until the broker refuses. Gives how many it took, and the refusal.
fn send_until_full(ann: &mut Raw, to: &str) -> (usize, serde_json::Value) {
    for n in 0..1_000 {
        ann.say(&message(&format!("f{n}"), "ann", to, 60_000));
        let receipt = ann.answer();
        if receipt["state"] == "refused" {
            return (n, receipt);
        }
    }
    panic!("it takes everything");
}

#[test]
fn a_full_disk_refuses_new_mail_and_lets_what_is_there_be_read() {
    let home = Home::new();
    // Its reserve, a sixteenth, holds what a checkpoint takes.
    let Some(small) = Small::mount(&home, "32m") else {
        return;
    };
    small.write("of others", 5_632);
    let broker = Broker::spawn(&mut small.serve(&home));
    drop(Raw::register(&home, &broker, "bob"));
    let mut ann = Raw::register(&home, &broker, "ann");
    let (taken, refusal) = send_until_full(&mut ann, "bob");
    assert_eq!(refusal["code"], "disk_full", "after {taken}");
    let why = refusal["reason"].as_str().expect("a sentence");
    assert!(why.contains("send again when there is room"), "{why}");
    assert!(taken > 10, "{taken}");
    // The disk is full to the last byte, and the broker starts and serves all the same.
    broker.kill();
    small.write("the rest", usize::MAX);
    let broker = Broker::spawn(&mut small.serve(&home));
    let mut bob = Raw::register(&home, &broker, "bob");
    for n in 0..taken {
        let delivery = bob.delivery();
        assert_eq!(delivery["envelope"]["id"], format!("f{n}"));
        let key = &delivery["delivery_key"];
        let ack = serde_json::json!({"protocol_version": "v1", "type": "ack", "id": key});
        bob.say(&ack.to_string());
    }
    bob.say(r#"{"protocol_version":"v1","type":"peers"}"#);
    while bob.next()["type"] != "peers" {}
    // One who speaks v1 is not read from, and loses nothing.
    let mut old = Raw::register_v1(&home, &broker, "old");
    old.say(&message("o1", "old", "bob", 1));
    let mut ann = Raw::register(&home, &broker, "ann");
    ann.say(&message("f0", "ann", "bob", 60_000));
    assert_eq!(ann.answer()["duplicate"], true, "what was taken is known");
    ann.say(&message("n1", "ann", "bob", 1));
    assert_eq!(ann.answer()["code"], "disk_full");
    bob.say(r#"{"protocol_version":"v1","type":"peers"}"#);
    assert_eq!(bob.next()["type"], "peers", "it is read from");
    small.remove("of others");
    small.remove("the rest");
    assert_eq!(bob.delivery()["envelope"]["id"], "o1");
    ann.say(&message("n2", "ann", "bob", 1));
    assert_eq!(ann.answer()["state"], "accepted");
    broker.stop();
}
