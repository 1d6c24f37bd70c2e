//! A session that does nothing while its mail stays unseen.

use super::*;
use crate::mailbox::Stuck;

/// Five minutes.
const LATE_MS: u64 = 300_000;

fn unseen(rig: &Rig) -> Option<Vec<&'static str>> {
    match rig.mailbox.stuck() {
        Some(Stuck::Unseen(words)) => Some(words),
        _ => None,
    }
}

#[test]
fn unseen_mail_of_five_idle_minutes_makes_it_stuck_until_it_is_seen() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.activity(Activity::Idle);
    rig.next();
    let push = rig.pushed();
    rig.pass(LATE_MS - 1);
    assert_eq!(rig.mailbox.stuck(), None);
    assert_eq!(rig.mailbox.poll_timeout(), Some(rig.now_ms + 1));
    rig.pass(1);
    assert_eq!(unseen(&rig), Some(vec!["socket"]));
    rig.presented(&push);
    rig.answered(&push);
    assert_eq!(rig.mailbox.stuck(), None);
}

#[test]
fn a_turn_a_dialog_and_quiet_mail_make_nothing_stuck() {
    for activity in [Activity::Busy, Activity::Waiting, Activity::Unknown] {
        let mut rig = Rig::new(&[&SOCKET]);
        rig.activity(activity);
        rig.next();
        rig.pass(2 * LATE_MS);
        assert_eq!(rig.mailbox.stuck(), None, "{activity:?}");
    }
    let mut rig = Rig::new(&[&SOCKET]);
    rig.activity(Activity::Idle);
    rig.arrive(Priority::Quiet);
    rig.pass(2 * LATE_MS);
    assert_eq!(rig.mailbox.stuck(), None);
}

#[test]
fn what_nothing_wakes_is_not_stuck_and_what_cannot_be_proven_may_be_read() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.absent(&SOCKET);
    rig.activity(Activity::Idle);
    rig.next();
    rig.pass(2 * LATE_MS);
    assert_eq!(rig.mailbox.stuck(), None);
    let mut rig = Rig::with_policy(Policy::Seen, &[&SOCKET]);
    rig.readable(false);
    rig.activity(Activity::Idle);
    rig.next();
    rig.pushed();
    rig.pass(2 * LATE_MS);
    assert_eq!(rig.mailbox.stuck(), None);
}

#[test]
fn mail_whose_push_hangs_came_by_no_path() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.activity(Activity::Idle);
    rig.next();
    rig.push();
    rig.pass(2 * LATE_MS);
    assert_eq!(unseen(&rig), Some(vec![]));
}

#[test]
fn an_agent_that_has_its_mail_from_a_tool_is_not_stuck_unless_that_comes_back() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.absent(&SOCKET);
    rig.activity(Activity::Busy);
    rig.next();
    let drained = rig.along(&PIGGYBACK).unwrap();
    rig.ready(&SOCKET);
    rig.activity(Activity::Idle);
    rig.pass(2 * LATE_MS);
    assert_eq!(rig.mailbox.stuck(), None);
    rig.outcome(&drained, Outcome::Doubtful);
    rig.push();
    rig.pass(LATE_MS);
    assert_eq!(unseen(&rig), Some(vec![]));
}

#[test]
fn mail_that_comes_back_each_time_was_taken() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.activity(Activity::Idle);
    rig.next();
    let push = rig.pushed();
    rig.outcome(&push, Outcome::Dropped);
    rig.pass(LATE_MS);
    assert_eq!(rig.mailbox.stuck(), Some(Stuck::GivenBack));
}

#[test]
fn a_session_that_answers_other_mail_is_not_stuck_by_what_waits() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.activity(Activity::Idle);
    rig.next();
    let first = rig.pushed();
    rig.presented(&first);
    rig.input(|mailbox, now_ms| mailbox.stopped(now_ms, first.id));
    for _ in 0..5 {
        rig.pass(LATE_MS / 3);
        rig.next();
        let other = rig.pushed();
        rig.presented(&other);
        rig.answered(&other);
        assert_eq!(rig.mailbox.stuck(), None);
    }
}

#[test]
fn an_interrupted_message_makes_it_stuck_only_after_it_went_again() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.activity(Activity::Idle);
    rig.next();
    let first = rig.pushed();
    rig.presented(&first);
    rig.input(|mailbox, now_ms| mailbox.stopped(now_ms, first.id));
    rig.pass(2 * LATE_MS - 1);
    assert_eq!(rig.mailbox.stuck(), None);
    rig.pass(1);
    rig.pushed();
    rig.pass(LATE_MS);
    assert_eq!(unseen(&rig), Some(vec!["socket"]));
}

#[test]
fn a_stopped_client_is_stuck_and_looked_for_after_a_minute() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.activity(Activity::Idle);
    rig.next();
    rig.pushed();
    rig.pass(20_000);
    let looks = rig.mailbox.poll_timeout();
    assert_eq!(looks, Some(rig.now_ms + 40_000));
    rig.input(|mailbox, now_ms| mailbox.set_stopped(now_ms, true));
    assert_eq!(rig.mailbox.stuck(), Some(Stuck::Stopped));
    rig.input(|mailbox, now_ms| mailbox.set_stopped(now_ms, false));
    assert_eq!(rig.mailbox.stuck(), None);
}

#[test]
fn mail_of_which_turns_failed_goes_again_after_the_pause_that_is_named() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.activity(Activity::Idle);
    rig.next();
    for _ in 0..3 {
        let push = rig.pushed();
        rig.activity(Activity::Busy);
        rig.outcome(&push, Outcome::Doubtful);
        rig.activity(Activity::Idle);
        rig.absent(&SOCKET);
        rig.ready(&SOCKET);
        match rig.mailbox.again_in_ms(rig.now_ms) {
            0 => rig.pass(10_000),
            again_in_ms => {
                rig.pass(again_in_ms - 1);
                assert!(rig.wanted().is_none());
                rig.pass(1);
            }
        }
    }
    rig.pushed();
    rig.next();
    assert_eq!(rig.mailbox.again_in_ms(rig.now_ms), 0, "it is the first");
}

#[test]
fn a_turn_that_failed_makes_it_stuck_until_one_ends_well_or_its_mail_is_read() {
    let ends = |rig: &mut Rig, why: Option<&str>| {
        let why = why.map(Into::into);
        rig.input(|mailbox, now_ms| mailbox.turn_ended(now_ms, why));
    };
    let mut rig = Rig::new(&[&SOCKET]);
    ends(&mut rig, Some("out of credit"));
    rig.next();
    let push = rig.pushed();
    assert_eq!(rig.mailbox.stuck(), None, "no turn has had it");
    rig.activity(Activity::Busy);
    rig.outcome(&push, Outcome::Doubtful);
    for activity in [Activity::Busy, Activity::Idle, Activity::Busy] {
        rig.activity(activity);
        let why = Some(Stuck::Failed("out of credit".into()));
        assert_eq!(rig.mailbox.stuck(), why, "{activity:?}");
    }
    ends(&mut rig, None);
    assert_eq!(rig.mailbox.stuck(), None);
    ends(&mut rig, Some("again"));
    assert!(rig.mailbox.stuck().is_some());
    rig.activity(Activity::Idle);
    rig.absent(&SOCKET);
    rig.ready(&SOCKET);
    rig.pass(LATE_MS);
    let push = rig.pushed();
    rig.presented(&push);
    rig.answered(&push);
    assert_eq!(rig.mailbox.stuck(), None);
}
