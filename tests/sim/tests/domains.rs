//! Worlds of domains: every promise holds in each of them, and the oracle notices when one is broken on
//! purpose.

use std::ops::Range;

use peerbus_core::broker;
use peerbus_peer::bridge::BridgeMutation;
use peerbus_sim::{DomainOptions, run_domains};

/// Worlds of one test. The tests run side by side.
const WORLDS: u64 = 1_000;

/// Seeds in which a fault must show.
const SEEDS: u64 = 600;

fn worlds(first: u64) {
    for seed in first..first + WORLDS {
        let report = run_domains(seed, DomainOptions::default());
        assert!(report.failure.is_none(), "{}", report.sentence());
    }
}

#[test]
fn domain_worlds_from_0() {
    worlds(0);
}

#[test]
fn domain_worlds_from_1000() {
    worlds(1_000);
}

/// A world that never gets somewhere proves nothing about it.
#[test]
fn domain_worlds_see_everything() {
    let seen: Vec<_> = (0..300)
        .flat_map(|seed| run_domains(seed, DomainOptions::default()).seen)
        .collect();
    for word in [
        "crossed",
        "broker died",
        "restored",
        "new epoch",
        "own epoch",
        "resent",
        "doubled",
        "gap",
        "stale",
        "not believed",
        "waits",
        "away",
        "back",
        "stream full",
        "again",
        "after restore",
        "forwarded",
        "delivered",
        "pushed",
        "acked",
        "seen",
        "dead",
        "expired",
        "working",
        "done",
        "failed",
        "declined",
        "withdrawn",
        "unanswered",
    ] {
        assert!(seen.contains(&word), "no world has seen: {word}");
    }
}

#[test]
fn the_same_seed_gives_the_same_domain_world() {
    for seed in 0..30 {
        let keep = DomainOptions {
            trace: true,
            ..DomainOptions::default()
        };
        let first = run_domains(seed, keep);
        let second = run_domains(seed, DomainOptions::default());
        assert_eq!(
            (&first.hash, first.steps),
            (&second.hash, second.steps),
            "seed {seed}"
        );
        assert!(!first.lines.is_empty(), "seed {seed} has a trace");
    }
}

/// Breaks a rule and expects one of `rules` in the first failure of some seed.
fn caught(seeds: Range<u64>, options: DomainOptions, rules: &[&str]) {
    let fails = |seed| Some((seed, run_domains(seed, options).failure?));
    let failure = seeds.into_iter().find_map(fails);
    let found = failure.as_ref().map(|(_, failure)| failure.rule);
    assert!(
        found.is_some_and(|found| rules.contains(&found)),
        "{options:?}: {failure:?}"
    );
}

fn bridge(mutation: BridgeMutation, rules: &[&str]) {
    let options = DomainOptions {
        mutation: Some(mutation),
        ..DomainOptions::default()
    };
    caught(0..SEEDS, options, rules);
}

fn home(mutation: broker::BrokerMutation, rules: &[&str]) {
    let options = DomainOptions {
        broker_mutation: Some(mutation),
        ..DomainOptions::default()
    };
    caught(0..SEEDS, options, rules);
}

#[test]
fn a_bridge_that_takes_what_comes_without_what_stands_before_it() {
    bridge(BridgeMutation::IgnoreGap, &["stage", "order", "lost"]);
}

#[test]
fn a_bridge_that_confirms_what_is_not_on_disk() {
    bridge(BridgeMutation::ConfirmEarly, &["stage", "lost"]);
}

#[test]
fn a_bridge_that_acks_the_stream_for_what_is_not_on_disk() {
    bridge(BridgeMutation::AckEarly, &["ack"]);
}

#[test]
fn a_bridge_that_takes_what_was_sent_in_another_life() {
    bridge(
        BridgeMutation::TakeStale,
        &["order", "lost", "stage", "mark", "ack"],
    );
}

#[test]
fn a_bridge_that_takes_again_what_is_known() {
    bridge(BridgeMutation::TakeKnown, &["ack", "mark"]);
}

#[test]
fn a_bridge_that_goes_on_as_if_the_far_broker_remembered() {
    bridge(BridgeMutation::IgnoreEpoch, &["lost", "liveness", "stage"]);
}

#[test]
fn a_bridge_that_sends_nothing_again() {
    bridge(BridgeMutation::NeverResend, &["liveness"]);
}

#[test]
fn a_bridge_that_believes_any_sender() {
    bridge(BridgeMutation::TrustFrom, &["from"]);
}

#[test]
fn a_bridge_that_notes_an_end_before_it_is_on_disk() {
    bridge(BridgeMutation::NoteEarly, &["noted"]);
}

#[test]
fn a_bridge_that_acks_a_notice_before_it_is_noted() {
    bridge(BridgeMutation::AckNotices, &["notice"]);
}

#[test]
fn a_bridge_that_says_what_became_of_a_message_only_once() {
    bridge(BridgeMutation::NeverAsk, &["liveness"]);
}

#[test]
fn a_bridge_that_passes_over_what_is_refused() {
    bridge(BridgeMutation::SkipRefused, &["ack", "stage", "lost"]);
}

#[test]
fn a_bridge_that_takes_what_follows_a_refused_message() {
    let options = DomainOptions {
        mutation: Some(BridgeMutation::TakeBehind),
        ..DomainOptions::default()
    };
    // Little is under way behind what is refused: in one of these worlds.
    caught(600..700, options, &["stage", "lost", "order"]);
}

#[test]
fn a_bridge_that_passes_over_what_its_home_may_send_again() {
    let options = DomainOptions {
        mutation: Some(BridgeMutation::GiveUpEarly),
        ..DomainOptions::default()
    };
    // A crash just in the moment between the two is rare: in one of these worlds.
    caught(17_600..17_800, options, &["stage"]);
}

#[test]
fn a_bridge_that_says_more_than_it_was_told() {
    bridge(BridgeMutation::Exaggerate, &["stage"]);
}

#[test]
fn a_bridge_that_brings_a_request_as_any_message() {
    bridge(BridgeMutation::ForgetWants, &["request"]);
}

#[test]
fn a_broker_for_which_a_request_goes_on_when_its_answer_is_brought() {
    home(broker::BrokerMutation::IgnoreAnswer, &["request"]);
}

#[test]
fn a_broker_that_gives_a_bridge_its_mail_in_any_order() {
    home(
        broker::BrokerMutation::Disorder,
        &["order", "lost", "stage", "liveness"],
    );
}

#[test]
fn a_broker_that_takes_what_follows_a_refused_message() {
    let options = DomainOptions {
        broker_mutation: Some(broker::BrokerMutation::TakeBehind),
        ..DomainOptions::default()
    };
    // As rare as a bridge that does it.
    caught(600..700, options, &["order", "lost", "stage"]);
}

#[test]
fn a_broker_that_forgets_how_far_its_bridge_is() {
    home(
        broker::BrokerMutation::ForgetMark,
        &["ack", "lost", "liveness"],
    );
}

#[test]
fn a_broker_that_owes_nobody_what_was_forwarded() {
    home(broker::BrokerMutation::ForwardLoses, &["lost", "liveness"]);
}

#[test]
fn a_broker_that_thinks_a_restored_one_remembers() {
    home(
        broker::BrokerMutation::KeepForwarded,
        &["stage", "lost", "liveness", "request"],
    );
}
