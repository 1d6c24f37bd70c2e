//! What a killed broker leaves behind. A child process writes batches as fast as it can, telling
//! each commit after it; it is killed at a random point; the database must then be exactly what
//! those batches make it, and nothing told may be missing.
//!
//! `PEERBUS_CRASH_ROUNDS=1000 cargo test -p peerbus-store --test store killed` runs more rounds.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use peerbus_core::audit::{AuditKey, ChainHead};
use peerbus_core::store::Store as _;
use peerbus_core::testing::{MemoryStore, Tables};
use peerbus_store::{ChainError, SqliteStore, verify_audit};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::model::{Pair, dump};
use crate::{open, place, workload};

/// Set in the child: the database that it writes.
const CHILD: &str = "PEERBUS_CRASH_CHILD";
/// A child that nobody kills ends by itself.
const BATCHES_MAX: u64 = 20_000;

#[test]
fn killed_at_any_point_it_comes_back_as_of_the_last_commit() {
    let rounds = std::env::var("PEERBUS_CRASH_ROUNDS").ok();
    let rounds: u32 = rounds.map_or(20, |text| text.parse().unwrap());
    let mut rng = StdRng::seed_from_u64(0x6b69_6c6c);
    let (mut directory, mut path) = place();
    let mut model = MemoryStore::default();
    for round in 0..rounds {
        // Now and then from nothing, so that the making of a database is hit as well.
        if round % 5 == 0 {
            (directory, path) = place();
            model = MemoryStore::default();
        }
        let told = run_and_kill(&path, &mut rng);
        let known = model.tables().head.as_ref().map_or(0, |head| head.blocks);
        let told = told.unwrap_or(known);

        // First as the operator would, on what the crash left; then by recovery.
        let image = path.exists().then(|| verify_audit(&path));
        let mut store = open(&path);
        let head = store.load().unwrap().head;
        let blocks = head.as_ref().map_or(0, |head| head.blocks);
        assert!(
            blocks == told || blocks == told + 1,
            "round {round}: {told} commits were told, {blocks} are there"
        );
        replay(&mut model, store.audit_key(), blocks);
        assert_eq!(head, model.tables().head, "round {round}");
        assert!(
            dump(&path) == *model.tables(),
            "round {round}: not as of commit {blocks}"
        );
        if blocks > 0 {
            assert_eq!(image.unwrap().unwrap().last, blocks, "round {round}");
            assert_eq!(verify_audit(&path).unwrap().last, blocks, "round {round}");
        }
        if rng.random() {
            store.close().unwrap();
        }
    }
    drop(directory);
}

/// Not a test of its own: what the child process of the test above runs.
#[test]
fn writer() {
    let Some(path) = std::env::var_os(CHILD).map(PathBuf::from) else {
        return;
    };
    let mut store = open(&path);
    let mut model = MemoryStore::default();
    let key = store.audit_key().clone();
    let done = store.load().unwrap().head.map_or(0, |head| head.blocks);
    replay(&mut model, &key, done);
    let mut out = std::io::stdout().lock();
    for number in done + 1..=BATCHES_MAX {
        store.begin().unwrap();
        model.begin().unwrap();
        workload::batch(
            number,
            &key,
            &mut Pair {
                store: &mut store,
                model: &mut model,
            },
        );
        store.commit().unwrap();
        model.commit().unwrap();
        writeln!(out, "committed {number}").unwrap();
        out.flush().unwrap();
        store.maintain().unwrap();
    }
}

/// Gives the number of the last batch that the child told.
fn run_and_kill(path: &Path, rng: &mut StdRng) -> Option<u64> {
    let mut child = spawn_writer(path);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut told = None;
    // Half of the children die while they start.
    let commits = if rng.random() {
        rng.random_range(1..200)
    } else {
        0
    };
    while told.is_none_or(|told: (u64, u32)| told.1 < commits) && commits > 0 {
        let Some(line) = lines.next() else { break };
        if let Some(number) = number(&line.unwrap()) {
            told = Some((number, told.map_or(1, |told| told.1 + 1)));
        }
    }
    let delay_us = if commits == 0 { 20_000 } else { 1_000 };
    // tidy: allow sleep, because a kill between two events is what is tested
    std::thread::sleep(Duration::from_micros(rng.random_range(0..delay_us)));
    child.kill().unwrap();
    let rest = lines.filter_map(|line| number(&line.unwrap())).last();
    child.wait().unwrap();
    rest.or(told.map(|told| told.0))
}

fn spawn_writer(path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::writer", "--nocapture"])
        .env(CHILD, path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn number(line: &str) -> Option<u64> {
    // The test harness writes to the same stream, and leaves its line open.
    line.split_once("committed ")
        .map(|(_, number)| number.parse().unwrap())
}

/// Brings the model to the state after the first `blocks` batches.
fn replay(model: &mut MemoryStore, key: &AuditKey, blocks: u64) {
    let done = model.tables().head.as_ref().map_or(0, |head| head.blocks);
    for number in done + 1..=blocks {
        model.begin().unwrap();
        workload::batch(number, key, model);
        model.commit().unwrap();
    }
}

#[test]
fn a_log_cut_anywhere_gives_the_state_after_some_commit() {
    let (directory, path) = place();
    let mut store = open(&path);
    let key = store.audit_key().clone();
    let fresh = Tables {
        head: Some(ChainHead::new(&key)),
        ..Tables::default()
    };
    let (mut model, mut states) = (MemoryStore::default(), vec![fresh]);
    for number in 1..=40 {
        store.begin().unwrap();
        model.begin().unwrap();
        workload::batch(
            number,
            &key,
            &mut Pair {
                store: &mut store,
                model: &mut model,
            },
        );
        store.commit().unwrap();
        model.commit().unwrap();
        states.push(model.tables().clone());
    }
    // No checkpoint has run: all of it lies in the log, as before a power cut.
    let wal = fs::read(directory.path().join("bus.db-wal")).unwrap();
    let mut rng = StdRng::seed_from_u64(7);
    let mut seen = Vec::new();
    for _ in 0..25 {
        let (_directory, copy) = place();
        fs::copy(&path, &copy).unwrap();
        fs::copy(
            directory.path().join("bus.db.audit-key"),
            copy.with_extension("db.audit-key"),
        )
        .unwrap();
        let cut = rng.random_range(0..wal.len());
        fs::write(copy.with_extension("db-wal"), &wal[..cut]).unwrap();
        let blocks = recovered(&copy);
        assert!(
            dump(&copy) == states[blocks],
            "log cut at {cut}, block {blocks}"
        );
        seen.push(blocks);
    }
    assert!(
        seen.iter().max() > seen.iter().min(),
        "the cuts must hit different commits: {seen:?}"
    );
}

/// How many blocks a database has after recovery; its chain verifies.
fn recovered(path: &Path) -> usize {
    let mut store = SqliteStore::open(path).unwrap();
    let head = store.load().unwrap().head.unwrap();
    match verify_audit(path) {
        Err(ChainError::Nothing { .. }) => assert_eq!(head.blocks, 0),
        report => assert_eq!(report.unwrap().last, head.blocks),
    }
    usize::try_from(head.blocks).unwrap()
}
