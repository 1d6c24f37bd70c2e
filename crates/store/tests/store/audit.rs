//! `verify_audit`: what it says of a whole chain, and of every way to damage one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use peerbus_core::Stamp;
use peerbus_core::audit::{AuditLog, ChainHead};
use peerbus_core::store::{PeerId, Store as _, Txn as _};
use peerbus_store::{ChainError, SqliteStore, verify_audit};
use peerbus_wire::Seq;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::{open, place};

/// 2023-11-14T22:13:20Z.
pub(crate) const START_MS: u64 = 1_700_000_000_000;

/// So long after the start.
pub(crate) fn at(ms: u64) -> Stamp {
    let wall_ms = START_MS + ms;
    let steady_ms = wall_ms;
    Stamp { wall_ms, steady_ms }
}

/// A store whose chain has `blocks` blocks of two events, a minute apart.
fn chain(path: &Path, blocks: u64) -> SqliteStore {
    let mut store = open(path);
    let key = store.audit_key().clone();
    let (mut head, mut log) = (ChainHead::new(&key), AuditLog::default());
    for number in 1..=blocks {
        let (seq, recipient) = (Seq(number), PeerId(1));
        log.deliver(seq, recipient);
        log.ack(seq, recipient, None);
        let block = log.seal(&key, &mut head, at(number * 60_000));
        store.begin().unwrap();
        store.append_audit(&block, &head).unwrap();
        store.commit().unwrap();
    }
    store
}

/// A closed database with a chain of ten blocks.
fn closed() -> (TempDir, PathBuf) {
    let (directory, path) = place();
    chain(&path, 10).close().unwrap();
    (directory, path)
}

fn names(directory: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(directory.path()).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

pub(crate) fn refusal(path: &Path) -> String {
    verify_audit(path).unwrap_err().to_string()
}

#[test]
fn of_a_database_in_which_nothing_happened_nothing_is_claimed() {
    let (_directory, path) = place();
    let store = open(&path);
    assert!(
        refusal(&path).ends_with("nothing yet; the audit chain begins with the first registration")
    );
    store.close().unwrap();
    assert!(matches!(
        verify_audit(&path),
        Err(ChainError::Nothing { .. })
    ));
    let db = Connection::open(&path).unwrap();
    db.execute_batch("DELETE FROM head").unwrap();
    assert!(refusal(&path).contains("the chain was emptied"));
}

#[test]
fn a_whole_chain_is_reported() {
    let (directory, path) = closed();
    let before = names(&directory);
    let report = verify_audit(&path).unwrap();
    assert_eq!(
        (report.blocks, report.events, report.anchor, report.last),
        (10, 20, 0, 10)
    );
    assert_eq!(report.first_ms, Some(START_MS + 60_000));
    assert_eq!(report.last_ms, Some(START_MS + 600_000));
    let text = report.to_string();
    let range = "10 blocks, 20 events, from 2023-11-14T22:14:20Z to 2023-11-14T22:23:20Z; whole;";
    assert!(text.contains(range), "{text}");
    assert_eq!(
        names(&directory),
        before,
        "verifying must not leave files behind"
    );
}

#[test]
fn a_chain_whose_front_was_dropped_names_its_anchor() {
    let (_directory, path) = place();
    let mut store = chain(&path, 10);
    let key = store.audit_key().clone();
    let mut head = store.load().unwrap().head.unwrap();
    store.begin().unwrap();
    let last = store.old_audit(START_MS + 300_000, 4).unwrap().unwrap();
    store.drop_audit(last.number).unwrap();
    (head.anchor, head.anchor_hash) = (last.number, last.hash);
    let block = AuditLog::default().seal(&key, &mut head, at(700_000));
    store.append_audit(&block, &head).unwrap();
    store.commit().unwrap();
    let report = verify_audit(&path).unwrap();
    assert_eq!(
        (report.anchor, report.anchor_hash, report.blocks),
        (4, last.hash, 7)
    );
    assert!(
        report
            .to_string()
            .contains("blocks up to 4 were dropped by retention")
    );
}

#[test]
fn a_database_that_a_broker_writes_is_verified_as_of_its_last_commit() {
    let (_directory, path) = place();
    let mut store = chain(&path, 10);
    store.begin().unwrap();
    let mut head = store.load().unwrap().head.unwrap();
    let key = store.audit_key().clone();
    let block = AuditLog::default().seal(&key, &mut head, at(0));
    store.append_audit(&block, &head).unwrap();
    assert_eq!(verify_audit(&path).unwrap().blocks, 10);
    store.commit().unwrap();
    assert_eq!(verify_audit(&path).unwrap().blocks, 11);
}

/// What somebody does to the tables, and what is said of it.
const ALTERATIONS: &[(&str, &str)] = &[
    (
        "UPDATE audit SET events = 'E' || substr(events, 2) WHERE number = 3",
        "block 3 does not",
    ),
    (
        "UPDATE audit SET events = CAST(x'44ff0a' AS TEXT) WHERE number = 4",
        "block 4 does not",
    ),
    (
        "UPDATE audit SET events = '' WHERE number = 1",
        "block 1 does not verify",
    ),
    (
        "UPDATE audit SET at_ms = at_ms + 1 WHERE number = 5",
        "block 5 does not verify",
    ),
    (
        "UPDATE audit SET at_ms = -1 WHERE number = 5",
        "block 5 does not verify",
    ),
    (
        "UPDATE audit SET hash = x'00' WHERE number = 6",
        "block 6 does not verify",
    ),
    (
        "UPDATE audit SET hash = zeroblob(32) WHERE number = 10",
        "block 10 does not verify",
    ),
    (
        "UPDATE audit SET number = 0 WHERE number = 1",
        "block 1 is missing (found block 0",
    ),
    (
        "DELETE FROM audit WHERE number = 1",
        "block 1 is missing (found block 2",
    ),
    (
        "DELETE FROM audit WHERE number = 7",
        "block 7 is missing (found block 8",
    ),
    (
        "DELETE FROM audit WHERE number > 7",
        "ends at block 7, but its head says 10",
    ),
    ("DELETE FROM audit", "ends at block 0, but its head says 10"),
    (
        "INSERT INTO audit SELECT 11, at_ms, hash, events, steady_ms FROM audit WHERE number = 10",
        "block 11 lies after the head (block 10)",
    ),
    ("DELETE FROM head", "head record is missing"),
    (
        "DELETE FROM head; DELETE FROM audit",
        "head record is missing",
    ),
    (
        "UPDATE head SET blocks = 7; DELETE FROM audit WHERE number > 7",
        "not authentic",
    ),
    (
        "UPDATE head SET anchor = 10; DELETE FROM audit",
        "not authentic",
    ),
    ("UPDATE head SET hash = zeroblob(32)", "not authentic"),
    ("UPDATE head SET mac = x'00'", "not authentic"),
    ("UPDATE head SET next_seq = 1 + next_seq", "not authentic"),
    ("UPDATE head SET next_seq = -1", "not authentic"),
    (
        "DROP TABLE audit",
        "is damaged or unreadable: no such table: audit",
    ),
];

#[test]
fn every_alteration_is_named() {
    for (sql, expected) in ALTERATIONS {
        let (_directory, path) = closed();
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let found = refusal(&path);
        assert!(found.contains(expected), "{sql}: {found}");
        assert!(found.contains("bus.db"), "{sql}: {found}");
    }
}

#[test]
fn one_byte_of_the_file_is_enough() {
    let (_directory, path) = closed();
    let mut bytes = fs::read(&path).unwrap();
    let events = b"D 8 1\nK 8 1\n";
    let at = bytes
        .windows(events.len())
        .position(|window| window == events)
        .unwrap();
    bytes[at + 4] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert!(
        refusal(&path).contains("block 8 does not verify"),
        "{}",
        refusal(&path)
    );
}

#[test]
fn a_chain_from_before_the_key_was_changed_is_not_authentic() {
    let (_directory, path) = closed();
    let (_other, other) = closed();
    fs::copy(key_of(&other), key_of(&path)).unwrap();
    assert!(
        refusal(&path).contains("not authentic"),
        "{}",
        refusal(&path)
    );
}

#[test]
fn what_is_no_database_of_ours_is_said_so() {
    let (directory, path) = closed();
    let at = |name: &str| directory.path().join(name);

    assert!(refusal(&at("none.db")).contains("none.db"));
    assert!(refusal(&at("none.db")).contains("give the path of a peerbus database"));
    let found = refusal(directory.path());
    assert!(found.contains("it is not a regular file"), "{found}");

    fs::write(at("empty.db"), "").unwrap();
    assert!(refusal(&at("empty.db")).contains("empty.db is no peerbus database (found nothing"));

    fs::write(at("text.db"), "not a database ".repeat(100)).unwrap();
    assert!(refusal(&at("text.db")).contains("no peerbus database (found no SQLite header)"));

    let foreign = Connection::open(at("foreign.db")).unwrap();
    foreign
        .execute_batch("CREATE TABLE audit(number); PRAGMA user_version = 1")
        .unwrap();
    assert!(refusal(&at("foreign.db")).contains("SQLite database with application id 0"));

    let db = Connection::open(&path).unwrap();
    db.execute_batch("PRAGMA user_version = 99").unwrap();
    assert!(
        refusal(&path).contains("schema version 99"),
        "{}",
        refusal(&path)
    );
}

#[test]
fn a_file_cut_in_half_is_damaged() {
    let (_directory, path) = place();
    chain(&path, 3_000).close().unwrap();
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert!(
        refusal(&path).contains("is damaged or unreadable"),
        "{}",
        refusal(&path)
    );
}

#[test]
fn a_missing_or_mangled_key_is_named() {
    let (_directory, path) = closed();
    fs::write(key_of(&path), "0123").unwrap();
    let found = refusal(&path);
    assert!(
        found.contains("bus.db.audit-key must hold 64 hex digits, found 4"),
        "{found}"
    );
    fs::remove_file(key_of(&path)).unwrap();
    let found = refusal(&path);
    assert!(found.contains("bus.db.audit-key is missing"), "{found}");
    assert!(!key_of(&path).exists(), "verifying must not make a key");
}

#[test]
fn a_path_with_odd_characters_is_read_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a b?mode=rw#c%41ö.db");
    chain(&path, 2).close().unwrap();
    assert_eq!(verify_audit(&path).unwrap().blocks, 2);
}

#[test]
fn the_key_is_for_the_owner_only() {
    let (_directory, path) = closed();
    let mode = fs::metadata(key_of(&path)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

fn key_of(path: &Path) -> PathBuf {
    path.with_extension("db.audit-key")
}
