//! A broker with a domain, and its bridges.

use peerbus_core::TokenHash;
use peerbus_core::broker::{BrokerConfig, BrokerInput, ConnId};
use peerbus_core::grant::{Right, Rights};
use peerbus_wire::bridge::UNKNOWN;
use peerbus_wire::{
    ClientFrame, Domain, How, Mark, PeerEntry, Presence, Register, Seq, Stage, Token,
};

use crate::retire::retire;
use crate::rig::{DAY, OTHER_TOKEN, Rig, TOKEN, envelope, ext, register};

fn mark(text: &str) -> Mark {
    Mark::parse(text).unwrap()
}

/// A broker called alpha; its second token may bridge.
pub(crate) fn alpha() -> Rig {
    alpha_with(|_| {})
}

pub(crate) fn alpha_with(more: impl FnOnce(&mut BrokerConfig)) -> Rig {
    Rig::with(|config| {
        more(config);
        config.domain = Domain::parse("alpha");
        config.epoch = Some(mark("A1"));
        let bridges = TokenHash::of(&Token::parse(OTHER_TOKEN).unwrap());
        let grant = config
            .grants
            .iter_mut()
            .find(|grant| grant.token == bridges);
        grant.unwrap().rights = Rights::of([Right::Bridge]);
    })
}

pub(crate) fn bridge(domain: &str, epoch: &str) -> Register {
    Register {
        token: Token::parse(OTHER_TOKEN),
        bridge: Some(mark(epoch)),
        ..ext(&format!("bridge@{domain}"), &format!("bridge-to-{domain}"))
    }
}

/// The message of a bridge is brought with this mark.
pub(crate) fn take(rig: &mut Rig, conn: ConnId, from: &str, to: &str, id: &str, at: &str) {
    bring(rig, conn, [from, to, id, at], "");
}

/// The same after one was refused.
fn take_again(rig: &mut Rig, conn: ConnId, [from, to, id, at]: [&str; 4]) {
    bring(rig, conn, [from, to, id, at], r#","again":true"#);
}

fn bring(rig: &mut Rig, conn: ConnId, [from, to, id, at]: [&str; 4], again: &str) {
    let envelope = envelope(from, to, id, "1");
    let frame = format!(
        r#"{{"protocol_version":"v1","type":"take","mark":"{at}"{again},"envelope":{envelope}}}"#
    );
    rig.text(conn, &frame);
}

pub(crate) fn says(rig: &mut Rig, conn: ConnId, seq: u64, stage: Stage) {
    let key = Seq(seq).key();
    rig.frame(conn, ClientFrame::progress(key, stage));
}

/// State and recipient of each statement that a sender was told.
pub(crate) fn told(rig: &mut Rig, conn: ConnId) -> Vec<(&'static str, Option<String>)> {
    let receipts = rig.take(conn).receipts.into_iter();
    receipts
        .map(|receipt| (receipt.stage.word(), receipt.to))
        .collect()
}

pub(crate) fn to(state: &'static str, to: &str) -> (&'static str, Option<String>) {
    (state, Some(to.to_owned()))
}

/// Why the only message that was sent is refused.
pub(crate) fn refused(rig: &mut Rig, conn: ConnId) -> String {
    match rig.states(conn).pop() {
        Some(Stage::Refused(refusal)) => refusal.reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_address_leads_to_a_name_here_or_to_the_bridge() {
    let mut rig = alpha();
    let (alice, bob) = (rig.ext("alice"), rig.ext("bob"));
    rig.send(alice, "alice", "bob@alpha", "m1");
    assert_eq!(rig.states(alice).first().map(Stage::word), Some("accepted"));
    assert!(rig.take(bob).texts[0].contains(r#""for":"bob@alpha""#));
    rig.send(alice, "alice@alpha", "bob@beta", "m2");
    let why = refused(&mut rig, alice);
    assert!(why.contains("the domain beta was never joined"), "{why}");

    let beta = rig.join(bridge("beta", "B1"));
    rig.send(alice, "alice", "bob@beta", "m3");
    let why = refused(&mut rig, alice);
    assert!(why.contains("sign as alice@alpha"), "{why}");
    rig.send(alice, "carol@alpha", "bob@beta", "m4");
    assert!(refused(&mut rig, alice).contains("registered as alice"));
    rig.send(alice, "alice@alpha", "bob", "m5");
    assert!(refused(&mut rig, alice).contains("registered as alice"));
    rig.send(alice, "alice@alpha", "Bob@Beta", "m6");
    assert_eq!(told(&mut rig, alice), [("accepted", None)]);
    assert_eq!(rig.delivered(beta), [2]);
    rig.send(alice, "alice@alpha", "bob@gamma", "m7");
    let why = refused(&mut rig, alice);
    assert!(why.contains("joined are beta"), "{why}");
    // A broadcast stays at home, and so does who writes with version 1.
    rig.send(alice, "alice", "*", "m8");
    assert_eq!(rig.delivered(beta), [] as [u64; 0]);
    let dave = rig.v1("dave");
    rig.send(dave, "dave@alpha", "bob@beta", "m9");
    assert_eq!(rig.owed("bridge@beta"), [2]);
    assert!(
        !rig.told[&dave]
            .peers
            .iter()
            .any(|it| it.names.join(" ").contains("bridge"))
    );
}

#[test]
fn a_name_that_looks_like_an_address_is_kept_by_who_had_it_and_given_to_nobody() {
    let mut rig = Rig::new();
    let old = rig.ext("bob@beta");
    rig.close(old, true);
    rig.config.domain = Domain::parse("alpha");
    rig.restart();
    let old = rig.ext("bob@beta");
    let alice = rig.ext("alice");
    rig.send(alice, "alice", "bob@beta", "m1");
    rig.send(alice, "alice@alpha", "bob@beta", "m2");
    assert_eq!(rig.delivered(old), [1, 2]);
    let carol = rig.ask(ext("carol@beta", "i"));
    let (code, why) = rig.closed(carol).unwrap();
    assert_eq!(code, 1008);
    assert!(why.contains("looks like an address"), "{why}");
    rig.take(alice);
    rig.frame(
        alice,
        ClientFrame::Rename {
            name: "alice@beta".into(),
        },
    );
    let refused = rig.take(alice).names.pop().unwrap().refused.unwrap();
    assert!(refused.contains("looks like an address"), "{refused}");
    let lone = rig.ask(ext("bridge@beta", "i"));
    assert!(rig.closed(lone).unwrap().1.contains("looks like"));
}

#[test]
fn who_may_not_bridge_is_told_why() {
    let mut plain = Rig::new();
    let refused = |rig: &mut Rig, register: Register| {
        let conn = rig.ask(register);
        rig.closed(conn).expect("it is closed").1
    };
    assert!(refused(&mut plain, bridge("beta", "B1")).contains("no domain"));
    let mut rig = alpha();
    for (register, why) in [
        (bridge("alpha", "B1"), "itself has that domain"),
        (
            Register {
                token: Token::parse(TOKEN),
                ..bridge("beta", "B1")
            },
            "lacks the right",
        ),
        (
            Register {
                ext: 0,
                ..bridge("beta", "B1")
            },
            "must speak the extension",
        ),
        (
            Register {
                ephemeral: true,
                ..bridge("beta", "B1")
            },
            "and stay",
        ),
        (
            Register {
                name: "beta".into(),
                ..bridge("beta", "B1")
            },
            "must be bridge@",
        ),
    ] {
        let said = refused(&mut rig, register);
        assert!(
            said.starts_with("cannot bridge: ") && said.contains(why),
            "{said}"
        );
    }
    // To others none of this is there.
    let v1 = rig.ask(register("v1"));
    assert_eq!(
        (rig.take(v1).peers[0].domain.clone(), rig.closed(v1)),
        (None, None)
    );
}

#[test]
fn what_is_forwarded_is_owed_until_the_other_side_says_how_it_ended() {
    let mut rig = alpha();
    let (alice, beta) = (rig.ext("alice"), rig.join(bridge("beta", "B1")));
    for id in ["m1", "m2", "m3", "m4"] {
        rig.send(alice, "alice@alpha", "bob@beta", id);
    }
    assert_eq!(rig.delivered(beta), [1, 2, 3, 4]);
    rig.take(alice);
    for seq in 1..=3 {
        says(&mut rig, beta, seq, Stage::Forwarded);
    }
    let forwarded = to("forwarded", "bob@beta");
    assert_eq!(told(&mut rig, alice), vec![forwarded; 3]);
    let path = || "channel".to_owned();
    says(&mut rig, beta, 1, Stage::Delivered);
    says(&mut rig, beta, 1, Stage::Pushed { path: path() });
    // It is not with the other broker yet.
    says(&mut rig, beta, 4, Stage::Delivered);
    let seen = How::Seen {
        path: path(),
        evidence: "transcript".into(),
    };
    says(&mut rig, beta, 1, Stage::Acked(Some(seen)));
    says(
        &mut rig,
        beta,
        2,
        Stage::Dead {
            why: "nobody".into(),
        },
    );
    let states = ["delivered", "pushed", "acked", "dead"].map(|state| to(state, "bob@beta"));
    assert_eq!(told(&mut rig, alice), states);
    // Over a restart the same: one is with the other broker, one is not.
    rig.restart();
    let beta = rig.join(bridge("beta", "B1"));
    assert_eq!(rig.delivered(beta), [4]);
    rig.frame(beta, ClientFrame::Forwarded { after: None });
    let open = rig.take(beta).forwarded;
    assert_eq!(
        open.iter().map(|it| it.key.as_str()).collect::<Vec<_>>(),
        ["3"]
    );
    let after = Some(open[0].key.clone());
    rig.frame(beta, ClientFrame::Forwarded { after });
    assert_eq!(rig.take(beta).forwarded, []);
    let alice = rig.ext("alice");
    let ids = crate::rig::ids(&["m3", "m1"]);
    rig.take(alice);
    rig.frame(alice, ClientFrame::Status { ids });
    let steps = ["forwarded", "delivered", "pushed", "acked"].map(|state| to(state, "bob@beta"));
    let mut expected = vec![
        ("accepted", None),
        forwarded_of("bob@beta"),
        ("accepted", None),
    ];
    expected.extend(steps);
    assert_eq!(told(&mut rig, alice), expected);
    says(&mut rig, beta, 3, Stage::Expired { why: "late".into() });
    assert_eq!(told(&mut rig, alice), [to("expired", "bob@beta")]);
    assert_eq!(rig.owed("bridge@beta"), [4]);
}

fn forwarded_of(whom: &str) -> (&'static str, Option<String>) {
    to("forwarded", whom)
}

#[test]
fn what_a_broker_forgot_is_owed_to_its_bridge_again_in_order() {
    let mut rig = alpha();
    let (alice, beta) = (rig.ext("alice"), rig.join(bridge("beta", "B1")));
    for id in ["m1", "m2", "m3"] {
        rig.send(alice, "alice@alpha", "bob@beta", id);
    }
    for seq in [1, 2] {
        says(&mut rig, beta, seq, Stage::Forwarded);
    }
    says(&mut rig, beta, 1, Stage::Acked(None));
    rig.close(beta, true);
    rig.restart();
    // As long as its bridge does not know of whom it speaks, it stays so.
    let beta = rig.join(bridge("beta", UNKNOWN));
    rig.pass(1_000);
    assert_eq!(rig.delivered(beta), [] as [u64; 0]);
    rig.close(beta, true);
    let beta = rig.join(bridge("beta", "B2"));
    let alice = rig.ext("alice");
    rig.send(alice, "alice@alpha", "bob@beta", "m4");
    rig.pass(1_000);
    assert_eq!(rig.delivered(beta), [2, 3, 4]);
    says(&mut rig, beta, 2, Stage::Forwarded);
    rig.close(beta, true);
    let beta = rig.join(bridge("beta", "B2"));
    assert_eq!(rig.delivered(beta), [3, 4]);
    rig.close(alice, true);
    // Nobody over there ever says anything: it expires as any mail does.
    rig.pass(31 * DAY);
    let alice = rig.ext("alice");
    let ends = told(&mut rig, alice);
    assert_eq!(ends, vec![to("expired", "bob@beta"); 3]);
}

#[test]
fn what_was_under_way_behind_a_refused_message_does_not_come_before_it() {
    let mut rig = alpha();
    let bob = rig.ext("bob");
    let beta = rig.join(bridge("beta", "B1"));
    let room = |rig: &mut Rig, free: u64| {
        let total = 1 << 40;
        rig.input(BrokerInput::Space { free, total });
    };
    take(&mut rig, beta, "alice@beta", "bob@alpha", "m1", "B1.1");
    room(&mut rig, 0);
    take(&mut rig, beta, "alice@beta", "bob@alpha", "m2", "B1.2");
    room(&mut rig, 1 << 40);
    take(&mut rig, beta, "alice@beta", "bob@alpha", "m3", "B1.3");
    let states = told(&mut rig, beta).into_iter().map(|(state, _)| state);
    let answers: Vec<_> = states.filter(|state| *state != "delivered").collect();
    assert_eq!(answers, ["accepted", "refused", "refused"]);
    assert_eq!(rig.row("bridge@beta").unwrap().mark, Some(mark("B1.1")));
    take_again(&mut rig, beta, ["alice@beta", "bob@alpha", "m2", "B1.2"]);
    take(&mut rig, beta, "alice@beta", "bob@alpha", "m3", "B1.3");
    assert_eq!(rig.delivered(bob), [1, 2, 3]);
    assert_eq!(rig.row("bridge@beta").unwrap().mark, Some(mark("B1.3")));
}

#[test]
fn what_is_taken_is_kept_with_its_mark_or_its_bridge_is_told_why_not() {
    let mut rig = alpha();
    let (bob, dave) = (rig.ext("bob"), rig.v1("dave"));
    let beta = rig.join(bridge("beta", "B1"));
    take(&mut rig, beta, "alice@beta", "bob@alpha", "m1", "B1.1");
    assert_eq!(rig.delivered(bob), [1]);
    take(&mut rig, beta, "alice@beta", "nobody@alpha", "m2", "B1.2");
    take(&mut rig, beta, "alice@beta", "dave@alpha", "m3", "B1.3");
    take(&mut rig, beta, "alice@beta", "bob@gamma", "m4", "B1.4");
    let states = told(&mut rig, beta);
    let dead: Vec<_> = states
        .iter()
        .filter(|(state, _)| *state == "dead")
        .collect();
    let whom = ["nobody@alpha", "dave@alpha", "bob@gamma"].map(|name| to("dead", name));
    assert_eq!(dead, whom.iter().collect::<Vec<_>>());
    assert_eq!(
        states
            .iter()
            .filter(|(state, _)| *state == "accepted")
            .count(),
        4
    );
    assert_eq!(rig.delivered(dave), [] as [u64; 0]);
    // Whoever speaks for others is refused, and no further than before.
    for from in ["alice@gamma", "alice", "bridge@beta@alpha"] {
        take_again(&mut rig, beta, [from, "bob@alpha", "m5", "B1.5"]);
        assert!(refused(&mut rig, beta).contains("speaks for nobody else"));
    }
    rig.restart();
    let again = rig.ask(bridge("beta", "B1"));
    let told = rig.take(again);
    let ack = &told.peers[0];
    assert_eq!(
        (&ack.epoch, &ack.mark),
        (&Some(mark("A1")), &Some(mark("B1.4")))
    );
    assert_eq!(told.receipts.len(), 3, "the notices are kept");
    // The same once more is known, and moves the mark all the same.
    take(&mut rig, again, "alice@beta", "bob@alpha", "m1", "B1.7");
    assert!(matches!(rig.states(again)[0], Stage::Accepted(it) if it.duplicate));
    assert_eq!(rig.row("bridge@beta").unwrap().mark, Some(mark("B1.7")));
    assert_eq!(rig.owed("bob"), [1]);
}

#[test]
fn one_that_comes_with_version_1_gets_nothing_from_elsewhere() {
    let mut rig = alpha();
    let bob = rig.ext("bob");
    rig.close(bob, true);
    let beta = rig.join(bridge("beta", "B1"));
    let alice = rig.ext("alice");
    take(&mut rig, beta, "carol@beta", "bob@alpha", "m1", "B1.1");
    rig.send(alice, "alice", "bob", "m2");
    rig.take(beta);
    let bob = rig.v1("bob");
    assert_eq!(rig.delivered(bob), [2]);
    assert_eq!(told(&mut rig, beta), [to("dead", "bob")]);
}

#[test]
fn a_bridge_is_nobodys_successor() {
    let mut rig = alpha();
    let (ada, _bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.join(bridge("beta", "B1"));
    rig.send(ada, "ada", "bob", "m1");
    let why = retire(&mut rig, "bob", Some("bridge@beta")).unwrap_err();
    assert!(why.contains("is a bridge to another domain"), "{why}");
}

/// Name and presence of each peer in the answer about a domain, and how old that is.
fn there(rig: &mut Rig, conn: ConnId, domain: &str) -> (Vec<(String, bool)>, Option<u64>) {
    rig.frame(conn, ClientFrame::PeersOf(Domain::parse(domain).unwrap()));
    let peers = rig.take(conn).peers.pop().unwrap();
    assert_eq!(peers.domain, Domain::parse(domain));
    let all = peers.peers.unwrap().into_iter();
    let all = all.map(|peer| (peer.name, peer.presence.is_some()));
    (all.collect(), peers.age_ms)
}

#[test]
fn who_is_in_another_domain_is_what_its_bridge_told_last() {
    let mut rig = alpha();
    let alice = rig.ext("alice");
    assert_eq!(there(&mut rig, alice, "beta"), (vec![], None));
    let beta = rig.join(bridge("beta", "B1"));
    let entry = |name: &str| PeerEntry {
        name: name.into(),
        unacked: Some(7),
        presence: Presence::parse("{}"),
        ..PeerEntry::default()
    };
    let told = ["bob", "bob@gamma", "b\u{1b}[2J", ""].map(entry).to_vec();
    rig.frame(beta, ClientFrame::Roster(told));
    rig.pass(2_500);
    let bob = |more| (vec![("bob".to_owned(), more)], Some(2_500));
    assert_eq!(there(&mut rig, alice, "beta"), bob(true));
    // A bridge is told who is here, although its token may not observe.
    assert_eq!(
        there(&mut rig, beta, "alpha").0,
        [("alice".to_owned(), false)]
    );
    // Nobody else speaks for a domain, and a bridge that is gone for nobody.
    rig.frame(alice, ClientFrame::Roster(vec![entry("eve")]));
    assert_eq!(there(&mut rig, alice, "beta"), bob(true));
    rig.close(beta, true);
    assert_eq!(there(&mut rig, alice, "beta"), (vec![], None));
}

#[test]
fn what_comes_from_another_domain_is_of_no_token_and_approves_nothing() {
    let mut rig = Rig::with(|config| {
        config.domain = Domain::parse("alpha");
        for grant in &mut config.grants {
            grant.rights = Rights::of([Right::Bridge, Right::Approve, Right::Send]);
        }
    });
    let alice = rig.ext("alice");
    let beta = rig.join(bridge("beta", "B1"));
    take(&mut rig, beta, "bob@beta", "alice@alpha", "m1", "B1:1");
    let [text] = &rig.take(alice).texts[..] else {
        panic!("one message");
    };
    assert!(
        !text.contains("\"token\"") && !text.contains("approves"),
        "{text}"
    );
}

#[test]
fn a_bridge_that_is_away_gives_its_place_to_no_new_name() {
    let mut rig = alpha();
    rig.config.grants[1].quotas.names = 2;
    rig.restart();
    let beta = rig.join(bridge("beta", "B1"));
    let alice = rig.ext("alice");
    rig.send(alice, "alice@alpha", "bob@beta", "m1");
    says(&mut rig, beta, 1, Stage::Forwarded);
    rig.close(beta, true);
    for name in ["other-1", "other-2", "other-3"] {
        rig.ms += DAY;
        let other = rig.join(Register {
            token: Token::parse(OTHER_TOKEN),
            ..register(name)
        });
        rig.close(other, true);
    }
    assert!(rig.row("other-1").is_none() && rig.row("other-2").is_none());
    let beta = rig.join(bridge("beta", "B1"));
    says(&mut rig, beta, 1, Stage::Acked(None));
    assert!(told(&mut rig, alice).contains(&to("acked", "bob@beta")));
}
