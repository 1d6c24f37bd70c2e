//! How many replies led to a message, and which are too many.

use super::*;

fn limited(hops_max: u32) -> Rig {
    Rig::governed(Policy::Auto, Some(hops_max), &[&SOCKET])
}

/// So many replies lead to what is sent to this peer now.
pub(super) fn hops(rig: &mut Rig, to: &str) -> u32 {
    rig.input(|mailbox, now| mailbox.hops(now, Some(&key_of(to)), 0))
}

fn arrives_after(rig: &mut Rig, from: &str, hops: u32) -> No {
    let talk = Conversation {
        hops,
        ..Conversation::default()
    };
    rig.arrives(from, 100, talk, false)
}

#[test]
fn what_is_sent_in_a_turn_that_peers_started_says_how_many_replies_led_there() {
    let mut rig = limited(16);
    assert_eq!(hops(&mut rig, "ann"), 0);
    arrives_after(&mut rig, "ann", 2);
    rig.pushed();
    rig.activity(Activity::Busy);
    assert_eq!(hops(&mut rig, "ann"), 3);
    rig.input(|mailbox, now| mailbox.sent(now, Some(&key_of("ann")), "q", 3));
    arrives_after(&mut rig, "bob", 5);
    arrives_after(&mut rig, "bob", 1);
    let along = rig.along(&PIGGYBACK).unwrap();
    rig.outcome(&along, Outcome::Written);
    assert_eq!(
        hops(&mut rig, "ann"),
        6,
        "the greatest of what it was shown"
    );
    rig.activity(Activity::Idle);
    assert_eq!(hops(&mut rig, "ann"), 0, "the turn is over");
}

#[test]
fn a_turn_of_the_user_begins_at_nothing() {
    for prompted in [false, true] {
        let mut rig = limited(16);
        rig.pass(60_000);
        if prompted {
            arrives_after(&mut rig, "ann", 3);
            rig.pushed();
            rig.activity(Activity::Busy);
            rig.mailbox.prompted();
        } else {
            rig.activity(Activity::Busy);
            arrives_after(&mut rig, "ann", 3);
            rig.pushed();
        }
        assert_eq!(hops(&mut rig, "ann"), 0);
    }
}

#[test]
fn where_nobody_says_what_the_session_does_a_turn_ends_after_ten_minutes() {
    let mut rig = limited(16);
    rig.activity(Activity::Unknown);
    arrives_after(&mut rig, "ann", 2);
    rig.pushed();
    assert_eq!(hops(&mut rig, "ann"), 3);
    rig.pass(599_999);
    assert_eq!(hops(&mut rig, "ann"), 3);
    rig.pass(1);
    assert_eq!(hops(&mut rig, "ann"), 0);
}

#[test]
fn hops_are_counted_where_nothing_is_held() {
    let mut rig = Rig::new(&[&SOCKET]);
    arrives_after(&mut rig, "ann", 2);
    rig.pushed();
    assert_eq!(hops(&mut rig, "ann"), 3, "others in the ring have a budget");
}

#[test]
fn a_ring_of_three_is_stopped_by_its_hops_and_all_see_why() {
    let names = ["ann", "bob", "cyd"];
    let mut ring: Vec<Rig> = names.iter().map(|_| limited(16)).collect();
    let mut hop = 0;
    let held = (0..60).find_map(|n| {
        let (from, to) = (names[n % 3], (n + 1) % 3);
        let rig = &mut ring[to];
        arrives_after(rig, from, hop);
        if rig.mailbox.held().0 > 0 {
            return Some((n, to));
        }
        rig.pushed();
        rig.activity(Activity::Busy);
        let next = names[(to + 1) % 3];
        hop = hops(rig, next);
        rig.input(|mailbox, now| mailbox.sent(now, Some(&key_of(next)), "x", hop));
        for rig in &mut ring {
            rig.activity(Activity::Idle);
            rig.pass(5_000);
        }
        None
    });
    let (n, to) = held.expect("it goes round for ever");
    assert_eq!(n, 17, "16 replies pass");
    let rig = &mut ring[to];
    let why = rig.warned();
    assert!(why[0].contains("17 replies led to this message"), "{why:?}");
    assert_eq!(rig.notices().len(), 1);
    let told = rig.progress();
    let held = |(_, progress): &(No, Stage)| matches!(progress, Stage::Held { .. });
    assert!(told.iter().any(held));
}

/// The agent sends something to this peer; `None`: to everybody.
pub(super) fn sends(rig: &mut Rig, to: Option<&str>, id: &str, hops: u32) {
    let to = to.map(key_of);
    rig.input(|mailbox, now| mailbox.sent(now, to.as_ref(), id, hops));
}

/// A message of `from` arrives that says so of itself: the hops that it has.
fn has(rig: &mut Rig, from: &str, reply_to: Option<&str>, hops: u32) -> u32 {
    let reply_to = reply_to.map(|id| MessageId::parse(id).unwrap());
    let talk = Conversation {
        reply_to,
        hops,
        ..Conversation::default()
    };
    let no = rig.arrives(from, 100, talk, false);
    rig.mailbox.messages[&no].content.mail().unwrap().talk.hops
}

#[test]
fn a_message_has_one_hop_more_than_what_its_sender_was_sent_whatever_it_says() {
    let mut rig = limited(16);
    sends(&mut rig, Some("bob"), "q", 5);
    sends(&mut rig, Some("bob"), "r", 4);
    assert_eq!(has(&mut rig, "bob", None, 0), 5, "the last one counts");
    assert_eq!(has(&mut rig, "bob", Some("q"), 0), 5, "whatever it answers");
    assert_eq!(has(&mut rig, "cyd", None, 0), 0, "each peer has its own");
    rig.pass(599_999);
    assert_eq!(has(&mut rig, "bob", None, 0), 5);
    rig.pass(1);
    assert_eq!(has(&mut rig, "bob", None, 0), 0, "ten minutes later");
    sends(&mut rig, None, "all", 7);
    assert_eq!(has(&mut rig, "cyd", None, 0), 8, "it was sent to everybody");
    sends(&mut rig, Some("cyd"), "s", 0);
    assert_eq!(has(&mut rig, "cyd", None, 0), 1, "its user began anew");
    assert_eq!(has(&mut rig, "bob", None, 0), 8);
}

#[test]
fn a_count_that_cannot_be_is_capped() {
    let most = u32::MAX;
    let mut rig = limited(16);
    assert_eq!(has(&mut rig, "eve", None, most), 2, "a way round");
    sends(&mut rig, Some("bob"), "q", 3);
    assert_eq!(has(&mut rig, "eve", None, most), 5);
    assert_eq!(
        has(&mut rig, "eve", Some("q"), most),
        5,
        "the question was not eve's"
    );
    assert_eq!(has(&mut rig, "bob", Some("q"), most), 4, "it answers that");
    assert_eq!(has(&mut rig, "bob", None, most), 5);
    let own = rig.input(|mailbox, now| mailbox.hops(now, None, most));
    assert_eq!(own, 5, "what the agent copies, too");
    rig.pass(600_000);
    assert_eq!(has(&mut rig, "eve", None, most), 2);
}

#[test]
fn what_a_stranger_claims_holds_back_no_answer_of_another() {
    let mut rig = limited(16);
    for n in 0..5 {
        arrives_after(&mut rig, "eve", 1_000);
        let push = rig.pushed();
        rig.answered(&push);
        rig.activity(Activity::Busy);
        let hops = hops(&mut rig, "carl");
        sends(&mut rig, Some("carl"), &format!("c{n}"), hops);
        if n < 4 {
            rig.activity(Activity::Idle);
            rig.pass(10_000);
        }
    }
    assert_eq!(hops(&mut rig, "alice"), 3, "nothing was sent there");
    sends(&mut rig, Some("alice"), "q", 3);
    assert_eq!(has(&mut rig, "alice", Some("q"), 4), 4);
    assert_eq!(rig.mailbox.held().0, 0);
}

#[test]
fn what_is_known_of_a_conversation_counts_for_everybody() {
    let mut rig = limited(16);
    sends(&mut rig, Some("bob"), "q", 9);
    arrives_after(&mut rig, "bob", 0);
    rig.pushed();
    rig.activity(Activity::Busy);
    assert_eq!(hops(&mut rig, "bob"), 11);
    assert_eq!(hops(&mut rig, "cyd"), 11);
    // What a stranger says counts as far as it can have come round.
    arrives_after(&mut rig, "eve", 1_000);
    let along = rig.along(&PIGGYBACK).unwrap();
    rig.outcome(&along, Outcome::Written);
    assert_eq!(hops(&mut rig, "bob"), 12);
    assert_eq!(hops(&mut rig, "cyd"), 11);
}

#[test]
fn more_replies_than_the_limit_are_paused_and_the_reason_is_told_once_in_ten_minutes() {
    let mut rig = limited(16);
    sends(&mut rig, Some("bob"), "q", 15);
    assert_eq!(
        (has(&mut rig, "bob", None, 0), rig.mailbox.held().0),
        (16, 0)
    );
    sends(&mut rig, Some("bob"), "r", 16);
    rig.arrive(Priority::Now);
    rig.arrive(Priority::Next);
    assert_eq!(rig.mailbox.held().0, 2, "urgent or not");
    let why = "mail of bob is paused: 17 replies led to this message of bob, budget 16 (the \
               recipient's PEERBUS_BUDGET); after ten minutes of the recipient's silence the \
               next message of bob, whatever its name then, brings it";
    assert_eq!(rig.warned(), [why]);
    rig.pass(599_999);
    sends(&mut rig, Some("bob"), "s", 16);
    rig.arrive(Priority::Next);
    assert_eq!(rig.warned().len(), 0);
    rig.pass(600_000);
    sends(&mut rig, Some("bob"), "t", 16);
    rig.arrive(Priority::Next);
    assert_eq!(rig.warned(), [why]);
}

#[test]
fn whoever_is_not_answered_is_not_paused_for_its_hops() {
    let mut rig = limited(1);
    for _ in 0..1_000 {
        has(&mut rig, "ci", None, 99);
    }
    sends(&mut rig, Some("bob"), "q", 0);
    has(&mut rig, "ci", None, 99);
    assert_eq!(rig.mailbox.held().0, 0);
}

#[test]
fn a_reply_counts_by_what_it_answers_and_not_by_what_others_said() {
    let mut rig = limited(16);
    for n in 0..20 {
        let quiet = Conversation {
            hops: 15,
            ..of(Priority::Quiet)
        };
        rig.arrives("eve", 100, quiet, false);
        rig.arrive_from("alice", Priority::Next);
        let id = format!("m{}", rig.next - 1);
        let push = rig.pushed();
        assert_eq!(push.items.len(), 2);
        rig.answered(&push);
        let parent = rig.mailbox.parent(&id, None).unwrap();
        let reply = Conversation::reply(&parent.id, &parent.talk);
        assert_eq!(reply.hops, if n == 0 { 1 } else { 3 }, "{n}");
        sends(&mut rig, Some("alice"), &format!("q{n}"), 1);
        rig.activity(Activity::Idle);
        rig.pass(10_000);
    }
}

/// The agent answers each message of bob's, which say so of themselves: the round in which it is
/// paused.
fn rounds(said: fn(&str, u32) -> Conversation) -> Option<u32> {
    let mut rig = limited(16);
    let mut hops = 0;
    (0..60).find(|n| {
        let own = format!("q{n}");
        sends(&mut rig, Some("bob"), &own, hops);
        rig.arrives("bob", 100, said(&own, hops + 1), false);
        rig.pass(5_000);
        if rig.mailbox.held().0 > 0 {
            return true;
        }
        let push = rig.pushed();
        rig.answered(&push);
        let id = format!("m{}", rig.next - 1);
        let parent = rig.mailbox.parent(&id, None).unwrap();
        hops = Conversation::reply(&parent.id, &parent.talk).hops;
        false
    })
}

#[test]
fn two_that_answer_each_other_for_ever_are_stopped_whatever_they_say() {
    let replies = |own: &str, hops| Conversation {
        reply_to: Some(MessageId::parse(own).unwrap()),
        hops,
        ..Conversation::default()
    };
    assert_eq!(rounds(replies), Some(8), "17 replies led to it");
    let counts = |_: &str, hops| Conversation {
        hops,
        ..Conversation::default()
    };
    assert_eq!(rounds(counts), Some(8));
    assert_eq!(rounds(|_, _| Conversation::default()), Some(8), "version 1");
}

#[test]
fn an_answer_is_one_of_its_question_s_recipient_alone() {
    let mut rig = limited(16);
    sends(&mut rig, Some("bob"), "q", 0);
    let mut answers = |from: &str, id: &str| {
        let talk = Conversation {
            reply_to: Some(MessageId::parse(id).unwrap()),
            ..Conversation::default()
        };
        let no = rig.arrives(from, 100, talk, false);
        rig.mailbox.messages[&no].content.mail().unwrap().answers
    };
    assert!(answers("bob", "q"));
    assert!(!answers("eve", "q") && !answers("bob", "r"));
}

#[test]
fn an_answer_is_led_to_by_its_question_under_whatever_name() {
    let mut rig = limited(16);
    sends(&mut rig, Some("old"), "r", 3);
    let delivered = receipt("r", "new", Stage::Delivered);
    rig.input(|mailbox, now| mailbox.receipt(now, &delivered, None, None));
    assert_eq!(has(&mut rig, "new", Some("r"), 99), 4);
    assert_eq!(has(&mut rig, "new", None, 0), 4);
    assert_eq!(has(&mut rig, "old", None, 0), 0, "another's by now");
}

#[test]
fn a_result_of_an_open_request_is_not_judged_and_a_second_answer_is() {
    let answers = |rig: &mut Rig, id: &str| {
        let talk = Conversation {
            reply_to: MessageId::parse(id).ok(),
            hops: 2,
            ..Conversation::default()
        };
        rig.arrives("bob", 100, talk, false);
        rig.mailbox.held().0
    };
    let mut rig = limited(1);
    for id in ["q1", "q2", "q3"] {
        sends(&mut rig, Some("bob"), id, 1);
    }
    for id in ["q1", "q2"] {
        rig.mailbox.asked(id);
    }
    assert_eq!(answers(&mut rig, "q1"), 0, "the result");
    assert_eq!(answers(&mut rig, "q1"), 1, "what comes after it");
    // One that ended otherwise has no result any more.
    let ended = Stage::Unanswered { why: String::new() };
    let receipt = Receipt::new(MessageId::parse("q2").unwrap(), ended);
    rig.input(|mailbox, now| mailbox.receipt(now, &receipt, None, None));
    assert_eq!(answers(&mut rig, "q2"), 2);
    assert_eq!(answers(&mut rig, "q3"), 3, "that was no request");
}
