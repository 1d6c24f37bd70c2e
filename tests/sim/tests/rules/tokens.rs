//! What a token may do.

use peerbus_core::TokenHash;
use peerbus_core::broker::{BrokerInput, BusEvent};
use peerbus_core::grant::{Grant, NamePattern, Quotas, Right, Rights};
use peerbus_wire::{
    ClientFrame, PeerEntry, Presence, Received, RefusalCode, Register, Stage, Token, TokenName,
};

use crate::rig::{OTHER_TOKEN, Rig, SECOND, TOKEN, accepted, envelope, ext, register};

/// The wall clock of a new rig.
const WALL_ZERO: u64 = 1_700_000_000_000;

fn other(register: Register) -> Register {
    Register {
        token: Token::parse(OTHER_TOKEN),
        ..register
    }
}

fn grant(name: &str, token: &str) -> Grant {
    let token = TokenHash::of(&Token::parse(token).unwrap());
    Grant::usual(TokenName::parse(name).unwrap(), token)
}

/// [`TOKEN`] admits to all that is usual, and [`OTHER_TOKEN`] to what is said.
fn grants(change: impl FnOnce(&mut Grant)) -> Vec<Grant> {
    let mut other = grant("other", OTHER_TOKEN);
    change(&mut other);
    vec![grant("one", TOKEN), other]
}

fn rig(change: impl FnOnce(&mut Grant)) -> Rig {
    Rig::with(|config| config.grants = grants(change))
}

fn temporary(name: &str) -> Register {
    Register {
        ephemeral: true,
        ..ext(name, name)
    }
}

/// Registers names and leaves each, a millisecond after the other.
fn visit(rig: &mut Rig, names: impl IntoIterator<Item = usize>) {
    for n in names {
        rig.ms += 1;
        let conn = rig.v1(&format!("n{n}"));
        rig.close(conn, true);
    }
}

#[test]
fn a_token_at_its_limit_of_names_loses_its_own_oldest_and_nobody_elses() {
    let mut rig = Rig::new();
    // Older than all, and of another token.
    let bob = rig.join(other(register("bob")));
    rig.close(bob, true);
    visit(&mut rig, 0..1_001);
    assert_eq!(rig.row("n0"), None, "its oldest");
    assert!(rig.row("n1").is_some() && rig.row("n1000").is_some());
    assert!(rig.row("bob").is_some(), "nobody else's");
    let said = rig.counts.iter().filter_map(|event| match event {
        BusEvent::Forgotten { name, token } => Some((name.as_str(), token.as_str())),
        _ => None,
    });
    assert_eq!(said.collect::<Vec<_>>(), [("n0", "token-1")]);
}

#[test]
fn one_tokens_names_leave_room_for_temporary_ones_of_everybody() {
    let mut rig = Rig::with(|config| config.peers_max = 50);
    visit(&mut rig, 0..60);
    for register in [other(temporary("cli-1")), temporary("cli-2")] {
        let cli = rig.join(register);
        assert_eq!(rig.closed(cli), None);
    }
    let late = rig.ask(other(register("late")));
    assert!(rig.closed(late).is_some(), "it has nothing to lose");
    assert!(rig.row("n59").is_some());
}

#[test]
fn a_name_with_mail_or_in_use_is_not_lost_to_a_new_one() {
    let mut rig = Rig::with(|config| {
        config.grants = grants(|_| ());
        config.grants[0].quotas.names = 3;
    });
    visit(&mut rig, 0..1);
    let ada = rig.v1("ada");
    let bob = rig.join(other(register("bob")));
    rig.send(bob, "bob", "n0", "m1");
    visit(&mut rig, 1..3);
    assert!(rig.row("n0").is_some(), "it has mail");
    assert!(rig.row("n1").is_none() && rig.row("n2").is_some());
    rig.send(bob, "bob", "n2", "m2");
    let late = rig.ask(register("late"));
    let (code, text) = rig.closed(late).unwrap();
    assert!(code == 1013 && text.contains("limit of names"), "{text}");
    assert_eq!(rig.closed(ada), None);
    visit(&mut rig, [0, 2]);
    assert_eq!(
        rig.owed("n0").len(),
        1,
        "its own names are its own as before"
    );
}

#[test]
fn a_lost_name_is_as_if_nobody_ever_had_it() {
    let mut rig = rig(|other| other.quotas.names = 1);
    let first = rig.join(other(register("first")));
    rig.close(first, true);
    rig.join(other(register("second")));
    rig.restart();
    let ada = rig.ext("ada");
    rig.send(ada, "ada", "first", "m1");
    let stages = rig.states(ada);
    assert!(
        matches!(&stages[..], [Stage::Refused(r)] if r.code == RefusalCode::UnknownRecipient),
        "{stages:?}"
    );
    rig.join(register("first"));
}

/// The other token has `phone`, and the names of the gateway, for itself.
fn kept() -> Vec<Grant> {
    grants(|other| {
        let names = ["phone", "web:*"].map(|text| NamePattern::parse(text).unwrap());
        other.names = names.into();
    })
}

const KEPT: &str = "name kept for the token other; choose another one";

#[test]
fn a_name_that_is_said_of_a_token_is_no_other_tokens() {
    let mut rig = Rig::with(|config| config.grants = kept());
    let eve = rig.ext("eve");
    for name in ["phone", "PHONE", "web:phone"] {
        for register in [ext(name, "x"), temporary(name), register(name)] {
            let wrong = rig.ask(register);
            assert_eq!(rig.closed(wrong), Some((1008, KEPT.into())), "{name}");
        }
        rig.frame(eve, ClientFrame::Rename { name: name.into() });
        let refused = rig.take(eve).names.remove(0).refused;
        assert_eq!(refused.as_deref(), Some(KEPT), "{name}");
    }
    rig.join(other(ext("phone", "p")));
    rig.join(other(ext("web:phone", "w")));
    // Once nothing keeps them they are free.
    rig.input(BrokerInput::Grants(vec![grant("one", TOKEN)]));
    rig.join(ext("web:other", "x"));
}

#[test]
fn who_has_a_name_when_it_is_kept_for_another_token_loses_it() {
    for renamed in [false, true] {
        let mut rig = rig(|_| ());
        let (bob, eve) = (rig.ext("bob"), rig.ext("phone"));
        if renamed {
            let rename = ClientFrame::Rename { name: "eve".into() };
            rig.frame(eve, rename);
        }
        rig.input(BrokerInput::Grants(kept()));
        let told = rig.closed(eve);
        if renamed {
            assert_eq!(told, None, "that name she may have");
            rig.send(bob, "bob", "phone", "m1");
            assert!(
                matches!(&rig.states(bob)[..], [Stage::Refused(_)]),
                "her old name leads to her no more"
            );
            rig.send(eve, "phone", "bob", "m2");
            assert!(rig.delivered(bob).is_empty(), "nor can she sign with it");
            let phone = rig.join(other(ext("web:fon", "p")));
            let rename = ClientFrame::Rename {
                name: "phone".into(),
            };
            rig.frame(phone, rename);
            assert_eq!(rig.take(phone).names.remove(0).refused, None);
            rig.send(bob, "bob", "phone", "m3");
            assert_eq!(rig.delivered(phone).len(), 1);
        } else {
            assert_eq!(told, Some((1008, KEPT.into())));
            // What waits for it stays until the operator frees it.
            let wrong = rig.ask(other(ext("phone", "p")));
            let claimed = "name claimed under a different token";
            assert_eq!(rig.closed(wrong), Some((1008, claimed.into())));
        }
    }
}

#[test]
fn only_a_name_that_is_kept_for_its_token_may_approve() {
    let approves = |grants: Vec<Grant>, name: &str| {
        let mut rig = Rig::with(|config| config.grants = grants);
        let bob = rig.ext("bob");
        let phone = rig.join(other(ext(name, "p")));
        rig.send(phone, name, "bob", "m1");
        let first = rig.take(bob).texts.remove(0);
        rig.close(bob, true);
        let bob = rig.ext("bob");
        let again = rig.take(bob).texts.remove(0);
        let says = |text: &str| text.contains(r#""approves":true"#);
        assert_eq!(says(&first), says(&again));
        says(&first)
    };
    assert!(approves(kept(), "phone"));
    assert!(approves(kept(), "web:phone"));
    assert!(!approves(grants(|_| ()), "phone"), "anybody could be it");
    let stars = grants(|other| other.names = NamePattern::parse("ph*").into_iter().collect());
    assert!(!approves(stars, "phone"));
    let rights = |grants: Vec<Grant>| {
        let without = |grant| Grant {
            rights: Rights::of([Right::Send]),
            ..grant
        };
        grants.into_iter().map(without).collect()
    };
    assert!(!approves(rights(kept()), "phone"));
}

#[test]
fn a_token_registers_only_names_that_it_may_have() {
    let mut rig = rig(|other| {
        other.names = ["phone", "build-*"]
            .map(|text| NamePattern::parse(text).unwrap())
            .into();
    });
    let phone = rig.join(other(ext("Phone", "x")));
    let wrong = rig.ask(other(temporary("alice")));
    let (code, text) = rig.closed(wrong).unwrap();
    assert_eq!(
        (code, text.as_str()),
        (
            1008,
            "name not allowed to this token: it may have phone, build-*"
        )
    );
    let rename = |name: &str| ClientFrame::Rename { name: name.into() };
    rig.frame(phone, rename("alice"));
    rig.frame(phone, rename("build-7"));
    let names = rig.take(phone).names;
    assert!(
        names[0].refused.as_ref().unwrap().contains("not allowed"),
        "{names:?}"
    );
    assert_eq!(
        (names[1].name.as_str(), &names[1].refused),
        ("build-7", &None)
    );
}

#[test]
fn a_token_without_the_right_cannot_send_and_is_told_so() {
    let mut rig = rig(|other| other.rights = Rights::of([Right::Broadcast]));
    let ada = rig.ext("ada");
    let bob = rig.join(other(ext("bob", "x")));
    rig.send(bob, "bob", "ada", "m1");
    rig.send(bob, "bob", "*", "m2");
    let stages = rig.states(bob);
    let [Stage::Refused(refusal), second, ..] = &stages[..] else {
        panic!("{stages:?}");
    };
    assert_eq!(refusal.code, RefusalCode::Forbidden);
    assert!(refusal.reason.contains("token other"), "{}", refusal.reason);
    assert_eq!(*second, accepted(1, 1));
    assert_eq!(rig.delivered(ada), [1]);
    // What was accepted while it had the right is receipted again.
    rig.input(BrokerInput::Grants(grants(|other| {
        other.rights = Rights::default()
    })));
    rig.text(bob, &envelope("bob", "*", "m2", "1"));
    rig.text(bob, &envelope("bob", "*", "m3", "1"));
    let stages = rig.states(bob);
    assert!(
        matches!(&stages[..], [Stage::Accepted(a), Stage::Refused(_)] if a.duplicate),
        "{stages:?}"
    );
}

#[test]
fn without_the_right_to_observe_a_token_sees_names_only_of_others() {
    let mut rig = rig(|other| other.rights = Rights::of([Right::Send]));
    let presence = Presence::parse(r#"{"project":"secret-project"}"#);
    let ada = rig.join(Register {
        presence,
        ..ext("ada", "x")
    });
    rig.v1("zoe");
    let bob = rig.join(other(ext("bob", "y")));
    rig.send(bob, "bob", "ada", "m1");
    let ask = |rig: &mut Rig, conn| {
        rig.take(conn);
        rig.frame(conn, ClientFrame::Peers);
        rig.take(conn).peers.remove(0).peers.unwrap()
    };
    let mut seen = ask(&mut rig, bob);
    seen.sort_by(|a, b| a.name.cmp(&b.name));
    let named = |name: &str| PeerEntry {
        name: name.into(),
        online: true,
        ..PeerEntry::default()
    };
    assert_eq!(seen[0], named("ada"), "no project, no count");
    assert_eq!(seen[2], named("zoe"));
    assert_eq!((seen[1].name.as_str(), seen[1].unacked), ("bob", Some(0)));
    let all = ask(&mut rig, ada);
    let bob_seen = all.iter().find(|entry| entry.name == "bob").unwrap();
    assert_eq!(bob_seen.unacked, Some(0), "the usual token sees all");

    rig.input(BrokerInput::Grants(grants(|other| {
        other.rights = Rights::of([Right::Approve]);
    })));
    let seen = ask(&mut rig, bob);
    assert_eq!(seen.len(), 1, "one who cannot send needs nobody's name");
    let v1 = rig.ask(other(register("carl")));
    assert_eq!(rig.take(v1).peers[0].names, ["bob", "carl"]);
}

#[test]
fn a_revoked_token_is_turned_out_at_once_and_admits_nobody() {
    let mut rig = rig(|_| ());
    let ada = rig.ext("ada");
    let bob = rig.join(other(ext("bob", "x")));
    let cli = rig.join(other(temporary("cli-1")));
    rig.send(bob, "bob", "ada", "m1");
    rig.take(bob);
    rig.batch([
        crate::rig::message(bob, "bob", "ada", "m2"),
        BrokerInput::Grants(vec![grant("one", TOKEN)]),
        crate::rig::message(bob, "bob", "ada", "m3"),
    ]);
    rig.commit();
    assert_eq!(
        rig.closed(bob),
        Some((4005, "token was revoked".into())),
        "after what it is told"
    );
    let stages = rig.states(bob);
    assert_eq!(stages[0], accepted(1, 1), "of what came before");
    assert!(!stages[1..].contains(&accepted(1, 1)), "{stages:?}");
    assert_eq!(rig.closed(cli).map(|(code, _)| code), Some(4005));
    assert_eq!(rig.row("cli-1"), None, "it does not come back");
    assert_eq!(rig.delivered(ada), [1, 2]);
    assert_eq!(rig.closed(ada), None, "nobody else");
    let again = rig.ask(other(ext("bob", "x")));
    assert_eq!(
        rig.closed(again),
        Some((1008, "invalid bearer token".into()))
    );
    rig.send(ada, "ada", "bob", "m4");
    assert_eq!(rig.owed("bob"), [3], "mail for its names waits");
}

#[test]
fn who_waits_for_a_name_with_a_revoked_token_does_not_get_it() {
    let mut rig = rig(|_| ());
    let first = rig.join(other(ext("bob", "x")));
    let second = rig.ask(other(ext("bob", "y")));
    rig.input(BrokerInput::Grants(vec![grant("one", TOKEN)]));
    for conn in [first, second] {
        assert_eq!(rig.closed(conn).map(|(code, _)| code), Some(4005));
    }
    rig.pass(5 * SECOND);
}

#[test]
fn a_token_ends_at_its_time_by_the_wall_clock() {
    let mut rig = rig(|other| other.expires_ms = Some(WALL_ZERO + 600 * SECOND));
    let bob = rig.join(other(ext("bob", "x")));
    rig.pass(599 * SECOND);
    assert_eq!(rig.closed(bob), None);
    rig.pass(SECOND);
    assert_eq!(rig.closed(bob), Some((4005, "token has expired".into())));
    let again = rig.ask(other(ext("bob", "x")));
    assert_eq!(rig.closed(again), Some((4005, "token has expired".into())));
}

#[test]
fn a_clock_that_is_set_past_a_tokens_end_is_noticed() {
    let mut rig = rig(|other| other.expires_ms = Some(WALL_ZERO + 86_400 * SECOND));
    let bob = rig.join(other(ext("bob", "x")));
    rig.ahead_ms = 2 * 86_400_000;
    rig.pass(61 * SECOND);
    assert_eq!(rig.closed(bob).map(|(code, _)| code), Some(4005));
}

#[test]
fn a_connection_whose_name_its_token_may_not_have_any_more_is_closed() {
    let mut rig = rig(|_| ());
    let bob = rig.join(other(ext("bob", "x")));
    rig.input(BrokerInput::Grants(grants(|other| {
        other.names = vec![NamePattern::parse("phone").unwrap()];
    })));
    assert_eq!(rig.closed(bob).map(|(code, _)| code), Some(1008));
}

#[test]
fn a_token_has_so_many_connections_and_no_more() {
    let mut rig = rig(|other| {
        other.quotas = Quotas {
            connections: Some(2),
            ..Quotas::default()
        };
    });
    let ada = rig.join(other(ext("ada", "a")));
    rig.join(other(temporary("cli-1")));
    let third = rig.ask(other(ext("bob", "b")));
    assert_eq!(
        rig.closed(third),
        Some((1013, "token is at its limit of connections".into()))
    );
    // The same process, before its old connection is known to be gone.
    rig.join(other(ext("ada", "a")));
    assert_eq!(rig.closed(ada).map(|(code, _)| code), Some(4000));
    rig.ext("carl");
}

#[test]
fn mail_of_another_token_says_which_and_that_of_ones_own_says_nothing() {
    let mut rig = rig(|_| {});
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    let eve = rig.join(other(ext("eve", "eve")));
    let token = |rig: &mut Rig, conn| {
        let texts = rig.take(conn).texts;
        assert_eq!(texts.len(), 1, "{texts:?}");
        let Received::Deliver(delivery) = Received::parse(texts[0].as_bytes()) else {
            panic!("{texts:?}");
        };
        delivery.remarks.token.map(|token| token.to_string())
    };
    rig.send(eve, "eve", "bob", "m1");
    assert_eq!(token(&mut rig, bob).as_deref(), Some("other"));
    rig.send(ada, "ada", "bob", "m2");
    assert_eq!(token(&mut rig, bob), None);
    // To everybody, each is told as it is for it.
    rig.send(ada, "ada", "*", "b1");
    assert_eq!(token(&mut rig, bob), None);
    assert_eq!(token(&mut rig, eve).as_deref(), Some("one"));
    // It is said of what waited, too.
    rig.close(bob, true);
    for (conn, from, id) in [(eve, "eve", "m3"), (ada, "ada", "m4")] {
        rig.send(conn, from, "bob", id);
    }
    let bob = rig.ext("bob");
    let texts = rig.take(bob).texts;
    let says = |text: &&String| text.contains(r#""token":"other""#);
    assert_eq!(texts.iter().filter(says).count(), 2, "m1 and m3: {texts:?}");
    // Version 1 knows of no such thing.
    let vic = rig.v1("vic");
    rig.send(eve, "eve", "vic", "m5");
    assert_eq!(token(&mut rig, vic), None);
    // A token that admits nobody any more is another's all the same.
    rig.close(bob, true);
    rig.input(BrokerInput::Grants(vec![grant("one", TOKEN)]));
    let bob = rig.ext("bob");
    let texts = rig.take(bob).texts;
    let says = |text: &&String| text.contains(r#""token":"revoked""#);
    assert_eq!(texts.iter().filter(says).count(), 2, "m1 and m3: {texts:?}");
}
