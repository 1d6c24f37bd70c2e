//! Whose mail the user lets in.

use super::*;

fn rules(rules: &[&str]) -> Senders {
    Senders::parse(rules.iter().copied()).unwrap()
}

fn rig(text: &[&str]) -> Rig {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.input(|mailbox, now| mailbox.set_senders(now, &rules(text)));
    rig
}

fn dropped(rig: &mut Rig) -> Vec<No> {
    rig.ended(|stage| *stage == Stage::Acked(None))
}

fn waiting(rig: &Rig) -> Vec<No> {
    rig.mailbox.withheld().map(|(no, _)| no).collect()
}

#[test]
fn the_first_rule_that_fits_counts() {
    let senders = rules(&[
        "Alice=allow",
        "ci-*=hold",
        "*-bot = drop",
        "dev-*=allow",
        "*=refuse",
    ]);
    for (name, rule) in [
        ("alice", SenderRule::Allow),
        ("CI-7", SenderRule::Hold),
        ("ci-bot", SenderRule::Hold),
        ("a-bot", SenderRule::Drop),
        ("alice2", SenderRule::Refuse),
        ("dev-1", SenderRule::Allow),
        // A rule that lets in is for names at home; one that keeps out covers those of another domain, too.
        ("dev-1@beta", SenderRule::Refuse),
        ("ci-7@beta", SenderRule::Hold),
    ] {
        assert_eq!(
            senders.rule(&PeerName::parse(name).unwrap()),
            rule,
            "{name}"
        );
    }
    let anybody = PeerName::parse("anybody").unwrap();
    // What a project says beside its user lets nobody in.
    let both = rules(&["*=hold"]).and(&rules(&["any*=allow", "*=refuse"]));
    assert_eq!(both.rule(&anybody), SenderRule::Hold);
    let alice = PeerName::parse("alice").unwrap();
    assert_eq!(both.rule(&alice), SenderRule::Refuse);
    assert_eq!(Senders::default().rule(&anybody), SenderRule::Allow);
    for bad in ["alice", "alice=keep", "a b=hold", "=hold", "a**=hold", ""] {
        assert_eq!(Senders::parse([bad]), Err(bad));
    }
}

#[test]
fn what_waits_for_the_user_is_shown_by_nobody_and_known_to_nobody() {
    let mut rig = rig(&["bob=hold"]);
    let held = rig.arrive(Priority::Now);
    let told = rig.progress();
    assert!(matches!(&told[..], [(no, Stage::Held { .. })] if *no == held));
    assert_eq!(
        rig.warned(),
        ["mail of bob waits for you: `peerbus held` lists it"]
    );
    rig.arrive_from("alice", Priority::Next);
    let push = rig.pushed();
    assert_eq!(ids(&push), [2], "alice's mail is not held up");
    rig.answered(&push);
    rig.pass(3_600_000);
    assert_eq!((rig.wanted(), rig.along(&HOOK)), (None, None));
    assert_eq!((rig.read(), rig.notices().len()), (None, 0));
    let named = rig.input(|mailbox, now| mailbox.named(now, "m1", None));
    assert_eq!(named, Named::Unknown);
    assert_eq!(rig.mailbox.parent("m1", None), None);
    assert_eq!(waiting(&rig), [held]);
}

#[test]
fn an_answer_that_somebody_waits_for_waits_like_other_mail() {
    let mut rig = rig(&["bob=hold"]);
    let id = MessageId::parse("q").unwrap();
    let ask = rig.input(|mailbox, _| mailbox.expect(&id, "bob"));
    let talk = Conversation {
        reply_to: Some(id),
        ..Conversation::default()
    };
    let held = rig.arrives("bob", 10, talk, false);
    assert_eq!(waiting(&rig), [held]);
    let here = rig.input(|mailbox, now| mailbox.take_answer(now, ask, |_| Portion::All));
    assert!(here.is_none());
}

#[test]
fn the_user_lets_it_in_or_declines_it() {
    let mut rig = rig(&["*=hold"]);
    let (one, two) = (rig.next(), rig.next());
    assert!(rig.input(|mailbox, now| mailbox.decide(now, two, false)));
    assert_eq!(rig.rejected(), [two]);
    assert!(!rig.input(|mailbox, now| mailbox.decide(now, two, true)));
    rig.progress();
    assert!(rig.input(|mailbox, now| mailbox.decide(now, one, true)));
    let told = rig.progress();
    let is_released = matches!(&told[..], [(no, Stage::Held { why })] if *no == one && why.starts_with("released: "));
    assert!(is_released, "{told:?}");
    let push = rig.pushed();
    assert_eq!(ids(&push), [one.0]);
    rig.answered(&push);
    assert_eq!(rig.acked(), [(one, seen("socket", "transcript"))]);
}

#[test]
fn what_is_refused_is_told_and_what_is_dropped_is_not() {
    let mut rig = rig(&["bob=refuse", "eve=drop"]);
    let (bob, eve) = (rig.next(), rig.arrive_from("eve", Priority::Next));
    assert_eq!((rig.rejected(), dropped(&mut rig)), (vec![bob], vec![eve]));
    assert_eq!((rig.progress(), rig.acked()), (vec![], vec![]));
    let warned = rig.warned();
    assert_eq!(
        warned,
        [
            "mail of bob is refused, as you have it",
            "mail of eve is dropped, as you have it"
        ]
    );
    rig.next();
    assert_eq!(rig.warned(), [""; 0], "once in a while");
    rig.pass(600_001);
    rig.next();
    assert_eq!(rig.warned().len(), 1);
    assert_eq!(rig.wanted(), None);
}

#[test]
fn new_rules_are_for_what_waits_too() {
    let mut rig = rig(&["*=hold"]);
    let (bob, eve) = (rig.next(), rig.arrive_from("eve", Priority::Next));
    let (ann, dan) = (
        rig.arrive_from("ann", Priority::Next),
        rig.arrive_from("dan", Priority::Next),
    );
    let new = rules(&["bob=allow", "eve=drop", "dan=refuse", "*=hold"]);
    rig.input(|mailbox, now| mailbox.set_senders(now, &new));
    assert_eq!(ids(&rig.pushed()), [bob.0]);
    assert_eq!((dropped(&mut rig), rig.rejected()), (vec![eve], vec![dan]));
    assert_eq!(waiting(&rig), [ann]);
}

#[test]
fn what_waits_of_many_names_takes_no_room_from_another() {
    let mut rig = rig(&["*=hold"]);
    for name in ["eve0", "eve1"] {
        for _ in 0..100 {
            rig.arrive_from(name, Priority::Next);
        }
    }
    rig.token = Some("ci");
    for n in 0..200 {
        rig.arrive_from(&format!("c{n}"), Priority::Next);
    }
    rig.token = None;
    for n in 0..200 {
        let domain = if n % 2 == 0 { "beta" } else { "BETA" };
        rig.arrive_from(&format!("x{n}@{domain}"), Priority::Next);
    }
    let alice = rig.arrive_from("alice", Priority::Next);
    let shown = waiting(&rig);
    assert!(shown.len() == 64 && shown.contains(&alice), "{shown:?}");
    let refused = rig.rejected().len();
    assert_eq!(refused, 601 - 64, "what has no room is refused");
    for of_one in [201..=400, 401..=600] {
        let of_one = shown.iter().filter(|no| of_one.contains(&no.0));
        assert!(
            of_one.count() <= 22,
            "a token's or domain's share is that of a name"
        );
    }
    for _ in 0..64 {
        let first = waiting(&rig)[0];
        assert!(rig.input(|mailbox, now| mailbox.decide(now, first, false)));
    }
    assert_eq!(rig.rejected().len(), 64);
}

#[test]
fn who_sends_much_leaves_room_to_others_with_the_same_token() {
    for (token, much, little) in [("ci", "build", "deploy"), ("web", "web:ci", "web:alerts")] {
        let mut rig = rig(&["*=hold"]);
        rig.token = Some(token);
        for _ in 0..70 {
            rig.arrive_from(much, Priority::Next);
        }
        let other = rig.arrive_from(little, Priority::Next);
        assert_eq!(waiting(&rig).len(), 64);
        assert!(waiting(&rig).contains(&other), "{little}");
    }
}

#[test]
fn a_large_message_that_waits_takes_no_room_from_another() {
    for large in [132_000, 200_000, 900_000] {
        let mut rig = rig(&["*=hold"]);
        rig.token = Some("eve");
        rig.body = large;
        let evil = rig.arrive_from("eve", Priority::Next);
        assert_eq!(waiting(&rig), [evil], "there is room for it");
        rig.token = None;
        rig.body = 130_000;
        let mut honest = vec![rig.arrive_from("alice", Priority::Next)];
        rig.body = 60_000;
        honest.push(rig.arrive_from("carol", Priority::Next));
        honest.push(rig.arrive_from("dave", Priority::Next));
        assert_eq!(waiting(&rig), honest, "{large}");
    }
}

#[test]
fn what_waits_has_a_bound_in_bytes_and_one_waits_in_any_case() {
    let mut rig = rig(&["*=hold"]);
    rig.body = 200_000;
    let first = rig.next();
    rig.next();
    assert_eq!(waiting(&rig), [first]);
    let mut rig = Rig::new(&[]);
    rig.input(|mailbox, now| mailbox.set_senders(now, &rules(&["*=hold"])));
    rig.body = 1_000_000;
    let first = rig.next();
    assert_eq!(waiting(&rig), [first]);
}
