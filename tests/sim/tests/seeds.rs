//! The fixed set of worlds: every promise holds in each of them.

use peerbus_sim::{Options, run};

/// Worlds of one test. The tests run side by side.
const WORLDS: u64 = 500;

fn world(seed: u64) {
    let report = run(seed, Options::default());
    assert!(report.failure.is_none(), "{}", report.sentence());
}

fn worlds(first: u64) {
    (first..first + WORLDS).for_each(world);
}

#[test]
fn worlds_from_0() {
    worlds(0);
}

#[test]
fn worlds_from_500() {
    worlds(500);
}

#[test]
fn worlds_from_1000() {
    worlds(1_000);
}

#[test]
fn worlds_from_1500() {
    worlds(1_500);
}

#[test]
fn worlds_from_2000() {
    worlds(2_000);
}

/// A message leaves for a peer with the commit that gives its queue to a successor.
#[test]
fn a_delivery_that_leaves_with_the_end_of_its_name() {
    world(12_676);
}

/// A broadcast is accepted again after a day; a process that knows it goes by another name.
#[test]
fn a_broadcast_that_comes_again_to_one_renamed() {
    world(38_003_668);
}

/// A connection is cut while its end is under way.
#[test]
fn a_connection_that_is_cut_twice() {
    world(38_007_595);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..50 {
        let keep = Options {
            trace: true,
            ..Options::default()
        };
        let (first, second) = (run(seed, keep), run(seed, Options::default()));
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_eq!(first.steps, second.steps, "seed {seed}");
        assert!(!first.lines.is_empty(), "seed {seed} has a trace");
    }
    let hashes = [1, 2].map(|seed| run(seed, Options::default()).hash);
    assert_ne!(hashes[0], hashes[1], "two seeds are two worlds");
}
