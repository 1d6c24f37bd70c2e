//! What has no evidence in time goes over the next path, as a repeat.

use super::*;

const ALL: [Path; 3] = [Path::Socket, Path::Rewake, Path::Channel];

#[test]
fn without_evidence_each_waking_path_shows_it_once_ten_seconds_apart() {
    let mut rig = Rig::new(&ALL);
    rig.next();
    let mut paths = vec![(rig.now_ms, rig.pushed())];
    for _ in 0..2 {
        rig.pass(10_000);
        paths.push((rig.now_ms, rig.pushed()));
    }
    let start = paths[0].0;
    let seen: Vec<_> = paths
        .iter()
        .map(|(at, push)| (at - start, push.path, repeats(push)))
        .collect();
    assert_eq!(
        seen,
        [
            (0, Path::Socket, vec![false]),
            (10_000, Path::Rewake, vec![true]),
            (20_000, Path::Channel, vec![true]),
        ]
    );
    rig.ready(Path::Rewake);
    rig.pass(3_600_000);
    assert_eq!(
        rig.wanted(),
        None,
        "three showings over waking paths at most"
    );
    assert_eq!(rig.ladder.waiting(), 1, "it stays unsettled");
}

#[test]
fn a_path_that_becomes_ready_later_takes_up_the_climb() {
    let mut rig = Rig::new(&[Path::Socket]);
    rig.next();
    rig.pushed();
    rig.pass(60_000);
    assert_eq!(rig.wanted(), None);
    rig.absent(Path::Socket);
    rig.ready(Path::Socket);
    assert_eq!(rig.wanted(), None, "it has had it");
    rig.ready(Path::Channel);
    let push = rig.push();
    assert_eq!((push.path, repeats(&push)), (Path::Channel, vec![true]));
}

#[test]
fn after_ten_idle_minutes_it_goes_once_more_over_the_best_path() {
    let mut rig = Rig::new(&[Path::Socket]);
    rig.next();
    rig.pushed();
    rig.pass(599_999);
    assert_eq!(rig.wanted(), None);
    rig.pass(1);
    let push = rig.pushed();
    assert_eq!((push.path, repeats(&push)), (Path::Socket, vec![true]));
    rig.pass(3_600_000);
    assert_eq!(rig.wanted(), None, "once");
    assert_eq!(rig.ladder.poll_timeout(), None, "nothing ticks");
}

#[test]
fn the_deadline_stands_still_while_the_session_works_or_asks_its_user() {
    for activity in [Activity::Busy, Activity::Waiting] {
        let mut rig = Rig::new(&[Path::Socket, Path::Channel]);
        rig.next();
        rig.pushed();
        rig.pass(4_000);
        rig.activity(activity);
        assert_eq!(rig.ladder.poll_timeout(), None, "nothing ticks");
        rig.pass(3_600_000);
        assert_eq!(rig.wanted(), None, "a long tool may run");
        rig.activity(Activity::Idle);
        rig.pass(5_999);
        assert_eq!(rig.wanted(), None);
        rig.pass(1);
        assert_eq!(rig.push().path, Path::Channel);
    }
}

#[test]
fn an_open_dialog_is_no_excuse_for_the_channel() {
    let mut rig = Rig::new(&[Path::Channel]);
    rig.next();
    assert_eq!(rig.pushed().path, Path::Channel);
    rig.pass(2_000);
    rig.activity(Activity::Busy);
    rig.pass(3_600_000);
    rig.activity(Activity::Waiting);
    rig.ready(Path::Rewake);
    rig.pass(7_999);
    assert_eq!(rig.wanted(), None);
    rig.pass(1);
    let push = rig.pushed();
    assert_eq!((push.path, repeats(&push)), (Path::Rewake, vec![true]));
    rig.pass(3_600_000);
    assert_eq!(rig.wanted(), None, "that waits for the dialog");

    // Once it stands in the conversation, the answer has to wait for the user.
    let mut rig = Rig::new(&[Path::Channel]);
    rig.next();
    let push = rig.pushed();
    rig.presented(&push);
    rig.activity(Activity::Waiting);
    assert_eq!(rig.ladder.poll_timeout(), None, "nothing ticks");
}

#[test]
fn what_stands_in_the_conversation_climbs_no_further() {
    let mut rig = Rig::new(&ALL);
    rig.next();
    let push = rig.pushed();
    rig.pass(9_000);
    rig.presented(&push);
    rig.pass(590_000);
    assert_eq!(rig.wanted(), None);
    rig.pass(10_000);
    let again = rig.push();
    assert_eq!(repeats(&again), [true], "once more after ten minutes");
}

#[test]
fn what_the_client_drops_goes_over_the_next_path_at_once_and_is_no_repeat() {
    let mut rig = Rig::new(&ALL);
    rig.next();
    let first = rig.pushed();
    rig.told(&first, Outcome::Dropped);
    let second = rig.push();
    assert_eq!((second.path, repeats(&second)), (Path::Rewake, vec![false]));
    rig.told(&second, Outcome::Dropped);
    let third = rig.pushed();
    assert_eq!((third.path, repeats(&third)), (Path::Channel, vec![false]));
    rig.pass(10_000);
    assert_eq!(rig.wanted(), None, "all had it");
}

#[test]
fn what_every_client_drops_is_tried_again_ever_more_seldom() {
    let mut rig = Rig::new(&[Path::Socket]);
    rig.next();
    let mut gaps = Vec::new();
    for _ in 0..7 {
        let push = rig.push();
        rig.told(&push, Outcome::Dropped);
        let start = rig.now_ms;
        while rig.actions.is_empty() {
            rig.pass(1_000);
        }
        gaps.push((rig.now_ms - start) / 1_000);
    }
    assert_eq!(gaps, [30, 60, 120, 240, 480, 600, 600]);
}

#[test]
fn a_late_drop_takes_back_the_showing() {
    let mut rig = Rig::new(&[Path::Socket]);
    rig.next();
    let push = rig.pushed();
    rig.pass(20_000);
    rig.told(&push, Outcome::Dropped);
    rig.ready(Path::Channel);
    assert_eq!(repeats(&rig.push()), [false]);

    let mut rig = Rig::new(&[Path::Socket, Path::Channel]);
    rig.next();
    let push = rig.pushed();
    rig.pass(10_000);
    let other = rig.pushed();
    rig.told(&push, Outcome::Dropped);
    assert_eq!(rig.wanted(), None, "the other showing stands");
    rig.answered(&other);
    assert_eq!(rig.settled().len(), 1);
}

#[test]
fn what_is_held_waits_for_the_user_and_goes_nowhere_else() {
    let mut rig = Rig::new(&ALL);
    let entry = rig.next();
    let push = rig.pushed();
    rig.told(&push, Outcome::Held);
    rig.pass(3_600_000);
    assert_eq!(rig.wanted(), None);
    assert_eq!(rig.hand_over(Path::Hook), None);
    assert_eq!(rig.read(), None);
    let steps = [Step::Pushed(Path::Socket), Step::Held(Path::Socket)];
    assert_eq!(rig.steps(), steps.map(|step| (entry, step)));
    rig.answered(&push);
    assert_eq!(rig.settled(), [(entry, seen("socket", "transcript"))]);
}

#[test]
fn what_the_user_denies_is_rejected_and_never_shown_again() {
    for held in [false, true] {
        let mut rig = Rig::new(&ALL);
        let entries = [rig.next()];
        let push = rig.pushed();
        if held {
            rig.told(&push, Outcome::Held);
        }
        rig.told(&push, Outcome::Denied);
        assert_eq!(rig.rejected(), entries);
        assert_eq!(rig.ladder.watched().count(), 0);
        rig.pass(3_600_000);
        assert_eq!(rig.wanted(), None);
        assert_eq!(rig.hand_over(Path::Piggyback), None);
        assert_eq!(rig.read(), None);
        rig.answered(&push);
        assert_eq!(rig.settled(), []);
    }
}

#[test]
fn what_is_denied_at_once_does_not_stop_what_comes_after_it() {
    let mut rig = Rig::new(&[Path::Socket]);
    rig.next();
    let push = rig.push();
    rig.told(&push, Outcome::Denied);
    rig.next();
    rig.pass(2_000);
    assert_eq!(ids(&rig.push()), [2]);
}

#[test]
fn a_late_denial_ends_what_went_over_another_path_since() {
    let mut rig = Rig::new(&ALL);
    let entry = rig.next();
    let push = rig.pushed();
    rig.pass(10_000);
    let other = rig.push();
    rig.told(&push, Outcome::Denied);
    assert_eq!(rig.rejected(), [entry]);
    rig.told(&other, Outcome::Failed);
    assert_eq!((rig.wanted(), rig.ladder.waiting()), (None, 0));
}

#[test]
fn what_went_in_one_burst_climbs_together() {
    let mut rig = Rig::new(&[Path::Socket, Path::Channel]);
    for _ in 0..3 {
        rig.next();
    }
    rig.pushed();
    rig.pass(2_000);
    assert_eq!(ids(&rig.pushed()), [2, 3]);
    rig.pass(8_000);
    let climbed = rig.pushed();
    assert_eq!(
        (climbed.path, ids(&climbed)),
        (Path::Channel, vec![1, 2, 3])
    );
    assert_eq!(repeats(&climbed), [true; 3]);
    rig.pass(60_000);
    assert_eq!(rig.wanted(), None);
}

#[test]
fn first_showings_do_not_overtake_each_other_when_some_climb() {
    let mut rig = Rig::new(&[Path::Socket]);
    rig.next();
    rig.pushed();
    rig.pass(9_000);
    rig.next();
    rig.pushed();
    rig.next();
    rig.pass(1_000);
    rig.ready(Path::Channel);
    let climbed = rig.pushed();
    assert_eq!((climbed.path, ids(&climbed)), (Path::Channel, vec![1]));
    rig.pass(1_000);
    let third = rig.push();
    assert_eq!((third.path, ids(&third)), (Path::Socket, vec![3]));
}

#[test]
fn without_a_transcript_it_climbs_all_the_same() {
    let mut rig = Rig::new(&[Path::Socket, Path::Channel]);
    rig.input(|ladder, now| ladder.set_evidence(now, false));
    rig.next();
    rig.pushed();
    rig.pass(10_000);
    assert_eq!(rig.pushed().path, Path::Channel);
    rig.pass(10_000);
    rig.next();
    assert_eq!(rig.pushed().path, Path::Socket, "unknown is not failed");
}

#[test]
fn an_earlier_session_may_have_shown_it() {
    let mut rig = Rig::new(&[Path::Socket]);
    let entry = Entry {
        id: EntryId(9),
        priority: Priority::Next,
        bytes: 1,
        again: true,
    };
    rig.input(|ladder, now| ladder.arrive(now, entry));
    assert_eq!(repeats(&rig.push()), [true]);
}
