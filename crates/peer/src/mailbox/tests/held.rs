//! What the governor keeps out of the agent's sight.

use super::*;

/// A rig in which one reply may lead to a message, and did.
fn rig(paths: &[Path]) -> Rig {
    let mut rig = Rig::governed(Policy::Auto, Some(1), paths);
    anew(&mut rig);
    rig
}

/// The agent's user has it write to bob, and he answers.
fn anew(rig: &mut Rig) -> No {
    hops::sends(rig, Some("bob"), "q", 0);
    rig.arrive(Priority::Next)
}

/// The agent answers bob, and he answers that.
fn exchange(rig: &mut Rig) -> No {
    hops::sends(rig, Some("bob"), "q", 1);
    rig.arrive(Priority::Next)
}

#[test]
fn what_is_held_is_shown_by_nobody_and_all_three_are_told_once() {
    let mut rig = rig(&[]);
    let held = exchange(&mut rig);
    let reason = "paused: 2 replies led to this message of bob, budget 1 (the recipient's \
                  PEERBUS_BUDGET); after ten minutes of the recipient's silence the next message \
                  of bob, whatever its name then, brings it";
    let why = format!("{reason}; the recipient's agent can read it in its inbox");
    assert_eq!(rig.progress(), [(held, Stage::Held { why })]);
    assert_eq!(rig.warned(), [format!("mail of bob is {reason}")]);
    let notice = format!("mail of bob is {reason}; the bus inbox tool reads it");
    assert_eq!(rig.notices(), [notice]);
    let (held_now, why) = rig.mailbox.held();
    assert_eq!((held_now, why.as_deref()), (1, Some(reason)));
    exchange(&mut rig);
    assert_eq!((rig.warned().len(), rig.notices().len()), (0, 1));
    rig.ready(&SOCKET);
    let push = rig.pushed();
    assert_eq!(ids(&push), [1, 2], "and the notice");
    rig.answered(&push);
    rig.pass(3_600_000);
    assert_eq!(rig.wanted(), None);
    let along = rig.along(&HOOK);
    assert!(!along.is_some_and(|along| ids(&along).contains(&held.0)));
    assert_eq!(rig.named(held), Named::NotShown);
}

#[test]
fn what_is_held_is_read_and_gives_its_reason() {
    let mut rig = rig(&[]);
    let held = exchange(&mut rig);
    let listed = rig.mailbox.look();
    let reasons: Vec<_> = listed.iter().map(|one| one.held.is_some()).collect();
    assert_eq!(reasons, [false, true]);
    let read = rig.check_out(&[(held, Portion::All)]).unwrap();
    assert!(read.items[0].held.is_some() && !read.items[0].repeat);
    assert_eq!(rig.named(held), Named::NotShown, "not yet");
    rig.outcome(&read, Outcome::Written);
    assert_eq!(rig.mailbox.held().0, 0);
    rig.answered(&read);
    assert_eq!(rig.acked(), [(held, seen("inbox", "transcript"))]);
}

#[test]
fn what_was_held_and_given_back_is_held_again() {
    for (outcome, repeat) in [(Outcome::Failed, false), (Outcome::Doubtful, true)] {
        let mut rig = rig(&[&SOCKET]);
        rig.pushed();
        let held = exchange(&mut rig);
        let read = rig.check_out(&[(held, Portion::All)]).unwrap();
        rig.outcome(&read, outcome);
        assert_eq!(rig.mailbox.held().0, 1);
        rig.pass(3_600_000);
        let woken = rig.wanted();
        assert!(!woken.is_some_and(|push| ids(&push).contains(&held.0)));
        let read = rig.check_out(&[(held, Portion::All)]).unwrap();
        assert_eq!(repeats(&read), [repeat]);
    }
}

#[test]
fn what_was_held_starts_no_turn_after_it_was_read() {
    for outcome in [None, Some(Outcome::Doubtful)] {
        let mut rig = rig(&[&SOCKET, &CHANNEL]);
        let first = rig.pushed();
        rig.answered(&first);
        let held = exchange(&mut rig);
        let read = rig.check_out(&[(held, Portion::All)]).unwrap();
        rig.outcome(&read, Outcome::Written);
        if let Some(outcome) = outcome {
            rig.outcome(&read, outcome);
        }
        rig.pass(3_600_000);
        assert_eq!(rig.wanted(), None, "{outcome:?}");
        rig.arrive_from("ann", Priority::Next);
        let push = rig.push();
        let along = push.items.iter().find(|item| item.no == held).unwrap();
        assert!(along.repeat, "it goes along with the next");
    }
}

#[test]
fn what_is_released_keeps_its_place_and_starts_nothing() {
    let mut rig = rig(&[]);
    let held = exchange(&mut rig);
    let ann = rig.arrive_from("ann", Priority::Next);
    hops::sends(&mut rig, Some("bob"), "q", 0);
    let quiet = rig.arrive(Priority::Quiet);
    assert_eq!(rig.mailbox.held().0, 0, "another of his passed");
    let waits: Vec<_> = rig.mailbox.look().iter().map(|one| one.no).collect();
    assert_eq!(waits, [No(1), held, ann, quiet]);
    rig.ready(&SOCKET);
    assert_eq!(ids(&rig.push()), [1, 2, held.0, ann.0, quiet.0]);
}

#[test]
fn what_is_paused_of_a_renamed_peer_comes_with_its_next_message() {
    let mut rig = rig(&[&SOCKET]);
    let first = rig.pushed();
    rig.answered(&first);
    exchange(&mut rig);
    hops::sends(&mut rig, Some("bob"), "q9", 1);
    rig.pass(600_000);
    assert_eq!(rig.mailbox.sent_to_paused("BOB"), [""; 0], "it is known");
    assert_eq!(rig.mailbox.sent_to_paused("rob"), ["q9"], "the last");
    rig.arrive_from("ann", Priority::Quiet);
    assert_eq!(rig.mailbox.held().0, 1);
    let told = receipt("q9", "rob", Stage::Acked(None));
    rig.input(|mailbox, _| mailbox.learn_name(&told));
    assert_eq!(rig.mailbox.sent_to_paused("rob"), [""; 0]);
    assert_eq!(rig.mailbox.held().0, 1, "nothing of its has come");
    rig.arrive_from("rob", Priority::Quiet);
    assert_eq!(rig.mailbox.held().0, 0);
}

#[test]
fn a_new_name_is_no_way_around_a_pause() {
    let mut rig = rig(&[]);
    exchange(&mut rig);
    hops::sends(&mut rig, Some("bob"), "q9", 1);
    let told = receipt("q9", "rob", Stage::Acked(None));
    rig.input(|mailbox, _| mailbox.learn_name(&told));
    rig.arrive_from("rob", Priority::Next);
    assert_eq!(rig.mailbox.held().0, 2);
}

#[test]
fn of_a_peer_that_nothing_but_a_broadcast_went_to_the_name_is_all_that_is_known() {
    let mut rig = rig(&[]);
    hops::sends(&mut rig, None, "all", 1);
    rig.arrive_from("cyd", Priority::Next);
    let why = rig.mailbox.held().1.unwrap();
    assert!(why.ends_with("the next message of cyd brings it"), "{why}");
    assert_eq!(rig.mailbox.sent_to_paused("rob"), [""; 0]);
}

#[test]
fn what_is_being_read_when_it_is_released_is_not_held_again() {
    let mut rig = rig(&[]);
    let held = exchange(&mut rig);
    let read = rig.check_out(&[(held, Portion::All)]).unwrap();
    anew(&mut rig);
    rig.outcome(&read, Outcome::Failed);
    assert_eq!(rig.mailbox.held().0, 0);
}

#[test]
fn a_peer_that_is_held_fills_so_much_of_the_window_and_no_more() {
    let mut rig = rig(&[]);
    for _ in 0..40 {
        exchange(&mut rig);
    }
    assert_eq!(rig.mailbox.held().0, 32);
    let waits = rig.mailbox.waiting();
    assert_eq!(waits, 1 + 1 + 8, "a message, the notice and the oldest");
}

#[test]
fn without_a_budget_nothing_is_held_and_turns_are_not_counted() {
    for budget in [None, Some(1_001)] {
        let mut rig = Rig::governed(Policy::Auto, budget, &[&SOCKET]);
        for _ in 0..100 {
            exchange(&mut rig);
            let push = rig.pushed();
            rig.answered(&push);
            rig.pass(2_000);
        }
        assert_eq!(rig.mailbox.held().0, 0);
    }
}

#[test]
fn names_ids_and_times_stay_and_words_do_not_pass_for_one() {
    let time = "2026-01-01T00:00:00.123+02:00";
    assert_eq!(plain(time), time);
    assert_eq!(plain("now</x> \"do\" it"), "now__x___do__it");
    assert_eq!(plain(&"x".repeat(1_000)).len(), 128);
}
