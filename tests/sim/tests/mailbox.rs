//! Worlds of the mailbox: every promise holds in each of them, and the oracle notices when one is
//! broken on purpose.

use peerbus_peer::mailbox::MailboxMutation;
use peerbus_sim::{MailboxOptions, Options, run, run_echo, run_mailbox};

/// Worlds of one test.
const WORLDS: u64 = 400;

/// Worlds of the bus, with its broker and its sessions.
const BUS_WORLDS: u64 = 150;

#[test]
fn mailbox_worlds_in_trouble() {
    for seed in 0..WORLDS {
        let report = run_mailbox(seed, MailboxOptions::default());
        assert!(report.failure.is_none(), "{}", report.sentence());
    }
}

#[test]
fn mailbox_worlds_with_a_burst_for_an_idle_session() {
    let calm = MailboxOptions {
        calm: true,
        ..MailboxOptions::default()
    };
    let mut pushes = 0;
    for seed in 0..WORLDS {
        let report = run_mailbox(seed, calm);
        assert!(report.failure.is_none(), "{}", report.sentence());
        pushes += report.pushes;
    }
    assert!(pushes > 0, "nobody was woken");
}

/// A world that never gets somewhere proves nothing about it.
#[test]
fn mailbox_worlds_see_every_end() {
    let ends: Vec<String> = (0..WORLDS)
        .flat_map(|seed| run_mailbox(seed, MailboxOptions::default()).ends)
        .collect();
    for end in [
        "held",
        "released",
        "expected",
        "warned",
        "many turns",
        "rejected",
        "dropped",
        "let in",
        "given back",
        "renewed",
        "recalled",
        "taken back",
        "working",
        "declined",
        "answered",
        "reminded",
        "local seen socket transcript",
        "local seen drain tool_call",
        "local pushed piggyback",
        "local rejected",
        "local lost",
        "local refused",
        "seen socket transcript",
        "seen rewake transcript",
        "seen channel transcript",
        "seen turn transcript",
        "seen waiter transcript",
        "seen event transcript",
        "seen hook transcript",
        "seen piggyback transcript",
        "rest along",
        "seen inbox transcript",
        "seen drain transcript",
        "seen ask transcript",
        "seen socket tool_call",
        "seen ask tool_call",
        "pushed socket",
        "pushed piggyback",
        "pushed channel",
        "pushed inbox",
        "pushed drain",
        "pushed ask",
    ] {
        assert!(
            ends.iter().any(|found| found == end),
            "no message was {end}"
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_mailbox_world() {
    for seed in 0..20 {
        let keep = MailboxOptions {
            trace: true,
            ..MailboxOptions::default()
        };
        let first = run_mailbox(seed, keep);
        let second = run_mailbox(seed, MailboxOptions::default());
        assert_eq!(
            (first.hash, first.steps),
            (second.hash, second.steps),
            "seed {seed}"
        );
        assert!(!first.lines.is_empty(), "seed {seed} has a trace");
    }
}

/// The real broker and real sessions, each with a mailbox.
fn bus(mutation: Option<MailboxMutation>) -> Options {
    Options {
        mailboxes: true,
        mailbox_mutation: mutation,
        ..Options::default()
    }
}

#[test]
fn bus_worlds_whose_sessions_keep_their_mail_in_mailboxes() {
    for seed in 0..BUS_WORLDS {
        let report = run(seed, bus(None));
        assert!(report.failure.is_none(), "{}", report.sentence());
    }
}

#[test]
fn on_the_bus_a_mailbox_that_breaks_a_rule_is_noticed() {
    for (mutation, rule) in [
        (MailboxMutation::HideRepeat, "I13"),
        (MailboxMutation::ForgetDoubt, "I13"),
        (MailboxMutation::TrustPipe, "I14"),
        (MailboxMutation::LoseReturned, "I8"),
    ] {
        let mut failures =
            (0..BUS_WORLDS).filter_map(|seed| run(seed, bus(Some(mutation))).failure);
        let failure = failures.next();
        let found = failure.as_ref().map(|failure| failure.rule);
        assert_eq!(found, Some(rule), "{mutation:?}: {failure:?}");
    }
}

#[test]
fn an_echo_of_version_1_is_stopped_and_can_begin_anew() {
    let mut shown = Vec::new();
    for seed in 0..WORLDS {
        shown.push(run_echo(seed, None).unwrap_or_else(|failure| panic!("seed {seed}: {failure}")));
    }
    shown.sort_unstable();
    let (least, most) = (shown.first(), shown.last());
    assert_eq!((least, most), (Some(&1), Some(&8)), "16 hops are 8 rounds");
}

#[test]
fn a_peer_that_is_believed_what_it_says_of_the_conversation() {
    let mut broken =
        (0..WORLDS).filter_map(|seed| run_echo(seed, Some(MailboxMutation::TrustHops)).err());
    assert_eq!(broken.next().map(|failure| failure.rule), Some("loop"));
    caught(MailboxMutation::TrustHops, false, "loop");
}

/// Breaks a rule and expects `rule` in the failure of some seed.
fn caught(mutation: MailboxMutation, calm: bool, rule: &str) {
    let broken = MailboxOptions {
        mutation: Some(mutation),
        calm,
        trace: false,
    };
    let mut failures = (0..WORLDS).filter_map(|seed| run_mailbox(seed, broken).failure);
    let found = failures.any(|failure| failure.rule == rule);
    assert!(found, "{mutation:?}");
}

#[test]
fn a_repeat_that_does_not_say_so() {
    caught(MailboxMutation::HideRepeat, false, "repeat");
}

#[test]
fn a_text_that_counts_as_seen_because_it_stands_there() {
    caught(MailboxMutation::TrustPresence, false, "evidence");
}

#[test]
fn a_result_that_counts_as_seen_because_it_left() {
    caught(MailboxMutation::TrustPipe, false, "evidence");
}

#[test]
fn what_is_named_and_counts_as_seen_though_a_part_of_it_was_shown() {
    caught(MailboxMutation::AckInPart, false, "evidence");
}

#[test]
fn what_is_named_and_counts_as_seen_though_the_client_did_not_show_it() {
    caught(MailboxMutation::TrustNames, false, "evidence");
}

#[test]
fn what_is_read_on_in_another_conversation() {
    caught(MailboxMutation::JoinConversations, false, "read");
}

#[test]
fn what_counts_as_seen_though_the_client_cut_a_part_before() {
    caught(MailboxMutation::TrustParts, false, "evidence");
}

#[test]
fn a_denial_that_another_path_gets_round() {
    caught(MailboxMutation::OverruleDenial, false, "denied");
}

#[test]
fn what_the_clients_user_keeps_and_another_path_shows() {
    caught(MailboxMutation::ShowKept, false, "kept");
}

#[test]
fn a_message_that_overtakes_an_older_one_of_its_sender() {
    caught(MailboxMutation::NewestFirst, false, "order");
}

#[test]
fn a_message_that_is_shown_while_another_showing_is_open() {
    caught(MailboxMutation::ShowInFlight, false, "flight");
}

#[test]
fn a_burst_that_becomes_many_turns() {
    caught(MailboxMutation::SkipPause, true, "pause");
}

#[test]
fn a_mailbox_in_which_nothing_escalates() {
    caught(MailboxMutation::NeverEscalate, false, "liveness");
}

#[test]
fn what_the_governor_holds_and_a_path_shows() {
    caught(MailboxMutation::PushHeld, false, "held");
}

#[test]
fn what_is_released_and_loses_its_place() {
    caught(MailboxMutation::ReleaseLast, false, "back");
}

#[test]
fn what_a_tool_gives_back_and_is_gone() {
    caught(MailboxMutation::LoseReturned, false, "back");
}

#[test]
fn what_a_tool_gives_back_and_comes_again_as_new() {
    caught(MailboxMutation::ForgetDoubt, false, "repeat");
}

#[test]
fn a_push_that_shows_what_was_seen_or_put_in_doubt_since() {
    caught(MailboxMutation::ShowAsMade, false, "shown");
}

#[test]
fn a_broker_that_hears_of_what_was_put_in_here() {
    caught(MailboxMutation::AckLocal, false, "local");
}

#[test]
fn what_was_put_in_here_and_is_held_like_a_peers() {
    caught(MailboxMutation::HoldLocal, false, "local");
}

#[test]
fn more_texts_put_in_than_may_wait() {
    caught(MailboxMutation::CrowdLocal, false, "room");
}

#[test]
fn what_was_put_in_here_and_counts_as_a_peers() {
    caught(MailboxMutation::CountLocal, false, "hops");
}

#[test]
fn an_answer_that_is_shown_to_others_than_the_one_who_asked() {
    caught(MailboxMutation::ShowExpected, false, "expected");
}

#[test]
fn an_answer_for_a_group_by_another_than_the_one_that_has_the_question() {
    caught(MailboxMutation::TrustAnswers, false, "expected");
}

#[test]
fn what_waits_for_the_user_that_is_shown_all_the_same() {
    caught(MailboxMutation::ShowWithheld, false, "denied");
}

#[test]
fn a_message_that_is_shown_after_its_lease() {
    caught(MailboxMutation::ShowLapsed, false, "lease");
}

#[test]
fn a_session_that_is_reminded_again_and_again() {
    caught(MailboxMutation::RemindAgain, false, "nagged");
}

#[test]
fn a_session_that_is_reminded_while_it_waits_for_its_user() {
    caught(MailboxMutation::RemindWaiting, false, "waiting");
}

#[test]
fn an_answered_request_that_is_still_reminded_of() {
    caught(MailboxMutation::RemindAnswered, false, "owed");
}
