//! Requests that the agent has read, and how it is reminded of them.

use super::*;
use crate::mailbox::owed::OWED_MAX;
use crate::mailbox::recent::RECENT_MAX;

const HOUR_MS: u64 = 3_600_000;

/// An idle session that a socket wakes, and what it is asked for within an hour.
fn rig() -> Rig {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.within_ms = HOUR_MS;
    rig
}

/// The push that is wanted now is answered in a turn.
fn answers(rig: &mut Rig) -> Attempt {
    let push = rig.pushed();
    rig.activity(Activity::Busy);
    rig.answered(&push);
    rig.activity(Activity::Idle);
    push
}

/// A request of this peer's is read. Gives its id.
fn asked(rig: &mut Rig, from: &str) -> String {
    let id = format!("m{}", rig.next);
    rig.arrive_from(from, Priority::Next);
    rig.pass(2_000);
    answers(rig);
    id
}

fn owed(rig: &Rig) -> Vec<String> {
    let owed = rig.mailbox.owed().map(|owed| &owed.mail.inbound);
    owed.map(|of| format!("{} {}", of.from, of.id)).collect()
}

/// The agent's turn with a reminder: what it was told.
fn reminded(rig: &mut Rig) -> Option<String> {
    let push = rig.wanted()?;
    rig.outcome(&push, Outcome::Written);
    rig.activity(Activity::Busy);
    rig.answered(&push);
    rig.activity(Activity::Idle);
    let [item] = &push.items[..] else {
        panic!("{push:?}")
    };
    match &item.content {
        Content::Notice { sentence, .. } => Some(sentence.to_string()),
        Content::Mail(mail) => panic!("{mail:?} is no reminder"),
    }
}

fn answered(rig: &mut Rig, from: &str, id: &str) {
    rig.input(|mailbox, now| mailbox.answered_request(now, from, id));
}

fn works() -> Stage {
    let said = "half way".into();
    Stage::Working { said }
}

fn declines() -> Stage {
    let why = "no".into();
    Stage::Declined { why }
}

/// What the agent says of a request.
fn says(rig: &mut Rig, id: &str, from: Option<&str>, stage: Stage) -> Result<(), NotOwed> {
    rig.input(|mailbox, now| mailbox.says_of(now, (id, from), stage))
}

#[test]
fn a_request_is_owed_from_its_ack_to_its_answer() {
    let mut rig = rig();
    rig.arrive_from("ann", Priority::Next);
    assert_eq!(owed(&rig), [""; 0], "it is not read");
    let push = rig.pushed();
    rig.presented(&push);
    assert_eq!(owed(&rig), [""; 0]);
    rig.answered(&push);
    rig.within_ms = 0;
    asked(&mut rig, "cyd");
    assert_eq!(owed(&rig), ["ann m1"], "nothing else is owed");
    answered(&mut rig, "cyd", "m1");
    answered(&mut rig, "ann", "m2");
    assert_eq!(owed(&rig), ["ann m1"]);
    answered(&mut rig, "Ann", "m1");
    assert_eq!(owed(&rig), [""; 0]);
}

#[test]
fn what_is_acked_without_proof_is_owed_as_well_and_local_texts_are_not() {
    let mut rig = Rig::with_policy(Policy::Pushed, &[&SOCKET]);
    rig.within_ms = HOUR_MS;
    rig.arrives(HERE, 10, Conversation::default(), false);
    rig.pushed();
    rig.pass(10_000);
    rig.next();
    rig.pushed();
    assert_eq!(owed(&rig), ["bob m2"]);
}

#[test]
fn what_is_answered_before_it_is_acked_is_never_owed() {
    let mut rig = rig();
    rig.next();
    let push = rig.pushed();
    answered(&mut rig, "bob", "m1");
    rig.answered(&push);
    assert_eq!((rig.acked().len(), owed(&rig).len()), (1, 0));
}

#[test]
fn its_time_ends_it_and_no_more_than_the_broker_allows_are_kept() {
    let mut rig = rig();
    asked(&mut rig, "ann");
    let first = rig.mailbox.owed().next().unwrap();
    assert_eq!(first.until_ms - rig.now_ms, HOUR_MS - 2_000);
    assert_eq!((first.since_ms, &first.said), (rig.now_ms, &None));
    rig.activity(Activity::Busy);
    rig.pass(HOUR_MS - 2_001);
    assert_eq!(owed(&rig).len(), 1);
    rig.pass(1);
    assert_eq!(owed(&rig), [""; 0]);
    rig.activity(Activity::Idle);
    rig.pass(HOUR_MS);
    assert_eq!(rig.wanted(), None);
    for _ in 0..OWED_MAX + 3 {
        asked(&mut rig, "ann");
    }
    assert_eq!((owed(&rig).len(), &*owed(&rig)[0]), (OWED_MAX, "ann m5"));
}

#[test]
fn an_idle_session_is_reminded_after_a_minute_and_after_ten_and_no_more() {
    let mut rig = rig();
    asked(&mut rig, "ann");
    rig.pass(59_999);
    assert_eq!(reminded(&mut rig), None);
    rig.pass(1);
    let sentence = reminded(&mut rig).unwrap();
    assert_eq!(
        sentence,
        "You still owe ann an answer to \"say \\\"hi\\\"\" (m1): answer with the bus reply tool, or say \
         with it that you cannot"
    );
    rig.pass(599_999);
    assert_eq!(reminded(&mut rig), None);
    rig.pass(1);
    assert_eq!(reminded(&mut rig), Some(sentence));
    rig.pass(HOUR_MS / 2);
    assert_eq!((reminded(&mut rig), rig.notices()), (None, vec![]));
    assert_eq!(owed(&rig), ["ann m1"]);
}

#[test]
fn all_that_is_due_stands_in_one_line() {
    let mut rig = rig();
    asked(&mut rig, "ann");
    rig.pass(30_000);
    asked(&mut rig, "cyd");
    rig.pass(60_000);
    let sentence = reminded(&mut rig).unwrap();
    let both = "ann an answer to \"say \\\"hi\\\"\" (m1), and cyd an answer to";
    assert!(sentence.contains(both), "{sentence}");
    asked(&mut rig, "bob");
    rig.pass(60_000);
    let sentence = reminded(&mut rig).unwrap();
    assert!(sentence.starts_with("You still owe bob"), "{sentence}");
}

#[test]
fn a_session_that_works_or_waits_for_its_user_is_not_reminded() {
    for activity in [Activity::Busy, Activity::Waiting, Activity::Unknown] {
        let mut rig = rig();
        asked(&mut rig, "ann");
        rig.pass(50_000);
        rig.activity(activity);
        rig.pass(HOUR_MS / 2);
        assert_eq!(
            (rig.wanted(), rig.notices()),
            (None, vec![]),
            "{activity:?}"
        );
        rig.activity(Activity::Idle);
        rig.pass(59_999);
        assert_eq!(rig.wanted(), None, "{activity:?}: it is idle anew");
        rig.pass(1);
        assert!(reminded(&mut rig).is_some(), "{activity:?}");
    }
}

#[test]
fn a_reminder_that_has_not_left_waits_until_the_session_is_idle_again() {
    let mut rig = rig();
    asked(&mut rig, "ann");
    rig.pass(60_000);
    let push = rig.push();
    rig.activity(Activity::Waiting);
    assert_eq!(rig.input(|it, now| it.current(now, &push)), []);
    rig.outcome(&push, Outcome::Failed);
    rig.ready(&CHANNEL);
    rig.pass(HOUR_MS / 4);
    assert_eq!((rig.wanted(), rig.along(&PIGGYBACK)), (None, None));
    rig.activity(Activity::Idle);
    assert!(reminded(&mut rig).is_some());
}

#[test]
fn who_cannot_be_woken_gets_it_with_what_is_shown_next() {
    let mut rig = rig();
    asked(&mut rig, "ann");
    rig.absent(&SOCKET);
    rig.pass(60_000);
    assert_eq!(rig.wanted(), None);
    rig.activity(Activity::Busy);
    let along = rig.along(&PIGGYBACK).unwrap();
    rig.outcome(&along, Outcome::Written);
    assert_eq!((along.items.len(), rig.notices().len()), (1, 0));
}

#[test]
fn a_reminder_is_shown_once_whatever_comes_of_it() {
    for outcome in [Outcome::Written, Outcome::Doubtful, Outcome::Denied] {
        let mut rig = rig();
        asked(&mut rig, "ann");
        rig.pass(60_000);
        let push = rig.push();
        rig.outcome(&push, outcome);
        rig.ready(&CHANNEL);
        rig.pass(500_000);
        assert_eq!((rig.wanted(), rig.notices()), (None, vec![]), "{outcome:?}");
    }
}

#[test]
fn what_was_answered_meanwhile_is_not_reminded_of() {
    for all in [true, false] {
        let mut rig = rig();
        asked(&mut rig, "ann");
        asked(&mut rig, "cyd");
        rig.absent(&SOCKET);
        rig.pass(60_000);
        assert_eq!(rig.notices().len(), 1);
        answered(&mut rig, "ann", "m1");
        if all {
            answered(&mut rig, "cyd", "m2");
        }
        rig.ready(&SOCKET);
        let sentence = reminded(&mut rig);
        assert_eq!(sentence.is_none(), all, "{sentence:?}");
        let left = sentence.is_none_or(|it| it.starts_with("You still owe cyd"));
        assert!(left, "the other is due as before");
    }
    let mut rig = rig();
    asked(&mut rig, "ann");
    rig.pass(60_000);
    let push = rig.push();
    answered(&mut rig, "ann", "m1");
    let shown = rig.input(|it, now| it.current(now, &push));
    assert_eq!(shown, [], "it was about to be shown");
}

#[test]
fn who_works_at_it_says_so_and_is_left_alone_for_a_while() {
    let mut rig = rig();
    asked(&mut rig, "ann");
    assert_eq!(says(&mut rig, "m1", None, works()), Ok(()));
    assert_eq!(rig.progress().pop(), Some((No(1), works())));
    let first = rig.mailbox.owed().next().unwrap();
    assert_eq!(first.said.as_deref(), Some("half way"));
    rig.pass(599_999);
    assert_eq!(reminded(&mut rig), None);
    rig.pass(1);
    assert!(reminded(&mut rig).is_some());
}

#[test]
fn what_is_said_of_a_request_before_the_conversation_shows_it_is_told_once_it_does() {
    let mut rig = rig();
    rig.arrive_from("ann", Priority::Next);
    let push = rig.pushed();
    assert_eq!(rig.named(No(1)), Named::Awaited);
    assert_eq!(says(&mut rig, "m1", None, works()), Ok(()));
    let told = |rig: &mut Rig| rig.progress().contains(&(No(1), works()));
    assert!(!told(&mut rig) && owed(&rig).is_empty());
    rig.answered(&push);
    assert!(told(&mut rig));
    assert_eq!(owed(&rig), ["ann m1"]);
    let said = rig.mailbox.owed().next().unwrap().said.clone();
    assert_eq!(said.as_deref(), Some("half way"));

    rig.arrive_from("ann", Priority::Next);
    rig.pass(2_000);
    let push = rig.pushed();
    rig.named(No(2));
    answered(&mut rig, "ann", "m2");
    rig.acked();
    assert!(
        !rig.mailbox.look()[0].mail.is_request(),
        "it has its answer"
    );
    rig.answered(&push);
    assert_eq!(rig.acked(), [(No(2), seen("socket", "transcript"))]);
    assert_eq!(owed(&rig), ["ann m1"], "it has its answer");
}

/// A governed session that owes ann an answer, and that her mail woke so often.
fn woken(times: u32) -> Rig {
    let mut rig = Rig::governed(Policy::Auto, Some(1_000), &[&SOCKET]);
    rig.within_ms = HOUR_MS;
    asked(&mut rig, "ann");
    rig.within_ms = 0;
    for _ in 1..times {
        asked(&mut rig, "ann");
    }
    rig
}

#[test]
fn a_reminder_is_a_turn_that_peers_start() {
    let mut rig = woken(30);
    rig.pass(500_000);
    assert_eq!((reminded(&mut rig), rig.notices()), (None, vec![]));
    assert_eq!(rig.warned(), [""; 0]);
    rig.pass(100_000);
    assert!(reminded(&mut rig).is_some());

    let mut rig = woken(29);
    rig.pass(60_000);
    assert!(reminded(&mut rig).is_some());
    rig.arrive_from("ann", Priority::Next);
    rig.pass(100_000);
    assert_eq!(rig.wanted(), None, "it was one of thirty");
}

#[test]
fn its_user_may_have_no_reminders() {
    let mut rig = rig();
    rig.input(|it, now| it.set_remind(now, false));
    asked(&mut rig, "ann");
    rig.pass(HOUR_MS / 2);
    assert_eq!((rig.wanted(), rig.notices()), (None, vec![]));
    assert_eq!(owed(&rig), ["ann m1"]);
}

#[test]
fn a_request_is_declined_before_or_after_it_was_read() {
    let mut rig = rig();
    rig.within_ms = 0;
    rig.absent(&SOCKET);
    rig.next();
    rig.within_ms = HOUR_MS;
    let unread = rig.next();
    let says_no = |rig: &mut Rig, id| says(rig, id, None, declines());
    let unknown = Err(NotOwed::Unknown);
    assert_eq!(says_no(&mut rig, "m1"), unknown, "a message");
    assert_eq!(says_no(&mut rig, "m2"), Ok(()));
    let declined = |stage: &Stage| *stage == declines();
    assert_eq!(rig.ended(declined), [unread]);
    assert_eq!(rig.mailbox.unseen(), 1);
    rig.ready(&SOCKET);
    answers(&mut rig);
    asked(&mut rig, "ann");
    assert_eq!(says_no(&mut rig, "m3"), Ok(()));
    assert_eq!((rig.ended(declined).len(), owed(&rig).len()), (1, 0));
    assert_eq!(says_no(&mut rig, "m3"), unknown, "once");
}

#[test]
fn which_request_is_meant_is_said_where_several_senders_used_an_id() {
    let mut rig = rig();
    for from in ["ann", "cyd"] {
        rig.arrives_as("x", from, 10, Conversation::default(), false);
        rig.pass(2_000);
        answers(&mut rig);
    }
    let works = |rig: &mut Rig, from| says(rig, "x", from, works());
    assert_eq!(works(&mut rig, None), Err(NotOwed::Several));
    assert_eq!(works(&mut rig, Some("Ann")), Ok(()));
    assert_eq!(works(&mut rig, Some("bob")), Err(NotOwed::Unknown));
    answered(&mut rig, "ann", "x");
    assert_eq!(owed(&rig), ["cyd x"]);
    assert_eq!(works(&mut rig, None), Ok(()));
}

#[test]
fn who_knows_a_request_is_told_once_that_it_is_taken_back() {
    let mut rig = rig();
    let keys = |rig: &Rig| rig.numbers.keys().copied().collect::<Vec<_>>();
    rig.arrive_from("ann", Priority::Next);
    let key = keys(&rig)[0];
    let lapses = |it: &mut MailboxMachine, now| it.lapsed(now, key, Some("its \"asker\" left"));
    let push = rig.pushed();
    rig.input(lapses);
    rig.answered(&push);
    let told = "the request \"say \\\"hi\\\"\" of ann (m1) is not yours any more: \"its \\\"asker\\\" left\"";
    assert_eq!(rig.notices(), [told]);
    assert_eq!(owed(&rig), [""; 0], "its ack reached nobody");
    rig.input(lapses);
    assert_eq!(rig.notices().len(), 1, "once");

    let mut rig = self::rig();
    asked(&mut rig, "ann");
    rig.input(lapses);
    assert_eq!(
        (rig.notices(), owed(&rig).len()),
        (vec![told.to_owned()], 0)
    );
    rig.pass(HOUR_MS / 2);
    assert_eq!(rig.wanted(), None, "it starts nothing");

    let mut rig = Rig::new(&[]);
    rig.within_ms = HOUR_MS;
    rig.arrive_from("ann", Priority::Next);
    rig.input(lapses);
    assert_eq!((rig.notices(), rig.mailbox.unseen()), (vec![], 0), "unread");
}

#[test]
fn what_is_owed_can_be_answered_whatever_else_was_shown_since() {
    let mut rig = rig();
    let id = asked(&mut rig, "ann");
    rig.within_ms = 0;
    for _ in 0..RECENT_MAX {
        asked(&mut rig, "bob");
    }
    let parent = rig.mailbox.parent(&id, None);
    assert_eq!(parent.map(|parent| parent.from).as_deref(), Some("ann"));
    answered(&mut rig, "ann", &id);
    assert_eq!(rig.mailbox.parent(&id, None), None);
}
