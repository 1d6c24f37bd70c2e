//! What has no evidence in time goes over the next path, as a repeat.

use super::*;

const ALL: [Path; 3] = [&SOCKET, &REWAKE, &CHANNEL];

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
            (0, &SOCKET, vec![false]),
            (10_000, &REWAKE, vec![true]),
            (20_000, &CHANNEL, vec![true]),
        ]
    );
    rig.ready(&REWAKE);
    rig.pass(3_600_000);
    assert_eq!(
        rig.wanted(),
        None,
        "three showings over waking paths at most"
    );
    assert_eq!(rig.mailbox.unseen(), 1, "it stays unsettled");
}

#[test]
fn a_path_that_becomes_ready_later_takes_up_the_climb() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.next();
    rig.pushed();
    rig.pass(60_000);
    assert_eq!(rig.wanted(), None);
    rig.absent(&SOCKET);
    rig.ready(&SOCKET);
    assert_eq!(rig.wanted(), None, "it has had it");
    rig.ready(&CHANNEL);
    let push = rig.push();
    assert_eq!((push.path, repeats(&push)), (&CHANNEL, vec![true]));
}

#[test]
fn after_ten_idle_minutes_it_goes_once_more_over_the_best_path() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.next();
    rig.pushed();
    rig.pass(599_999);
    assert_eq!(rig.wanted(), None);
    rig.pass(1);
    let push = rig.pushed();
    assert_eq!((push.path, repeats(&push)), (&SOCKET, vec![true]));
    rig.pass(3_600_000);
    assert_eq!(rig.wanted(), None, "once");
    assert_eq!(rig.mailbox.poll_timeout(), None, "nothing ticks");
}

#[test]
fn the_deadline_stands_still_while_the_session_works_or_asks_its_user() {
    for activity in [Activity::Busy, Activity::Waiting] {
        let mut rig = Rig::new(&[&SOCKET, &CHANNEL]);
        rig.next();
        rig.pushed();
        rig.pass(4_000);
        rig.activity(activity);
        assert_eq!(rig.mailbox.poll_timeout(), None, "nothing ticks");
        rig.pass(3_600_000);
        assert_eq!(rig.wanted(), None, "a long tool may run");
        rig.activity(Activity::Idle);
        rig.pass(5_999);
        assert_eq!(rig.wanted(), None);
        rig.pass(1);
        assert_eq!(rig.push().path, &CHANNEL);
    }
}

#[test]
fn an_open_dialog_is_no_excuse_for_the_channel() {
    let mut rig = Rig::new(&[&CHANNEL]);
    rig.next();
    assert_eq!(rig.pushed().path, &CHANNEL);
    rig.pass(2_000);
    rig.activity(Activity::Busy);
    rig.pass(3_600_000);
    rig.activity(Activity::Waiting);
    rig.ready(&REWAKE);
    rig.pass(7_999);
    assert_eq!(rig.wanted(), None);
    rig.pass(1);
    let push = rig.pushed();
    assert_eq!((push.path, repeats(&push)), (&REWAKE, vec![true]));
    rig.pass(3_600_000);
    assert_eq!(rig.wanted(), None, "that waits for the dialog");

    // Once it stands in the conversation, the answer has to wait for the user.
    let mut rig = Rig::new(&[&CHANNEL]);
    rig.next();
    let push = rig.pushed();
    rig.presented(&push);
    rig.activity(Activity::Waiting);
    assert_eq!(rig.mailbox.poll_timeout(), None, "nothing ticks");
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
    rig.outcome(&first, Outcome::Dropped);
    let second = rig.push();
    assert_eq!((second.path, repeats(&second)), (&REWAKE, vec![false]));
    rig.outcome(&second, Outcome::Dropped);
    let third = rig.pushed();
    assert_eq!((third.path, repeats(&third)), (&CHANNEL, vec![false]));
    rig.pass(10_000);
    assert_eq!(rig.wanted(), None, "all had it");
}

#[test]
fn what_every_client_drops_is_tried_again_ever_more_seldom() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.next();
    let mut gaps = Vec::new();
    for _ in 0..7 {
        let push = rig.push();
        rig.outcome(&push, Outcome::Dropped);
        let start = rig.now_ms;
        while rig.outputs.is_empty() {
            rig.pass(1_000);
        }
        gaps.push((rig.now_ms - start) / 1_000);
    }
    assert_eq!(gaps, [30, 60, 120, 240, 480, 600, 600]);
}

#[test]
fn a_late_drop_takes_back_the_showing() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.next();
    let push = rig.pushed();
    rig.pass(20_000);
    rig.outcome(&push, Outcome::Dropped);
    rig.ready(&CHANNEL);
    assert_eq!(repeats(&rig.push()), [false]);

    let mut rig = Rig::new(&[&SOCKET, &CHANNEL]);
    rig.next();
    let push = rig.pushed();
    rig.pass(10_000);
    let other = rig.pushed();
    rig.outcome(&push, Outcome::Dropped);
    assert_eq!(rig.wanted(), None, "the other showing stands");
    rig.answered(&other);
    assert_eq!(rig.acked().len(), 1);
}

#[test]
fn what_is_held_waits_for_the_user_and_goes_nowhere_else() {
    let mut rig = Rig::new(&ALL);
    let message = rig.next();
    let push = rig.pushed();
    rig.outcome(&push, Outcome::Kept);
    rig.pass(3_600_000);
    assert_eq!(rig.wanted(), None);
    assert_eq!(rig.along(&HOOK), None);
    assert_eq!(rig.read(), None);
    let reason =
        "the recipient's client keeps it until its user decides in the dialog there (socket)"
            .into();
    let kept = Stage::Held { why: reason };
    let steps = [went(SOCKET.word), kept];
    assert_eq!(rig.progress(), steps.map(|step| (message, step)));
    rig.answered(&push);
    assert_eq!(rig.acked(), [(message, seen("socket", "transcript"))]);
}

#[test]
fn what_the_user_denies_is_rejected_and_never_shown_again() {
    for held in [false, true] {
        let mut rig = Rig::new(&ALL);
        let messages = [rig.next()];
        let push = rig.pushed();
        if held {
            rig.outcome(&push, Outcome::Kept);
        }
        rig.outcome(&push, Outcome::Denied);
        assert_eq!(rig.rejected(), messages);
        assert_eq!(rig.mailbox.watched().count(), 0);
        rig.pass(3_600_000);
        assert_eq!(rig.wanted(), None);
        assert_eq!(rig.along(&PIGGYBACK), None);
        assert_eq!(rig.read(), None);
        rig.answered(&push);
        assert_eq!(rig.acked(), []);
    }
}

#[test]
fn what_is_denied_at_once_does_not_stop_what_comes_after_it() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.next();
    let push = rig.push();
    rig.outcome(&push, Outcome::Denied);
    rig.next();
    rig.pass(2_000);
    assert_eq!(ids(&rig.push()), [2]);
}

#[test]
fn a_late_denial_ends_what_went_over_another_path_since() {
    let mut rig = Rig::new(&ALL);
    let message = rig.next();
    let push = rig.pushed();
    rig.pass(10_000);
    let other = rig.push();
    rig.outcome(&push, Outcome::Denied);
    assert_eq!(rig.rejected(), [message]);
    rig.outcome(&other, Outcome::Failed);
    assert_eq!((rig.wanted(), rig.mailbox.unseen()), (None, 0));
}

#[test]
fn what_went_in_one_burst_climbs_together() {
    let mut rig = Rig::new(&[&SOCKET, &CHANNEL]);
    for _ in 0..3 {
        rig.next();
    }
    rig.pushed();
    rig.pass(2_000);
    assert_eq!(ids(&rig.pushed()), [2, 3]);
    rig.pass(8_000);
    let escalated = rig.pushed();
    assert_eq!((escalated.path, ids(&escalated)), (&CHANNEL, vec![1, 2, 3]));
    assert_eq!(repeats(&escalated), [true; 3]);
    rig.pass(60_000);
    assert_eq!(rig.wanted(), None);
}

#[test]
fn first_showings_do_not_overtake_each_other_when_some_climb() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.next();
    rig.pushed();
    rig.pass(9_000);
    rig.next();
    rig.pushed();
    rig.next();
    rig.pass(1_000);
    rig.ready(&CHANNEL);
    let escalated = rig.pushed();
    assert_eq!((escalated.path, ids(&escalated)), (&CHANNEL, vec![1]));
    rig.pass(1_000);
    let third = rig.push();
    assert_eq!((third.path, ids(&third)), (&SOCKET, vec![3]));
}

#[test]
fn without_a_transcript_it_climbs_all_the_same() {
    let mut rig = Rig::new(&[&SOCKET, &CHANNEL]);
    rig.readable(false);
    rig.next();
    rig.pushed();
    rig.pass(10_000);
    assert_eq!(rig.pushed().path, &CHANNEL);
    rig.pass(10_000);
    rig.next();
    assert_eq!(rig.pushed().path, &SOCKET, "unknown is not failed");
}

#[test]
fn an_earlier_session_may_have_shown_it() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.arrives("bob", 1, of(Priority::Next), true);
    assert_eq!(repeats(&rig.push()), [true]);
}

#[test]
fn what_a_client_that_ended_had_goes_to_the_next_at_once_as_a_repeat() {
    for stands in [false, true] {
        let mut rig = Rig::new(&[&SOCKET]);
        let first = rig.next();
        let push = rig.pushed();
        if stands {
            rig.presented(&push);
        }
        rig.absent(&SOCKET);
        rig.input(MailboxMachine::client_ended);
        rig.pass(2_000);
        let new = rig.next();
        assert_eq!(rig.wanted(), None);
        rig.ready(&SOCKET);
        let again = rig.pushed();
        assert_eq!(ids(&again), [first.0, new.0]);
        assert_eq!(repeats(&again), [true, false]);
        assert_eq!(rig.acked(), []);
        rig.answered(&again);
        assert_eq!(rig.acked().len(), 2);
        rig.input(MailboxMachine::client_ended);
        assert_eq!((rig.wanted(), rig.mailbox.unseen()), (None, 0));
    }
}

#[test]
fn a_client_that_was_stopped_is_sent_nothing_twice() {
    let mut rig = Rig::new(&ALL);
    let stopped = |rig: &mut Rig, stopped| {
        rig.input(|mailbox, now| mailbox.set_stopped(now, stopped));
    };
    stopped(&mut rig, false);
    let first = rig.next();
    let push = rig.pushed();
    // It was stopped at some time before the deadline, at which somebody looks.
    rig.now_ms += 10_000;
    stopped(&mut rig, true);
    rig.pass(1_000);
    rig.arrive_from("alice", Priority::Now);
    rig.pass(3_600_000);
    assert_eq!(rig.wanted(), None, "it reads nothing");
    assert_eq!(rig.along(&HOOK).map(|along| ids(&along)), Some(vec![2]));
    stopped(&mut rig, false);
    rig.pass(1_000);
    assert_eq!(rig.wanted(), None, "it reads what it has");
    rig.presented(&push);
    rig.answered(&push);
    assert_eq!(rig.acked(), [(first, seen("socket", "transcript"))]);
}

#[test]
fn what_came_while_the_client_was_stopped_goes_once_when_it_runs() {
    let mut rig = Rig::new(&ALL);
    rig.input(|mailbox, now| mailbox.set_stopped(now, true));
    let first = rig.next();
    for activity in [Activity::Busy, Activity::Idle] {
        rig.activity(activity);
        rig.pass(600_000);
        assert_eq!(rig.wanted(), None, "{activity:?}");
    }
    rig.input(|mailbox, now| mailbox.set_stopped(now, false));
    let push = rig.pushed();
    assert_eq!((ids(&push), repeats(&push)), (vec![first.0], vec![false]));
    rig.pass(9_999);
    assert_eq!(rig.wanted(), None);
    rig.pass(1);
    assert_eq!(repeats(&rig.push()), [true], "time counts again");
}
