//! Messages for one member of a group: how long one may have it, and when the next one gets it.

use peerbus_core::broker::{BrokerInput, Command};
use peerbus_wire::{ClientFrame, GroupName, PeerName, Seq, Stage};

use crate::leases::{
    PATIENCE, all_that_came, came, does, given, join, member, recalled, release, small,
};
use crate::retire::retire;
use crate::rig::{Rig, SECOND};

#[test]
fn who_has_it_too_long_loses_it_to_the_next_one() {
    let mut rig = Rig::new();
    let (ada, members) = given(&mut rig, &["bob", "cyd"]);
    rig.take(members[0]);
    rig.pass(PATIENCE - SECOND);
    assert!(rig.take(members[0]).recalled.is_empty());
    rig.pass(2 * SECOND);
    assert_eq!(rig.take(members[0]).recalled, [1]);
    assert_eq!(came(&mut rig, members[1]), Some(true), "bob had it");
    let why = "it was not read there in time".to_owned();
    assert_eq!(recalled(&mut rig, ada), [(Some("bob".into()), why)]);
    // What comes late changes nothing.
    rig.ack(members[0], 1);
    release(&mut rig, members[0], false);
    assert_eq!(rig.owed("cyd"), [1]);
}

#[test]
fn where_nobody_else_is_free_it_stays_until_somebody_comes() {
    let mut rig = Rig::new();
    let (_, members) = given(&mut rig, &["bob"]);
    rig.pass(3 * PATIENCE);
    assert!(rig.take(members[0]).recalled.is_empty());
    let cyd = member(&mut rig, "cyd");
    assert_eq!(rig.take(members[0]).recalled, [1]);
    assert_eq!(came(&mut rig, cyd), Some(true));
}

#[test]
fn a_connection_that_breaks_and_comes_back_keeps_it() {
    let mut rig = Rig::new();
    let (_, members) = given(&mut rig, &["bob", "cyd"]);
    rig.close(members[0], false);
    rig.pass(3 * SECOND);
    let bob = rig.ext("bob");
    assert_eq!(came(&mut rig, bob), Some(true));
    rig.pass(10 * SECOND);
    assert_eq!(rig.owed("bob"), [1]);
    rig.close(bob, true);
    rig.pass(1);
    assert_eq!(came(&mut rig, members[1]), Some(true), "it said goodbye");
}

#[test]
fn the_broker_that_was_killed_knows_who_has_it() {
    let mut rig = Rig::new();
    let (_, members) = given(&mut rig, &["bob", "cyd"]);
    assert_eq!(came(&mut rig, members[0]), Some(false));
    rig.restart();
    let cyd = rig.ext("cyd");
    rig.pass(30 * SECOND);
    assert_eq!(came(&mut rig, cyd), None);
    rig.pass(31 * SECOND);
    assert_eq!(came(&mut rig, cyd), Some(true));
}

#[test]
fn who_holds_it_back_loses_it() {
    let mut rig = Rig::new();
    let (_, members) = given(&mut rig, &["bob", "cyd"]);
    let (key, stage) = (
        Seq(1).key(),
        Stage::Held {
            why: "quiet".into(),
        },
    );
    rig.frame(members[0], ClientFrame::progress(key, stage));
    rig.pass(1);
    assert_eq!(rig.take(members[0]).recalled, [1]);
    assert_eq!(rig.owed("cyd"), [1]);
}

#[test]
fn who_holds_it_back_loses_it_as_soon_as_another_one_comes() {
    let mut rig = Rig::new();
    let (_, members) = given(&mut rig, &["bob"]);
    let (key, why) = (Seq(1).key(), "quiet".into());
    let stage = Stage::Held { why };
    rig.frame(members[0], ClientFrame::progress(key, stage));
    rig.pass(SECOND);
    assert!(rig.take(members[0]).recalled.is_empty());
    member(&mut rig, "cyd");
    assert_eq!(rig.take(members[0]).recalled, [1]);
}

#[test]
fn who_had_it_too_long_and_comes_back_finds_that_another_one_has_it() {
    let mut rig = Rig::new();
    let (_, members) = given(&mut rig, &["bob"]);
    rig.pass(2 * PATIENCE);
    rig.close(members[0], false);
    rig.pass(SECOND);
    let cyd = member(&mut rig, "cyd");
    rig.pass(SECOND);
    assert_eq!(rig.owed("bob"), [1]);
    let bob = rig.ext("bob");
    rig.pass(1);
    assert!(rig.delivered(bob).is_empty());
    assert_eq!(came(&mut rig, cyd), Some(true));
}

#[test]
fn a_name_that_ends_leaves_it_to_the_others_and_not_to_its_successor() {
    let mut rig = Rig::new();
    let (_, members) = given(&mut rig, &["bob", "cyd"]);
    rig.ext("heir");
    retire(&mut rig, "bob", Some("heir")).unwrap();
    assert_eq!(came(&mut rig, members[1]), Some(true));
    assert!(rig.owed("heir").is_empty());
}

#[test]
fn who_gives_it_back_gets_it_again_only_after_a_while() {
    let mut rig = Rig::new();
    let (_, members) = given(&mut rig, &["bob", "cyd"]);
    release(&mut rig, members[0], false);
    assert_eq!(rig.owed("cyd"), [1]);
    release(&mut rig, members[1], false);
    assert!(rig.owed("bob").is_empty() && rig.owed("cyd").is_empty());
    rig.pass(PATIENCE - SECOND);
    assert!(rig.owed("bob").is_empty() && rig.owed("cyd").is_empty());
    rig.pass(2 * SECOND);
    assert_eq!(rig.owed("bob"), [1]);
}

#[test]
fn a_holder_that_comes_back_as_a_client_of_version_1_is_none() {
    let mut rig = Rig::new();
    let (_, members) = given(&mut rig, &["bob", "cyd"]);
    rig.close(members[0], false);
    let bob = rig.v1("bob");
    assert!(rig.delivered(bob).is_empty());
    assert_eq!(came(&mut rig, members[1]), Some(true));
    rig.ack(bob, 1);
    assert_eq!(rig.owed("cyd"), [1]);
}

#[test]
fn a_connection_that_breaks_again_and_again_does_not_keep_it_for_longer() {
    let mut rig = Rig::new();
    let (_, members) = given(&mut rig, &["bob", "cyd"]);
    let mut bob = members[0];
    for _ in 0..5 {
        rig.pass(100 * SECOND);
        rig.close(bob, false);
        bob = rig.ext("bob");
    }
    rig.take(bob);
    let join = vec![GroupName::parse("other").unwrap()];
    let leave = Vec::new();
    rig.frame(bob, ClientFrame::Regroup { join, leave });
    rig.pass(100 * SECOND);
    assert_eq!(rig.take(bob).recalled, [1]);
    assert_eq!(came(&mut rig, members[1]), Some(true));
}

#[test]
fn who_did_not_get_it_before_it_leaves_was_not_shown_it() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let bob = join(&mut rig, small("bob", 2));
    rig.send(ada, "ada", "bob", "other");
    rig.send(ada, "ada", "#shop!", "m1");
    assert_eq!(
        rig.delivered(bob),
        [1],
        "half of the window is one sender's"
    );
    rig.close(bob, true);
    rig.pass(1);
    let cyd = member(&mut rig, "cyd");
    assert_eq!(all_that_came(&mut rig, cyd), [(2, false)]);
}

#[test]
fn what_was_not_delivered_in_its_time_goes_on_as_new_and_comes_no_more() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let bob = join(&mut rig, small("bob", 2));
    rig.send(ada, "ada", "bob", "other");
    rig.send(ada, "ada", "#shop!", "m1");
    let cyd = member(&mut rig, "cyd");
    rig.pass(PATIENCE);
    assert_eq!(all_that_came(&mut rig, cyd), [(2, false)]);
    rig.ack(bob, 1);
    let told = rig.take(bob);
    assert_eq!((told.delivered, told.recalled), (vec![1], vec![]));
}

#[test]
fn who_had_it_gets_it_again_when_it_is_idle_and_nobody_else_comes_to_it() {
    let mut rig = Rig::new();
    let (_, members) = given(&mut rig, &["bob", "cyd"]);
    rig.pass(PATIENCE);
    assert_eq!(came(&mut rig, members[1]), Some(true));
    rig.pass(2 * PATIENCE);
    assert_eq!(rig.owed("cyd"), [1], "bob may be at work");
    does(&mut rig, members[0], "idle", r#""channel""#);
    rig.pass(PATIENCE);
    assert_eq!(rig.take(members[1]).recalled, [1]);
    assert_eq!(rig.owed("bob"), [1]);
}

#[test]
fn it_stays_with_its_holder_when_the_only_other_one_has_gone() {
    let mut rig = Rig::new();
    let (_, members) = given(&mut rig, &["bob", "cyd"]);
    rig.close(members[1], true);
    rig.pass(PATIENCE + 6 * SECOND);
    assert_eq!(rig.owed("bob"), [1]);
    rig.ack(members[0], 1);
    assert!(rig.store.tables().leases.is_empty());
}

#[test]
fn a_name_that_is_freed_leaves_it_to_the_others_and_joins_nothing() {
    let mut rig = Rig::new();
    let (_, members) = given(&mut rig, &["bob", "cyd"]);
    let free = Command::Release(PeerName::parse("bob").unwrap());
    rig.input(BrokerInput::Operate(free));
    assert_eq!(came(&mut rig, members[1]), Some(true));
    let join = vec![GroupName::parse("build").unwrap()];
    let leave = Vec::new();
    rig.frame(members[0], ClientFrame::Regroup { join, leave });
    let answer = rig.take(members[0]).peers.pop().unwrap();
    assert!(answer.reason.is_some_and(|why| why.contains("was freed")));
}

#[test]
fn who_leaves_the_group_leaves_what_it_has_to_the_others() {
    let mut rig = Rig::new();
    let (_, members) = given(&mut rig, &["bob", "cyd"]);
    let leave = vec![GroupName::parse("shop").unwrap()];
    let join = Vec::new();
    rig.frame(members[0], ClientFrame::Regroup { join, leave });
    rig.pass(1);
    assert_eq!(rig.take(members[0]).recalled, [1]);
    assert_eq!(came(&mut rig, members[1]), Some(true));
}
