//! The witness: a database that has lost its newest commits is noticed, and nothing else is.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use peerbus_core::Stamp;
use peerbus_core::audit::{AuditLog, ChainHead};
use peerbus_core::store::{PeerId, Store as _, Txn as _};
use peerbus_store::{ChainError, SqliteStore, Witnessed, backup, restore, verify_audit};
use peerbus_wire::{Mark, Seq};

use crate::{open, place};

/// Adds `blocks` blocks, a second apart.
fn add(store: &mut SqliteStore, blocks: u64) {
    let key = store.audit_key().clone();
    let mut head = store.load().unwrap().head.unwrap();
    let mut log = AuditLog::default();
    for _ in 0..blocks {
        let number = head.blocks + 1;
        log.deliver(Seq(number), PeerId(1));
        let wall_ms = 1_700_000_000_000 + number * 1_000;
        let steady_ms = wall_ms;
        let block = log.seal(&key, &mut head, Stamp { wall_ms, steady_ms });
        store.begin().unwrap();
        store.append_audit(&block, &head).unwrap();
        store.commit().unwrap();
    }
}

fn file(db: &Path, suffix: &str) -> std::path::PathBuf {
    db.with_file_name(format!("bus.db{suffix}"))
}

/// Copies the database, its log and its key, as a backup without the witness would.
fn copy(from: &Path, to: &Path) {
    for suffix in ["", "-wal", ".audit-key"] {
        match fs::copy(file(from, suffix), file(to, suffix)) {
            Err(error) if suffix == "-wal" => {
                assert_eq!(error.kind(), std::io::ErrorKind::NotFound)
            }
            copied => drop(copied.unwrap()),
        }
    }
}

/// A database with five blocks whose witness, and nothing else, is that of ten.
fn rolled_back() -> (tempfile::TempDir, std::path::PathBuf) {
    let ((_kept, kept), (directory, path)) = (place(), place());
    let mut store = open(&path);
    add(&mut store, 5);
    copy(&path, &kept);
    add(&mut store, 5);
    store.close().unwrap();
    copy(&kept, &path);
    (directory, path)
}

fn missing(path: &Path) -> u64 {
    match verify_audit(path) {
        Err(ChainError::Missing { missing, .. }) => missing.blocks,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_database_that_lost_commits_is_told_until_that_is_acknowledged() {
    let (_directory, path) = rolled_back();
    assert_eq!(missing(&path), 5);
    let said = verify_audit(&path).unwrap_err().to_string();
    assert!(
        said.contains("at least 5 blocks that were on the disk are missing, of the time from 2023-11-14T22:13:25Z until "),
        "{said}"
    );

    // It serves on, and goes on telling, over restarts.
    for more in [7, 0] {
        let mut store = open(&path);
        assert_eq!(store.witness().missing().unwrap().blocks, 5);
        add(&mut store, more);
        store.close().unwrap();
        assert_eq!(missing(&path), 5);
    }
    let store = open(&path);
    assert_eq!(missing(&path), 5, "while a broker runs, too");
    assert_eq!(store.witness().acknowledge().unwrap().unwrap().blocks, 5);
    assert_eq!(store.witness().acknowledge().unwrap(), None);
    let report = verify_audit(&path).unwrap();
    assert!(
        report.to_string().ends_with("losses acknowledged: 1"),
        "{report}"
    );
    store.close().unwrap();
    assert_eq!(open(&path).witness().missing(), None);
}

#[test]
fn a_lost_log_is_told() {
    let ((_kept, kept), (_directory, path)) = (place(), place());
    let mut store = open(&path);
    add(&mut store, 3);
    store.close().unwrap();
    copy(&path, &kept);
    let mut store = open(&path);
    add(&mut store, 4);
    // As a kill leaves it: the log is not written back, but the witness was.
    drop(store);
    fs::remove_file(file(&path, "-wal")).ok();
    copy(&kept, &path);
    assert_eq!(open(&path).witness().missing().unwrap().blocks, 4);
}

#[test]
fn a_database_that_was_emptied_or_taken_away_is_told() {
    let (_directory, path) = place();
    let mut store = open(&path);
    add(&mut store, 3);
    store.close().unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(open(&path).witness().missing().unwrap().blocks, 3);
    assert_eq!(missing(&path), 3);
}

#[test]
fn the_witness_follows_within_seconds_and_never_precedes() {
    let (_directory, path) = place();
    let mut store = open(&path);
    let deadline = Instant::now() + Duration::from_secs(20);
    for blocks in [3, 6] {
        add(&mut store, 3);
        loop {
            let report = verify_audit(&path).unwrap();
            match &report.witness {
                Witnessed::Whole(witness) if witness.blocks == blocks => break,
                Witnessed::Whole(witness) => assert!(witness.blocks < blocks),
                // The thread that writes it has not come to it yet.
                Witnessed::None if blocks == 3 => {}
                other => panic!("{other:?}"),
            }
            assert!(Instant::now() < deadline, "{report}");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_transaction_that_is_given_up_is_not_witnessed() {
    let (_directory, path) = place();
    let mut store = open(&path);
    let key = store.audit_key().clone();
    let mut head = ChainHead::new(&key);
    let block = AuditLog::default().seal(&key, &mut head, Stamp::default());
    store.begin().unwrap();
    store.append_audit(&block, &head).unwrap();
    store.rollback();
    add(&mut store, 0);
    store.begin().unwrap();
    store.commit().unwrap();
    store.close().unwrap();
    assert_eq!(open(&path).witness().missing(), None);
}

#[test]
fn a_witness_of_no_use_is_a_warning() {
    let (_directory, path) = place();
    let mut store = open(&path);
    add(&mut store, 3);
    store.close().unwrap();
    let witness = file(&path, ".witness");
    let text = fs::read_to_string(&witness).unwrap();
    for (found, says) in [
        (Some(text.replacen(" 3 ", " 9 ", 1)), "was altered"),
        (Some(String::new()), "is not whole"),
        (None, "there is no witness"),
    ] {
        match found {
            Some(found) => fs::write(&witness, found).unwrap(),
            None => fs::remove_file(&witness).unwrap(),
        }
        let report = verify_audit(&path).unwrap().to_string();
        assert!(
            report.contains(says) && report.contains("cannot be known"),
            "{report}"
        );
    }
    open(&path).close().unwrap();
    assert!(matches!(
        verify_audit(&path).unwrap().witness,
        Witnessed::Whole(_)
    ));
}

/// The life of the database there.
fn life(path: &Path) -> Option<Mark> {
    let store = open(path);
    let life = store.witness().life();
    store.close().unwrap();
    life
}

#[test]
fn a_life_lasts_until_something_is_lost_and_each_restore_begins_another() {
    let (_directory, path) = place();
    let mut store = open(&path);
    add(&mut store, 5);
    store.close().unwrap();
    let mut lives = vec![life(&path)];
    assert!(lives[0].is_some());
    assert_eq!(life(&path), lives[0]);
    let (_kept, kept) = place();
    backup(&path, &kept).unwrap();
    // Each time nothing is there that could say how often that was done before.
    for _ in 0..2 {
        let (_directory, path) = place();
        restore(&kept, &path).unwrap();
        lives.push(life(&path));
        assert_eq!(life(&path), lives[lives.len() - 1]);
    }
    let (_directory, path) = rolled_back();
    lives.push(life(&path));
    fs::remove_file(file(&path, ".witness")).unwrap();
    lives.push(life(&path));
    for (at, one) in lives.iter().enumerate() {
        assert!(!lives[..at].contains(one), "{lives:?}");
    }
}
