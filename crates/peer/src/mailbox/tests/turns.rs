//! The turns that peers' mail starts.

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
