//! A name ends for good, and no mail of its with it.

use peerbus_core::broker::{BrokerInput, Command, ConnId};
use peerbus_wire::{ClientFrame, PeerName, Receipt, Stage};

use crate::domains::{alpha, bridge, says, to, told};
use crate::rig::{Rig, SECOND, ext, register};

pub(crate) fn retire(rig: &mut Rig, name: &str, to: Option<&str>) -> Result<(), String> {
    let parse = |name: &str| PeerName::parse(name).unwrap();
    let command = Command::Retire {
        name: parse(name),
        successor: to.map(parse),
    };
    rig.batch([]);
    let now = rig.now();
    let done = rig.broker.operate(now, &command, &mut rig.store).unwrap();
    rig.batch([]);
    rig.commit();
    rig.pass(SECOND);
    done.map_err(|denied| denied.to_string())
}

fn expired(states: &[Stage]) -> Vec<&str> {
    states
        .iter()
        .filter_map(|state| match state {
            Stage::Expired { why: reason } => Some(reason.as_str()),
            _ => None,
        })
        .collect()
}

fn again(rig: &mut Rig, conn: ConnId) -> Vec<bool> {
    let texts = rig.take(conn).texts;
    texts
        .iter()
        .map(|text| text.contains(r#""again":true"#))
        .collect()
}

#[test]
fn unseen_mail_of_a_name_that_ends_is_reported_to_its_senders() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    for n in 0..600 {
        rig.send(ada, "ada", "bob", &format!("m{n}"));
    }
    rig.take(ada);
    retire(&mut rig, "bob", None).unwrap();
    let (code, text) = rig.closed(bob).unwrap();
    assert_eq!((code, text.as_str()), (4004, "name has ended for good"));
    let states = rig.states(ada);
    assert_eq!(expired(&states), vec!["bob ended for good"; 600]);
    assert_eq!(rig.row("bob"), None);
    rig.send(ada, "ada", "bob", "late");
    assert!(matches!(rig.states(ada)[0], Stage::Refused(_)));
    let bob = rig.v1("bob");
    assert!(
        rig.delivered(bob).is_empty(),
        "a new life, without the mail"
    );
}

#[test]
fn the_reports_survive_a_broker_that_dies_half_way() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    for n in 0..600 {
        rig.send(ada, "ada", "bob", &format!("m{n}"));
    }
    rig.close(ada, true);
    rig.frame(bob, ClientFrame::Retire { successor: None });
    assert_eq!(rig.take(bob).names[0].refused, None);
    rig.input(BrokerInput::Tick);
    rig.restart();
    rig.pass(61 * SECOND);
    let ada = rig.ext("ada");
    let mut told = 0;
    for _ in 0..10 {
        let receipts = rig.take(ada).receipts;
        told += receipts.len();
        for key in receipts.into_iter().filter_map(|receipt| receipt.key) {
            rig.frame(ada, ClientFrame::ack(key, None));
        }
    }
    assert_eq!(told, 600);
}

#[test]
fn the_successor_gets_the_mail_in_its_order_although_it_is_older() {
    let mut rig = Rig::new();
    let (ada, bob, cyd) = (rig.ext("ada"), rig.ext("bob"), rig.ext("cyd"));
    rig.send(ada, "ada", "bob", "m1");
    rig.close(bob, true);
    rig.send(ada, "ada", "bob", "m2");
    rig.send(ada, "ada", "cyd", "m3");
    rig.send(ada, "ada", "*", "m4");
    assert_eq!(rig.delivered(cyd), [3, 4]);
    rig.take(ada);
    retire(&mut rig, "bob", Some("cyd")).unwrap();
    let told = rig.take(cyd);
    assert_eq!(told.delivered, [1, 2]);
    assert!(told.texts[0].contains(r#","again":true,"for":"bob","#));
    assert!(
        told.texts[1].contains(r#""2","for":"bob","#),
        "never delivered"
    );
    rig.send(ada, "ada", "bob", "m5");
    assert_eq!(rig.delivered(cyd), [5], "its name leads there");
    for seq in 1..=5 {
        rig.ack(cyd, seq);
    }
    assert!(rig.owed("cyd").is_empty());
    let acked = rig.take(ada).receipts;
    let by = |receipt: &&Receipt| {
        matches!(receipt.stage, Stage::Acked(_)) && receipt.to.as_deref() == Some("cyd")
    };
    assert_eq!(acked.iter().filter(by).count(), 5, "{acked:?}");
}

#[test]
fn a_broadcast_that_both_were_owed_comes_once_and_is_reported() {
    let mut rig = Rig::new();
    let (ada, _bob, cyd) = (rig.ext("ada"), rig.ext("bob"), rig.ext("cyd"));
    rig.send(ada, "ada", "*", "m1");
    rig.take(ada);
    assert_eq!(rig.delivered(cyd), [1]);
    retire(&mut rig, "bob", Some("cyd")).unwrap();
    assert!(rig.delivered(cyd).is_empty());
    let states = rig.states(ada);
    let said = expired(&states);
    assert_eq!(said, ["bob ended for good; cyd got the message itself"]);
}

#[test]
fn what_the_successor_does_not_ack_comes_again_with_its_own() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    let cyd = rig.ext("cyd");
    rig.close(cyd, true);
    rig.send(ada, "ada", "bob", "m1");
    rig.send(ada, "ada", "cyd", "m2");
    rig.frame(
        bob,
        ClientFrame::Retire {
            successor: Some("cyd".into()),
        },
    );
    assert_eq!(rig.take(bob).names[0].name, "bob");
    rig.pass(SECOND);
    rig.restart();
    let cyd = rig.ext("cyd");
    assert_eq!(rig.delivered(cyd), [1, 2]);
    rig.close(cyd, false);
    let cyd = rig.ext("cyd");
    assert_eq!(again(&mut rig, cyd), [true, true]);
}

#[test]
fn a_window_holds_for_mail_that_was_moved_too() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    let cyd = rig.join(peerbus_wire::Register {
        window: crate::rig::window(4, 1_048_576),
        ..ext("cyd", "instance-of-cyd")
    });
    for n in 0..5 {
        rig.send(ada, "ada", "bob", &format!("b{n}"));
    }
    for n in 0..5 {
        rig.send(ada, "ada", "cyd", &format!("c{n}"));
    }
    let _ = bob;
    retire(&mut rig, "bob", Some("cyd")).unwrap();
    let mut all = rig.delivered(cyd);
    assert_eq!(all.len(), 2);
    for at in 0..10 {
        let seq = all[at];
        rig.ack(cyd, seq);
        all.extend(rig.delivered(cyd));
        if at == 3 {
            rig.send(ada, "ada", "cyd", "late");
        }
    }
    assert_eq!(all, [6, 7, 1, 2, 3, 4, 5, 8, 9, 10, 11]);
}

#[test]
fn heirs_of_heirs_inherit_and_who_cannot_be_an_heir_is_said() {
    let mut rig = Rig::new();
    let (ada, _bob, _cyd, dan) = (
        rig.ext("ada"),
        rig.ext("bob"),
        rig.ext("cyd"),
        rig.ext("dan"),
    );
    rig.send(ada, "ada", "bob", "m1");
    for (name, to, says) in [
        ("nobody", None, "no peer named nobody"),
        ("bob", Some("nobody"), "cannot be the successor"),
        ("bob", Some("Bob"), "its own successor"),
    ] {
        let why = retire(&mut rig, name, to).unwrap_err();
        assert!(why.contains(says), "{why}");
    }
    let passing = rig.join(peerbus_wire::Register {
        ephemeral: true,
        ..register("passing")
    });
    let why = retire(&mut rig, "bob", Some("passing")).unwrap_err();
    assert!(why.contains("temporary"), "{why}");
    let _ = passing;
    retire(&mut rig, "bob", Some("cyd")).unwrap();
    retire(&mut rig, "cyd", Some("dan")).unwrap();
    assert_eq!(rig.delivered(dan), [1]);
    rig.send(ada, "ada", "bob", "m2");
    assert_eq!(rig.delivered(dan), [2], "old names follow");
    let why = retire(&mut rig, "bob", None).unwrap_err();
    assert!(why.contains("old name of dan"), "{why}");
    retire(&mut rig, "dan", None).unwrap();
    rig.take(ada);
    rig.send(ada, "ada", "bob", "m3");
    assert!(matches!(rig.states(ada)[0], Stage::Refused(_)));
}

#[test]
fn after_older_mail_new_mail_is_delivered_at_once_again() {
    let mut rig = Rig::new();
    let (ada, _bob, cyd) = (rig.ext("ada"), rig.ext("bob"), rig.ext("cyd"));
    rig.send(ada, "ada", "bob", "m1");
    rig.send(ada, "ada", "cyd", "m2");
    rig.ack(cyd, 2);
    rig.take(cyd);
    retire(&mut rig, "bob", Some("cyd")).unwrap();
    rig.send(ada, "ada", "cyd", "m3");
    assert_eq!(rig.delivered(cyd), [1, 3]);
}

#[test]
fn a_peer_hands_over_what_one_transaction_may_move_and_the_operator_more() {
    let mut rig = Rig::new();
    let (ada, bob, cyd) = (rig.v1("ada"), rig.ext("bob"), rig.ext("cyd"));
    rig.close(cyd, true);
    for n in 0..4_097 {
        rig.send(ada, "ada", "bob", &format!("m{n}"));
    }
    rig.take(bob);
    let successor = || Some("cyd".to_owned());
    let handed = |rig: &mut Rig| {
        let successor = successor();
        rig.frame(bob, ClientFrame::Retire { successor });
        rig.take(bob).names.remove(0).refused
    };
    let why = handed(&mut rig).unwrap();
    assert!(why.contains("4097 messages wait for bob"), "{why}");
    rig.ack(bob, 1);
    assert_eq!(handed(&mut rig), None);
    // All of it with the answer, whatever comes next.
    rig.restart();
    assert_eq!(rig.owed("cyd"), (2..=4_097).collect::<Vec<_>>());
    let ada = rig.v1("ada");
    rig.send(ada, "ada", "bob", "more");
    rig.send(ada, "ada", "bob", "and-more");
    let dan = rig.ext("dan");
    rig.close(dan, true);
    retire(&mut rig, "cyd", Some("dan")).unwrap();
    assert_eq!(rig.owed("dan"), (2..=4_099).collect::<Vec<_>>());
}

#[test]
fn peers_of_one_token_hand_over_so_many_messages_a_minute_and_others_their_own() {
    let mut rig = Rig::new();
    let ada = rig.v1("ada");
    let other = |name| peerbus_wire::Register {
        token: peerbus_wire::Token::parse(crate::rig::OTHER_TOKEN),
        ..ext(name, name)
    };
    let [eve1, eve2, _] = ["eve1", "eve2", "eve3"].map(|name| rig.join(other(name)));
    let (bob, _cyd) = (rig.ext("bob"), rig.ext("cyd"));
    for n in 0..3_000 {
        rig.send(ada, "ada", "eve1", &format!("m{n}"));
    }
    rig.send(ada, "ada", "bob", "m");
    let handed = |rig: &mut Rig, conn, to: &str| {
        let successor = Some(to.to_owned());
        rig.frame(conn, ClientFrame::Retire { successor });
        rig.take(conn).names.remove(0).refused
    };
    assert_eq!(handed(&mut rig, eve1, "eve2"), None);
    let why = handed(&mut rig, eve2, "eve3").unwrap();
    assert!(
        why.contains("hand over at most 4096 within a minute"),
        "{why}"
    );
    assert_eq!(
        handed(&mut rig, bob, "cyd"),
        None,
        "another token has its own"
    );
    rig.pass(60 * SECOND);
    assert_eq!(handed(&mut rig, eve2, "eve3"), None);
    assert_eq!(rig.owed("eve3").len(), 3_000);
}

#[test]
fn a_successor_that_gets_no_mail_is_not_told_that_its_own_comes_again() {
    let mut rig = Rig::new();
    let (ada, bob, cyd) = (rig.ext("ada"), rig.ext("bob"), rig.ext("cyd"));
    rig.close(cyd, true);
    rig.send(ada, "ada", "cyd", "m1");
    rig.send(ada, "ada", "bob", "m2");
    rig.ack(bob, 2);
    rig.close(bob, true);
    retire(&mut rig, "bob", Some("cyd")).unwrap();
    let cyd = rig.ext("cyd");
    assert_eq!(again(&mut rig, cyd), [false]);
}

#[test]
fn what_waits_for_a_bridge_whose_name_ends_is_told_by_the_addresses_it_was_for() {
    let mut rig = alpha();
    let (alice, beta) = (rig.ext("alice"), rig.join(bridge("beta", "B1")));
    for id in ["m1", "m2"] {
        rig.send(alice, "alice@alpha", "bob@beta", id);
    }
    says(&mut rig, beta, 1, Stage::Forwarded);
    rig.take(alice);
    retire(&mut rig, "bridge@beta", None).unwrap();
    assert_eq!(told(&mut rig, alice), vec![to("expired", "bob@beta"); 2]);
    let ids = crate::rig::ids(&["m1"]);
    rig.frame(alice, ClientFrame::Status { ids });
    let steps = [
        ("accepted", None),
        to("forwarded", "bob@beta"),
        to("expired", "bob@beta"),
    ];
    assert_eq!(told(&mut rig, alice), steps);
    assert_eq!(rig.row("bridge@beta"), None);
}
