//! The audit chain from outside.

use std::time::{Duration, Instant};

use crate::support::{Broker, Home};

/// Checks that the chain of the home's database verifies, and that one changed byte is named.
pub(crate) fn verifies_and_names_a_break(home: &Home) {
    let said = home.run(&["audit", "verify"]).ok();
    assert!(said.starts_with("OK "), "{said}");
    let db = rusqlite::Connection::open(home.database()).expect("a database");
    let (number, events): (i64, String) = db
        .query_row(
            "SELECT number, events FROM audit WHERE length(events) > 4 ORDER BY random() LIMIT 1",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .expect("a block");
    let altered = format!(
        "{}{}",
        if events.starts_with('A') { "B" } else { "A" },
        &events[1..]
    );
    db.execute(
        "UPDATE audit SET events = ?1 WHERE number = ?2",
        (&altered, number),
    )
    .expect("the change");
    drop(db);
    let said = home.run(&["audit", "verify"]).fails(1);
    assert!(
        said.contains(&format!("block {number}")),
        "block {number} is not named: {said}"
    );
}

#[test]
fn a_live_database_verifies_and_a_changed_byte_is_named() {
    let home = Home::new();
    let broker = Broker::start(&home);
    for name in ["a", "b"] {
        home.run(&["recv", "--name", name, "--timeout", "0.1"]).ok();
    }
    home.run(&["send", "--name", "a", "b", "hello"]).ok();
    assert!(
        home.run(&["audit", "verify"]).ok().starts_with("OK "),
        "while the broker runs"
    );
    broker.stop();
    verifies_and_names_a_break(&home);
}

#[test]
fn a_message_that_was_altered_in_the_queue_is_named() {
    let home = Home::new();
    let broker = Broker::start(&home);
    home.run(&["recv", "--name", "b", "--timeout", "0.1"]).ok();
    fill(&home, 3);
    let said = home.run(&["audit", "verify"]).ok();
    assert!(
        said.contains("; 3 stored messages are as they were accepted; "),
        "{said}"
    );
    broker.stop();
    let db = rusqlite::Connection::open(home.database()).expect("a database");
    let sql = "UPDATE messages SET envelope = replace(envelope, 'message 1', 'message 7')";
    assert_eq!(db.execute(sql, []).expect("the change"), 3);
    let said = home.run(&["audit", "verify"]).fails(1);
    assert!(
        said.contains("message 2 is not as it was accepted: its envelope was altered"),
        "{said}"
    );
}

#[test]
fn a_fresh_broker_has_nothing_yet() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let said = home.run(&["audit", "verify"]).fails(2);
    assert!(said.contains("nothing yet"), "{said}");
    broker.stop();
    let said = home.run(&["audit", "verify"]).fails(2);
    assert!(said.contains("nothing yet"), "{said}");
}

#[test]
fn the_named_database_is_the_one_that_is_checked() {
    let home = Home::new();
    Broker::start(&home).stop();
    let missing = home.path().join("nowhere.db");
    let missing = missing.to_str().expect("utf-8");
    let said = home.run(&["audit", "verify", "--db", missing]).fails(2);
    assert!(said.contains("nowhere.db"), "{said}");
    let junk = home.path().join("junk.db");
    std::fs::write(&junk, "junk").expect("a file");
    let junk = junk.to_str().expect("utf-8");
    let said = home.run(&["audit", "verify", "--db", junk]).fails(2);
    assert!(
        said.contains("is no peerbus database") && !said.contains("does not exist"),
        "{said}"
    );
}

/// Waits until the witness has seen the whole chain, and says how long that is.
fn witnessed(home: &Home) -> u64 {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let said = home.run(&["audit", "verify", "--json"]).ok();
        let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        if said["witness"]["blocks"] == said["last"] {
            return said["last"].as_u64().expect("a number");
        }
        assert!(Instant::now() < deadline, "{said}");
    }
}

/// Sends messages to a peer that is not there, each in a commit of its own.
fn fill(home: &Home, messages: usize) {
    for number in 0..messages {
        home.run(&["send", "--name", "a", "b", &format!("message {number}")])
            .ok();
    }
}

#[test]
fn a_log_with_a_flipped_bit_is_exposed_until_the_operator_acknowledges_it() {
    let home = Home::new();
    let broker = Broker::start(&home);
    home.run(&["recv", "--name", "b", "--timeout", "0.1"]).ok();
    fill(&home, 12);
    let before = witnessed(&home);
    broker.kill();
    let log = home.database().with_extension("db-wal");
    let mut bytes = std::fs::read(&log).expect("a log");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&log, bytes).expect("the damage");

    let says = |home: &Home| {
        let said = home.run(&["audit", "verify"]).fails(1);
        assert!(
            said.contains("blocks that were on the disk are missing"),
            "{said}"
        );
    };
    says(&home);
    let broker = Broker::start(&home);
    says(&home);
    let said = home.run(&["doctor"]).stdout;
    assert!(
        said.contains("blocks that were on the disk are missing"),
        "{said}"
    );
    fill(&home, 1);
    let said = home.run(&["audit", "acknowledge"]).ok();
    assert!(said.starts_with("acknowledged: at least "), "{said}");
    let lost: u64 = said
        .split(' ')
        .nth(3)
        .and_then(|n| n.parse().ok())
        .expect("a number");
    assert!((1..before).contains(&lost), "{said}");
    let said = home.run(&["audit", "verify"]).ok();
    assert!(said.contains("losses acknowledged: 1"), "{said}");
    let said = home.run(&["doctor"]).stdout;
    assert!(!said.contains("are missing"), "{said}");
    broker.stop();
    assert!(
        home.run(&["audit", "verify"])
            .ok()
            .contains("losses acknowledged: 1")
    );
}

#[test]
fn a_lost_log_is_acknowledged_without_a_broker_too() {
    let home = Home::new();
    Broker::start(&home).stop();
    let broker = Broker::start(&home);
    home.run(&["recv", "--name", "b", "--timeout", "0.1"]).ok();
    witnessed(&home);
    broker.kill();
    std::fs::remove_file(home.database().with_extension("db-wal")).expect("a log");
    home.run(&["audit", "verify"]).fails(1);
    let said = home.run(&["audit", "acknowledge"]).ok();
    assert!(said.starts_with("acknowledged: at least "), "{said}");
    let said = home.run(&["audit", "acknowledge"]).ok();
    assert!(said.starts_with("nothing is missing"), "{said}");
    // All of it is gone.
    assert!(
        home.run(&["audit", "verify"])
            .fails(2)
            .contains("nothing yet")
    );
}
