//! Worlds of the wake ladder: every promise holds in each of them, and the oracle notices when one
//! is broken on purpose.

use peerbus_core::wake::Mutation;
use peerbus_sim::{WakeOptions, run_wake};

/// Worlds of one test.
const WORLDS: u64 = 400;

#[test]
fn wake_worlds_in_trouble() {
    for seed in 0..WORLDS {
        let report = run_wake(seed, WakeOptions::default());
        assert!(report.failure.is_none(), "{}", report.sentence());
    }
}

#[test]
fn wake_worlds_with_a_burst_for_an_idle_session() {
    let calm = WakeOptions {
        calm: true,
        ..WakeOptions::default()
    };
    let mut pushes = 0;
    for seed in 0..WORLDS {
        let report = run_wake(seed, calm);
        assert!(report.failure.is_none(), "{}", report.sentence());
        pushes += report.pushes;
    }
    assert!(pushes > 0, "nobody was woken");
}

/// A world that never gets somewhere proves nothing about it.
#[test]
fn wake_worlds_see_every_end() {
    let ends: Vec<String> = (0..WORLDS)
        .flat_map(|seed| run_wake(seed, WakeOptions::default()).settled)
        .collect();
    for end in [
        "rejected",
        "seen socket transcript",
        "seen rewake transcript",
        "seen channel transcript",
        "seen hook transcript",
        "seen piggyback transcript",
        "seen socket tool_call",
        "seen inbox tool_result",
        "seen drain tool_result",
        "pushed socket",
        "pushed piggyback",
        "pushed channel",
    ] {
        assert!(
            ends.iter().any(|found| found == end),
            "no message was {end}"
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_wakes() {
    for seed in 0..20 {
        let keep = WakeOptions {
            trace: true,
            ..WakeOptions::default()
        };
        let (first, second) = (run_wake(seed, keep), run_wake(seed, WakeOptions::default()));
        assert_eq!(
            (first.hash, first.steps),
            (second.hash, second.steps),
            "seed {seed}"
        );
        assert!(!first.lines.is_empty(), "seed {seed} has a trace");
    }
}

/// Breaks a rule and expects `rule` in the first failure of some seed.
fn caught(mutation: Mutation, calm: bool, rule: &str) {
    let broken = WakeOptions {
        mutation: Some(mutation),
        calm,
        trace: false,
    };
    let mut failures = (0..WORLDS).filter_map(|seed| run_wake(seed, broken).failure);
    let failure = failures.next();
    let found = failure.as_ref().map(|failure| failure.rule);
    assert_eq!(found, Some(rule), "{mutation:?}: {failure:?}");
}

#[test]
fn a_repeat_that_does_not_say_so() {
    caught(Mutation::HideRepeat, false, "repeat");
}

#[test]
fn a_text_that_counts_as_seen_because_it_stands_there() {
    caught(Mutation::TrustPresence, false, "evidence");
}

#[test]
fn a_denial_that_another_path_gets_round() {
    caught(Mutation::OverruleDenial, false, "denied");
}

#[test]
fn a_message_that_overtakes_an_older_one() {
    caught(Mutation::NewestFirst, false, "order");
}

#[test]
fn a_message_that_is_shown_while_another_showing_is_open() {
    caught(Mutation::ShowInFlight, false, "flight");
}

#[test]
fn a_burst_that_becomes_many_turns() {
    caught(Mutation::SkipPause, true, "pause");
}

#[test]
fn a_ladder_that_nobody_climbs() {
    caught(Mutation::NeverClimb, false, "liveness");
}
