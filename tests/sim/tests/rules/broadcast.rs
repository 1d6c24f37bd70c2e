//! Whom a broadcast reaches.

use peerbus_core::broker::BrokerInput;
use peerbus_wire::{Accepted, Stage};

use crate::rig::{Rig, SECOND, accepted};

#[test]
fn it_reaches_who_is_registered_but_not_its_author_and_is_not_repeated_later() {
    let mut rig = Rig::new();
    let (ada, bob, cyd) = (rig.ext("ada"), rig.v1("bob"), rig.v1("cyd"));
    rig.send(ada, "ada", "*", "b1");
    assert_eq!(rig.states(ada)[0], accepted(2, 2));
    assert_eq!(rig.delivered(bob), [1]);
    assert_eq!(rig.delivered(cyd), [1]);
    assert!(rig.owed("ada").is_empty());
    let dan = rig.v1("dan");
    assert!(
        rig.delivered(dan).is_empty(),
        "no backlog for who came later"
    );
}

#[test]
fn each_recipient_settles_its_own_copy() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    rig.v1("cyd");
    rig.send(ada, "ada", "*", "b1");
    rig.ack(bob, 1);
    assert!(rig.owed("bob").is_empty());
    assert_eq!(rig.owed("cyd"), [1]);
}

#[test]
fn a_cut_connection_counts_for_a_minute_a_goodbye_ends_it() {
    let mut rig = Rig::new();
    let (ada, bob, cyd) = (rig.ext("ada"), rig.v1("bob"), rig.v1("cyd"));
    rig.close(bob, false);
    rig.close(cyd, true);
    rig.send(ada, "ada", "*", "b1");
    assert_eq!(rig.states(ada), [accepted(1, 0)], "bob");
    rig.pass(60 * SECOND - 1);
    rig.send(ada, "ada", "*", "b2");
    assert_eq!(rig.states(ada), [accepted(1, 0)]);
    rig.pass(1);
    rig.send(ada, "ada", "*", "b3");
    assert_eq!(rig.states(ada), [accepted(0, 0)]);
    assert_eq!(rig.owed("bob"), [1, 2]);
    assert!(rig.owed("cyd").is_empty());
}

#[test]
fn after_a_crash_it_reaches_who_was_connected_when_the_broker_died() {
    let mut rig = Rig::new();
    rig.v1("bob");
    let cyd = rig.v1("cyd");
    rig.close(cyd, true);
    rig.restart();
    let ada = rig.ext("ada");
    rig.send(ada, "ada", "*", "b1");
    assert_eq!(
        rig.states(ada),
        [accepted(1, 0)],
        "bob, who has not come back yet"
    );
    rig.pass(60 * SECOND);
    rig.send(ada, "ada", "*", "b2");
    assert_eq!(rig.states(ada), [accepted(0, 0)]);
}

#[test]
fn who_does_not_come_back_after_one_crash_does_not_count_after_the_next() {
    let mut rig = Rig::new();
    rig.v1("bob");
    rig.restart();
    rig.pass(130 * SECOND);
    rig.restart();
    let ada = rig.ext("ada");
    rig.send(ada, "ada", "*", "b1");
    assert_eq!(rig.states(ada), [accepted(0, 0)]);
}

#[test]
fn a_shutdown_closes_everybody_and_they_still_count_when_the_broker_is_back() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    let mute = rig.open();
    rig.input(BrokerInput::Shutdown);
    for conn in [ada, bob, mute] {
        assert_eq!(rig.closed(conn).map(|(code, _)| code), Some(1001));
        rig.close(conn, false);
    }
    let late = rig.open();
    assert_eq!(
        rig.closed(late).map(|(code, _)| code),
        Some(1001),
        "nobody gets in"
    );
    rig.restart();
    let ada = rig.ext("ada");
    rig.send(ada, "ada", "*", "b1");
    assert_eq!(rig.states(ada), [accepted(1, 0)]);
    assert_eq!(rig.owed("bob"), [1]);
}

#[test]
fn it_passes_over_a_queue_that_is_full() {
    let mut rig = Rig::with(|config| config.queue_max = 1);
    let (ada, _bob) = (rig.ext("ada"), rig.v1("bob"));
    rig.send(ada, "ada", "*", "b1");
    rig.send(ada, "ada", "*", "b2");
    let states = rig.states(ada);
    let counts = states.iter().filter_map(|state| match state {
        Stage::Accepted(Accepted { recipients, .. }) => Some(*recipients),
        _ => None,
    });
    assert_eq!(counts.collect::<Vec<_>>(), [1, 0]);
}
