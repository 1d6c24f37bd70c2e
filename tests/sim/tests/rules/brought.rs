//! What bridges bring, each of them by itself.

use peerbus_wire::Stage;

use crate::domains::{alpha_with, bridge, refused, take};
use crate::rig::envelope;

#[test]
fn a_domain_that_fills_its_quota_stops_no_other_domains_mail() {
    let size = envelope("alice@beta", "bob@alpha", "m1", "1").len() as u64;
    let mut rig = alpha_with(|config| config.owed_by_max = 2 * size + 20);
    rig.ext("bob");
    let beta = rig.join(bridge("beta", "B1"));
    let gama = rig.join(bridge("gama", "G1"));
    take(&mut rig, beta, "alice@beta", "bob@alpha", "m1", "B1.1");
    take(&mut rig, beta, "alice@beta", "bob@alpha", "m2", "B1.2");
    rig.take(beta);
    take(&mut rig, beta, "alice@beta", "bob@alpha", "m3", "B1.3");
    let why = refused(&mut rig, beta);
    assert!(why.contains("that came from this domain wait"), "{why}");
    take(&mut rig, gama, "carl@gama", "bob@alpha", "m1", "G1.1");
    assert!(matches!(rig.states(gama)[0], Stage::Accepted(_)));
    assert_eq!(rig.owed("bob"), [1, 2, 3]);
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
