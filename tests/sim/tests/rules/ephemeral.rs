//! Temporary peers.

use peerbus_core::broker::{BrokerInput, Command, ConnId};
use peerbus_core::store::{PeerKind, Store as _};
use peerbus_wire::{Accepted, ClientFrame, Domain, PeerName, Presence, Register, Stage, Token};

use crate::rig::{OTHER_TOKEN, Rig, SECOND, accepted, envelope, ext};

fn temporary(name: &str, instance: &str) -> Register {
    Register {
        ephemeral: true,
        ..ext(name, instance)
    }
}

fn other(register: Register) -> Register {
    Register {
        token: Token::parse(OTHER_TOKEN),
        ..register
    }
}

#[test]
fn it_needs_a_name_that_nobody_has() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    rig.close(ada, true);
    let conn = rig.ask(temporary("ADA", "x"));
    let (code, text) = rig.closed(conn).unwrap();
    assert!(code == 1008 && text.contains("unused"), "{text}");
}

#[test]
fn it_is_not_in_broadcasts_but_can_be_answered() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let cli = rig.join(temporary("cli-1", "x"));
    rig.send(ada, "ada", "*", "b1");
    assert_eq!(rig.states(ada), [accepted(0, 0)]);
    rig.send(ada, "ada", "cli-1", "m1");
    assert_eq!(rig.delivered(cli), [2]);
}

#[test]
fn it_is_forgotten_when_it_says_goodbye_and_its_mail_expires_with_a_notice() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let cli = rig.join(temporary("cli-1", "x"));
    rig.send(ada, "ada", "cli-1", "m1");
    rig.take(ada);
    rig.close(cli, true);
    let receipt = rig.take(ada).receipts.remove(0);
    assert!(receipt.key.is_some());
    assert_eq!(receipt.to.as_deref(), Some("cli-1"));
    assert!(matches!(&receipt.stage, Stage::Expired { why } if why.contains("temporary")));
    assert_eq!(rig.row("cli-1"), None);
    rig.send(ada, "ada", "cli-1", "m2");
    assert!(
        matches!(rig.states(ada)[..], [Stage::Refused(_)]),
        "unknown again"
    );
}

#[test]
fn what_answers_it_goes_to_nobody_else() {
    let answer = |rig: &mut Rig, bob, to: &str, id: &str, about: &str| {
        let body = format!(r#"{{"text":"hunter2","reply_to":"{about}"}}"#);
        rig.text(bob, &envelope("bob", to, id, &body));
        rig.states(bob).pop()
    };
    let retire = |name: &str| {
        BrokerInput::Operate(Command::Retire {
            name: PeerName::parse(name).unwrap(),
            successor: None,
        })
    };
    for (retired, restarted) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut rig = Rig::with(|config| config.domain = Domain::parse("alpha"));
        let mut bob = rig.ext("bob");
        let ask = rig.join(temporary("cli-1", "x"));
        rig.send(ask, "cli-1", "bob", "q1");
        match retired {
            true => rig.input(retire("cli-1")),
            false => rig.close(ask, true),
        }
        if restarted {
            rig.pass(300 * SECOND);
            rig.restart();
            bob = rig.ext("bob");
        }
        // Another token cannot make the broker forget it.
        for n in 0..40 {
            let short = rig.join(other(temporary("cli-1", &format!("s{n}"))));
            rig.close(short, true);
        }
        let next = rig.join(other(temporary("CLI-1", "z")));
        rig.send(next, "CLI-1", "bob", "q2");
        rig.take(bob);
        for (n, to) in ["cli-1", "cli-1@alpha"].iter().enumerate() {
            let told = answer(&mut rig, bob, to, &format!("a{n}"), "q1");
            let Some(Stage::Refused(refusal)) = told else {
                panic!("{to}: {told:?}");
            };
            assert!(refusal.reason.contains("has left"), "{}", refusal.reason);
            // Nor whoever says the same again.
            rig.send(next, "CLI-1", "bob", "q1");
            let told = answer(&mut rig, bob, to, &format!("c{n}"), "q1");
            assert!(matches!(told, Some(Stage::Refused(_))), "{to}: {told:?}");
            answer(&mut rig, bob, to, &format!("b{n}"), "q2");
            assert_eq!(rig.delivered(next).len(), 1, "{to}");
        }
        rig.send(bob, "bob", "cli-1", "m1");
        assert_eq!(rig.delivered(next).len(), 1, "it answers nothing");
        let peers = rig.store.tables().peers.len();
        // And a sweep.
        rig.pass(if restarted { 361 } else { 661 } * SECOND);
        rig.send(next, "CLI-1", "bob", "q3");
        rig.take(bob);
        let told = answer(&mut rig, bob, "cli-1", "a9", "q1");
        assert!(!matches!(told, Some(Stage::Refused(_))), "{told:?}");
        // Of another token's namesakes the last ones are known, until their time is over.
        rig.pass(600 * SECOND);
        let known = rig.store.tables().peers.len();
        assert_eq!((peers - known, known), (33, 2), "{retired} {restarted}");
    }
}

#[test]
fn what_answers_it_goes_to_nobody_else_when_its_message_is_forgotten() {
    let mut rig = Rig::with(|config| config.history_bytes = 0);
    let bob = rig.ext("bob");
    let ask = rig.join(temporary("cli-1", "x"));
    rig.send(ask, "cli-1", "bob", "q1");
    rig.ack(bob, 1);
    rig.pass(700 * SECOND);
    assert!(rig.store.tables().messages.is_empty(), "it is forgotten");
    rig.close(ask, true);
    rig.join(other(temporary("cli-1", "z")));
    rig.take(bob);
    let body = r#"{"text":"hunter2","reply_to":"q1"}"#;
    rig.text(bob, &envelope("bob", "cli-1", "a1", body));
    let told = rig.states(bob).pop();
    assert!(matches!(told, Some(Stage::Refused(_))), "{told:?}");
}

#[test]
fn all_of_its_mail_expires_when_it_says_goodbye_however_long_that_is() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let cli = rig.join(temporary("cli-1", "x"));
    let long = format!("\"{}\"", "x".repeat(1_000_000));
    for n in 0..10 {
        rig.text(ada, &envelope("ada", "cli-1", &format!("m{n}"), &long));
    }
    rig.take(ada);
    rig.close(cli, true);
    let at_once = rig.states(ada).len();
    assert_eq!(at_once, 5, "4 MiB, or others would wait");
    rig.send(ada, "ada", "cli-1", "m10");
    let told = rig.states(ada);
    assert!(matches!(told[..], [Stage::Refused(_)]), "its name is gone");
    rig.restart();
    rig.pass(120 * SECOND);
    let ada = rig.ext("ada");
    let told = rig.states(ada);
    let left = |stage: &Stage| matches!(stage, Stage::Expired { why } if why.contains("temporary"));
    assert!(told.iter().all(left), "{told:?}");
    assert_eq!((told.len(), rig.row("cli-1")), (10, None));
    rig.pass(600 * SECOND);
    assert!(rig.store.tables().peers.len() == 1, "and no trace of it");
}

#[test]
fn one_whose_connection_breaks_may_come_back_and_repeat_itself() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let cli = rig.join(temporary("cli-1", "x"));
    rig.send(cli, "cli-1", "ada", "m1");
    rig.close(cli, false);
    let again = rig.join(temporary("cli-1", "x"));
    rig.take(again);
    rig.send(again, "cli-1", "ada", "m1");
    assert!(matches!(
        rig.states(again)[..],
        [Stage::Accepted(Accepted {
            duplicate: true,
            ..
        })]
    ));
    assert_eq!(rig.delivered(ada), [1], "once");
}

#[test]
fn one_that_does_not_come_back_is_forgotten_after_the_grace() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let cli = rig.join(temporary("cli-1", "x"));
    rig.close(cli, false);
    rig.send(ada, "ada", "cli-1", "m1");
    assert_eq!(rig.states(ada), [accepted(1, 0)]);
    rig.pass(59 * SECOND);
    assert!(rig.row("cli-1").is_some());
    rig.pass(122 * SECOND);
    assert_eq!(rig.row("cli-1"), None);
    assert!(matches!(rig.states(ada)[..], [Stage::Expired { .. }]));
}

#[test]
fn one_that_a_broker_did_not_live_to_see_leave_is_forgotten_too() {
    let mut rig = Rig::new();
    rig.join(temporary("cli-1", "x"));
    rig.restart();
    assert!(rig.row("cli-1").is_some());
    rig.pass(181 * SECOND);
    assert_eq!(rig.row("cli-1"), None);
}

#[test]
fn names_of_one_token_hide_no_other_tokens_from_who_asks() {
    let mut rig = Rig::new();
    let bob = rig.ext("bob");
    for n in 0..700 {
        rig.join(other(temporary(&format!("eve{n}"), "eve")));
    }
    let zoe = rig.ext("zoe");
    rig.close(zoe, true);
    let eve = rig.join(other(ext("eve", "eve")));
    let shown = |rig: &mut Rig, conn| {
        rig.take(conn);
        rig.frame(conn, ClientFrame::Peers);
        let frame = rig.take(conn).peers.remove(0);
        assert_eq!(frame.omitted, 703 - 512);
        let peers = frame.peers.unwrap().into_iter();
        peers.map(|peer| peer.name).collect::<Vec<_>>()
    };
    for conn in [bob, eve] {
        let names = shown(&mut rig, conn);
        assert_eq!(names.len(), 512);
        for name in ["bob", "zoe"] {
            let first = &names[..4];
            assert!(first.contains(&name.to_owned()), "{name} is hidden");
        }
    }
}

#[test]
fn what_program_a_peer_is_that_is_away_is_known_after_a_restart() {
    let mut rig = Rig::new();
    let said = r#"{"client":"codex","activity":"idle","pid":7}"#;
    let first = Register {
        presence: Presence::parse(r#"{"pid":7}"#),
        ..ext("ann", "ann")
    };
    let ann = rig.join(first);
    let presence = Presence::parse(said).unwrap();
    rig.frame(ann, ClientFrame::Presence(presence));
    rig.restart();
    let bob = rig.ext("bob");
    let known = Presence::parse(r#"{"client":"codex"}"#);
    assert_eq!(presence_of_ann(&mut rig, bob), known);
    // A command under its name is no agent, and leaves the name an agent's.
    rig.join(ext("ann", "recv"));
    rig.restart();
    let bob = rig.ext("bob");
    assert_eq!(presence_of_ann(&mut rig, bob), known);
}

/// What is told of ann, who is away.
fn presence_of_ann(rig: &mut Rig, conn: ConnId) -> Option<Presence> {
    rig.take(conn);
    rig.frame(conn, ClientFrame::Peers);
    let entries = rig.take(conn).peers.pop().unwrap().peers.unwrap();
    entries.into_iter().find(|it| it.name == "ann")?.presence
}

#[test]
fn peers_of_one_token_that_come_and_go_take_nobody_elses_last_presence() {
    const NAMES: usize = 1_100;
    for ephemeral in [true, false] {
        let mut rig = Rig::new();
        let presence = Presence::parse(r#"{"client":"codex"}"#);
        let ann = rig.join(Register {
            presence: presence.clone(),
            ..ext("ann", "ann")
        });
        rig.close(ann, true);
        for n in 0..NAMES {
            let conn = rig.join(Register {
                token: Token::parse(OTHER_TOKEN),
                presence: Presence::parse("{}"),
                ephemeral,
                ..ext(&format!("t{n}"), "t")
            });
            rig.close(conn, true);
            rig.told.remove(&conn);
        }
        // So that the answer has room for ann.
        let bob = rig.ext("bob");
        assert_eq!(presence_of_ann(&mut rig, bob), presence, "{ephemeral}");
    }
}

#[test]
fn names_that_left_before_a_restart_are_forgotten_slice_by_slice() {
    const NAMES: usize = 600;
    let mut rig = Rig::new();
    for n in 0..NAMES {
        let conn = rig.join(temporary(&format!("t{n}"), "t"));
        rig.close(conn, true);
        rig.told.remove(&conn);
    }
    // Stopped for longer than they are remembered.
    rig.ms += 601 * SECOND;
    rig.restart();
    let ended = |rig: &mut Rig| {
        let peers = rig.store.load().unwrap().peers;
        let ended = peers.iter().filter(|row| row.kind == PeerKind::Ended);
        ended.count()
    };
    assert_eq!(ended(&mut rig), NAMES);
    rig.pass(rig.config.sweep_ms + SECOND);
    assert_eq!(ended(&mut rig), 0);
}
