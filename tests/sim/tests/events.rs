//! Worlds of a session's events: every promise holds in each of them, and the oracle notices when
//! one is broken on purpose.

use peerbus_core::events::EventLogMutation;
use peerbus_sim::run_events;

/// Worlds of one test.
const WORLDS: u64 = 150;

#[test]
fn worlds_of_events() {
    let mut ends = Vec::new();
    for seed in 0..WORLDS {
        match run_events(seed, None) {
            Ok(seen) => ends.extend(seen),
            Err(failure) => panic!("seed {seed}: {failure}"),
        }
    }
    // A world that never gets somewhere proves nothing about it.
    for end in ["gap", "stuck", "whole", "slow"] {
        assert!(ends.contains(&end), "no reader was {end}");
    }
}

/// Breaks a rule and expects `rule` in the first failure of some seed.
fn caught(mutation: EventLogMutation, rule: &str) {
    let mut failures = (0..WORLDS).filter_map(|seed| run_events(seed, Some(mutation)).err());
    let failure = failures.next();
    let found = failure.as_ref().map(|failure| failure.rule);
    assert_eq!(found, Some(rule), "{mutation:?}: {failure:?}");
}

#[test]
fn what_is_gone_and_passed_over_without_a_word() {
    caught(EventLogMutation::HideGap, "gap");
}

#[test]
fn a_gap_that_says_too_little() {
    caught(EventLogMutation::MiscountGap, "gap");
}

#[test]
fn what_nobody_can_be_told_of_and_does_not_count() {
    caught(EventLogMutation::SkipSilent, "gap");
}

#[test]
fn an_event_that_comes_again_to_who_has_it() {
    caught(EventLogMutation::Repeat, "once");
}

#[test]
fn events_that_come_in_another_order() {
    caught(EventLogMutation::NewestFirst, "order");
}

#[test]
fn what_a_reader_did_not_ask_for() {
    caught(EventLogMutation::IgnoreChoice, "choice");
}

#[test]
fn a_log_without_a_bound() {
    caught(EventLogMutation::KeepAll, "bound");
}
