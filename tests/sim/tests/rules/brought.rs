//! What bridges bring, each of them by itself.

use peerbus_core::TokenHash;
use peerbus_core::grant::Grant;
use peerbus_wire::{Register, Stage, Token, TokenName};

use crate::domains::{alpha_with, bridge, refused, says, take};
use crate::rig::{accepted, envelope, ext};

#[test]
fn a_domain_that_fills_its_quota_is_told_and_stops_nobodys_mail() {
    let size = envelope("alice@beta", "bob@alpha", "m1", "1").len() as u64;
    let mut rig = alpha_with(|config| config.owed_by_max = 2 * size + 20);
    let bob = rig.ext("bob");
    let beta = rig.join(bridge("beta", "B1"));
    let gama = rig.join(bridge("gama", "G1"));
    take(&mut rig, beta, "alice@beta", "bob@alpha", "m1", "B1.1");
    take(&mut rig, beta, "alice@beta", "bob@alpha", "m2", "B1.2");
    rig.take(beta);
    take(&mut rig, beta, "alice@beta", "bob@alpha", "m3", "B1.3");
    let states = rig.states(beta);
    assert!(
        matches!(&states[..], [Stage::Accepted(to), Stage::Dead { why }]
            if to.recipients == 0 && why.contains("that came from this domain wait")),
        "{states:?}"
    );
    take(&mut rig, gama, "carl@gama", "bob@alpha", "m1", "G1.1");
    assert!(matches!(rig.states(gama)[0], Stage::Accepted(to) if to.recipients == 1));
    // What follows comes as soon as there is room, and nothing is brought again before it.
    rig.ack(bob, 1);
    rig.take(beta);
    take(&mut rig, beta, "carl@beta", "bob@alpha", "m4", "B1.4");
    assert!(matches!(rig.states(beta)[0], Stage::Accepted(to) if to.recipients == 1));
    assert_eq!(rig.owed("bob"), [2, 4, 5]);
}

#[test]
fn what_was_forwarded_and_not_read_counts_in_the_share_of_its_token() {
    let size = envelope("eve@alpha", "bob@beta", "m1", "1").len() as u64;
    let third = "t".repeat(40);
    let token = || Token::parse(&third).unwrap();
    let mut rig = alpha_with(|config| {
        config.owed_to_max = 8 * size;
        let name = TokenName::parse("third").unwrap();
        let grant = Grant::usual(name, TokenHash::of(&token()));
        config.grants.push(grant);
    });
    let eve = Register {
        token: Some(token()),
        ..ext("eve", "e")
    };
    let (eve, ada, beta) = (
        rig.join(eve),
        rig.ext("ada"),
        rig.join(bridge("beta", "B1")),
    );
    for (seq, id) in [(1, "m1"), (2, "m2"), (3, "m3")] {
        rig.send(eve, "eve@alpha", "bob@beta", id);
        says(&mut rig, beta, seq, Stage::Forwarded);
    }
    rig.take(eve);
    rig.send(eve, "eve@alpha", "bob@beta", "m4");
    let why = refused(&mut rig, eve);
    assert!(why.contains("that were sent with this token"), "{why}");
    // Others' mail finds room there.
    for id in ["m1", "m2", "m3"] {
        rig.take(ada);
        rig.send(ada, "ada@alpha", "bob@beta", id);
        assert_eq!(rig.states(ada)[0], accepted(1, 1));
    }
    says(&mut rig, beta, 1, Stage::Acked(None));
    rig.take(eve);
    rig.send(eve, "eve@alpha", "bob@beta", "m4");
    assert_eq!(rig.states(eve)[0], accepted(1, 1));
}

#[test]
fn of_two_peers_of_a_domain_with_one_id_the_second_is_told_that_it_was_another() {
    let mut rig = alpha_with(|_| {});
    rig.ext("bob");
    let beta = rig.join(bridge("beta", "B1"));
    take(&mut rig, beta, "alice@beta", "bob@alpha", "m1", "B1.1");
    rig.take(beta);
    take(&mut rig, beta, "carol@beta", "bob@alpha", "m1", "B1.2");
    let why = refused(&mut rig, beta);
    assert!(
        why.contains("another message of its domain had the id m1"),
        "{why}"
    );
}
