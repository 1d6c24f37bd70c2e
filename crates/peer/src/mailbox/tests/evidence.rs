//! What settles a message, and what the sender is told meanwhile.

use super::*;

#[test]
fn the_line_is_presented_and_the_answer_after_it_is_seen() {
    let mut rig = Rig::new(&[&SOCKET]);
    let message = rig.next();
    let push = rig.pushed();
    rig.presented(&push);
    rig.presented(&push);
    let steps = [went(SOCKET.word), stands(SOCKET.word)];
    assert_eq!(rig.progress(), steps.map(|step| (message, step)));
    assert_eq!(rig.acked(), [], "the mere line proves nothing");
    rig.answered(&push);
    rig.answered(&push);
    assert_eq!(rig.acked(), [(message, seen("socket", "transcript"))]);
    assert_eq!(rig.mailbox.unseen(), 0);
}

#[test]
fn evidence_may_come_before_the_outcome() {
    let mut rig = Rig::new(&[&SOCKET, &CHANNEL]);
    let message = rig.next();
    let push = rig.push();
    rig.presented(&push);
    rig.outcome(&push, Outcome::Written);
    let steps = [went(SOCKET.word), stands(SOCKET.word)];
    assert_eq!(rig.progress(), steps.map(|step| (message, step)));

    let other = rig.next();
    rig.pass(2_000);
    let push = rig.push();
    rig.answered(&push);
    rig.outcome(&push, Outcome::Failed);
    assert_eq!(rig.acked(), [(other, seen("socket", "transcript"))]);
    assert_eq!(rig.wanted(), None, "it did not fail");
}

#[test]
fn a_late_answer_to_an_earlier_showing_counts() {
    let mut rig = Rig::new(&[&SOCKET, &CHANNEL]);
    let message = rig.next();
    let first = rig.pushed();
    rig.pass(10_000);
    let second = rig.push();
    rig.answered(&first);
    assert_eq!(rig.acked(), [(message, seen("socket", "transcript"))]);
    rig.outcome(&second, Outcome::Written);
    rig.answered(&second);
    assert_eq!(rig.acked(), []);
    assert_eq!(rig.mailbox.watched().count(), 0);
}

#[test]
fn a_tool_call_that_names_it_settles_it_alone() {
    let mut rig = Rig::new(&[]);
    rig.readable(false);
    let (first, second) = (rig.next(), rig.next());
    rig.ready(&CHANNEL);
    rig.pushed();
    rig.named(second);
    assert_eq!(rig.acked(), [(second, seen("channel", "tool_call"))]);
    rig.named(second);
    assert_eq!(rig.acked(), []);
    rig.pass(3_600_000);
    assert_eq!(rig.mailbox.unseen(), 1, "{first:?} is still open");
}

#[test]
fn a_name_from_an_earlier_session_settles_nothing_before_this_one_has_shown_it() {
    let mut rig = Rig::new(&[]);
    rig.readable(false);
    let message = rig.arrives("bob", 100, of(Priority::Next), true);
    assert_eq!(rig.named(message), Named::NotShown);
    assert_eq!(rig.acked(), [], "who knows how much of it was shown");
    let along = rig.along(&PIGGYBACK).unwrap();
    assert_eq!(repeats(&along), [true]);
    rig.outcome(&along, Outcome::Written);
    assert_eq!(rig.named(message), Named::Seen);
    assert_eq!(rig.acked(), [(message, seen("piggyback", "tool_call"))]);
}

/// The next result carries the next part of a message that was named, and nothing acks it before
/// its end.
fn reads_the_rest(rig: &mut Rig, no: No, parts: &[(usize, usize, bool)]) {
    let shows = rig.mailbox.evidence();
    for (n, &(from, to, last)) in parts.iter().enumerate() {
        assert_eq!(rig.named(no), Named::InPart, "part {n}");
        assert_eq!(rig.acked(), [], "part {n}");
        let along = rig.along(&PIGGYBACK).expect("its rest");
        assert_eq!(portions(&along), [Portion::Part { from, to, last }]);
        assert_eq!(rig.along(&PIGGYBACK), None, "one part at a time");
        rig.called();
        rig.outcome(&along, Outcome::Written);
        let over = match last {
            true => stands("piggyback"),
            false => stands(&format!("piggyback {to}/40000")),
        };
        assert_eq!(rig.progress().last(), Some(&(no, over)));
        assert_eq!(rig.mailbox.look().len(), 1, "it can be read");
    }
    if shows {
        assert_eq!(rig.named(no), Named::Awaited);
        rig.readable(false);
    }
    assert_eq!(rig.named(no), Named::Seen);
    assert_eq!(rig.acked(), [(no, seen("piggyback", "tool_call"))]);
}

#[test]
fn what_is_named_and_was_shown_in_part_is_acked_by_nothing_and_its_rest_comes_along() {
    // A push, a result and the inbox have shown its beginning.
    for way in 0..3 {
        for readable in [true, false] {
            let mut rig = Rig::new(&[]);
            if way == 0 {
                rig.ready(&SOCKET);
            }
            let no = rig.arrive_sized(Priority::Next, 40_000);
            let begins = match way {
                0 => {
                    rig.pushed();
                    assert_eq!(rig.progress(), [(no, went("socket 4096/40000"))]);
                    0
                }
                1 => {
                    let along = rig.along(&PIGGYBACK).unwrap();
                    rig.outcome(&along, Outcome::Written);
                    assert_eq!(rig.progress(), [(no, stands("piggyback 4096/40000"))]);
                    0
                }
                _ => {
                    let first = Portion::part(0, 40_000, PART_CHARS);
                    let read = rig.check_out(&[(no, first)]).unwrap();
                    rig.outcome(&read, Outcome::Written);
                    assert_eq!(rig.progress(), [(no, stands("inbox 16384/40000"))]);
                    16_384
                }
            };
            rig.readable(readable);
            // Where no cut would be noticed a part is small.
            let part = if readable { 16_384 } else { 4_096 };
            let froms = (begins..40_000).step_by(part);
            let parts = froms.map(|from| (from, 40_000.min(from + part), from + part >= 40_000));
            reads_the_rest(&mut rig, no, &parts.collect::<Vec<_>>());
        }
    }
}

#[test]
fn the_rest_of_what_was_named_leaves_room_for_others_and_may_be_lost() {
    let mut rig = Rig::new(&[]);
    let long = rig.arrive_sized(Priority::Next, 40_000);
    let along = rig.along(&PIGGYBACK).unwrap();
    rig.outcome(&along, Outcome::Written);
    let other = rig.next();
    assert_eq!(rig.named(long), Named::InPart);
    assert_eq!(
        rig.along(&HOOK).map(|a| ids(&a)),
        Some(vec![other.0]),
        "no result of a tool"
    );
    let along = rig.along(&PIGGYBACK).unwrap();
    assert_eq!(along.items[0].no, long);
    rig.outcome(&along, Outcome::Doubtful);
    let again = rig.along(&PIGGYBACK).unwrap();
    assert_eq!(
        (portions(&again), repeats(&again)),
        (portions(&along), vec![true])
    );
}

#[test]
fn what_the_governor_holds_is_read_to_its_end_before_it_is_seen() {
    let mut rig = Rig::governed(Policy::Auto, Some(0), &[]);
    rig.readable(false);
    rig.input(|mailbox, now| mailbox.sent(now, Some(&key_of("bob")), "q", 0));
    let held = rig.arrive_sized(Priority::Next, 20_000);
    assert_eq!(rig.mailbox.held().0, 1);
    rig.progress();
    for from in [0, 16_384] {
        assert_eq!(
            rig.along(&PIGGYBACK).filter(|a| ids(a).contains(&held.0)),
            None
        );
        let read = rig
            .check_out(&[(held, Portion::part(from, 20_000, PART_CHARS))])
            .unwrap();
        rig.outcome(&read, Outcome::Written);
        let named = rig.named(held);
        assert_eq!(
            named,
            if from == 0 {
                Named::InPart
            } else {
                Named::Seen
            }
        );
    }
    assert_eq!(rig.acked(), [(held, seen("inbox", "tool_call"))]);
}

#[test]
fn a_client_that_lives_has_not_shown_that_it_understood() {
    let mut rig = Rig::with_policy(Policy::Pushed, &[&SOCKET]);
    rig.activity(Activity::Busy);
    let message = rig.next();
    let quiet = rig.arrive(Priority::Quiet);
    let push = rig.pushed();
    assert_eq!(ids(&push), [message.0]);
    rig.acked();
    rig.progress();
    let read = rig.check_out(&[(quiet, Portion::All)]).unwrap();
    rig.outcome(&read, Outcome::Reached);
    assert_eq!(rig.progress(), [(quiet, went("inbox"))]);
    assert_eq!(rig.acked(), []);
    rig.called();
    rig.pass(3_600_000);
    assert_eq!(
        (rig.wanted(), rig.acked()),
        (None, vec![]),
        "it is being read"
    );
    rig.outcome(&read, Outcome::Written);
    assert_eq!(rig.progress(), [(quiet, stands("inbox"))]);
    assert_eq!(rig.acked(), [(quiet, only_pushed("inbox"))]);
}

#[test]
fn what_was_shown_in_part_needs_more_than_an_answer() {
    let mut rig = Rig::new(&[&SOCKET]);
    let message = rig.arrive_sized(Priority::Next, 100_000);
    let push = rig.pushed();
    assert_eq!(rig.mailbox.watched().count(), 1);
    rig.answered(&push);
    assert_eq!(rig.acked(), []);
    assert_eq!(rig.mailbox.watched().count(), 0, "no more to be had there");
    let part = stands("socket 4096/100000");
    assert!(rig.progress().contains(&(message, part)));
    let read = rig.read().unwrap();
    assert_eq!(
        (portions(&read), repeats(&read)),
        (vec![Portion::All], vec![true])
    );
    rig.outcome(&read, Outcome::Written);
    rig.answered(&read);
    assert_eq!(rig.acked(), [(message, seen("inbox", "transcript"))]);

    let mut rig = Rig::with_policy(Policy::Pushed, &[&SOCKET]);
    rig.arrive_sized(Priority::Next, 100_000);
    rig.pushed();
    assert_eq!(rig.acked(), [], "nor is it pushed: its end was not");
}

#[test]
fn under_pushed_any_path_that_takes_it_settles_it() {
    let mut rig = Rig::with_policy(Policy::Pushed, &[&CHANNEL]);
    let message = rig.next();
    let push = rig.push();
    assert_eq!(rig.acked(), []);
    rig.outcome(&push, Outcome::Written);
    assert_eq!(rig.acked(), [(message, only_pushed("channel"))]);
    rig.answered(&push);
    assert_eq!(rig.acked(), []);

    let message = rig.arrive(Priority::Quiet);
    let handed = rig.along(&HOOK).unwrap();
    rig.outcome(&handed, Outcome::Written);
    assert_eq!(rig.acked(), [(message, only_pushed("hook"))]);
}

#[test]
fn under_auto_without_a_transcript_a_call_after_the_result_settles_it_as_pushed() {
    for (policy, readable, settles) in [
        (Policy::Auto, false, true),
        (Policy::Auto, true, false),
        (Policy::Seen, false, false),
    ] {
        let mut rig = Rig::with_policy(policy, &[]);
        rig.readable(readable);
        let message = rig.next();
        rig.called();
        let handed = rig.along(&PIGGYBACK).unwrap();
        rig.called();
        assert_eq!(rig.acked(), [], "the result was not delivered yet");
        rig.outcome(&handed, Outcome::Written);
        rig.called();
        let expected = [(message, only_pushed("piggyback"))];
        assert_eq!(rig.acked(), expected[..usize::from(settles)]);
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
        rig.readable(readable);
        for _ in 0..4 {
            rig.next();
        }
        rig.ready(&CHANNEL);
        rig.pushed();
        rig.next();
        rig.window(true);
        let gone = rig.acked();
        let expected = let_go.iter().map(|&id| (No(id), only_pushed("channel")));
        assert_eq!(gone, expected.collect::<Vec<_>>());
    }
}

#[test]
fn a_transcript_that_never_shows_a_mark_is_none_until_it_does() {
    let mut rig = Rig::new(&[&SOCKET]);
    for n in 0..8 {
        assert!(rig.mailbox.evidence(), "{n}");
        let message = rig.next();
        rig.pass(2_000);
        let push = rig.pushed();
        assert_eq!(ids(&push), [message.0]);
        rig.activity(Activity::Busy);
        rig.pass(3_600_000);
        assert!(rig.mailbox.evidence(), "{n}: it had no time");
        rig.activity(Activity::Idle);
        assert_eq!(rig.acked(), [], "{n}");
        if n == 7 {
            rig.window(true);
            rig.pushed();
        }
        rig.pass(10_000);
    }
    assert!(!rig.mailbox.evidence());
    let relieved = rig.acked();
    assert_eq!(relieved.len(), 5, "the window has room again: {relieved:?}");
    assert_eq!(relieved[0], (No(1), only_pushed("socket")));
    rig.next();
    rig.pass(2_000);
    let push = rig.pushed();
    rig.presented(&push);
    assert!(rig.mailbox.evidence(), "it is the right one after all");
}

#[test]
fn only_what_can_still_be_proven_is_watched() {
    let mut rig = Rig::new(&[&SOCKET]);
    assert_eq!(rig.mailbox.watched().count(), 0);
    rig.next();
    let push = rig.push();
    assert_eq!(rig.mailbox.watched().collect::<Vec<_>>(), [push.id]);
    rig.outcome(&push, Outcome::Failed);
    assert_eq!(rig.mailbox.watched().count(), 0);
    let read = rig.read().unwrap();
    assert_eq!(rig.mailbox.watched().collect::<Vec<_>>(), [read.id]);
    rig.outcome(&read, Outcome::Written);
    rig.answered(&read);
    assert_eq!(rig.mailbox.watched().count(), 0);
}

#[test]
fn that_the_window_is_nearly_full_is_said_once_in_one_notice() {
    let mut rig = Rig::new(&[]);
    let full = |rig: &mut Rig, is| {
        rig.window(is);
        rig.notices()
    };
    assert!(full(&mut rig, true).is_empty(), "nothing waits");
    assert_eq!(rig.mailbox.poll_timeout(), None);
    rig.next();
    let said = rig.notices();
    assert!(
        said.len() == 1 && said[0].contains("unseen (1)"),
        "{said:?}"
    );
    assert_eq!(full(&mut rig, true), said);
    assert_eq!(full(&mut rig, false), said);
    rig.next();
    let anew = full(&mut rig, true);
    assert!(
        anew.len() == 1 && anew[0].contains("unseen (3)"),
        "{anew:?}"
    );
}

#[test]
fn that_the_window_is_nearly_full_is_said_again_while_it_lasts_and_the_session_idles() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.next();
    let first = rig.pushed();
    rig.answered(&first);
    rig.arrive(Priority::Quiet);
    rig.pass(2_000);
    rig.window(true);
    let said = |rig: &mut Rig| {
        let attempt = rig.wanted();
        attempt.inspect(|attempt| rig.outcome(attempt, Outcome::Written))
    };
    let notice = said(&mut rig).expect("it wakes the agent");
    assert_eq!(ids(&notice).len(), 2, "what is quiet goes along");
    rig.pass(599_999);
    assert_eq!(said(&mut rig), None);
    rig.pass(1);
    let again = said(&mut rig).expect("ten minutes later");
    rig.activity(Activity::Busy);
    rig.arrive(Priority::Quiet);
    rig.answered(&notice);
    rig.answered(&again);
    rig.pass(3_600_000);
    assert_eq!(said(&mut rig), None, "it works");
    rig.activity(Activity::Idle);
    rig.window(false);
    assert_eq!(rig.mailbox.poll_timeout(), None);
    rig.pass(3_600_000);
    assert_eq!(said(&mut rig), None);
}

#[test]
fn a_turn_that_failed_gives_its_message_back_though_the_text_stands_there() {
    let mut rig = Rig::new(&[&SOCKET]);
    let message = rig.next();
    let mut pause_ms = 30_000;
    for repeat in [false, true, true, true] {
        let push = rig.push();
        assert_eq!(repeats(&push), [repeat]);
        rig.outcome(&push, Outcome::Written);
        rig.presented(&push);
        rig.outcome(&push, Outcome::Doubtful);
        rig.pass(pause_ms - 1);
        assert_eq!(rig.wanted(), None, "{pause_ms}");
        rig.pass(1);
        pause_ms *= 2;
    }
    let push = rig.pushed();
    rig.answered(&push);
    assert_eq!(rig.acked(), [(message, seen("socket", "transcript"))]);
}

#[test]
fn a_turn_that_ends_well_without_proof_claims_that_its_message_was_taken() {
    let mut rig = Rig::new(&[&SOCKET]);
    let message = rig.next();
    let push = rig.pushed();
    rig.input(|mailbox, now| mailbox.unproven(now, push.id));
    let path = SOCKET.word.to_owned();
    assert_eq!(rig.acked(), [(message, How::Pushed { path })]);
}

#[test]
fn a_turn_that_was_stopped_starts_no_other_and_its_message_goes_along() {
    let mut rig = Rig::new(&[&SOCKET]);
    let message = rig.next();
    let push = rig.pushed();
    rig.presented(&push);
    assert_eq!(rig.along(&PIGGYBACK), None, "an answer may come");
    rig.input(|mailbox, now| mailbox.stopped(now, push.id));
    rig.pass(500_000);
    assert_eq!(rig.wanted(), None);
    let along = rig.along(&PIGGYBACK).unwrap();
    assert_eq!(
        (ids(&along), repeats(&along)),
        (vec![message.0], vec![true])
    );
    rig.outcome(&along, Outcome::Failed);
    rig.pass(100_000);
    assert_eq!(repeats(&rig.push()), [true], "after ten minutes");
}

#[test]
fn a_message_over_which_every_turn_fails_holds_up_no_other() {
    let mut rig = Rig::new(&[&SOCKET]);
    let bad = rig.next();
    let mut good = None;
    for _ in 0..8 {
        let push = rig.pushed();
        if ids(&push).contains(&bad.0) {
            rig.outcome(&push, Outcome::Doubtful);
        } else {
            rig.answered(&push);
        }
        good = good.or_else(|| Some(rig.next()));
        // As over a path that is found again after each turn.
        rig.absent(&SOCKET);
        rig.ready(&SOCKET);
        rig.pass(600_000);
        if rig.acked().iter().any(|(no, _)| Some(*no) == good) {
            return;
        }
    }
    panic!("the other one was never seen");
}
