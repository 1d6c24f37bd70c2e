//! Ids, parents, and how far the agent's own messages got.

use super::*;

fn arrives_as(rig: &mut Rig, id: &str, from: &str) -> No {
    rig.arrives_as(id, from, 100, Conversation::default(), false)
}

fn named(rig: &mut Rig, id: &str, from: Option<&str>) -> Named {
    rig.input(|mailbox, now| mailbox.named(now, id, from))
}

#[test]
fn an_id_that_several_used_names_nothing_without_its_sender() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.readable(false);
    arrives_as(&mut rig, "x", "bob");
    let second = arrives_as(&mut rig, "x", "mallory");
    rig.pushed();
    rig.pass(2_000);
    rig.pushed();
    assert_eq!(named(&mut rig, "x", None), Named::Several);
    assert_eq!(rig.mailbox.parent("x", None), None);
    assert_eq!(rig.acked(), []);
    let parent = rig.mailbox.parent("x", Some("MALLORY")).unwrap();
    assert_eq!(parent.from, "mallory");
    assert_eq!(named(&mut rig, "x", Some("Mallory")), Named::Seen);
    assert_eq!(rig.acked(), [(second, seen("socket", "tool_call"))]);
    let before = named(&mut rig, "x", None);
    assert_eq!(before, Named::Several, "the other was seen lately");
    assert_eq!(named(&mut rig, "x", Some("mallory")), Named::Unknown);
    let parent = rig.mailbox.parent("x", Some("mallory")).unwrap();
    assert_eq!(parent.id.as_str(), "x", "it can still be answered");
}

#[test]
fn a_part_of_an_id_names_its_message_unless_another_one_is_named_so_too() {
    let id = |n: u32| format!("01a2106bb3a37537b43068a3{n:08x}");
    let mut rig = Rig::new(&[&SOCKET]);
    rig.readable(false);
    let first = arrives_as(&mut rig, &id(0xf6af_7622), "bob");
    rig.pushed();
    let parent = rig.mailbox.parent("f6af7622", None).unwrap();
    assert_eq!(parent.id.as_str(), id(0xf6af_7622));
    assert_eq!(named(&mut rig, "f6af7622", None), Named::Seen);
    assert_eq!(rig.acked(), [(first, seen("socket", "tool_call"))]);

    // Another's id is what is shown of bob's.
    arrives_as(&mut rig, "f6af7622", "mallory");
    assert_eq!(rig.mailbox.parent("f6af7622", None), None);
    assert_eq!(named(&mut rig, "f6af7622", None), Named::Several);
    assert_eq!(rig.mailbox.parents("f6af7622").len(), 2);
    let parent = rig.mailbox.parent("f6af7622", Some("Bob")).unwrap();
    assert_eq!(parent.id.as_str(), id(0xf6af_7622));

    let unshown = arrives_as(&mut rig, &id(1), "bob");
    let parent = rig.mailbox.parent(&id(1), None).unwrap();
    assert!(rig.mailbox.is_uncertain(&parent), "it was not shown");
    let read = rig.check_out(&[(unshown, Portion::All)]).unwrap();
    assert!(!rig.mailbox.is_uncertain(&parent));
    rig.outcome(&read, Outcome::Written);
    assert!(!rig.mailbox.is_uncertain(&parent));
    let other = rig.mailbox.parent("f6af7622", Some("mallory")).unwrap();
    assert!(rig.mailbox.is_uncertain(&other), "a part of bob's");
    assert_eq!(rig.mailbox.parent("01a2106b", None), None, "one minute's");
    assert_eq!(rig.mailbox.parent(&id(1), None).unwrap().from, "bob");
}

#[test]
fn what_the_agent_sent_is_named_by_a_part_of_its_id() {
    let mut rig = Rig::new(&[]);
    let ids = [
        "01a2106bb3a37537b43068a3f6af7622",
        "01a2106bb3a37537b43068a301a20135",
    ];
    for id in ids {
        rig.input(|mailbox, now| mailbox.sent(now, None, id, 0));
    }
    assert_eq!(rig.mailbox.sent_as("01a20135"), [ids[1]]);
    assert_eq!(rig.mailbox.sent_as("01a2106b").len(), 2);
    assert!(rig.mailbox.sent_as("f6af7623").is_empty());
}

#[test]
fn an_id_that_the_agent_cannot_know_is_not_seen() {
    let mut rig = Rig::new(&[]);
    arrives_as(&mut rig, "x", "bob");
    assert_eq!(named(&mut rig, "y", None), Named::Unknown);
    assert_eq!(named(&mut rig, "x", None), Named::NotShown);
    assert_eq!(rig.acked(), []);
    let along = rig.along(&PIGGYBACK).unwrap();
    assert_eq!(portions(&along), [Portion::All], "it comes as ever");
}

fn gets(rig: &mut Rig, id: &str, to: &str, stage: Stage) {
    let receipt = receipt(id, to, stage);
    rig.input(|mailbox, now| mailbox.receipt(now, &receipt, None, None));
}

#[test]
fn how_far_own_messages_got_is_kept_the_newest_of_each_and_ten() {
    let mut rig = Rig::new(&[&SOCKET]);
    gets(&mut rig, "a", "bob", stands("socket"));
    gets(&mut rig, "a", "cyd", stands("socket"));
    gets(&mut rig, "a", "bob", Stage::Acked(None));
    gets(&mut rig, "a", "dan", Stage::Delivered);
    assert_eq!(rig.wanted(), None, "it starts no turn");
    let told = rig.mailbox.take_receipts();
    let told: Vec<_> = told.into_iter().map(|receipt| receipt.stage).collect();
    assert_eq!(told, [stands("socket"), Stage::Acked(None)]);
    assert!(rig.mailbox.take_receipts().is_empty(), "once");
    for n in 0..12 {
        gets(&mut rig, &format!("m{n}"), "bob", Stage::Acked(None));
    }
    let told = rig.mailbox.take_receipts();
    assert_eq!((told.len(), told[0].id.as_str()), (10, "m2"));
}

#[test]
fn what_was_lost_wakes_the_agent_and_what_a_peer_holds_is_told_once_in_a_while() {
    let mut rig = Rig::new(&[]);
    let say = |rig: &mut Rig, id: &str, stage: Stage, sentence: &str| {
        let receipt = receipt(id, "bob", stage);
        rig.input(|mailbox, now| mailbox.receipt(now, &receipt, Some(sentence), None));
    };
    let held = || Stage::Held { why: "x".into() };
    say(&mut rig, "a", held(), "bob holds a");
    say(&mut rig, "b", held(), "bob holds b");
    assert_eq!(rig.notices(), ["bob holds a"]);
    rig.pass(600_000);
    say(&mut rig, "c", held(), "bob holds c");
    assert_eq!(rig.notices(), ["bob holds a", "bob holds c"]);
    rig.ready(&SOCKET);
    assert_eq!(rig.wanted(), None);
    let lost = Stage::Expired { why: "x".into() };
    say(&mut rig, "d", lost, "d expired");
    assert_eq!(rig.push().items.len(), 3, "the others go along");
}

#[test]
fn a_peer_that_answers_under_another_name_is_counted_under_it() {
    let mut rig = Rig::governed(Policy::Auto, Some(0), &[]);
    hops::sends(&mut rig, Some("old"), "q", 0);
    gets(&mut rig, "q", "new", Stage::Delivered);
    rig.arrive_from("new", Priority::Next);
    assert_eq!(rig.mailbox.held().0, 1);
}

#[test]
fn the_name_is_announced_when_the_client_listens_and_before_any_mail() {
    let mut rig = Rig::new(&[]);
    rig.mailbox = MailboxMachine::new(Policy::Auto, None);
    rig.mailbox.add_path(&SOCKET);
    rig.ready(&SOCKET);
    rig.input(|mailbox, now| mailbox.registered(now, "ann".into(), WINDOW));
    rig.next();
    assert!(rig.outputs.is_empty(), "it would be dropped");
    rig.input(MailboxMachine::open);
    let announces = |output: &MailboxOutput| *output == MailboxOutput::Announce("ann".into());
    assert!(announces(&rig.outputs[0]));
    assert!(matches!(rig.outputs[1..], [MailboxOutput::Push(_)]));
}

#[test]
fn how_a_request_ended_without_a_message_wakes_the_agent_and_how_far_it_is_does_not() {
    let (why, reply) = (|| "x".to_owned(), MessageId::parse("a1").unwrap());
    let cases = [
        (Stage::Working { said: why() }, false),
        (Stage::Declined { why: why() }, true),
        (Stage::Unanswered { why: why() }, true),
        (
            Stage::Done {
                reply: reply.clone(),
            },
            true,
        ),
        (Stage::Failed { reply }, true),
    ];
    for (stage, wakes) in cases {
        let mut rig = Rig::new(&[&SOCKET]);
        let receipt = receipt("q1", "bob", stage);
        rig.input(|mailbox, now| mailbox.receipt(now, &receipt, Some("so it is"), None));
        assert_eq!(rig.wanted().is_some(), wakes, "{:?}", receipt.stage);
    }
}

#[test]
fn what_waits_in_the_client_is_not_known_to_be_meant() {
    let mut rig = Rig::new(&[&SOCKET]);
    rig.readable(true);
    arrives_as(&mut rig, "message-of-bob", "bob");
    let is_uncertain = |rig: &Rig| {
        let parent = rig.mailbox.parent("message-of-bob", None).unwrap();
        rig.mailbox.is_uncertain(&parent)
    };
    assert!(is_uncertain(&rig));
    let push = rig.pushed();
    assert!(is_uncertain(&rig), "it waits for the turn's end");
    rig.presented(&push);
    assert!(!is_uncertain(&rig));
}
