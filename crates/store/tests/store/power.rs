//! What a power cut leaves behind. Child processes open a database, write batches, write them back
//! and end, well or not; everything that they do to files is traced. At each of many moments the disk
//! loses what was not synced, but for what chance leaves of it, and the database is opened as always.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use peerbus_core::audit::{AuditKey, ChainHead};
use peerbus_core::store::Store as _;
use peerbus_core::testing::{MemoryStore, Tables};
use peerbus_core::witness::Witness;
use peerbus_store::{SqliteStore, verify_audit};
use peerbus_test_support::power::{self, Disk, Entry};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

use crate::model::{Pair, dump};
use crate::{open, place, workload};

/// Set in the child: the database that it writes.
const CHILD: &str = "PEERBUS_POWER_CHILD";
/// Processes one after the other, and batches of each.
const PROCESSES: u64 = 8;
const BATCHES: u64 = 30;
const CUTS: usize = 500;

/// Everything that happened, and every state that the database had.
struct Story {
    entries: Vec<Entry>,
    /// How many commits had been told at each entry.
    told: Vec<usize>,
    states: Vec<Tables>,
    key: AuditKey,
    _directory: TempDir,
}

impl Story {
    fn live() -> Self {
        let (directory, path) = place();
        let disk = directory.path().canonicalize().unwrap().join("disk");
        fs::create_dir(&disk).unwrap();
        let trace = path.with_extension("trace");
        let path = disk.join("bus.db");
        for n in 0..PROCESSES {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .args(["--exact", "power::writer", "--nocapture"])
                .env(CHILD, &path)
                .env("PEERBUS_POWER_CLOSES", (n % 2).to_string())
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            power::trace(directory.path(), &mut command, &disk, &trace);
            let ended = command.status().unwrap();
            assert!(ended.success(), "{ended}");
        }
        let entries = power::read(&trace);
        let mut told = 0;
        let told = entries.iter().map(|entry| {
            let said = entry.said();
            let number = said
                .as_deref()
                .and_then(|said| said.rsplit_once("committed "));
            if let Some((_, number)) = number {
                told = number.trim().parse().unwrap();
            }
            told
        });
        let told = told.collect();
        let key = open(&path).audit_key().clone();
        Self {
            entries,
            told,
            states: states(&key),
            key,
            _directory: directory,
        }
    }

    /// Moments in order, half of them while a process starts, and the disk at each.
    fn cuts(&self, seed: u64, mut each: impl FnMut(usize, &Disk, &mut StdRng)) {
        let mut rng = StdRng::seed_from_u64(seed);
        let starting: Vec<usize> = (0..self.entries.len())
            .filter(|&at| self.told[at].is_multiple_of(usize::try_from(BATCHES).unwrap()))
            .collect();
        let mut moments: Vec<usize> = (0..CUTS)
            .map(|n| match n % 2 {
                0 => starting[rng.random_range(0..starting.len())],
                _ => rng.random_range(0..self.entries.len()),
            })
            .collect();
        moments.sort_unstable();
        let (mut disk, mut done) = (Disk::default(), 0);
        for moment in moments {
            while done <= moment {
                disk.apply(&self.entries[done]);
                done += 1;
            }
            each(self.told[moment], &disk, &mut rng);
        }
    }
}

/// The database after each number of batches.
fn states(key: &AuditKey) -> Vec<Tables> {
    let mut model = MemoryStore::default();
    let mut states = vec![Tables {
        head: Some(ChainHead::new(key)),
        ..Tables::default()
    }];
    for number in 1..=PROCESSES * BATCHES {
        model.begin().unwrap();
        workload::batch(number, key, &mut model);
        model.commit().unwrap();
        states.push(model.tables().clone());
    }
    states
}

/// Not a test of its own: what the child processes run.
#[test]
fn writer() {
    let Some(path) = std::env::var_os(CHILD).map(PathBuf::from) else {
        return;
    };
    let mut store = open(&path);
    let key = store.audit_key().clone();
    let mut model = MemoryStore::default();
    let done = store.load().unwrap().head.map_or(0, |head| head.blocks);
    for number in 1..=done + BATCHES {
        model.begin().unwrap();
        if number <= done {
            workload::batch(number, &key, &mut model);
        } else {
            store.begin().unwrap();
            let (store, model) = (&mut store, &mut model);
            workload::batch(number, &key, &mut Pair { store, model });
            store.commit().unwrap();
            println!("committed {number}");
        }
        model.commit().unwrap();
        while number > done && store.maintain().unwrap() {}
    }
    if std::env::var("PEERBUS_POWER_CLOSES").unwrap() == "1" {
        return store.close().unwrap();
    }
    std::process::exit(0);
}

/// What the witness that lies beside a database says, if it can be read.
fn witness(path: &Path, key: &AuditKey) -> Option<Witness> {
    let text = fs::read_to_string(path.with_extension("db.witness")).ok()?;
    Witness::decode(key, &text).ok()
}

fn blocks(store: &mut SqliteStore) -> usize {
    let head = store.load().unwrap().head.unwrap();
    usize::try_from(head.blocks).unwrap()
}

#[test]
fn what_was_committed_survives_a_power_cut_at_any_moment() {
    let story = Story::live();
    let (mut lost, mut unread) = (0, 0);
    story.cuts(0x7077, |told, disk, rng| {
        let (directory, path) = place();
        disk.cut(directory.path(), &mut |n| rng.random_range(0..n));
        let seen = witness(&path, &story.key);
        unread += usize::from(told > 0 && seen.is_none());
        let mut store = match SqliteStore::open(&path) {
            Ok(store) => store,
            Err(error) => panic!("after {told} commits: {error}"),
        };
        let found = blocks(&mut store);
        assert!(
            found == told || found == told + 1,
            "{told} commits were told, {found} are there"
        );
        lost += usize::from(found == told);
        assert_eq!(store.witness().missing(), None, "after {told} commits");
        if found == 0 {
            // Another start may have made another key.
            assert!(dump(&path).audit.is_empty());
            return;
        }
        assert_eq!(store.audit_key().0, story.key.0);
        assert!(
            dump(&path) == story.states[found],
            "not as of commit {found}"
        );
        let report = verify_audit(&path).unwrap();
        assert_eq!(report.last, u64::try_from(found).unwrap());
        if rng.random() {
            store.close().unwrap();
            assert_eq!(blocks(&mut open(&path)), found);
        }
    });
    assert!(lost > 0 && unread > 0, "{lost} {unread}");
}

/// What a disk that lies does to the log: it said that this was synced.
fn damage(wal: &Path, rng: &mut StdRng) {
    let Ok(mut bytes) = fs::read(wal) else { return };
    match rng.random_range(0..3) {
        _ if bytes.is_empty() => {}
        0 => bytes.clear(),
        1 => bytes.truncate(rng.random_range(0..bytes.len())),
        _ => {
            let at = rng.random_range(0..bytes.len()) / 512 * 512;
            let end = bytes.len().min(at + 512);
            bytes[at..end].fill(0);
        }
    }
    fs::write(wal, bytes).unwrap();
}

/// Whether SQLite has nothing against any page.
fn intact(path: &Path) -> bool {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let said = db.query_row("PRAGMA integrity_check(1)", [], |row| {
        row.get::<_, String>(0)
    });
    said.is_ok_and(|said| said == "ok")
}

#[test]
fn damage_that_sqlite_hides_is_named_at_the_start() {
    let story = Story::live();
    let (mut named, mut refused, mut verify, mut unharmed, mut newer) = (0, 0, 0, 0, 0);
    story.cuts(0x6c69, |told, disk, rng| {
        if told == 0 {
            return;
        }
        let (directory, path) = place();
        disk.cut(directory.path(), &mut |n| rng.random_range(0..n));
        // Two seconds later it has seen all of it.
        if rng.random() {
            let head = story.states[told].head.as_ref().unwrap();
            let text = Witness::of(head, 1).encode(&story.key);
            fs::write(path.with_extension("db.witness"), text).unwrap();
        }
        damage(&path.with_extension("db-wal"), rng);
        let seen = witness(&path, &story.key).map(|witness| witness.blocks);
        // Pages that were written back in part are told by SQLite itself.
        let opened = SqliteStore::open(&path).ok();
        let Some((store, loaded)) = opened.and_then(|mut store| {
            let loaded = store.load().ok()?;
            Some((store, loaded))
        }) else {
            return refused += 1;
        };
        let found = usize::try_from(loaded.head.unwrap().blocks).unwrap();
        let missing = store.witness().missing();
        store.close().unwrap();
        let verified = verify_audit(&path);
        match (missing, verified) {
            (Some(missing), verified) => {
                let found = u64::try_from(found).unwrap();
                assert_eq!(missing.blocks, seen.unwrap().saturating_sub(found).max(1));
                assert!(verified.is_err(), "{verified:?}");
                named += 1;
            }
            (None, Err(_)) => verify += 1,
            (None, Ok(_)) if !intact(&path) => refused += 1,
            (None, Ok(_)) => {
                // Younger than the witness, which may be unreadable.
                let saw = seen.map_or(0, |seen| usize::try_from(seen).unwrap());
                assert!(found >= told.min(saw), "{told}, witness {seen:?}, {found}");
                // Below that, pages may be there of what was written back, and is not known of.
                if found < told {
                    return newer += 1;
                }
                let as_written = dump(&path) == story.states[found];
                assert!(as_written, "{told} {found} {seen:?}");
                unharmed += 1;
            }
        }
    });
    println!(
        "{named} named, {refused} refused, {verify} found by verify, {unharmed} unharmed, {newer} newer than the witness"
    );
    assert!(named > 50, "{named} {refused} {unharmed} {newer}");
}
