//! What peers' mail makes a session do: the turns that it starts, and rings.

use super::*;

/// A rig whose session answers everything at once.
fn rig() -> Rig {
    Rig::governed(Policy::Auto, Some(1_000), &[&SOCKET])
}

/// A message arrives, and what is pushed is answered. True: something was.
fn turn(rig: &mut Rig, from: &str, priority: Priority) -> bool {
    rig.arrive_from(from, priority);
    rig.pass(2_000);
    let push = rig.wanted();
    if let Some(push) = &push {
        rig.outcome(push, Outcome::Written);
        rig.answered(push);
        rig.activity(Activity::Busy);
        rig.activity(Activity::Idle);
    }
    push.is_some()
}

/// Mail of several starts all turns that it may.
fn turns(rig: &mut Rig) {
    for n in 0..50 {
        let from = if n % 2 == 0 { "ann" } else { "cyd" };
        assert!(turn(rig, from, Priority::Next), "{n}");
    }
}

#[test]
fn peers_start_50_turns_in_ten_minutes_and_10_more_with_what_is_urgent_one_each() {
    let mut rig = rig();
    turns(&mut rig);
    assert!(!turn(&mut rig, "bob", Priority::Next));
    let warned = rig.warned();
    assert_eq!(warned.len(), 1);
    assert_eq!(rig.notices(), warned, "the agent and the human are told");
    assert!(!turn(&mut rig, "bob", Priority::Next));
    assert_eq!(rig.warned().len(), 0, "once");
    for n in 0..10 {
        assert!(turn(&mut rig, &format!("p{n}"), Priority::Now), "{n}");
        assert!(!turn(&mut rig, &format!("p{n}"), Priority::Now), "{n}");
    }
    assert!(!turn(&mut rig, "bob", Priority::Now));
    assert!(!turn(&mut rig, "bob", Priority::Next));
    rig.pass(600_000);
    assert!(ids(&rig.push()).len() > 2, "later, all together");
}

#[test]
fn mail_of_one_sender_starts_half_of_the_turns_and_others_start_the_rest() {
    let mut rig = rig();
    for n in 0..30 {
        assert!(turn(&mut rig, "eve", Priority::Now), "{n}");
    }
    assert!(!turn(&mut rig, "eve", Priority::Now));
    let warned = rig.warned();
    assert!(
        warned[0].starts_with("mail of eve, or of its token, started"),
        "{warned:?}"
    );
    for n in 0..20 {
        assert!(turn(&mut rig, "alice", Priority::Next), "{n}");
    }
    assert!(turn(&mut rig, "alice", Priority::Now), "one that is kept");
    assert!(!turn(&mut rig, "alice", Priority::Now));
    assert!(turn(&mut rig, "bob", Priority::Now));
    assert!(!turn(&mut rig, "eve", Priority::Now));
}

#[test]
fn a_token_has_the_share_of_one_sender_whatever_its_names() {
    let mut rig = rig();
    rig.token = Some("ci");
    for n in 0..30 {
        assert!(turn(&mut rig, &format!("e{n}"), Priority::Now), "{n}");
    }
    assert!(!turn(&mut rig, "e30", Priority::Now));
    rig.token = Some("phone");
    for n in 0..21 {
        assert!(turn(&mut rig, &format!("p{n}"), Priority::Now), "{n}");
    }
    assert!(
        !turn(&mut rig, "p21", Priority::Now),
        "one of those that are kept"
    );
    rig.token = None;
    assert!(turn(&mut rig, "alice", Priority::Now));
}

#[test]
fn a_domain_has_the_share_of_one_sender_whatever_its_names() {
    let mut rig = rig();
    for n in 0..30 {
        assert!(turn(&mut rig, &format!("e{n}@beta"), Priority::Now), "{n}");
    }
    assert!(!turn(&mut rig, "e30@beta", Priority::Now));
    assert!(turn(&mut rig, "alice", Priority::Now));
}

#[test]
fn each_sender_of_the_gateway_has_turns_of_its_own() {
    let mut rig = rig();
    rig.token = Some("web");
    for n in 0..30 {
        assert!(turn(&mut rig, "web:ci", Priority::Now), "{n}");
    }
    assert!(!turn(&mut rig, "web:ci", Priority::Now));
    assert!(turn(&mut rig, "web:alerts", Priority::Now));
}

#[test]
fn a_session_that_works_and_notices_of_the_bus_are_not_counted() {
    let mut rig = rig();
    turns(&mut rig);
    rig.pass(2_000);
    rig.input(|mailbox, now| mailbox.notice(now, "bob left", Priority::Next));
    assert_eq!(rig.pushed().items.len(), 1);
    rig.pass(2_000);
    rig.arrive(Priority::Next);
    assert_eq!(rig.wanted(), None);
    rig.activity(Activity::Busy);
    rig.pass(10_000);
    assert!(
        rig.wanted().is_some(),
        "it joins the turn that is under way"
    );
}

#[test]
fn a_turn_counts_though_the_session_says_that_it_works_before_the_push_is_done() {
    let mut rig = rig();
    for n in 0..30 {
        rig.arrive(Priority::Next);
        rig.pass(2_000);
        let push = rig.wanted().unwrap_or_else(|| panic!("{n}"));
        rig.activity(Activity::Busy);
        rig.outcome(&push, Outcome::Written);
        rig.answered(&push);
        rig.activity(Activity::Idle);
    }
    assert!(!turn(&mut rig, "bob", Priority::Next));
}

#[test]
fn notices_do_not_use_up_the_turns_of_peers() {
    let mut rig = rig();
    for _ in 0..50 {
        rig.input(|mailbox, now| mailbox.notice(now, "bob left", Priority::Next));
        let push = rig.pushed();
        rig.answered(&push);
        rig.pass(2_000);
    }
    assert!(turn(&mut rig, "bob", Priority::Next));
}

fn hops(rig: &mut Rig) -> u32 {
    rig.input(Mailbox::hops)
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
    let mut rig = rig();
    assert_eq!(hops(&mut rig), 0);
    arrives_after(&mut rig, "ann", 2);
    rig.pushed();
    rig.activity(Activity::Busy);
    assert_eq!(hops(&mut rig), 3);
    arrives_after(&mut rig, "bob", 5);
    arrives_after(&mut rig, "bob", 1);
    let along = rig.along(&PIGGYBACK).unwrap();
    rig.outcome(&along, Outcome::Written);
    assert_eq!(hops(&mut rig), 6, "the greatest of what it was shown");
    rig.activity(Activity::Idle);
    assert_eq!(hops(&mut rig), 0, "the turn is over");
}

#[test]
fn a_turn_of_the_user_begins_at_nothing() {
    for prompted in [false, true] {
        let mut rig = rig();
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
        assert_eq!(hops(&mut rig), 0);
    }
}

#[test]
fn where_nobody_says_what_the_session_does_a_turn_ends_after_ten_minutes() {
    let mut rig = rig();
    rig.activity(Activity::Unknown);
    arrives_after(&mut rig, "ann", 2);
    rig.pushed();
    assert_eq!(hops(&mut rig), 3);
    rig.pass(599_999);
    assert_eq!(hops(&mut rig), 3);
    rig.pass(1);
    assert_eq!(hops(&mut rig), 0);
}

#[test]
fn hops_are_counted_where_nothing_is_held() {
    let mut rig = Rig::new(&[&SOCKET]);
    arrives_after(&mut rig, "ann", 2);
    rig.pushed();
    assert_eq!(hops(&mut rig), 3, "others in the ring have a budget");
}

#[test]
fn a_ring_of_three_is_stopped_by_its_hops_and_all_see_why() {
    let names = ["ann", "bob", "cyd"];
    let mut ring: Vec<Rig> = names.iter().map(|_| rig()).collect();
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
        hop = hops(rig);
        let next = names[(to + 1) % 3];
        rig.input(|mailbox, now| mailbox.sent(now, &key_of(next), "x", None, hop));
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

#[test]
fn whoever_is_not_answered_is_not_held_for_its_hops() {
    let mut rig = rig();
    arrives_after(&mut rig, "ci", 99);
    assert_eq!(rig.mailbox.held().0, 0);
}

/// A message of `from` that says so of itself.
fn says(rig: &mut Rig, from: &str, reply_to: Option<&str>, hops: u32, priority: Priority) -> No {
    let reply_to = reply_to.map(|id| MessageId::parse(id).unwrap());
    let talk = Conversation {
        reply_to,
        hops,
        priority,
        ..Conversation::default()
    };
    rig.arrives(from, 100, talk, false)
}

#[test]
fn a_count_that_cannot_be_is_not_repeated() {
    for (reply_to, hops_sent) in [(None, 3), (Some("nothing-of-ours"), 2)] {
        let mut rig = rig();
        says(&mut rig, "eve", reply_to, 4_000_000_000, Priority::Next);
        rig.pushed();
        rig.activity(Activity::Busy);
        assert_eq!(hops(&mut rig), hops_sent, "{reply_to:?}");
    }
}

#[test]
fn a_reply_counts_by_what_it_answers_and_not_by_what_others_said() {
    let mut rig = rig();
    for n in 0..20 {
        says(&mut rig, "eve", None, 15, Priority::Quiet);
        says(&mut rig, "alice", None, 0, Priority::Next);
        let push = rig.pushed();
        assert_eq!(push.items.len(), 2);
        rig.answered(&push);
        rig.activity(Activity::Busy);
        assert_eq!(
            rig.input(|mailbox, now| mailbox.reply_hops(now, 1)),
            1,
            "{n}"
        );
        rig.activity(Activity::Idle);
        rig.pass(10_000);
    }
    let most = rig.input(|mailbox, now| mailbox.reply_hops(now, 4_000_000_000));
    assert_eq!(most, 4, "a parent's claim, too");
}

#[test]
fn an_answer_to_an_own_question_is_held_by_no_count_of_others() {
    let mut rig = rig();
    rig.input(|mailbox, now| mailbox.sent(now, &key_of("bob"), "q", None, 0));
    says(&mut rig, "bob", Some("q"), 4_000_000_001, Priority::Next);
    assert_eq!(rig.mailbox.held().0, 0);
    says(&mut rig, "bob", None, 17, Priority::Next);
    assert_eq!(rig.mailbox.held().0, 1, "what is no answer");
    // Its recipient may have another name.
    rig.input(|mailbox, now| mailbox.sent(now, &key_of("old"), "r", None, 0));
    let delivered = receipt("r", "new", Stage::Delivered);
    rig.input(|mailbox, now| mailbox.receipt(now, &delivered, None, None));
    says(&mut rig, "new", Some("r"), 99, Priority::Next);
    assert_eq!(rig.mailbox.held().0, 1);
    // Somebody else's is no answer.
    rig.input(|mailbox, now| mailbox.sent(now, &key_of("eve"), "s", None, 0));
    says(&mut rig, "eve", Some("q"), 99, Priority::Next);
    assert_eq!(rig.mailbox.held().0, 2);
}

#[test]
fn two_that_answer_each_other_for_ever_are_stopped_though_each_answer_is_one() {
    let mut rig = rig();
    let mut hop = 0;
    let held = (0..60).find(|n| {
        let own = format!("q{n}");
        let sent = hop;
        rig.input(|mailbox, now| mailbox.sent(now, &key_of("bob"), &own, None, sent));
        says(&mut rig, "bob", Some(&own), hop + 1, Priority::Next);
        rig.pass(5_000);
        if rig.mailbox.held().0 > 0 {
            return true;
        }
        let push = rig.pushed();
        rig.answered(&push);
        rig.activity(Activity::Busy);
        hop = rig.input(|mailbox, now| mailbox.reply_hops(now, sent + 2));
        rig.activity(Activity::Idle);
        false
    });
    assert_eq!(held, Some(8), "17 replies led to it");
}
