//! Housekeeping: the file shrinks, the log stays short, and idle slices cost nothing.

use std::fs;
use std::path::Path;

use peerbus_core::store::{Fate, Keep, MessageHead, PeerId, Store as _, Txn as _};
use peerbus_store::SqliteStore;
use peerbus_wire::{MessageId, Seq};

use crate::{open, place};

/// Slices that a test waits for at most.
const SLICES_MAX: usize = 100_000;

/// Forgets what ended, in slices.
fn delete(store: &mut SqliteStore) {
    let keep = Keep {
        from_ms: u64::MAX,
        bytes: 0,
        ids_from_ms: u64::MAX,
    };
    loop {
        store.begin().unwrap();
        let gone = store.forget_ended(keep, 1_000).unwrap();
        store.commit().unwrap();
        if !gone.more {
            break;
        }
    }
}

#[test]
fn the_file_shrinks_when_retention_has_passed() {
    let (_directory, path) = place();
    // Closing writes the log back: only then has the file all pages of an empty database.
    open(&path).close().unwrap();
    let empty = size(&path);
    let mut store = open(&path);
    fill(&mut store, 50_000);
    settle(&mut store);
    let full = size(&path);
    assert!(full > 15_000_000, "{full}");

    delete(&mut store);
    settle(&mut store);
    let left = size(&path);
    assert!(left < empty + 300_000, "{left} bytes are left of {full}");
}

#[test]
fn a_database_that_was_not_maintained_shrinks_after_the_next_open() {
    let (_directory, path) = place();
    let mut store = open(&path);
    fill(&mut store, 5_000);
    delete(&mut store);
    store.close().unwrap();
    let full = size(&path);

    let mut store = open(&path);
    settle(&mut store);
    let left = size(&path);
    assert!(left < full / 4, "{left} bytes are left of {full}");
}

#[test]
fn a_reader_holds_the_log_but_not_the_caller() {
    let (directory, path) = place();
    let wal = directory.path().join("bus.db-wal");
    let mut store = open(&path);
    fill(&mut store, 100);
    let reader = rusqlite::Connection::open(&path).unwrap();
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM messages")
        .unwrap();
    fill(&mut store, 20_000);
    // `settle` ends: what the reader blocks is not tried for ever.
    settle(&mut store);
    let pinned = size(&wal);
    assert!(pinned > 6_000_000, "{pinned}");

    reader.execute_batch("ROLLBACK").unwrap();
    fill(&mut store, 5_000);
    settle(&mut store);
    assert!(
        size(&path) > 7_000_000,
        "the log was written back: {}",
        size(&path)
    );
    let long = size(&wal);
    fill(&mut store, 2_000);
    assert!(
        size(&wal) <= long,
        "and is used from its start again: {} {long}",
        size(&wal)
    );
}

#[test]
fn the_log_stays_short_under_load() {
    let (directory, path) = place();
    let mut store = open(&path);
    for _ in 0..200 {
        fill(&mut store, 100);
        store.maintain().unwrap();
    }
    let wal = size(&directory.path().join("bus.db-wal"));
    assert!(wal < 3_000_000, "{wal}");
}

#[test]
fn closing_leaves_one_file_with_everything_in_it() {
    let (directory, path) = place();
    let mut store = open(&path);
    fill(&mut store, 100);
    store.close().unwrap();
    assert!(!directory.path().join("bus.db-wal").exists());
    let db = rusqlite::Connection::open(&path).unwrap();
    let count = db.query_row("SELECT count(*) FROM messages", [], |row| {
        row.get::<_, i64>(0)
    });
    assert_eq!(count.unwrap(), 100);
}

/// Adds messages that are owed to nobody, in batches of 100.
fn fill(store: &mut SqliteStore, messages: u64) {
    let envelope = "x".repeat(300);
    let last = "SELECT coalesce(max(seq), 0) FROM messages";
    let db = rusqlite::Connection::open(store.path()).unwrap();
    let last: i64 = db.query_row(last, [], |row| row.get(0)).unwrap();
    drop(db);
    let first = u64::try_from(last).unwrap() + 1;
    for batch in 0..messages / 100 {
        store.begin().unwrap();
        for seq in (first + batch * 100..).take(100) {
            let id = MessageId::parse(&format!("{seq:032x}")).unwrap();
            let message = MessageHead {
                seq: Seq(seq),
                sender: PeerId(1),
                id: id.clone(),
                recipients: 1,
                accepted_ms: seq,
                bytes: envelope.len() as u64,
            };
            store.insert_message(&message, &envelope).unwrap();
        }
        let seqs = (first + batch * 100..).take(100).map(Seq);
        let fates: Vec<_> = seqs.map(|seq| Fate::of_nobody(seq, 1)).collect();
        store.insert_fates(&fates, 50_000, 1).unwrap();
        store.commit().unwrap();
    }
}

/// Maintains until there is nothing more to do.
fn settle(store: &mut SqliteStore) {
    let slices = (0..SLICES_MAX)
        .take_while(|_| store.maintain().unwrap())
        .count();
    assert!(slices < SLICES_MAX, "housekeeping does not end");
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

#[test]
fn another_program_that_rewrites_all_of_it_is_no_loss_whenever_it_does() {
    let (_directory, path) = place();
    let mut store = open(&path);
    fill(&mut store, 200);
    let rewriting = {
        let path = path.clone();
        std::thread::spawn(move || {
            let other = rusqlite::Connection::open(path).unwrap();
            for _ in 0..300 {
                // Somebody writes at that moment: another time.
                let _ = other.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); VACUUM");
            }
        })
    };
    while !rewriting.is_finished() {
        store.begin().unwrap();
        store.commit().unwrap();
        store.check().unwrap();
    }
    rewriting.join().unwrap();
    store.check().unwrap();
}
