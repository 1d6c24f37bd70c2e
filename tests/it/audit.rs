//! The audit chain from outside.

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
fn the_named_database_is_the_one_that_is_checked() {
    let home = Home::new();
    Broker::start(&home).stop();
    let missing = home.path().join("nowhere.db");
    let missing = missing.to_str().expect("utf-8");
    let said = home.run(&["audit", "verify", "--db", missing]).fails(2);
    assert!(said.contains("nowhere.db"), "{said}");
}
