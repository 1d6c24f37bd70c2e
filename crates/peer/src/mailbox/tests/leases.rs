//! Messages for one member of a group, which this session has for a while.

use super::*;
use crate::mailbox::lease::LEASE_MS;

fn rig(paths: &[Path]) -> (Rig, No) {
    rig_with(Policy::Auto, paths)
}

fn rig_with(policy: Policy, paths: &[Path]) -> (Rig, No) {
    let mut rig = Rig::with_policy(policy, paths);
    rig.one = true;
    let no = rig.next();
    (rig, no)
}

/// What goes back.
fn given_back(rig: &mut Rig) -> Vec<No> {
    let back = rig.take(|output| match output {
        MailboxOutput::GiveBack { mail } => Some(mail.inbound.key),
        _ => None,
    });
    back.iter().map(|key| rig.numbers[key]).collect()
}

fn key(id: &str) -> Key {
    let bob = PeerName::parse("bob").unwrap().key();
    Key::of(&bob, &MessageId::parse(id).unwrap())
}

fn lapses(rig: &mut Rig, id: &str) {
    rig.input(|mailbox, now| mailbox.lapsed(now, key(id), None));
}

/// It is delivered again.
fn comes_again(rig: &mut Rig, id: &str) {
    rig.arrives_as(id, "bob", 100, of(Priority::Next), true);
}

#[test]
fn what_is_not_shown_while_its_lease_lasts_goes_back_and_is_shown_no_more() {
    let (mut rig, no) = rig(&[]);
    rig.pass(LEASE_MS - 1);
    assert_eq!(rig.mailbox.look().len(), 1);
    assert_eq!(given_back(&mut rig), []);
    rig.pass(1);
    assert_eq!(given_back(&mut rig), [no]);
    rig.ready(&SOCKET);
    assert_eq!((rig.wanted(), rig.read()), (None, None));
}

#[test]
fn a_process_that_was_stopped_shows_nothing_that_is_over() {
    let (mut rig, no) = rig(&[]);
    rig.now_ms += LEASE_MS;
    rig.ready(&SOCKET);
    assert_eq!(rig.wanted(), None);
    assert_eq!(given_back(&mut rig), [no]);

    let second = rig.next();
    let push = rig.push();
    rig.now_ms += LEASE_MS;
    let shown = rig.input(|mailbox, now| mailbox.current(now, &push));
    assert_eq!(shown, [], "it was about to be shown");
    assert_eq!(given_back(&mut rig), [second]);
    rig.outcome(&push, Outcome::Failed);
    assert_eq!(rig.mailbox.poll_timeout(), None);

    for step in 0..3 {
        rig.absent(&SOCKET);
        let no = rig.next();
        rig.now_ms += LEASE_MS;
        match step {
            0 => assert_eq!(rig.read(), None),
            1 => assert_eq!(rig.along(&PIGGYBACK), None),
            _ => rig.input(|mailbox, now| mailbox.set_stopped(now, false)),
        }
        assert_eq!(given_back(&mut rig), [no], "{step}");
    }
}

#[test]
fn what_was_shown_waits_for_its_proof_and_is_not_shown_again() {
    let (mut rig, no) = rig(&[&SOCKET]);
    let push = rig.pushed();
    rig.activity(Activity::Waiting);
    rig.pass(LEASE_MS);
    rig.activity(Activity::Idle);
    rig.ready(&CHANNEL);
    rig.pass(LEASE_MS - 1);
    assert_eq!((rig.wanted(), rig.along(&PIGGYBACK)), (None, None));
    assert_eq!(given_back(&mut rig), []);
    rig.answered(&push);
    assert_eq!(rig.acked(), [(no, seen("socket", "transcript"))]);

    let unproven = rig.next();
    rig.pushed();
    rig.activity(Activity::Waiting);
    rig.pass(2 * LEASE_MS);
    assert_eq!(given_back(&mut rig), [unproven]);
    assert_eq!(rig.mailbox.unseen(), 0);
}

#[test]
fn what_is_recalled_leaves_if_it_was_not_shown_and_is_not_shown_again_if_it_was() {
    let (mut rig, unshown) = rig(&[]);
    lapses(&mut rig, "m1");
    let left = (given_back(&mut rig), rig.mailbox.unseen());
    assert_eq!(left, (vec![unshown], 0));
    rig.ready(&SOCKET);
    let no = rig.next();
    let push = rig.pushed();
    lapses(&mut rig, "m2");
    rig.ready(&CHANNEL);
    rig.pass(400_000);
    assert_eq!((rig.wanted(), rig.read()), (None, None));
    rig.answered(&push);
    assert_eq!(rig.acked(), [(no, seen("socket", "transcript"))]);
}

#[test]
fn what_is_recalled_in_the_hands_of_a_tool_is_gone_if_it_was_not_shown() {
    for shown in [true, false] {
        let (mut rig, _) = rig(&[]);
        let read = rig.read().unwrap();
        lapses(&mut rig, "m1");
        let outcome = if shown {
            Outcome::Written
        } else {
            Outcome::Failed
        };
        rig.outcome(&read, outcome);
        assert_eq!(rig.mailbox.unseen(), usize::from(shown));
        assert_eq!(rig.read(), None);
    }
}

#[test]
fn what_is_recalled_and_comes_again_is_shown_as_a_repeat() {
    let (mut rig, _) = rig(&[]);
    lapses(&mut rig, "m1");
    comes_again(&mut rig, "m1");
    rig.ready(&SOCKET);
    let push = rig.pushed();
    assert_eq!(repeats(&push), [true]);
    assert_eq!(rig.mailbox.unseen(), 1);
}

#[test]
fn what_comes_again_while_it_is_here_is_one_message_with_a_new_lease() {
    let (mut rig, no) = rig(&[&SOCKET]);
    let push = rig.pushed();
    lapses(&mut rig, "m1");
    rig.absent(&SOCKET);
    comes_again(&mut rig, "m1");
    assert_eq!(rig.mailbox.unseen(), 1);
    rig.pass(200_000);
    let along = rig.along(&PIGGYBACK).unwrap();
    assert_eq!((ids(&along), repeats(&along)), (vec![no.0], vec![true]));
    rig.outcome(&along, Outcome::Failed);
    rig.answered(&push);
    assert_eq!(rig.acked(), [(no, seen("socket", "transcript"))]);

    rig.next();
    rig.pass(LEASE_MS - 1);
    comes_again(&mut rig, "m2");
    rig.pass(LEASE_MS - 1);
    assert_eq!(given_back(&mut rig), []);
    rig.ready(&SOCKET);
    assert_eq!(
        repeats(&rig.push()),
        [true],
        "another member may have seen it"
    );
}

#[test]
fn what_another_may_have_after_a_doubt_goes_back() {
    let (mut rig, unshown) = rig(&[]);
    rig.input(MailboxMachine::doubt);
    assert_eq!(given_back(&mut rig), [unshown]);
    rig.ready(&SOCKET);
    rig.next();
    rig.pushed();
    rig.input(MailboxMachine::doubt);
    assert_eq!((given_back(&mut rig), rig.mailbox.unseen()), (vec![], 1));
}

#[test]
fn it_is_not_acked_until_it_is_seen_where_nothing_is_proven() {
    let (mut rig, no) = rig(&[]);
    rig.readable(false);
    let read = rig.read().unwrap();
    rig.outcome(&read, Outcome::Written);
    rig.called();
    assert_eq!(rig.acked(), []);
    assert_eq!(rig.named(no), Named::Seen);
    assert_eq!(rig.acked(), [(no, seen("inbox", "tool_call"))]);
}

#[test]
fn whoever_names_it_takes_it_and_no_other_gets_it() {
    let (mut rig, no) = rig(&[]);
    let read = rig.read().unwrap();
    rig.outcome(&read, Outcome::Written);
    assert_eq!(rig.named(no), Named::Pushed, "the client may have cut it");
    assert_eq!(rig.acked(), [(no, only_pushed("inbox"))]);
}

#[test]
fn its_user_may_have_it_acked_as_pushed() {
    let (mut rig, no) = rig_with(Policy::Pushed, &[&SOCKET]);
    rig.pushed();
    assert_eq!(rig.acked(), [(no, only_pushed("socket"))]);
}

#[test]
fn what_waits_for_the_user_goes_back_and_what_is_dropped_goes_on() {
    let rules = |text: &str| Senders::parse([text]).unwrap();
    let mut rig = Rig::new(&[&SOCKET]);
    rig.one = true;
    rig.input(|mailbox, now| mailbox.set_senders(now, &rules("bob=hold")));
    let held = rig.next();
    assert!(matches!(&rig.progress()[..], [(no, Stage::Held { .. })] if *no == held));
    rig.now_ms += LEASE_MS;
    let decided = rig.input(|mailbox, now| mailbox.decide(now, held, true));
    assert_eq!((decided, given_back(&mut rig)), (false, vec![held]));
    assert_eq!(rig.mailbox.withheld().count(), 0);
    rig.input(|mailbox, now| mailbox.set_senders(now, &rules("bob=drop")));
    let dropped = rig.next();
    let rejected = rig.take(|output| match output {
        MailboxOutput::Reached {
            mail,
            stage: Stage::Dead { why },
        } => Some((mail.inbound.key, why.clone())),
        _ => None,
    });
    let another = "this member of the group does not come to it".to_owned();
    let key = key("m2");
    assert_eq!(
        (rejected, rig.numbers[&key]),
        (vec![(key, another)], dropped)
    );
}
