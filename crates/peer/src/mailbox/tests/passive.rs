//! What hooks, results of tools and the agent's own reading get.

use super::*;

/// Something that shows text anyway, with little room.
const NARROW: PathSpec = PathSpec {
    word: "narrow",
    wakes: false,
    limit: Limit {
        messages: 9,
        bytes: 800,
    },
    ..PathSpec::waking(0)
};

#[test]
fn a_hook_gets_what_was_never_shown_once() {
    let mut rig = Rig::new(&[]);
    let message = rig.next();
    rig.arrive(Priority::Quiet);
    let handed = rig.along(&HOOK).unwrap();
    assert_eq!(
        (ids(&handed), repeats(&handed)),
        (vec![1, 2], vec![false; 2])
    );
    assert_eq!(rig.along(&HOOK), None, "it is on its way");
    assert_eq!(rig.along(&PIGGYBACK), None);
    rig.outcome(&handed, Outcome::Written);
    assert_eq!(rig.progress()[0], (message, went(HOOK.word)));
    assert_eq!(rig.along(&HOOK), None);
    assert_eq!(rig.along(&PIGGYBACK), None, "it waits for an answer");
    rig.presented(&handed);
    rig.answered(&handed);
    let how = seen("hook", "transcript");
    assert_eq!(rig.acked(), [(No(1), how.clone()), (No(2), how)]);
}

#[test]
fn a_handover_that_failed_was_none() {
    let mut rig = Rig::new(&[]);
    rig.next();
    let handed = rig.along(&HOOK).unwrap();
    rig.outcome(&handed, Outcome::Failed);
    let handed = rig.along(&HOOK).unwrap();
    assert_eq!(repeats(&handed), [false]);
}

#[test]
fn what_is_overdue_goes_once_over_each_passive_path_as_a_repeat() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.next();
    rig.pushed();
    assert_eq!(rig.along(&HOOK), None, "there is time yet");
    rig.pass(10_000);
    for path in [&HOOK, &PIGGYBACK] {
        let handed = rig.along(path).unwrap();
        assert_eq!(repeats(&handed), [true]);
        rig.outcome(&handed, Outcome::Written);
        rig.pass(10_000);
        assert_eq!(rig.along(path), None);
    }
}

#[test]
fn what_was_presented_is_overdue_after_two_idle_minutes() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.next();
    let push = rig.pushed();
    rig.presented(&push);
    rig.pass(119_999);
    assert_eq!(rig.along(&HOOK), None);
    rig.pass(1);
    assert!(rig.along(&HOOK).is_some());
}

#[test]
fn what_a_hook_showed_and_nobody_answered_climbs() {
    let mut rig = Rig::new(&[]);
    rig.next();
    let handed = rig.along(&HOOK).unwrap();
    rig.outcome(&handed, Outcome::Written);
    rig.ready(&CHANNEL);
    assert_eq!(rig.wanted(), None);
    rig.pass(10_000);
    assert_eq!(repeats(&rig.push()), [true]);
}

#[test]
fn new_ones_go_before_overdue_ones_and_stand_in_order_of_arrival() {
    let mut rig = Rig::new(&[&CHANNEL]);
    rig.next();
    rig.pushed();
    rig.pass(10_000);
    rig.absent(&CHANNEL);
    rig.next();
    rig.next();
    static TWO: PathSpec = PathSpec {
        word: "two",
        limit: Limit {
            messages: 2,
            bytes: 1_000,
        },
        ..NARROW
    };
    let handed = rig.along(&TWO);
    let handed = handed.unwrap();
    assert_eq!((ids(&handed), handed.rest), (vec![2, 3], 1));
    rig.outcome(&handed, Outcome::Failed);
    let handed = rig.along(&HOOK).unwrap();
    assert_eq!(
        (ids(&handed), repeats(&handed)),
        (vec![1, 2, 3], vec![true, false, false])
    );
}

#[test]
fn a_handover_keeps_to_its_limit_and_cuts_what_is_larger() {
    static SLIT: PathSpec = NARROW;
    let mut rig = Rig::new(&[]);
    rig.arrive_sized(Priority::Next, 900);
    rig.arrive_sized(Priority::Next, 10);
    let handed = rig.along(&SLIT).unwrap();
    assert_eq!(
        (ids(&handed), portions(&handed)),
        (vec![1], vec![Portion::Beginning])
    );
    static NONE: PathSpec = PathSpec {
        word: "none",
        limit: Limit {
            messages: 0,
            bytes: 800,
        },
        ..NARROW
    };
    rig.outcome(&handed, Outcome::Failed);
    assert_eq!(rig.along(&NONE), None);
}

#[test]
fn what_a_hook_is_about_to_show_is_not_overtaken_by_a_push() {
    let mut rig = Rig::new(&[]);
    rig.next();
    let handed = rig.along(&HOOK).unwrap();
    rig.ready(&SOCKET);
    rig.next();
    assert_eq!(rig.wanted(), None);
    rig.outcome(&handed, Outcome::Failed);
    assert_eq!(ids(&rig.push()), [1, 2]);
}

#[test]
fn what_a_client_took_and_threw_away_comes_again_as_a_repeat() {
    let mut rig = Rig::new(&[]);
    let message = rig.next();
    let handed = rig.along(&PIGGYBACK).unwrap();
    rig.outcome(&handed, Outcome::Written);
    rig.outcome(&handed, Outcome::Doubtful);
    let again = rig.along(&PIGGYBACK).unwrap();
    assert_eq!(
        (ids(&again), repeats(&again)),
        (vec![message.0], vec![true])
    );
}

#[test]
fn a_hook_does_not_overtake_a_push_of_the_same_sender_that_its_client_has() {
    let mut rig = Rig::new(&[&REWAKE]);
    rig.next();
    let first = rig.pushed();
    rig.next();
    let other = rig.arrive_from("cyd", Priority::Next);
    let along = rig.along(&HOOK).expect("another sender's");
    assert_eq!(along.items[0].no, other);
    assert_eq!(along.items.len(), 1);
    rig.outcome(&along, Outcome::Failed);
    rig.presented(&first);
    let along = rig.along(&HOOK).expect("both");
    assert_eq!(along.items.len(), 2);
}

#[test]
fn what_is_urgent_goes_first_behind_any_number_of_others() {
    let mut rig = Rig::new(&[]);
    for _ in 0..300 {
        rig.arrives("eve", 100, of(Priority::Quiet), false);
    }
    let urgent = rig.arrive_from("alice", Priority::Now);
    assert_eq!(rig.mailbox.look()[0].no, urgent);
    for path in [&PIGGYBACK, &HOOK] {
        let along = rig.along(path).unwrap();
        assert_eq!(ids(&along)[..3], [urgent.0, 1, 2]);
        rig.outcome(&along, Outcome::Failed);
    }
    let read = rig.check_out(&[(No(1), Portion::All), (urgent, Portion::All)]);
    assert_eq!(ids(&read.unwrap()), [urgent.0, 1]);
}

#[test]
fn what_is_held_does_not_go_first() {
    let mut rig = Rig::governed(Policy::Auto, Some(0), &[]);
    rig.input(|mailbox, now| mailbox.sent(now, Some(&key_of("bob")), "q", 0));
    rig.arrive_from("alice", Priority::Next);
    let held = rig.arrive(Priority::Now);
    assert_eq!(rig.mailbox.held().0, 1);
    assert_eq!(
        rig.mailbox.look().last().map(|listed| listed.no),
        Some(held)
    );
}

#[test]
fn a_text_with_images_goes_by_a_push_and_into_no_result() {
    let mut rig = Rig::new(&[]);
    rig.images = vec![Image {
        media_type: "image/png",
        data: "iVBORw0KGgo=".to_owned(),
    }];
    rig.arrives(HERE, 100, Conversation::default(), false);
    for path in [&HOOK, &PIGGYBACK] {
        assert_eq!(rig.along(path), None);
    }
    assert_eq!(rig.read(), None);
    rig.ready(&SOCKET);
    let content = &rig.pushed().items[0].content;
    assert_eq!(content.mail().map(|mail| mail.images.len()), Some(1));
}

#[test]
fn what_the_client_says_of_its_model_is_proof_but_not_of_a_text_that_a_hook_carried() {
    let mut rig = Rig::new(&[&SOCKET]);
    let message = rig.next();
    let push = rig.pushed();
    rig.input(|mailbox, now| mailbox.model_called(now, push.id));
    assert_eq!(rig.acked(), [(message, seen("socket", "model_call"))]);

    let by_hooks: [Path; 2] = [&REWAKE, &HOOK];
    for path in by_hooks {
        let ready: Vec<_> = [path].into_iter().filter(|it| it.wakes).collect();
        let mut rig = Rig::new(&ready);
        let message = rig.next();
        let shown = match path.wakes {
            true => rig.pushed(),
            false => rig.along(path).unwrap(),
        };
        rig.outcome(&shown, Outcome::Written);
        rig.progress();
        rig.input(|mailbox, now| mailbox.shown_by_program(now, shown.id));
        assert_eq!(rig.progress(), [], "{}", path.word);
        rig.input(|mailbox, now| mailbox.model_called(now, shown.id));
        assert_eq!(rig.acked(), [], "{}", path.word);
        rig.answered(&shown);
        assert_eq!(rig.acked(), [(message, seen(path.word, "transcript"))]);
    }
}
