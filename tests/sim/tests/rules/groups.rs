//! Groups: who is in one, and whom a message for one reaches.

use peerbus_core::broker::ConnId;
use peerbus_wire::limits::GROUPS_MAX;
use peerbus_wire::{
    BrokerFrame, ClientFrame, GroupName, PeersFrame, RefusalCode, Register, Stage, Token,
};

use crate::retire::retire;
use crate::rig::{OTHER_TOKEN, Rig, SECOND, accepted, ext, register};

fn groups(names: &[&str]) -> Vec<GroupName> {
    let group = |name: &&str| GroupName::parse(name).unwrap();
    names.iter().map(group).collect()
}

/// Joins and leaves, and gives the answer.
fn regroup(rig: &mut Rig, conn: ConnId, join: &[&str], leave: &[&str]) -> PeersFrame {
    let (join, leave) = (groups(join), groups(leave));
    rig.frame(conn, ClientFrame::Regroup { join, leave });
    rig.take(conn).peers.pop().unwrap()
}

/// A peer in a group.
fn member(rig: &mut Rig, name: &str, group: &str) -> ConnId {
    let conn = rig.ext(name);
    let answer = regroup(rig, conn, &[group], &[]);
    assert_eq!(answer.groups, Some(groups(&[group])));
    conn
}

fn made_up(name: &str) -> Register {
    Register {
        generated: true,
        ..ext(name, name)
    }
}

fn refused(rig: &mut Rig, conn: ConnId) -> (RefusalCode, String) {
    match rig.states(conn).pop() {
        Some(Stage::Refused(refusal)) => (refusal.code, refusal.reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn it_reaches_every_member_but_its_author_and_nobody_who_comes_later() {
    let mut rig = Rig::new();
    let ada = member(&mut rig, "ada", "shop");
    let bob = member(&mut rig, "bob", "#Shop");
    let (cyd, dan) = (member(&mut rig, "cyd", "shop"), rig.ext("dan"));
    rig.send(ada, "ada", "#shop", "m1");
    assert_eq!(rig.states(ada)[0], accepted(2, 2));
    assert_eq!((rig.delivered(bob), rig.delivered(cyd)), (vec![1], vec![1]));
    assert!(rig.delivered(ada).is_empty() && rig.delivered(dan).is_empty());
    let late = regroup(&mut rig, dan, &["shop"], &[]);
    assert_eq!(late.groups, Some(groups(&["shop"])));
    assert!(rig.owed("dan").is_empty());
    let left = regroup(&mut rig, bob, &[], &["shop"]);
    assert_eq!(left.groups, Some(Vec::new()));
    rig.send(ada, "ada", "#SHOP", "m2");
    assert_eq!(rig.states(ada)[0], accepted(2, 2), "cyd and dan");
    assert!(rig.delivered(bob).is_empty());
}

#[test]
fn a_chosen_name_gets_its_copy_when_it_is_back_and_a_made_up_one_while_it_is_here() {
    let mut rig = Rig::new();
    let ada = member(&mut rig, "ada", "shop");
    let bob = member(&mut rig, "bob", "shop");
    let wasp = rig.join(made_up("wasp"));
    regroup(&mut rig, wasp, &["shop"], &[]);
    rig.close(bob, true);
    rig.close(wasp, true);
    rig.restart();
    let ada = {
        rig.close(ada, true);
        rig.ext("ada")
    };
    rig.pass(61 * SECOND);
    rig.send(ada, "ada", "#shop", "m1");
    assert_eq!(rig.states(ada)[0], accepted(1, 0));
    let bob = rig.ext("bob");
    assert_eq!(rig.delivered(bob), [1]);
    assert!(rig.owed("wasp").is_empty());
}

#[test]
fn membership_goes_with_a_name_and_to_who_gets_its_mail() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let bob = member(&mut rig, "bob", "shop");
    rig.frame(
        bob,
        ClientFrame::Rename {
            name: "robert".into(),
        },
    );
    rig.send(ada, "ada", "#shop", "m1");
    assert_eq!(rig.delivered(bob), [1]);
    rig.ext("heir");
    let successor = Some("heir".into());
    rig.frame(bob, ClientFrame::Retire { successor });
    assert_eq!(
        rig.row("heir").unwrap().groups,
        groups(&["shop"]).into_iter().collect()
    );
}

#[test]
fn a_successor_of_another_token_is_in_no_group_by_that() {
    let mut rig = Rig::new();
    member(&mut rig, "bob", "shop");
    rig.join(Register {
        token: Token::parse(OTHER_TOKEN),
        ..ext("eve", "eve")
    });
    retire(&mut rig, "bob", Some("eve")).unwrap();
    assert!(rig.row("eve").unwrap().groups.is_empty());
}

#[test]
fn a_group_is_its_tokens_own() {
    let mut rig = Rig::new();
    member(&mut rig, "ada", "shop");
    let stranger = rig.join(Register {
        token: Token::parse(OTHER_TOKEN),
        ..ext("eve", "eve")
    });
    rig.send(stranger, "eve", "#shop", "m1");
    let (code, why) = refused(&mut rig, stranger);
    assert_eq!(code, RefusalCode::UnknownRecipient);
    assert_eq!(
        why,
        "nobody else of this token is in #shop now; it has no groups"
    );
}

#[test]
fn an_unknown_group_is_refused_with_those_that_there_are_and_a_malformed_one_with_the_form() {
    let mut rig = Rig::new();
    let ada = member(&mut rig, "ada", "shop");
    rig.send(ada, "ada", "#reviewers", "m1");
    let (code, why) = refused(&mut rig, ada);
    assert_eq!(code, RefusalCode::UnknownRecipient);
    assert_eq!(
        why,
        "nobody else of this token is in #reviewers now; its groups are #shop"
    );
    rig.send(ada, "ada", "#shop", "m2");
    let (_, why) = refused(&mut rig, ada);
    assert_eq!(
        why,
        "nobody else of this token is in #shop now; its groups are #shop"
    );
    regroup(&mut rig, ada, &[], &["shop"]);
    rig.send(ada, "ada", "#shop", "m4");
    let (_, why) = refused(&mut rig, ada);
    assert_eq!(
        why,
        "nobody else of this token is in #shop now; it has no groups"
    );
    rig.send(ada, "ada", "#a b", "m3");
    let (code, why) = refused(&mut rig, ada);
    assert_eq!(code, RefusalCode::Invalid);
    assert!(
        why.contains("a group is # and 1 to 64 of a-z 0-9 . _ -"),
        "{why}"
    );
}

#[test]
fn nobody_is_in_more_groups_than_it_may() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let names: Vec<_> = (0..GROUPS_MAX).map(|n| format!("g{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let all = regroup(&mut rig, ada, &names, &[]);
    assert_eq!(all.groups.map(|groups| groups.len()), Some(GROUPS_MAX));
    let more = regroup(&mut rig, ada, &["one-more"], &[]);
    assert_eq!(more.groups.map(|groups| groups.len()), Some(GROUPS_MAX));
    let why = "a peer is in at most 64 groups, and this would be in 65: leave some";
    assert_eq!(more.reason.as_deref(), Some(why));
    let instead = regroup(&mut rig, ada, &["one-more"], &["g0"]);
    assert_eq!(
        (instead.groups.map(|groups| groups.len()), instead.reason),
        (Some(GROUPS_MAX), None)
    );
    let brief = rig.join(Register {
        ephemeral: true,
        ..ext("brief", "brief")
    });
    let never = regroup(&mut rig, brief, &["shop"], &[]);
    assert!(
        never
            .reason
            .unwrap()
            .contains("a temporary peer is in no group")
    );
}

#[test]
fn the_groups_of_one_token_are_bounded_and_leave_others_theirs() {
    let mut rig = Rig::new();
    let eve = |rig: &mut Rig, n: usize| {
        rig.join(Register {
            token: Token::parse(OTHER_TOKEN),
            ..ext(&format!("eve{n}"), "eve")
        })
    };
    let invented: Vec<_> = (0..10_000).map(|n| format!("g{n}")).collect();
    for (n, names) in invented.chunks(GROUPS_MAX).enumerate() {
        let (conn, names) = (eve(&mut rig, n), names.iter().map(String::as_str));
        let answer = regroup(&mut rig, conn, &names.collect::<Vec<_>>(), &[]);
        assert_eq!(answer.reason, None);
        rig.close(conn, true);
    }
    let last = eve(&mut rig, 900);
    let why = regroup(&mut rig, last, &["more"], &[]).reason.unwrap();
    assert!(
        why.contains("in 10000 groups, and 10000 is the most"),
        "{why}"
    );
    assert_eq!(regroup(&mut rig, last, &["g7"], &[]).reason, None);
    let ada = rig.ext("ada");
    assert_eq!(regroup(&mut rig, ada, &["shop"], &[]).reason, None);
}

#[test]
fn who_has_no_room_is_passed_over_and_the_sender_told() {
    let mut rig = Rig::with(|config| config.queue_max = 1);
    let ada = rig.ext("ada");
    let bob = member(&mut rig, "bob", "shop");
    member(&mut rig, "cyd", "shop");
    rig.close(bob, true);
    rig.send(ada, "ada", "bob", "m1");
    rig.take(ada);
    rig.send(ada, "ada", "#shop", "m2");
    rig.pass(SECOND);
    let told = rig.take(ada).receipts;
    let full = told
        .iter()
        .find(|receipt| receipt.to.as_deref() == Some("bob"));
    let why = "the queue of bob is full; it did not get this one".into();
    assert_eq!(full.map(|it| &it.stage), Some(&Stage::Expired { why }));
    assert_eq!(told[0].stage, accepted(1, 1));
}

#[test]
fn version_1_is_a_member_of_nothing_and_may_write_to_a_group() {
    let mut rig = Rig::new();
    let old = rig.v1("old");
    let bob = member(&mut rig, "bob", "shop");
    let join = groups(&["shop"]);
    let leave = Vec::new();
    rig.frame(old, ClientFrame::Regroup { join, leave });
    let barrier = rig.take(old).peers.pop().unwrap();
    assert_eq!((barrier.groups, barrier.peers), (None, None));
    rig.send(old, "old", "#shop", "m1");
    assert_eq!(rig.delivered(bob), [1]);
    rig.send(bob, "bob", "#shop", "m2");
    assert_eq!(refused(&mut rig, bob).0, RefusalCode::UnknownRecipient);
}

#[test]
fn who_was_a_member_and_is_here_with_version_1_gets_nothing_meanwhile() {
    let mut rig = Rig::new();
    let (ada, bob) = (
        member(&mut rig, "ada", "shop"),
        member(&mut rig, "bob", "shop"),
    );
    let cyd = member(&mut rig, "cyd", "shop");
    rig.close(bob, true);
    let bob = rig.v1("bob");
    rig.send(ada, "ada", "#shop", "m1");
    assert_eq!(rig.delivered(cyd), [1]);
    assert!(rig.delivered(bob).is_empty() && rig.owed("bob").is_empty());
    rig.close(bob, true);
    rig.ext("bob");
    rig.send(ada, "ada", "#shop", "m2");
    assert_eq!(rig.owed("bob"), [2]);
}

/// What two clients of version 1 hear, row by row, where three others are in these groups.
fn heard_by_version_1(joined: &[&str]) -> Vec<(&'static str, [String; 2])> {
    let mut rig = Rig::new();
    let others = ["ada", "bob", "cyd"].map(|name| rig.ext(name));
    let row = |what, rig: &mut Rig, ends: [ConnId; 2]| {
        let heard = ends.map(|conn| {
            let told = rig.take(conn);
            let peers = told.peers.into_iter().map(BrokerFrame::Peers);
            let peers: Vec<_> = peers.map(|frame| frame.encode().to_string()).collect();
            let rest = (told.texts, told.receipts, told.recalled, told.names);
            format!("{peers:?} {rest:?} {:?}", told.closed)
        });
        (what, heard)
    };
    let mut all = Vec::new();
    if !joined.is_empty() {
        for conn in others {
            regroup(&mut rig, conn, joined, &[]);
        }
    }
    let ends = ["old", "older"].map(|name| rig.ask(register(name)));
    all.push(row("is registered", &mut rig, ends));
    rig.frame(ends[0], ClientFrame::Peers);
    all.push(row("asks who is here", &mut rig, ends));
    for (what, to, id) in [
        ("to a name", "older", "m1"),
        ("to a name with groups", "bob", "m2"),
        ("to all", "*", "m3"),
        ("to nobody", "nobody", "m4"),
        ("to a name that is none", "a b", "m5"),
    ] {
        rig.send(ends[0], "old", to, id);
        all.push(row(what, &mut rig, ends));
    }
    rig.send(others[0], "ada", "*", "m6");
    all.push(row("of one with groups to all", &mut rig, ends));
    rig.send(others[0], "ada", "old", "m7");
    all.push(row("of one with groups to it", &mut rig, ends));
    rig.close(ends[1], true);
    rig.send(ends[0], "old", "older", "m8");
    let ends = [ends[0], rig.ask(register("older"))];
    all.push(row("comes back", &mut rig, ends));
    if !joined.is_empty() {
        rig.send(others[0], "ada", "#shop", "m9");
        rig.send(others[0], "ada", "#shop!", "m10");
        let told = rig.states(others[0]);
        assert!(told.contains(&accepted(2, 2)) && told.contains(&accepted(1, 1)));
    }
    all.push(row("others write to their group", &mut rig, ends));
    all
}

#[test]
fn version_1_hears_the_same_with_groups_as_without() {
    let without = heard_by_version_1(&[]);
    let with = heard_by_version_1(&["shop", "build"]);
    for ((what, without), (_, with)) in without.iter().zip(&with) {
        assert_eq!(with, without, "{what}");
    }
    let (_, [old, older]) = &without[0];
    for heard in [old, older] {
        assert!(
            heard.contains("peers") && !heard.contains("group"),
            "{heard}"
        );
    }
}
