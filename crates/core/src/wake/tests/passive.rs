//! What hooks, results of tools and the agent's own reading get.

use super::*;

#[test]
fn a_hook_gets_what_was_never_shown_once() {
    let mut rig = Rig::new(&[]);
    let entry = rig.next();
    rig.arrive(Priority::Quiet);
    let handed = rig.hand_over(Path::Hook).unwrap();
    assert_eq!(
        (ids(&handed), repeats(&handed)),
        (vec![1, 2], vec![false; 2])
    );
    assert_eq!(rig.hand_over(Path::Hook), None, "it is on its way");
    assert_eq!(rig.hand_over(Path::Piggyback), None);
    rig.told(&handed, Outcome::Written);
    assert_eq!(rig.steps()[0], (entry, Step::Pushed(Path::Hook)));
    assert_eq!(rig.hand_over(Path::Hook), None);
    assert_eq!(
        rig.hand_over(Path::Piggyback),
        None,
        "it waits for an answer"
    );
    rig.presented(&handed);
    rig.answered(&handed);
    let how = seen("hook", "transcript");
    assert_eq!(
        rig.settled(),
        [(EntryId(1), how.clone()), (EntryId(2), how)]
    );
}

#[test]
fn a_handover_that_failed_was_none() {
    let mut rig = Rig::new(&[]);
    rig.next();
    let handed = rig.hand_over(Path::Hook).unwrap();
    rig.told(&handed, Outcome::Failed);
    let handed = rig.hand_over(Path::Hook).unwrap();
    assert_eq!(repeats(&handed), [false]);
}

#[test]
fn what_is_overdue_goes_once_over_each_passive_path_as_a_repeat() {
    let mut rig = Rig::new(&[Path::Socket]);
    rig.next();
    rig.pushed();
    assert_eq!(rig.hand_over(Path::Hook), None, "there is time yet");
    rig.pass(10_000);
    for path in [Path::Hook, Path::Piggyback] {
        let handed = rig.hand_over(path).unwrap();
        assert_eq!(repeats(&handed), [true]);
        rig.told(&handed, Outcome::Written);
        rig.pass(10_000);
        assert_eq!(rig.hand_over(path), None);
    }
}

#[test]
fn what_was_presented_is_overdue_after_two_idle_minutes() {
    let mut rig = Rig::new(&[Path::Socket]);
    rig.next();
    let push = rig.pushed();
    rig.presented(&push);
    rig.pass(119_999);
    assert_eq!(rig.hand_over(Path::Hook), None);
    rig.pass(1);
    assert!(rig.hand_over(Path::Hook).is_some());
}

#[test]
fn what_a_hook_showed_and_nobody_answered_climbs() {
    let mut rig = Rig::new(&[]);
    rig.next();
    let handed = rig.hand_over(Path::Hook).unwrap();
    rig.told(&handed, Outcome::Written);
    rig.ready(Path::Channel);
    assert_eq!(rig.wanted(), None);
    rig.pass(10_000);
    assert_eq!(repeats(&rig.push()), [true]);
}

#[test]
fn new_ones_go_before_overdue_ones_and_stand_in_order_of_arrival() {
    let mut rig = Rig::new(&[Path::Channel]);
    rig.next();
    rig.pushed();
    rig.pass(10_000);
    rig.absent(Path::Channel);
    rig.next();
    rig.next();
    let two = Limit {
        entries: 2,
        bytes: 1_000,
    };
    let handed = rig.input(|ladder, now| ladder.hand_over(now, Path::Hook, two));
    let handed = handed.unwrap();
    assert_eq!((ids(&handed), handed.rest), (vec![2, 3], 1));
    rig.told(&handed, Outcome::Failed);
    let handed = rig.hand_over(Path::Hook).unwrap();
    assert_eq!(
        (ids(&handed), repeats(&handed)),
        (vec![1, 2, 3], vec![true, false, false])
    );
}

#[test]
fn a_handover_keeps_to_its_limit_and_cuts_what_is_larger() {
    let mut rig = Rig::new(&[]);
    rig.arrive_sized(Priority::Next, 900);
    rig.arrive_sized(Priority::Next, 10);
    let limit = Limit {
        entries: 9,
        bytes: 800,
    };
    let handed = rig.input(|ladder, now| ladder.hand_over(now, Path::Hook, limit));
    let handed = handed.unwrap();
    assert_eq!((ids(&handed), handed.items[0].whole), (vec![1], false));
    let none = Limit {
        entries: 0,
        bytes: 800,
    };
    rig.told(&handed, Outcome::Failed);
    assert_eq!(
        rig.input(|ladder, now| ladder.hand_over(now, Path::Hook, none)),
        None
    );
}

#[test]
fn reading_shows_everything_and_settles_it_when_the_result_left() {
    let mut rig = Rig::new(&[Path::Channel]);
    let first = rig.next();
    rig.pushed();
    let second = rig.next();
    let quiet = rig.arrive(Priority::Quiet);
    let read = rig.read().unwrap();
    assert_eq!(
        (ids(&read), repeats(&read)),
        (vec![1, 2, 3], vec![true, false, false])
    );
    assert_eq!(rig.settled(), []);
    rig.pass(60_000);
    assert_eq!(rig.wanted(), None, "it is being read");
    rig.told(&read, Outcome::Written);
    let how = seen("inbox", "tool_result");
    let all = [first, second, quiet].map(|id| (id, how.clone()));
    assert_eq!(rig.settled(), all);
    assert_eq!(rig.read(), None);
}

#[test]
fn a_read_that_was_not_delivered_settles_nothing() {
    let mut rig = Rig::new(&[Path::Channel]);
    rig.absent(Path::Channel);
    rig.next();
    let read = rig.read().unwrap();
    rig.told(&read, Outcome::Failed);
    assert_eq!(rig.settled(), []);
    rig.ready(Path::Channel);
    assert_eq!(repeats(&rig.push()), [false], "the agent did not get it");
}

#[test]
fn only_some_can_be_read() {
    let mut rig = Rig::new(&[]);
    for _ in 0..3 {
        rig.next();
    }
    let only = [EntryId(3), EntryId(1), EntryId(77)];
    let read = rig.input(|ladder, now| ladder.read(now, Path::Drain, Some(&only), ROOM));
    let read = read.unwrap();
    assert_eq!(ids(&read), [1, 3]);
    rig.told(&read, Outcome::Written);
    let how = seen("drain", "tool_result");
    assert_eq!(
        rig.settled(),
        [(EntryId(1), how.clone()), (EntryId(3), how)]
    );
    assert_eq!(rig.ladder.waiting(), 1);
}

#[test]
fn what_a_hook_is_about_to_show_is_not_overtaken_by_a_push() {
    let mut rig = Rig::new(&[]);
    rig.next();
    let handed = rig.hand_over(Path::Hook).unwrap();
    rig.ready(Path::Socket);
    rig.next();
    assert_eq!(rig.wanted(), None);
    rig.told(&handed, Outcome::Failed);
    assert_eq!(ids(&rig.push()), [1, 2]);
}

#[test]
fn what_a_client_took_and_threw_away_comes_again_as_a_repeat() {
    let mut rig = Rig::new(&[]);
    let entry = rig.next();
    let handed = rig.hand_over(Path::Piggyback).unwrap();
    rig.told(&handed, Outcome::Written);
    rig.told(&handed, Outcome::Doubtful);
    let again = rig.hand_over(Path::Piggyback).unwrap();
    assert_eq!((ids(&again), repeats(&again)), (vec![entry.0], vec![true]));
}
