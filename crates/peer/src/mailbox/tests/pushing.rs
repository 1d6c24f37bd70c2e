//! When something is pushed, over which path, and with what.

use super::*;

/// To a client that is driven.
static DRIVEN: PathSpec = PathSpec {
    word: "driven",
    text_bytes: usize::MAX,
    ..PathSpec::waking(2_000)
};

#[test]
fn the_best_ready_path_takes_the_first_push_at_once() {
    for (ready, best) in [
        (vec![&CHANNEL, &REWAKE, &SOCKET], &SOCKET),
        (vec![&CHANNEL, &REWAKE], &REWAKE),
        (vec![&CHANNEL], &CHANNEL),
    ] {
        let mut rig = Rig::new(&ready);
        rig.next();
        let push = rig.push();
        assert_eq!((push.path, ids(&push)), (best, vec![1]));
        assert_eq!(repeats(&push), [false]);
    }
}

#[test]
fn without_a_path_it_waits_for_one() {
    let mut rig = Rig::new(&[]);
    rig.next();
    rig.pass(3_600_000);
    assert_eq!(rig.wanted(), None);
    assert_eq!(rig.mailbox.poll_timeout(), None, "nothing ticks");
    rig.ready(&CHANNEL);
    assert_eq!(ids(&rig.push()), [1]);
}

#[test]
fn five_in_a_burst_go_in_two_pushes_in_order_each_once() {
    let mut rig = Rig::new(&[&SOCKET]);
    let messages: Vec<_> = (0..5).map(|_| rig.next()).collect();
    let first = rig.pushed();
    assert_eq!(ids(&first), [1]);
    rig.presented(&first);
    rig.activity(Activity::Busy);
    rig.pass(1_999);
    assert_eq!(rig.wanted(), None, "the client takes one per two seconds");
    rig.pass(1);
    let rest = rig.pushed();
    assert_eq!(ids(&rest), [2, 3, 4, 5]);
    assert_eq!(repeats(&rest), [false; 4]);
    rig.presented(&rest);
    rig.answered(&first);
    rig.answered(&rest);
    let seen = messages
        .into_iter()
        .map(|id| (id, seen("socket", "transcript")));
    assert_eq!(rig.acked(), seen.collect::<Vec<_>>());
    rig.pass(3_600_000);
    assert_eq!(rig.wanted(), None, "no more turns");
}

#[test]
fn a_waiter_wakes_once() {
    let mut rig = Rig::new(&[&REWAKE]);
    rig.next();
    rig.pushed();
    rig.next();
    rig.pass(60_000);
    assert_eq!(rig.wanted(), None, "its waiter is gone");
    rig.ready(&REWAKE);
    assert_eq!(ids(&rig.push()), [2]);
}

#[test]
fn a_burst_is_one_digest_whatever_the_paths() {
    let mut rig = Rig::new(&[&REWAKE, &CHANNEL]);
    rig.next();
    assert_eq!(rig.pushed().path, &REWAKE);
    rig.next();
    rig.pass(1_000);
    rig.next();
    assert_eq!(rig.wanted(), None, "the channel is free, and more may come");
    rig.pass(1_000);
    assert_eq!(ids(&rig.push()), [2, 3]);
}

#[test]
fn a_push_holds_20_messages_and_12_000_bytes_and_counts_the_rest() {
    let mut rig = Rig::new(&[]);
    for _ in 0..45 {
        rig.next();
    }
    rig.ready(&CHANNEL);
    let first = rig.pushed();
    assert_eq!((first.items.len(), first.rest), (20, 25));
    rig.pass(2_000);
    let second = rig.pushed();
    assert_eq!((second.items.len(), second.rest), (20, 5));

    let mut rig = Rig::new(&[]);
    for bytes in [5_000, 5_000, 5_000, 100] {
        rig.arrive_sized(Priority::Next, bytes);
    }
    rig.ready(&CHANNEL);
    let first = rig.pushed();
    assert_eq!((ids(&first), first.rest), (vec![1, 2], 2));
    rig.pass(2_000);
    assert_eq!(ids(&rig.push()), [3, 4]);
}

#[test]
fn what_is_too_large_goes_alone_with_its_beginning() {
    let mut rig = Rig::new(&[]);
    for bytes in [16_384, 16_385, 10] {
        rig.arrive_sized(Priority::Next, bytes);
    }
    rig.ready(&SOCKET);
    let first = rig.pushed();
    assert_eq!(
        (ids(&first), portions(&first)),
        (vec![1], vec![Portion::All])
    );
    rig.pass(2_000);
    let second = rig.pushed();
    assert_eq!(
        (ids(&second), portions(&second)),
        (vec![2], vec![Portion::Beginning])
    );
}

#[test]
fn quiet_messages_push_nothing_and_ride_along() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.arrive(Priority::Quiet);
    rig.pass(3_600_000);
    assert_eq!(rig.wanted(), None);
    assert_eq!(rig.mailbox.poll_timeout(), None, "nothing ticks");
    rig.next();
    assert_eq!(ids(&rig.push()), [1, 2]);
}

#[test]
fn many_quiet_messages_do_not_crowd_out_what_is_not() {
    let mut rig = Rig::new(&[&SOCKET]);
    for _ in 0..30 {
        rig.arrive(Priority::Quiet);
    }
    let loud = rig.next();
    let push = rig.push();
    assert!(ids(&push).contains(&loud.0), "{push:?}");
    assert_eq!((push.items.len(), push.rest), (20, 11));
}

#[test]
fn a_quiet_message_that_does_not_fit_keeps_no_other_from_going_along() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.arrive_sized(Priority::Quiet, 11_950);
    rig.arrive(Priority::Quiet);
    rig.next();
    let push = rig.push();
    assert_eq!((ids(&push), push.rest), (vec![2, 3], 1));
}

#[test]
fn an_urgent_message_whose_path_just_failed_does_not_hurry_others() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.arrive(Priority::Now);
    rig.pushed();
    rig.pass(10_000);
    rig.ready(&REWAKE);
    let failed = rig.push();
    rig.outcome(&failed, Outcome::Failed);
    rig.ready(&REWAKE);
    rig.next();
    rig.pushed();
    rig.next();
    assert_eq!(rig.wanted(), None, "its path is not free");
}

#[test]
fn urgent_messages_flush_what_waits_without_a_pause() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.next();
    rig.pushed();
    rig.next();
    assert_eq!(rig.wanted(), None);
    rig.arrive(Priority::Now);
    assert_eq!(ids(&rig.push()), [2, 3]);
}

fn with(path: Path) -> Rig {
    let mut rig = Rig::new(&[]);
    rig.mailbox.add_path(path);
    rig.ready(path);
    rig
}

#[test]
fn a_text_that_is_put_in_waits_for_no_pause_but_for_what_its_client_takes() {
    let put_in = |rig: &mut Rig| rig.arrives(HERE, 100, Conversation::default(), false);
    for (path, most) in [(&SOCKET, 20), (&DRIVEN, 40)] {
        let mut rig = with(path);
        for _ in 0..most {
            put_in(&mut rig);
            rig.pushed();
        }
        put_in(&mut rig);
        assert_eq!(rig.wanted().is_some(), path.text_bytes == usize::MAX);
    }
    let mut rig = Rig::new(&[&SOCKET]);
    put_in(&mut rig);
    rig.pushed();
    rig.next();
    assert_eq!(rig.wanted(), None, "a peer's message does");
}

#[test]
fn a_text_that_is_put_in_goes_whole_where_its_client_takes_it() {
    let put_in = |path| {
        let mut rig = with(path);
        rig.arrives(HERE, 100_000, Conversation::default(), false);
        rig.pushed().items[0].portion
    };
    assert_eq!(put_in(&SOCKET), Portion::Beginning);
    assert_eq!(put_in(&DRIVEN), Portion::All);
    let mut rig = with(&DRIVEN);
    rig.arrives("bob", 100_000, Conversation::default(), false);
    assert_eq!(rig.pushed().items[0].portion, Portion::Beginning);
}

#[test]
fn after_20_pushes_in_a_minute_urgent_messages_wait_like_others() {
    let mut rig = Rig::new(&[&SOCKET]);
    for _ in 0..20 {
        rig.arrive(Priority::Now);
        rig.pushed();
    }
    rig.arrive(Priority::Now);
    assert_eq!(rig.wanted(), None);
    rig.pass(2_000);
    assert_eq!(ids(&rig.pushed()), [21]);
}

#[test]
fn a_working_session_takes_one_push_until_that_is_presented() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.activity(Activity::Busy);
    rig.next();
    let first = rig.pushed();
    rig.next();
    rig.pass(5_000);
    rig.next();
    assert_eq!(rig.wanted(), None, "it would queue up in the client");
    rig.presented(&first);
    let second = rig.pushed();
    assert_eq!(ids(&second), [2, 3]);

    rig.next();
    rig.pass(9_999);
    assert_eq!(rig.wanted(), None);
    rig.pass(1);
    assert_eq!(ids(&rig.pushed()), [4], "after ten seconds all the same");

    rig.next();
    rig.arrive(Priority::Now);
    assert_eq!(ids(&rig.pushed()), [5, 6], "unless it is urgent");

    rig.next();
    rig.pass(3_000);
    rig.activity(Activity::Idle);
    assert_eq!(ids(&rig.push()), [7], "or the turn ends");
}

#[test]
fn one_push_at_a_time_waits_for_its_outcome() {
    let mut rig = Rig::new(&[&SOCKET, &CHANNEL]);
    rig.next();
    let first = rig.push();
    rig.next();
    rig.pass(60_000);
    assert_eq!(rig.wanted(), None);
    rig.outcome(&first, Outcome::Written);
    rig.pass(2_000);
    assert_eq!(ids(&rig.push()), [2]);
}

#[test]
fn a_failed_push_was_none_and_its_path_is_gone_until_it_is_ready_again() {
    let mut rig = Rig::new(&[&SOCKET, &CHANNEL]);
    rig.next();
    rig.next();
    let first = rig.push();
    rig.outcome(&first, Outcome::Failed);
    let second = rig.push();
    assert_eq!((second.path, ids(&second)), (&CHANNEL, vec![1, 2]));
    assert_eq!(repeats(&second), [false, false], "nothing was shown");
    rig.outcome(&second, Outcome::Failed);
    rig.pass(600_000);
    assert_eq!(rig.wanted(), None);
    rig.ready(&SOCKET);
    assert_eq!(rig.push().path, &SOCKET);
    assert!(rig.progress().is_empty(), "the sender hears nothing of it");
}

#[test]
fn a_push_whose_messages_were_seen_meanwhile_does_not_speak_against_its_path() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.readable(false);
    let message = rig.next();
    let push = rig.push();
    rig.named(message);
    rig.outcome(&push, Outcome::Failed);
    rig.next();
    assert_eq!(rig.push().path, &SOCKET);
}

#[test]
fn a_path_that_fails_again_and_again_is_tried_ever_more_seldom() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.next();
    let mut times = Vec::new();
    for _ in 0..8 {
        let push = rig.push();
        times.push(rig.now_ms);
        rig.outcome(&push, Outcome::Failed);
        rig.ready(&SOCKET);
        while rig.outputs.is_empty() {
            rig.pass(1_000);
        }
    }
    let gaps: Vec<_> = times
        .windows(2)
        .map(|two| (two[1] - two[0]) / 1_000)
        .collect();
    assert_eq!(gaps, [2, 4, 8, 16, 32, 64, 64]);
}

#[test]
fn a_path_that_brought_proof_goes_first() {
    let mut rig = Rig::new(&[&CHANNEL]);
    rig.next();
    let push = rig.pushed();
    rig.answered(&push);
    rig.ready(&SOCKET);
    rig.pass(2_000);
    rig.next();
    assert_eq!(rig.push().path, &CHANNEL);

    let mut rig = Rig::new(&[&CHANNEL]);
    rig.readable(false);
    let message = rig.next();
    rig.pushed();
    assert_eq!(rig.named(message), Named::Seen);
    rig.readable(true);
    rig.ready(&SOCKET);
    rig.pass(2_000);
    rig.next();
    assert_eq!(rig.push().path, &CHANNEL);
}

#[test]
fn a_path_that_shows_nothing_twice_in_a_row_comes_last() {
    let mut rig = Rig::new(&[&SOCKET]);
    for _ in 0..2 {
        rig.next();
        assert_eq!(rig.pushed().path, &SOCKET);
        rig.pass(10_000);
    }
    rig.ready(&CHANNEL);
    let escalated = rig.pushed();
    assert_eq!((escalated.path, ids(&escalated)), (&CHANNEL, vec![1, 2]));
    rig.pass(2_000);
    rig.next();
    assert_eq!(rig.pushed().path, &CHANNEL);
}

#[test]
fn first_showings_are_in_order_for_each_sender_and_urgent_ones_pass_those_of_others() {
    let big = 12_000;
    let mut rig = Rig::new(&[]);
    let bob = rig.arrives("bob", big, of(Priority::Next), false);
    rig.arrives("ann", big, of(Priority::Next), false);
    let ann = rig.arrives("ann", big, of(Priority::Now), false);
    let cyd = rig.arrives("cyd", big, of(Priority::Now), false);
    rig.ready(&SOCKET);
    let order: Vec<_> = (0..4)
        .map(|_| {
            let push = rig.pushed();
            rig.pass(2_000);
            ids(&push)[0]
        })
        .collect();
    assert_eq!(order, [2, ann.0, cyd.0, bob.0], "not before ann's own");
}

#[test]
fn a_repeat_that_waits_does_not_hold_up_what_is_urgent() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.arrives("ann", 12_000, of(Priority::Next), false);
    rig.pushed();
    rig.pass(10_000);
    rig.arrives("cyd", 12_000, of(Priority::Next), false);
    let push = rig.push();
    rig.arrives("ann", 12_000, of(Priority::Now), false);
    rig.ready(&CHANNEL);
    rig.outcome(&push, Outcome::Failed);
    assert_eq!(ids(&rig.push()), [3]);
}
