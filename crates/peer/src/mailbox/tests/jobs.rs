//! Messages for one member of a group, which this session has for a while.

use super::*;
use crate::session::JobNews;

fn rig(paths: &[Path]) -> (Rig, No) {
    rig_with(Policy::Auto, paths)
}

fn rig_with(policy: Policy, paths: &[Path]) -> (Rig, No) {
    let mut rig = Rig::with_policy(policy, paths);
    rig.job = true;
    let no = rig.next();
    (rig, no)
}

/// What goes back, and whether it may have been shown.
fn given_back(rig: &mut Rig) -> Vec<(No, bool)> {
    let back = rig.take(|output| match output {
        MailboxOutput::GiveBack { mail, again } => Some((mail.inbound.key, *again)),
        _ => None,
    });
    let numbered = back
        .into_iter()
        .map(|(key, again)| (rig.numbers[&key], again));
    numbered.collect()
}

fn key(id: &str) -> Key {
    let bob = PeerName::parse("bob").unwrap().key();
    Key::of(&bob, &MessageId::parse(id).unwrap())
}

fn recall(rig: &mut Rig) {
    news(rig, "m1", JobNews::Recalled);
}

fn news(rig: &mut Rig, id: &str, news: JobNews) {
    rig.input(|mailbox, now| mailbox.job(now, key(id), news));
}

#[test]
fn what_nobody_was_shown_goes_back_as_new_and_is_shown_no_more() {
    let (mut rig, no) = rig(&[]);
    recall(&mut rig);
    assert_eq!(given_back(&mut rig), [(no, false)]);
    rig.ready(&SOCKET);
    assert_eq!((rig.wanted(), rig.read()), (None, None));
    recall(&mut rig);
    assert_eq!(given_back(&mut rig), [], "it is gone");
}

#[test]
fn what_was_shown_or_is_being_shown_goes_back_as_such() {
    for step in 0..3 {
        let (mut rig, no) = rig(&[&SOCKET]);
        let push = rig.push();
        match step {
            0 => {}
            1 => rig.outcome(&push, Outcome::Written),
            _ => {
                rig.outcome(&push, Outcome::Written);
                rig.presented(&push);
            }
        }
        recall(&mut rig);
        assert_eq!(given_back(&mut rig), [(no, true)], "{step}");
        rig.outcome(&push, Outcome::Written);
        rig.answered(&push);
        assert_eq!(rig.acked(), [], "{step}");
    }
}

#[test]
fn what_is_held_and_read_just_now_goes_back_as_perhaps_shown() {
    let mut rig = Rig::governed(Policy::Auto, Some(1), &[]);
    rig.job = true;
    let talk = Conversation {
        hops: 1_000,
        ..Conversation::default()
    };
    let no = rig.arrives("bob", 10, talk, false);
    assert!(rig.read().is_some());
    recall(&mut rig);
    assert_eq!(given_back(&mut rig), [(no, true)]);
}

#[test]
fn what_was_seen_before_is_acked_and_does_not_go_back() {
    let (mut rig, no) = rig(&[&SOCKET]);
    let push = rig.pushed();
    rig.answered(&push);
    recall(&mut rig);
    assert_eq!(rig.acked(), [(no, seen("socket", "transcript"))]);
    assert_eq!(given_back(&mut rig), []);
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
fn its_user_may_have_it_acked_as_pushed() {
    let (mut rig, no) = rig_with(Policy::Pushed, &[&SOCKET]);
    rig.pushed();
    let how = How::Pushed {
        path: "socket".into(),
    };
    assert_eq!(rig.acked(), [(no, how)]);
}

#[test]
fn after_a_new_connection_what_was_not_shown_waits_for_word() {
    let (mut rig, shown) = rig(&[&SOCKET]);
    let push = rig.pushed();
    assert_eq!(ids(&push), [shown.0]);
    rig.activity(Activity::Busy);
    rig.absent(&SOCKET);
    let unshown = rig.next();
    for id in ["m1", "m2"] {
        news(&mut rig, id, JobNews::Doubted);
    }
    rig.answered(&push);
    assert_eq!(rig.acked().len(), 1, "what was shown stays");
    rig.activity(Activity::Idle);
    rig.ready(&SOCKET);
    assert_eq!((rig.wanted(), rig.read()), (None, None));
    news(&mut rig, "m2", JobNews::Renewed { again: true });
    news(&mut rig, "m2", JobNews::Doubted);
    assert_eq!((rig.wanted(), rig.read()), (None, None), "each time anew");
    news(&mut rig, "m2", JobNews::Renewed { again: true });
    rig.pass(10_000);
    assert_eq!(ids(&rig.push()), [unshown.0]);

    // One that is another's by now goes in the end.
    rig.absent(&SOCKET);
    let gone = rig.next();
    news(&mut rig, "m3", JobNews::Doubted);
    assert_eq!(given_back(&mut rig), []);
    news(&mut rig, "m3", JobNews::Doubted);
    assert_eq!(given_back(&mut rig), [(gone, false)]);
}

#[test]
fn what_waits_for_the_user_goes_back_and_what_is_dropped_goes_on() {
    let rules = |text: &str| Senders::parse([text]).unwrap();
    let mut rig = Rig::new(&[&SOCKET]);
    rig.job = true;
    rig.input(|mailbox, now| mailbox.set_senders(now, &rules("bob=hold")));
    let held = rig.next();
    assert!(matches!(&rig.progress()[..], [(no, Stage::Held { .. })] if *no == held));
    recall(&mut rig);
    assert_eq!(given_back(&mut rig), [(held, false)]);
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

#[test]
fn what_waits_for_the_user_over_a_new_connection_is_shown_once_there_is_word() {
    let rules = Senders::parse(["bob=hold"]).unwrap();
    let mut rig = Rig::new(&[&SOCKET]);
    rig.job = true;
    rig.input(|mailbox, now| mailbox.set_senders(now, &rules));
    let held = rig.next();
    news(&mut rig, "m1", JobNews::Doubted);
    rig.input(|mailbox, now| assert!(mailbox.decide(now, held, true)));
    rig.ready(&SOCKET);
    assert_eq!((rig.wanted(), rig.read()), (None, None));
    news(&mut rig, "m1", JobNews::Renewed { again: true });
    let push = rig.push();
    assert_eq!(ids(&push), [held.0]);
    assert!(push.items[0].repeat, "another member was shown it");

    let gone = rig.next();
    news(&mut rig, "m2", JobNews::Doubted);
    assert_eq!(given_back(&mut rig), []);
    news(&mut rig, "m2", JobNews::Doubted);
    assert_eq!(given_back(&mut rig), [(gone, false)]);
    assert_eq!(rig.mailbox.withheld().count(), 0);
}
