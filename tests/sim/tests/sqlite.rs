//! The same worlds on the real store, which is closed by a crash and opened anew.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use peerbus_sim::{Options, SqliteDisk, run, run_on};

fn worlds(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let disk = SqliteDisk::new().unwrap();
        let report = run_on(seed, Options::default(), Box::new(disk));
        assert!(report.failure.is_none(), "on SQLite, {}", report.sentence());
        let in_memory = run(seed, Options::default());
        assert_eq!(
            report.hash, in_memory.hash,
            "seed {seed}: the stores differ"
        );
    }
}

#[test]
fn worlds_on_sqlite_from_0() {
    worlds(0..15);
}

#[test]
fn worlds_on_sqlite_from_15() {
    worlds(15..31);
}
