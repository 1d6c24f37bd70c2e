//! A live peer takes another name; its old ones lead to it.

use peerbus_core::broker::ConnId;
use peerbus_core::store::Store as _;
use peerbus_wire::{Accepted, ClientFrame, Presence, RefusalCode, Register, Stage, Token};

use crate::requests::{answer, ask};
use crate::rig::{DAY, OTHER_TOKEN, Rig, SECOND, accepted, ext, ids, register};

fn rename(rig: &mut Rig, conn: ConnId, name: &str) -> Result<String, String> {
    rig.take(conn);
    rig.frame(conn, ClientFrame::Rename { name: name.into() });
    let answer = rig.take(conn).names.remove(0);
    match answer.refused {
        Some(why) => Err(why),
        None => Ok(answer.name),
    }
}

fn other(name: &str) -> Register {
    Register {
        token: Token::parse(OTHER_TOKEN),
        ..ext(name, "instance-of-other")
    }
}

fn alias(text: &str) -> Option<&str> {
    text.split(r#","for":""#).nth(1)?.split('"').next()
}

#[test]
fn a_renamed_peer_keeps_its_queue_what_it_holds_and_its_old_name() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.send(ada, "ada", "bob", "m1");
    assert_eq!(rename(&mut rig, bob, "rob"), Ok("rob".into()));
    rig.take(ada);
    rig.ack(bob, 1);
    let [receipt] = &rig.take(ada).receipts[..] else {
        panic!("one receipt");
    };
    assert_eq!(receipt.to.as_deref(), Some("rob"));
    assert!(matches!(receipt.stage, Stage::Acked(_)));
    rig.send(ada, "ada", "BOB", "m2");
    rig.send(ada, "ada", "rob", "m3");
    let texts = rig.take(bob).texts;
    let aliases: Vec<_> = texts.iter().map(|text| alias(text)).collect();
    // It may not know its new name yet.
    assert_eq!(aliases, [Some("BOB"), Some("rob")]);

    rig.close(bob, true);
    rig.restart();
    let bob = rig.ext("rob");
    let told = rig.take(bob);
    assert_eq!(told.delivered, [2, 3], "the queue is the new name's");
    assert_eq!(alias(&told.texts[0]), Some("BOB"));
    let ada = rig.ext("ada");
    rig.send(ada, "ada", "bob", "m4");
    assert_eq!(rig.states(ada)[0], accepted(1, 1));
    assert_eq!(rig.delivered(bob), [4]);
    assert_eq!(rig.row("bob"), None);
}

#[test]
fn a_request_is_of_one_peer_whatever_its_holder_was_called_when_it_read_it() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    ask(&mut rig, ada, ("ada", "bob"), "q1");
    rig.ack(bob, 1);
    rename(&mut rig, bob, "rob").unwrap();
    let names = |rig: &mut Rig| {
        let ada = rig.ext("ada");
        rig.take(ada);
        rig.frame(ada, ClientFrame::Status { ids: ids(&["q1"]) });
        let told = rig.take(ada).receipts;
        let told = told.into_iter().filter_map(|it| Some((it.to?, it.stage)));
        told.map(|(to, stage)| format!("{to} {}", stage.word()))
            .collect::<Vec<_>>()
    };
    let read = ["rob delivered", "rob acked"];
    assert_eq!(names(&mut rig), [&read[..], &["rob owed"]].concat());
    rig.close(bob, true);
    rig.restart();
    assert_eq!(names(&mut rig), [&read[..], &["rob owed"]].concat());
    let bob = rig.join(ext("rob", "instance-of-bob"));
    answer(&mut rig, bob, ("rob", "ada"), ("a1", "q1"));
    assert_eq!(names(&mut rig), [&read[..], &["rob done"]].concat());
}

#[test]
fn what_was_signed_under_the_old_name_is_accepted_once_more_and_known() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.send(ada, "ada", "bob", "m1");
    rename(&mut rig, ada, "eve").unwrap();
    rig.send(ada, "ada", "bob", "m1");
    rig.send(ada, "ada", "bob", "m2");
    rig.send(ada, "eve", "bob", "m3");
    rig.send(ada, "bob", "ada", "m4");
    let states = rig.states(ada);
    let duplicate = Stage::Accepted(Accepted {
        recipients: 1,
        online: 1,
        duplicate: true,
    });
    assert_eq!(states[0], duplicate);
    assert_eq!(rig.delivered(bob), [1, 2, 3]);
    assert!(
        matches!(states.last(), Some(Stage::Refused(_))),
        "nobody else's name: {states:?}"
    );
}

#[test]
fn only_a_free_name_is_given() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    let away = rig.ext("away");
    rig.close(away, true);
    let empty = rig.ext("empty");
    rig.close(empty, true);
    let theirs = rig.join(other("theirs"));
    rig.close(theirs, true);
    rig.send(ada, "ada", "away", "m1");
    for (name, says) in [
        ("a b", "U+0020"),
        ("System", "reserved"),
        ("BOB", "the same name"),
        ("ada", "in use"),
        ("away", "1 messages wait"),
        ("theirs", "another token"),
    ] {
        let why = rename(&mut rig, bob, name).unwrap_err();
        assert!(why.contains(says), "{name}: {why}");
    }
    assert_eq!(rename(&mut rig, bob, "bob"), Ok("bob".into()));
    assert_eq!(rename(&mut rig, bob, "Empty"), Ok("Empty".into()));
    assert_eq!(rename(&mut rig, bob, "bob"), Ok("bob".into()), "and back");
    let why = rename(&mut rig, ada, "empty").unwrap_err();
    assert!(why.contains("old name of bob"), "{why}");
    let v1 = rig.v1("old-client");
    rig.frame(v1, ClientFrame::Rename { name: "new".into() });
    assert!(rig.take(v1).names.is_empty(), "version 1 has no such frame");
}

#[test]
fn an_old_name_belongs_to_its_owner_who_can_have_it_back() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rename(&mut rig, bob, "rob").unwrap();
    let thief = rig.ask(other("bob"));
    let (_, why) = rig.closed(thief).unwrap();
    assert_eq!(why, "name claimed under a different token");
    let new = rig.ext("bob");
    rig.send(ada, "ada", "bob", "m1");
    assert_eq!(rig.delivered(new), [1], "it is a peer of its own");
    assert!(rig.delivered(bob).is_empty());
    assert!(rig.store.load().unwrap().aliases.is_empty());
}

#[test]
fn a_renamed_peer_that_has_left_finds_its_queue_under_its_old_name_too() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rename(&mut rig, bob, "rob").unwrap();
    rig.send(ada, "ada", "bob", "m1");
    rig.send(ada, "ada", "rob", "m2");
    assert_eq!(rig.delivered(bob), [1, 2]);
    rig.close(bob, true);
    let bob = rig.ext("bob");
    assert_eq!(rig.delivered(bob), [1, 2], "the queue comes along");
    rig.send(ada, "ada", "rob", "m3");
    assert_eq!(rig.delivered(bob), [3], "and the other name leads to it");
    assert!(rig.row("rob").is_none() && rig.row("bob").is_some());
}

#[test]
fn what_is_no_program_does_not_have_a_programs_old_name() {
    let program = |name: &str| Register {
        presence: Presence::parse(r#"{"client":"codex"}"#),
        ..ext(name, "bob")
    };
    for is_there in [true, false] {
        let mut rig = Rig::new();
        let (ada, bob) = (rig.ext("ada"), rig.join(program("bob")));
        rename(&mut rig, bob, "rob").unwrap();
        if !is_there {
            rig.close(bob, true);
            rig.restart();
        }
        let recv = rig.ask(ext("Bob", "recv"));
        let (code, why) = rig.closed(recv).expect("it is refused");
        let says = "name is an old one of rob: choose another one";
        assert_eq!((code, &*why), (1008, says), "{is_there}");
        let ada = if is_there { ada } else { rig.ext("ada") };
        rig.send(ada, "ada", "bob", "m1");
        let bob = if is_there {
            bob
        } else {
            rig.join(program("bob"))
        };
        assert_eq!(rig.delivered(bob), [1], "{is_there}");
    }
}

#[test]
fn a_version_1_client_is_a_peer_of_its_own_by_a_programs_old_name() {
    let mut rig = Rig::new();
    let bob = rig.join(Register {
        presence: Presence::parse(r#"{"client":"codex"}"#),
        ..ext("bob", "bob")
    });
    rename(&mut rig, bob, "rob").unwrap();
    rig.close(bob, true);
    let ada = rig.ext("ada");
    rig.send(ada, "ada", "rob", "m1");
    let old = rig.v1("bob");
    assert_eq!(rig.delivered(old), [0; 0]);
    assert!(rig.row("rob").is_some());
}

#[test]
fn a_rename_whose_answer_was_lost_is_recognised() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    let again = || Register {
        renaming: Some("rob".into()),
        ..ext("bob", "instance-of-bob")
    };
    rig.close(bob, false);
    let bob = rig.ask(again());
    assert_eq!(rig.take(bob).peers[0].names, ["bob"], "it was never done");
    rename(&mut rig, bob, "rob").unwrap();
    rig.send(ada, "ada", "bob", "m1");
    rig.close(bob, false);
    let bob = rig.ask(again());
    let told = rig.take(bob);
    assert_eq!(told.peers[0].names, ["rob"]);
    assert_eq!(told.delivered, [1]);
    let thief = rig.ask(Register {
        renaming: Some("rob".into()),
        ..register("nobody")
    });
    assert_eq!(rig.take(thief).peers.len(), 1);
    assert!(rig.row("nobody").is_some(), "it is who it said it is");
}

#[test]
fn a_peer_whose_new_name_another_session_took_meanwhile_comes_back_under_its_old_one() {
    let mut rig = Rig::new();
    let bob = rig.ext("bob");
    rig.frame(bob, ClientFrame::Rename { name: "rob".into() });
    rig.restart();
    let rob = rig.ext("rob");
    let bob = rig.ask(Register {
        renaming: Some("rob".into()),
        ..ext("bob", "instance-of-bob")
    });
    assert_eq!(rig.take(bob).peers[0].names, ["bob"]);
    assert_eq!(
        rename(&mut rig, bob, "rob"),
        Err("rob is in use by another session".into())
    );
    assert_eq!(rename(&mut rig, rob, "roy"), Ok("roy".into()));
}

#[test]
fn an_old_name_that_is_not_used_leads_nowhere_after_a_month() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rename(&mut rig, bob, "rob").unwrap();
    rig.pass(29 * DAY);
    rig.send(ada, "ada", "bob", "m1");
    rig.ack(bob, 1);
    rig.pass(29 * DAY);
    rig.take(ada);
    rig.send(ada, "ada", "bob", "m2");
    assert_eq!(rig.states(ada)[0], accepted(1, 1), "it was used since");
    rig.ack(bob, 2);
    rig.pass(30 * DAY + 120 * SECOND);
    rig.take(ada);
    rig.send(ada, "ada", "bob", "m3");
    assert!(matches!(rig.states(ada)[0], Stage::Refused(_)));
}

#[test]
fn an_old_name_is_used_even_by_mail_that_is_refused_and_a_restart_knows_it() {
    let mut rig = Rig::with(|config| config.queue_max = 0);
    let (ada, bob) = (rig.v1("ada"), rig.ext("bob"));
    assert_eq!(rename(&mut rig, bob, "rob"), Ok("rob".into()));
    rig.pass(29 * DAY);
    // What is committed then says how late it is.
    rig.ext("cyd");
    rig.send(ada, "ada", "bob", "m1");
    rig.restart();
    let (cyd, _bob) = (rig.ext("cyd"), rig.ext("rob"));
    rig.pass(29 * DAY);
    rig.take(cyd);
    rig.send(cyd, "cyd", "bob", "m2");
    let states = rig.states(cyd);
    let Some(Stage::Refused(refusal)) = states.first() else {
        panic!("{states:?}");
    };
    assert_eq!(refusal.code, RefusalCode::QueueFull, "{}", refusal.reason);
}

#[test]
fn a_token_has_as_many_old_names_as_names_and_loses_its_own_that_was_not_used_for_longest() {
    let mut rig = Rig::with(|config| config.grants[0].quotas.names = 3);
    let eve = rig.join(other("eve"));
    assert_eq!(rename(&mut rig, eve, "evil"), Ok("evil".into()));
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    for (conn, name) in [(ada, "a1"), (bob, "b1"), (ada, "a2"), (bob, "b2")] {
        rig.pass(SECOND);
        assert_eq!(rename(&mut rig, conn, name), Ok(name.into()));
    }
    let old = |rig: &mut Rig| {
        let rows = rig.store.load().unwrap().aliases;
        rows.into_iter().map(|row| row.name).collect::<Vec<_>>()
    };
    assert_eq!(old(&mut rig), ["a1", "b1", "bob", "eve"]);
    rig.close(ada, true);
    rig.restart();
    let bob = rig.join(ext("b2", "instance-of-bob"));
    rig.pass(SECOND);
    assert_eq!(rename(&mut rig, bob, "b3"), Ok("b3".into()));
    assert_eq!(old(&mut rig), ["a1", "b1", "b2", "eve"]);
    rig.join(other("bob"));
}
