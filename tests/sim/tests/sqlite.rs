//! The same worlds on the real store, which is closed by a crash and opened anew.

use peerbus_sim::{Options, SqliteDisk, run, run_on};

#[test]
fn worlds_on_sqlite() {
    for seed in 0..40 {
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
