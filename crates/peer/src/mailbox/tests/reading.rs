//! What the agent asks for: the inbox, part by part, and what becomes of a result.

use super::*;

const FIRST: Portion = Portion::Part {
    from: 0,
    to: 40_000,
    last: false,
};
const LAST: Portion = Portion::Part {
    from: 40_000,
    to: 60_000,
    last: true,
};

/// The agent reads this much of a message, and the client takes the result.
fn read_part(rig: &mut Rig, no: No, portion: Portion) -> Attempt {
    let read = rig.check_out(&[(no, portion)]).unwrap();
    rig.outcome(&read, Outcome::Written);
    read
}

#[test]
fn reading_shows_everything_and_what_the_client_took_is_presented() {
    let mut rig = Rig::new(&[&CHANNEL]);
    let first = rig.next();
    rig.pushed();
    let second = rig.next();
    let quiet = rig.arrive(Priority::Quiet);
    rig.progress();
    let read = rig.read().unwrap();
    assert_eq!(
        (ids(&read), repeats(&read)),
        (vec![1, 2, 3], vec![true, false, false])
    );
    rig.pass(60_000);
    assert_eq!(rig.wanted(), None, "it is being read");
    assert_eq!(rig.read(), None, "nor twice at once");
    rig.outcome(&read, Outcome::Written);
    let all = [first, second, quiet];
    assert_eq!(rig.progress(), all.map(|no| (no, stands("inbox"))));
    assert_eq!(
        rig.acked(),
        [],
        "a model that cannot be reached read nothing"
    );
    rig.pass(60_000);
    assert_eq!(rig.wanted(), None, "it stands there");
    rig.answered(&read);
    assert_eq!(rig.acked(), all.map(|no| (no, seen("inbox", "transcript"))));
    assert_eq!(rig.read(), None);
}

#[test]
fn what_was_read_and_is_named_later_is_seen() {
    let mut rig = Rig::new(&[]);
    let first = rig.next();
    let read = rig.read().unwrap();
    rig.outcome(&read, Outcome::Written);
    // The client may have cut it, or its user may have gone back.
    for _ in 0..2 {
        assert_eq!(rig.named(first), Named::Awaited);
        rig.presented(&read);
        assert_eq!(rig.acked(), []);
    }
    rig.answered(&read);
    assert_eq!(rig.acked(), [(first, seen("inbox", "transcript"))]);

    rig.readable(false);
    let second = rig.next();
    let read = rig.read().unwrap();
    rig.outcome(&read, Outcome::Reached);
    assert_eq!(rig.named(second), Named::NotShown, "it is in a pipe");
    rig.outcome(&read, Outcome::Written);
    assert_eq!(rig.named(second), Named::Seen, "nothing would show more");
    assert_eq!(rig.acked(), [(second, seen("inbox", "tool_call"))]);
}

#[test]
fn what_a_driver_prompted_is_proven_by_its_name_and_no_result_of_a_tool_is() {
    let mut rig = Rig::new(&[&CHANNEL]);
    rig.mailbox.set_driven(true);
    let message = rig.next();
    rig.pushed();
    assert_eq!(rig.named(message), Named::Seen);
    assert_eq!(rig.acked(), [(message, seen("channel", "tool_call"))]);
    let message = rig.next();
    let read = rig.read().unwrap();
    rig.outcome(&read, Outcome::Written);
    assert_eq!(rig.named(message), Named::Awaited);
    // What joins a turn waits in the client: a helper of the agent may name it before it stands there.
    let mut rig = Rig::new(&[&SOCKET]);
    rig.mailbox.set_driven(true);
    let message = rig.next();
    rig.pushed();
    assert_eq!(rig.named(message), Named::Awaited);
    assert_eq!(rig.acked(), []);
}

#[test]
fn what_was_named_and_never_stood_there_comes_again_and_is_never_told_as_seen() {
    let mut rig = Rig::new(&[&CHANNEL]);
    let message = rig.next();
    rig.pushed();
    assert_eq!(rig.named(message), Named::Awaited);
    rig.pass(10_000);
    rig.ready(&SOCKET);
    let again = rig.pushed();
    assert_eq!(ids(&again), [message.0]);
    assert_eq!(rig.acked(), []);

    // The client shows none of eight pushes, and its transcript can be read.
    let mut rig = Rig::new(&[&CHANNEL]);
    for _ in 0..8 {
        rig.next();
        rig.pushed();
        rig.pass(10_000);
    }
    assert!(!rig.mailbox.evidence());
    assert_eq!(rig.named(No(1)), Named::Pushed);
    assert_eq!(rig.acked(), [(No(1), only_pushed("channel"))]);
}

#[test]
fn without_a_transcript_what_was_read_is_pushed_when_the_next_call_comes() {
    for policy in [Policy::Auto, Policy::Seen] {
        let mut rig = Rig::with_policy(policy, &[]);
        rig.readable(false);
        let message = rig.next();
        let read = rig.read().unwrap();
        rig.called();
        assert_eq!(rig.acked(), [], "the client did not take it yet");
        rig.outcome(&read, Outcome::Written);
        assert_eq!(rig.acked(), []);
        rig.called();
        let pushed = [(message, only_pushed("inbox"))];
        let expected = usize::from(policy == Policy::Auto);
        assert_eq!(rig.acked(), pushed[..expected]);
    }
}

#[test]
fn a_read_that_was_not_delivered_showed_nothing() {
    let mut rig = Rig::new(&[]);
    rig.next();
    let read = rig.read().unwrap();
    rig.outcome(&read, Outcome::Failed);
    assert_eq!(rig.acked(), []);
    rig.ready(&CHANNEL);
    assert_eq!(repeats(&rig.push()), [false], "the agent did not get it");
}

#[test]
fn what_a_result_carried_that_may_have_been_lost_comes_again_as_a_repeat_in_its_place() {
    for taken in [false, true] {
        let mut rig = Rig::new(&[]);
        let first = rig.next();
        let second = rig.next();
        let read = rig.check_out(&[(second, Portion::All)]).unwrap();
        if taken {
            rig.outcome(&read, Outcome::Written);
        }
        rig.outcome(&read, Outcome::Doubtful);
        assert_eq!(rig.acked(), []);
        rig.ready(&CHANNEL);
        let push = rig.push();
        assert_eq!(
            (ids(&push), repeats(&push)),
            (vec![first.0, second.0], vec![false, true])
        );
    }
}

#[test]
fn only_some_can_be_read_and_stand_in_order() {
    let mut rig = Rig::new(&[]);
    for _ in 0..3 {
        rig.next();
    }
    let only = [No(3), No(1), No(77), No(3)].map(|no| (no, Portion::All));
    let read = rig.input(|mailbox, now| mailbox.check_out(now, &DRAIN, &only));
    let read = read.unwrap();
    assert_eq!(ids(&read), [1, 3]);
    rig.outcome(&read, Outcome::Written);
    rig.answered(&read);
    let how = seen("drain", "transcript");
    assert_eq!(rig.acked(), [(No(1), how.clone()), (No(3), how)]);
    assert_eq!(rig.mailbox.unseen(), 1);
}

#[test]
fn what_the_clients_user_keeps_cannot_be_read_past_him() {
    let mut rig = Rig::new(&[&SOCKET]);
    let kept = rig.next();
    let push = rig.pushed();
    assert_eq!(rig.mailbox.unread().count(), 1);
    rig.outcome(&push, Outcome::Kept);
    assert_eq!(rig.mailbox.unread().count(), 0, "its user decides");
    assert!(rig.mailbox.look().is_empty());
    assert_eq!(rig.check_out(&[(kept, Portion::All)]), None);
    assert_eq!(rig.mailbox.waiting(), 0);
    assert_eq!(rig.mailbox.unseen(), 1);
}

#[test]
fn a_long_message_is_seen_when_its_last_part_was() {
    let mut rig = Rig::new(&[]);
    let long = rig.arrive_sized(Priority::Next, 60_000);
    let first = read_part(&mut rig, long, FIRST);
    assert_eq!(rig.mailbox.look()[0].read, 40_000);
    let part = stands("inbox 40000/60000");
    assert_eq!(rig.progress(), [(long, part)], "not all of it stands there");
    rig.answered(&first);
    assert_eq!(rig.acked(), []);
    rig.called();
    let last = read_part(&mut rig, long, LAST);
    assert_eq!(rig.progress(), [(long, stands("inbox"))]);
    rig.answered(&last);
    assert_eq!(rig.acked(), [(long, seen("inbox", "transcript"))]);
}

#[test]
fn the_last_part_proves_none_that_the_client_cut_before_it() {
    let mut rig = Rig::new(&[]);
    let long = rig.arrive_sized(Priority::Next, 60_000);
    read_part(&mut rig, long, FIRST);
    let last = read_part(&mut rig, long, LAST);
    rig.answered(&last);
    assert_eq!(rig.acked(), []);
    assert_eq!(rig.mailbox.look()[0].read, 0, "it is read from there again");
    let along = rig.along(&PIGGYBACK).unwrap();
    assert_eq!((ids(&along), repeats(&along)), (vec![long.0], vec![true]));
    rig.outcome(&along, Outcome::Failed);
    let (first, last) = (
        read_part(&mut rig, long, FIRST),
        read_part(&mut rig, long, LAST),
    );
    rig.answered(&first);
    rig.answered(&last);
    assert_eq!(rig.acked(), [(long, seen("inbox", "transcript"))]);
}

#[test]
fn parts_that_stand_in_two_conversations_prove_nothing() {
    // What was read before the user began anew: a part, one that is on its way, or all.
    for before in 0..4 {
        let mut rig = Rig::new(&[]);
        let long = rig.arrive_sized(Priority::Next, 60_000);
        let first = rig.check_out(&[(long, FIRST)]).unwrap();
        let mut read = vec![first.clone()];
        if before > 0 {
            rig.outcome(&first, Outcome::Written);
            rig.answered(&first);
        }
        if before > 1 {
            read.push(rig.check_out(&[(long, LAST)]).unwrap());
        }
        if before > 2 {
            rig.outcome(&read[1], Outcome::Written);
        }
        rig.input(MailboxMachine::cleared);
        for earlier in &read {
            rig.outcome(earlier, Outcome::Written);
            rig.answered(earlier);
        }
        assert_eq!(rig.mailbox.look()[0].read, 0, "{before}");
        let last = read_part(&mut rig, long, LAST);
        rig.answered(&last);
        assert_eq!(rig.named(long), Named::NotShown, "{before}");
        assert_eq!(rig.acked(), [], "{before}");
        let first = rig.check_out(&[(long, FIRST)]).unwrap();
        assert_eq!(repeats(&first), [true], "{before}");
        rig.outcome(&first, Outcome::Written);
        rig.answered(&first);
        let last = read_part(&mut rig, long, LAST);
        rig.answered(&last);
        assert_eq!(rig.acked(), [(long, seen("inbox", "transcript"))]);
    }
}

#[test]
fn a_text_that_stands_whole_in_a_conversation_that_ended_is_proven() {
    let mut rig = Rig::new(&[]);
    let message = rig.next();
    let read = rig.read().unwrap();
    rig.outcome(&read, Outcome::Written);
    rig.input(MailboxMachine::cleared);
    rig.answered(&read);
    assert_eq!(rig.acked(), [(message, seen("inbox", "transcript"))]);
}

#[test]
fn parts_that_were_read_do_not_come_again_as_new() {
    let mut rig = Rig::new(&[]);
    let long = rig.arrive_sized(Priority::Next, 60_000);
    let first = rig.check_out(&[(long, FIRST)]).unwrap();
    assert_eq!(repeats(&first), [false]);
    rig.outcome(&first, Outcome::Written);
    assert!(rig.mailbox.look()[0].shown, "in part");
    let once_more = rig.check_out(&[(long, FIRST)]).unwrap();
    assert_eq!(repeats(&once_more), [true]);
    rig.outcome(&once_more, Outcome::Failed);
    let last = rig.check_out(&[(long, LAST)]).unwrap();
    assert_eq!(repeats(&last), [false], "this part is new");
    rig.outcome(&last, Outcome::Failed);
    rig.ready(&CHANNEL);
    let push = rig.push();
    assert_eq!(
        (portions(&push), repeats(&push)),
        (vec![Portion::Beginning], vec![true])
    );
}

#[test]
fn a_last_part_without_those_before_it_is_not_all_of_a_message() {
    let mut rig = Rig::new(&[]);
    rig.readable(false);
    let long = rig.arrive_sized(Priority::Next, 60_000);
    let last = read_part(&mut rig, long, LAST);
    rig.answered(&last);
    rig.called();
    assert_eq!(rig.acked(), []);
    read_part(&mut rig, long, FIRST);
    read_part(&mut rig, long, LAST);
    rig.called();
    assert_eq!(rig.acked(), [(long, only_pushed("inbox"))]);
}

#[test]
fn a_part_that_may_have_been_lost_is_read_again_as_a_repeat() {
    for taken in [false, true] {
        let mut rig = Rig::new(&[]);
        let long = rig.arrive_sized(Priority::Next, 60_000);
        let first = rig.check_out(&[(long, FIRST)]).unwrap();
        if taken {
            rig.outcome(&first, Outcome::Written);
        }
        rig.outcome(&first, Outcome::Doubtful);
        assert_eq!(rig.mailbox.look()[0].read, 0);
        let again = rig.check_out(&[(long, FIRST)]).unwrap();
        assert_eq!(repeats(&again), [true]);
    }
}

#[test]
fn a_notice_that_was_read_is_told_when_its_result_was_taken() {
    for readable in [false, true] {
        let mut rig = Rig::new(&[]);
        rig.readable(readable);
        rig.input(|mailbox, now| mailbox.notice(now, "bob left", Priority::Quiet));
        let read = rig.read().unwrap();
        rig.outcome(&read, Outcome::Written);
        assert_eq!(rig.mailbox.unseen(), usize::from(readable));
        rig.answered(&read);
        assert_eq!(rig.mailbox.unseen(), 0);
    }
}

#[test]
fn what_the_client_cut_goes_again_and_what_follows_is_smaller() {
    let mut rig = Rig::new(&[]);
    let no = rig.arrive_sized(Priority::Next, 40_000);
    let part = |rig: &Rig, from| Portion::part(from, 40_000, rig.mailbox.room(PART_CHARS));
    let take = |rig: &mut Rig, from| {
        let portion = part(rig, from);
        let read = rig.check_out(&[(no, portion)]).unwrap();
        rig.outcome(&read, Outcome::Written);
        read
    };
    let cuts = |rig: &mut Rig, read: &Attempt| {
        let id = read.id;
        rig.input(|mailbox, now| mailbox.cut(now, id));
        (rig.mailbox.look()[0].read, rig.mailbox.room(PART_CHARS))
    };
    let (first, second) = (take(&mut rig, 0), take(&mut rig, 16_384));
    assert_eq!(cuts(&mut rig, &first), (0, 8_192));
    assert_eq!(cuts(&mut rig, &second), (0, 8_192), "as large as the first");
    let smaller = take(&mut rig, 0);
    assert_eq!(repeats(&smaller), [true]);
    assert_eq!(cuts(&mut rig, &smaller), (0, 4_096));
    let least = take(&mut rig, 0);
    assert_eq!(cuts(&mut rig, &least), (4_096, 4_096), "it goes on");
    assert_eq!(rig.named(no), Named::InPart);
    let along = rig.along(&PIGGYBACK).unwrap();
    assert_eq!(portions(&along), [part(&rig, 4_096)]);
    assert_eq!(rig.acked(), []);
}

#[test]
fn of_passing_notices_the_oldest_make_room() {
    let mut rig = Rig::new(&[]);
    for n in 0..100 {
        let sentence = format!("notice {n}");
        rig.input(|mailbox, now| mailbox.notice(now, &sentence, Priority::Quiet));
    }
    let notices = rig.notices();
    assert_eq!((notices.len(), &*notices[0]), (64, "notice 36"));
}

#[test]
fn after_a_doubt_all_that_waits_counts_as_perhaps_shown_if_another_session_could_have_it() {
    let mut rig = Rig::new(&[]);
    rig.next();
    rig.input(|mailbox, now| mailbox.notice(now, "bob left", Priority::Next));
    rig.arrives("peerbus", 100, Conversation::default(), false);
    rig.input(MailboxMachine::doubt);
    rig.next();
    rig.ready(&SOCKET);
    let push = rig.push();
    assert_eq!(repeats(&push), [true, false, false, false]);
}

#[test]
fn a_look_shows_what_waits_and_is_not_in_other_hands() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.next();
    rig.next();
    let flags = |rig: &Rig| -> Vec<_> {
        let listed = rig.mailbox.look();
        listed.iter().map(|one| (one.no.0, one.shown)).collect()
    };
    assert_eq!(flags(&rig), [(1, true), (2, false)], "one is being pushed");
    assert_eq!(
        (rig.mailbox.waiting(), rig.mailbox.has_unshown()),
        (2, true)
    );
    rig.check_out(&[(No(2), Portion::All)]).unwrap();
    assert_eq!(flags(&rig), [(1, true)]);
    assert_eq!(
        (rig.mailbox.waiting(), rig.mailbox.has_unshown()),
        (1, false)
    );
}
