//! What settles an entry, and what the sender is told meanwhile.

use super::*;

#[test]
fn the_line_is_presented_and_the_answer_after_it_is_seen() {
    let mut rig = Rig::new(&[Path::Socket]);
    let entry = rig.next();
    let push = rig.pushed();
    rig.presented(&push);
    rig.presented(&push);
    let steps = [Step::Pushed(Path::Socket), Step::Presented(Path::Socket)];
    assert_eq!(rig.steps(), steps.map(|step| (entry, step)));
    assert_eq!(rig.settled(), [], "the mere line proves nothing");
    rig.answered(&push);
    rig.answered(&push);
    assert_eq!(rig.settled(), [(entry, seen("socket", "transcript"))]);
    assert_eq!(rig.ladder.waiting(), 0);
}

#[test]
fn evidence_may_come_before_the_outcome() {
    let mut rig = Rig::new(&[Path::Socket, Path::Channel]);
    let entry = rig.next();
    let push = rig.push();
    rig.presented(&push);
    rig.told(&push, Outcome::Written);
    let steps = [Step::Pushed(Path::Socket), Step::Presented(Path::Socket)];
    assert_eq!(rig.steps(), steps.map(|step| (entry, step)));

    let other = rig.next();
    rig.pass(2_000);
    let push = rig.push();
    rig.answered(&push);
    rig.told(&push, Outcome::Failed);
    assert_eq!(rig.settled(), [(other, seen("socket", "transcript"))]);
    assert_eq!(rig.wanted(), None, "it did not fail");
}

#[test]
fn a_late_answer_to_an_earlier_showing_counts() {
    let mut rig = Rig::new(&[Path::Socket, Path::Channel]);
    let entry = rig.next();
    let first = rig.pushed();
    rig.pass(10_000);
    let second = rig.push();
    rig.answered(&first);
    assert_eq!(rig.settled(), [(entry, seen("socket", "transcript"))]);
    rig.told(&second, Outcome::Written);
    rig.answered(&second);
    assert_eq!(rig.settled(), []);
    assert_eq!(rig.ladder.watched().count(), 0);
}

#[test]
fn a_tool_call_that_names_it_settles_it_alone() {
    let mut rig = Rig::new(&[]);
    let (first, second) = (rig.next(), rig.next());
    rig.ready(Path::Channel);
    rig.pushed();
    rig.input(|ladder, now| ladder.named(now, second));
    assert_eq!(rig.settled(), [(second, seen("channel", "tool_call"))]);
    rig.input(|ladder, now| ladder.named(now, second));
    assert_eq!(rig.settled(), []);
    rig.pass(3_600_000);
    assert_eq!(rig.ladder.waiting(), 1, "{first:?} is still open");
}

#[test]
fn a_name_that_another_session_showed_settles_too() {
    let mut rig = Rig::new(&[]);
    let entry = rig.next();
    rig.input(|ladder, now| ladder.named(now, entry));
    assert_eq!(rig.settled(), [(entry, seen("unknown", "tool_call"))]);
}

#[test]
fn what_was_shown_in_part_needs_more_than_an_answer() {
    let mut rig = Rig::new(&[Path::Socket]);
    let entry = rig.arrive_sized(Priority::Next, 100_000);
    let push = rig.pushed();
    assert_eq!(rig.ladder.watched().count(), 1);
    rig.answered(&push);
    assert_eq!(rig.settled(), []);
    assert_eq!(rig.ladder.watched().count(), 0, "no more to be had there");
    assert!(
        rig.steps()
            .contains(&(entry, Step::Presented(Path::Socket)))
    );
    let read = rig.read().unwrap();
    assert!(read.items[0].whole && read.items[0].repeat);
    rig.told(&read, Outcome::Written);
    assert_eq!(rig.settled(), [(entry, seen("inbox", "tool_result"))]);

    let mut rig = Rig::with_policy(Policy::Pushed, &[Path::Socket]);
    rig.arrive_sized(Priority::Next, 100_000);
    rig.pushed();
    assert_eq!(rig.settled(), [], "nor is it pushed: its end was not");
}

#[test]
fn under_pushed_any_path_that_takes_it_settles_it() {
    let mut rig = Rig::with_policy(Policy::Pushed, &[Path::Channel]);
    let entry = rig.next();
    let push = rig.push();
    assert_eq!(rig.settled(), []);
    rig.told(&push, Outcome::Written);
    assert_eq!(rig.settled(), [(entry, only_pushed("channel"))]);
    rig.answered(&push);
    assert_eq!(rig.settled(), []);

    let entry = rig.arrive(Priority::Quiet);
    let handed = rig.hand_over(Path::Hook).unwrap();
    rig.told(&handed, Outcome::Written);
    assert_eq!(rig.settled(), [(entry, only_pushed("hook"))]);
}

#[test]
fn under_auto_without_a_transcript_a_call_after_the_result_settles_it_as_pushed() {
    for (policy, readable, settles) in [
        (Policy::Auto, false, true),
        (Policy::Auto, true, false),
        (Policy::Seen, false, false),
    ] {
        let mut rig = Rig::with_policy(policy, &[]);
        rig.input(|ladder, now| ladder.set_evidence(now, readable));
        let entry = rig.next();
        rig.input(Ladder::called);
        let handed = rig.hand_over(Path::Piggyback).unwrap();
        rig.input(Ladder::called);
        assert_eq!(rig.settled(), [], "the result was not delivered yet");
        rig.told(&handed, Outcome::Written);
        rig.input(Ladder::called);
        let expected = [(entry, only_pushed("piggyback"))];
        assert_eq!(rig.settled(), expected[..usize::from(settles)]);
    }
}

#[test]
fn under_auto_without_a_transcript_the_oldest_make_room() {
    for (policy, readable, let_go) in [
        (Policy::Auto, false, vec![1, 2]),
        (Policy::Auto, true, vec![]),
        (Policy::Seen, false, vec![]),
    ] {
        let mut rig = Rig::with_policy(policy, &[]);
        rig.input(|ladder, now| ladder.set_evidence(now, readable));
        for _ in 0..4 {
            rig.next();
        }
        rig.ready(Path::Channel);
        rig.pushed();
        rig.next();
        rig.input(|ladder, now| ladder.set_crowded(now, true));
        let gone = rig.settled();
        let expected = let_go
            .iter()
            .map(|&id| (EntryId(id), only_pushed("channel")));
        assert_eq!(gone, expected.collect::<Vec<_>>());
    }
}

#[test]
fn a_transcript_that_never_shows_a_mark_is_none_until_it_does() {
    let mut rig = Rig::new(&[Path::Socket]);
    rig.input(|ladder, now| ladder.set_crowded(now, true));
    for n in 0..8 {
        assert!(rig.ladder.evidence(), "{n}");
        let entry = rig.next();
        rig.pass(2_000);
        let push = rig.pushed();
        assert_eq!(ids(&push), [entry.0]);
        rig.activity(Activity::Busy);
        rig.pass(3_600_000);
        assert!(rig.ladder.evidence(), "{n}: it had no time");
        rig.activity(Activity::Idle);
        assert_eq!(rig.settled(), [], "{n}");
        rig.pass(10_000);
    }
    assert!(!rig.ladder.evidence());
    let relieved = rig.settled();
    assert_eq!(relieved.len(), 4, "the window has room again: {relieved:?}");
    assert_eq!(relieved[0], (EntryId(1), only_pushed("socket")));
    rig.next();
    rig.pass(2_000);
    let push = rig.pushed();
    rig.presented(&push);
    assert!(rig.ladder.evidence(), "it is the right one after all");
}

#[test]
fn a_crowd_is_said_once() {
    let mut rig = Rig::new(&[]);
    rig.next();
    rig.next();
    let crowded = |rig: &mut Rig, is| {
        rig.input(|ladder, now| ladder.set_crowded(now, is));
        std::mem::take(&mut rig.actions)
    };
    assert_eq!(crowded(&mut rig, true), [Action::Crowded { waiting: 2 }]);
    assert_eq!(crowded(&mut rig, true), []);
    assert_eq!(crowded(&mut rig, false), []);
    assert_eq!(crowded(&mut rig, true), [Action::Crowded { waiting: 2 }]);
}

#[test]
fn a_crowd_of_what_is_held_back_is_said_too_and_again_while_it_lasts() {
    let mut rig = Rig::new(&[]);
    rig.input(|ladder, now| ladder.set_crowded(now, true));
    assert_eq!(rig.actions, [], "nothing waits");
    assert_eq!(rig.ladder.poll_timeout(), None);
    rig.input(|ladder, now| ladder.set_held_back(now, 3));
    let said = [Action::Crowded { waiting: 3 }];
    assert_eq!(std::mem::take(&mut rig.actions), said);
    rig.pass(599_999);
    assert_eq!(rig.actions, []);
    rig.pass(1);
    assert_eq!(std::mem::take(&mut rig.actions), said);
    rig.activity(Activity::Busy);
    rig.pass(3_600_000);
    assert_eq!(rig.actions, [], "it works");
    rig.activity(Activity::Idle);
    rig.input(|ladder, now| ladder.set_crowded(now, false));
    assert_eq!(rig.ladder.poll_timeout(), None);
    rig.pass(3_600_000);
    assert_eq!(rig.actions, []);
}

#[test]
fn only_what_can_still_be_proven_is_watched() {
    let mut rig = Rig::new(&[Path::Socket]);
    assert_eq!(rig.ladder.watched().count(), 0);
    rig.next();
    let push = rig.push();
    assert_eq!(rig.ladder.watched().collect::<Vec<_>>(), [push.id]);
    rig.told(&push, Outcome::Failed);
    assert_eq!(rig.ladder.watched().count(), 0);
    let read = rig.read().unwrap();
    assert_eq!(
        rig.ladder.watched().count(),
        0,
        "a result needs no transcript"
    );
    rig.told(&read, Outcome::Written);
    assert_eq!(rig.ladder.watched().count(), 0);
}
