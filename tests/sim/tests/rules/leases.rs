//! Messages for one member of a group: who gets one, and what its sender is told.

use peerbus_core::broker::{BrokerMutation, ConnId};
use peerbus_wire::{ClientFrame, GroupName, Presence, RefusalCode, Register, Seq, Stage};

use crate::retire::retire;
use crate::rig::{Rig, SECOND, accepted, ext, window};

pub(crate) const PATIENCE: u64 = 600 * SECOND;

pub(crate) fn join(rig: &mut Rig, register: Register) -> ConnId {
    let conn = rig.join(register);
    let join = vec![GroupName::parse("shop").unwrap()];
    let leave = Vec::new();
    rig.frame(conn, ClientFrame::Regroup { join, leave });
    conn
}

pub(crate) fn member(rig: &mut Rig, name: &str) -> ConnId {
    join(rig, ext(name, name))
}

fn says(activity: &str, wake: &str) -> Option<Presence> {
    Presence::parse(&format!(r#"{{"activity":"{activity}","wake":[{wake}]}}"#))
}

pub(crate) fn does(rig: &mut Rig, conn: ConnId, activity: &str, wake: &str) {
    let presence = says(activity, wake).unwrap();
    rig.frame(conn, ClientFrame::Presence(presence));
}

/// A sender, and a job of its that one of these members has.
pub(crate) fn given(rig: &mut Rig, names: &[&str]) -> (ConnId, Vec<ConnId>) {
    let ada = rig.ext("ada");
    let members: Vec<_> = names.iter().map(|name| member(rig, name)).collect();
    rig.send(ada, "ada", "#shop!", "m1");
    assert_eq!(rig.states(ada)[0], accepted(1, 1));
    (ada, members)
}

/// Gives the job back.
pub(crate) fn release(rig: &mut Rig, conn: ConnId, again: bool) {
    let key = Seq(1).key();
    rig.frame(conn, ClientFrame::Release { key, again });
}

/// Whether the job has come, and as one that may have been shown.
pub(crate) fn came(rig: &mut Rig, conn: ConnId) -> Option<bool> {
    let text = rig.take(conn).texts.pop()?;
    Some(text.contains(r#""again":true"#))
}

pub(crate) fn recalled(rig: &mut Rig, conn: ConnId) -> Vec<(Option<String>, String)> {
    let receipts = rig.take(conn).receipts.into_iter();
    let told = receipts.filter_map(|receipt| match receipt.stage {
        Stage::Recalled { why } => Some((receipt.to, why)),
        _ => None,
    });
    told.collect()
}

#[test]
fn one_member_gets_it_and_its_ack_ends_it() {
    let mut rig = Rig::new();
    let (ada, members) = given(&mut rig, &["bob", "cyd"]);
    assert_eq!(came(&mut rig, members[0]), Some(false));
    assert_eq!(came(&mut rig, members[1]), None);
    rig.ack(members[0], 1);
    assert!(rig.states(ada).contains(&Stage::Acked(None)));
    rig.pass(2 * PATIENCE);
    assert!(rig.store.tables().leases.is_empty() && rig.store.tables().deliveries.is_empty());
    assert_eq!(came(&mut rig, members[1]), None);
}

#[test]
fn an_idle_member_who_can_be_woken_comes_first_then_who_has_least_to_read() {
    idle_first(Rig::new());
}

#[test]
#[should_panic(expected = "dan is idle")]
fn a_job_that_goes_to_a_member_at_work_while_another_is_idle() {
    let mut rig = Rig::new();
    rig.broker.mutate(BrokerMutation::BusyFirst);
    idle_first(rig);
}

fn idle_first(mut rig: Rig) {
    let ada = rig.ext("ada");
    let (bob, cyd, dan) = (
        member(&mut rig, "bob"),
        member(&mut rig, "cyd"),
        member(&mut rig, "dan"),
    );
    does(&mut rig, bob, "busy", r#""channel""#);
    does(&mut rig, cyd, "idle", "");
    does(&mut rig, dan, "idle", r#""channel""#);
    rig.send(ada, "ada", "#shop!", "m1");
    assert_eq!(rig.delivered(dan), [1], "dan is idle");
    does(&mut rig, dan, "busy", r#""channel""#);
    rig.send(ada, "ada", "bob", "m2");
    rig.send(ada, "ada", "#shop!", "m3");
    assert_eq!(rig.delivered(cyd), [3], "the others have mail");
}

#[test]
fn it_waits_for_the_first_who_comes_and_is_not_lost_with_its_holder() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let bob = member(&mut rig, "bob");
    rig.close(bob, true);
    rig.send(ada, "ada", "#shop!", "m1");
    assert_eq!(rig.states(ada)[0], accepted(1, 0));
    let status = ClientFrame::Status {
        ids: crate::rig::ids(&["m1"]),
    };
    rig.frame(ada, status.clone());
    let queued = rig.take(ada).receipts.pop().unwrap();
    assert_eq!(
        (queued.to.as_deref(), queued.stage),
        (Some("#shop"), Stage::Queued)
    );
    rig.restart();
    let cyd = member(&mut rig, "cyd");
    assert_eq!(came(&mut rig, cyd), Some(false));
    rig.close(cyd, false);
    rig.pass(6 * SECOND);
    let bob = rig.ext("bob");
    assert_eq!(came(&mut rig, bob), Some(true));
    let ada = rig.ext("ada");
    rig.frame(ada, status);
    let told = rig.take(ada).receipts.into_iter();
    let told: Vec<_> = told
        .map(|it| (it.to.unwrap_or_default(), it.stage.word()))
        .collect();
    assert!(told.contains(&("cyd".into(), "recalled")), "{told:?}");
    assert!(told.contains(&("bob".into(), "delivered")), "{told:?}");
}

#[test]
fn where_all_who_are_here_have_full_queues_it_waits_for_room() {
    let mut rig = Rig::with(|config| config.queue_max = 1);
    let ada = rig.ext("ada");
    let (bob, cyd) = (member(&mut rig, "bob"), member(&mut rig, "cyd"));
    rig.close(cyd, true);
    rig.send(ada, "ada", "bob", "m1");
    rig.send(ada, "ada", "#shop!", "m2");
    assert_eq!(rig.states(ada).last(), Some(&accepted(1, 0)));
    assert_eq!(rig.delivered(bob), [1]);
    rig.ack(bob, 1);
    rig.pass(PATIENCE + SECOND);
    assert_eq!(rig.delivered(bob), [2]);
}

#[test]
fn a_member_who_rejects_it_gets_it_no_more_and_the_last_one_ends_it() {
    let mut rig = Rig::new();
    let (ada, members) = given(&mut rig, &["bob", "cyd"]);
    reject(&mut rig, members[0]);
    assert_eq!(came(&mut rig, members[1]), Some(true));
    let why = r#"it was rejected there: "not mine""#.to_owned();
    assert_eq!(recalled(&mut rig, ada), [(Some("bob".into()), why)]);
    reject(&mut rig, members[1]);
    let dead = Stage::Dead {
        why: "not mine".into(),
    };
    assert!(rig.states(ada).contains(&dead));
    assert!(rig.store.tables().leases.is_empty());
}

#[test]
#[should_panic(expected = "nobody is left")]
fn a_job_that_comes_again_to_a_member_who_rejected_it() {
    let mut rig = Rig::new();
    rig.broker.mutate(BrokerMutation::GiveToRejected);
    rejected_once(rig);
}

#[test]
fn who_rejected_it_does_not_get_it_when_the_next_one_leaves() {
    rejected_once(Rig::new());
}

fn rejected_once(mut rig: Rig) {
    let (_, members) = given(&mut rig, &["bob", "cyd"]);
    reject(&mut rig, members[0]);
    assert_eq!(rig.owed("cyd"), [1]);
    rig.close(members[1], true);
    rig.pass(1);
    assert!(rig.owed("cyd").is_empty());
    assert!(rig.owed("bob").is_empty(), "nobody is left");
}

pub(crate) fn reject(rig: &mut Rig, conn: ConnId) {
    let (key, reason) = (Seq(1).key(), "not mine".into());
    rig.frame(conn, ClientFrame::reject(key, reason));
}

#[test]
fn it_counts_as_one_message_and_expires_as_one() {
    let mut rig = Rig::with(|config| config.expiry_ms = 86_400 * SECOND);
    let ada = rig.ext("ada");
    let bob = member(&mut rig, "bob");
    rig.close(bob, true);
    rig.send(ada, "ada", "#shop!", "m1");
    rig.take(ada);
    rig.pass(86_400 * SECOND + 120 * SECOND);
    let told = rig.take(ada).receipts;
    let (to, stage) = (told[0].to.as_deref(), &told[0].stage);
    assert!(
        to == Some("#shop") && matches!(stage, Stage::Expired { .. }),
        "{told:?}"
    );
    assert!(rig.store.tables().owed.is_empty() && rig.store.tables().leases.is_empty());
}

#[test]
fn nobody_but_its_sender_in_a_group_is_a_refusal() {
    let mut rig = Rig::new();
    let ada = member(&mut rig, "ada");
    rig.send(ada, "ada", "#shop!", "m1");
    let Some(Stage::Refused(refusal)) = rig.states(ada).pop() else {
        panic!("it was accepted");
    };
    assert_eq!(refusal.code, RefusalCode::UnknownRecipient);
    assert_eq!(
        refusal.reason,
        "nobody else of this token is in #shop now; its groups are #shop"
    );
}

#[test]
fn a_client_of_version_1_may_send_one_and_gets_none() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.v1("ada"), member(&mut rig, "bob"));
    let cyd = rig.v1("cyd");
    rig.send(ada, "ada", "#shop!", "m1");
    assert_eq!(came(&mut rig, bob), Some(false));
    rig.close(bob, true);
    rig.pass(1);
    assert!(rig.delivered(cyd).is_empty() && rig.owed("cyd").is_empty());
}

#[test]
fn a_token_has_so_many_open_and_no_more() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let bob = member(&mut rig, "bob");
    rig.close(bob, true);
    for n in 0..10_000 {
        rig.send(ada, "ada", "#shop!", &format!("m{n}"));
    }
    rig.take(ada);
    rig.send(ada, "ada", "#shop!", "more");
    let Some(Stage::Refused(refusal)) = rig.states(ada).pop() else {
        panic!("it was accepted");
    };
    assert_eq!(refusal.code, RefusalCode::Quota);
    assert!(
        refusal
            .reason
            .starts_with("10000 requests and messages for one of a group")
    );
    // The first that comes has some at a time, the oldest first.
    let bob = rig.ext("bob");
    assert_eq!(rig.delivered(bob), (1..=16).collect::<Vec<_>>());
    rig.ack(bob, 3);
    assert_eq!(rig.delivered(bob), [17]);
}

#[test]
fn of_equals_the_one_gets_it_that_was_given_none_for_longest() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let names = ["bob", "cyd", "dan"];
    let members = names.map(|name| member(&mut rig, name));
    for n in 1..=6 {
        rig.send(ada, "ada", "#shop!", &format!("m{n}"));
        let holder = members[(n as usize - 1) % 3];
        assert_eq!(rig.delivered(holder), [n], "{n}");
        rig.ack(holder, n);
    }
}

#[test]
fn an_old_one_that_is_passed_on_counts_as_given_now() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let names = ["bob", "cyd", "dan"];
    let members = names.map(|name| member(&mut rig, name));
    for n in 1..=3 {
        rig.send(ada, "ada", "#shop!", &format!("m{n}"));
    }
    rig.ack(members[1], 2);
    rig.ack(members[2], 3);
    rig.close(members[0], true);
    rig.pass(1);
    assert_eq!(rig.delivered(members[1]), [2, 1]);
    rig.ack(members[1], 1);
    rig.send(ada, "ada", "#shop!", "m4");
    assert_eq!(rig.delivered(members[2]), [3, 4]);
}

#[test]
fn who_inherits_a_membership_may_get_what_waits() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let bob = member(&mut rig, "bob");
    rig.close(bob, true);
    rig.send(ada, "ada", "#shop!", "m1");
    let heir = rig.ext("heir");
    retire(&mut rig, "bob", Some("heir")).unwrap();
    assert_eq!(came(&mut rig, heir), Some(false));
}

#[test]
fn what_a_member_sent_itself_hides_nothing_from_it() {
    let mut rig = Rig::new();
    let ada = member(&mut rig, "ada");
    let bob = member(&mut rig, "bob");
    rig.close(bob, true);
    for n in 1..=17 {
        rig.send(ada, "ada", "#shop!", &format!("m{n}"));
    }
    rig.close(ada, true);
    let cyd = rig.ext("cyd");
    rig.send(cyd, "cyd", "#shop!", "m18");
    let ada = rig.join(ext("ada", "ada"));
    assert_eq!(rig.delivered(ada), [18]);
}

#[test]
fn who_inherits_a_membership_may_get_what_all_others_rejected() {
    let mut rig = Rig::new();
    let heir = rig.ext("heir");
    let (_, members) = given(&mut rig, &["bob"]);
    let generated = Register {
        generated: true,
        ..ext("gen", "gen")
    };
    let gone = join(&mut rig, generated);
    reject(&mut rig, members[0]);
    assert_eq!(rig.delivered(gone), [1]);
    retire(&mut rig, "gen", Some("heir")).unwrap();
    assert_eq!(came(&mut rig, heir), Some(true));
}

#[test]
fn who_is_gone_for_good_is_not_waited_for_when_all_others_rejected_it() {
    let mut rig = Rig::new();
    let generated = Register {
        generated: true,
        ..ext("gen", "gen")
    };
    let gone = join(&mut rig, generated);
    rig.close(gone, true);
    let (ada, members) = given(&mut rig, &["bob"]);
    let key = Seq(1).key();
    let reason = "not mine".to_owned();
    rig.frame(members[0], ClientFrame::reject(key, reason));
    let dead = Stage::Dead {
        why: "not mine".into(),
    };
    assert!(rig.states(ada).contains(&dead));
}

/// The jobs that have come, and whether each may have been shown.
pub(crate) fn all_that_came(rig: &mut Rig, conn: ConnId) -> Vec<(u64, bool)> {
    let told = rig.take(conn);
    let again = |text: &String| text.contains(r#""again":true"#);
    let marks = told.texts.iter().map(again);
    told.delivered.iter().copied().zip(marks).collect()
}

pub(crate) fn small(name: &str, messages: u32) -> Register {
    Register {
        window: window(messages, 1_000_000),
        ..ext(name, name)
    }
}

#[test]
fn a_member_has_no_more_than_its_window_has_room_for_and_gets_the_next_with_its_ack() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let bob = join(&mut rig, small("bob", 1));
    for id in ["m1", "m2", "m3"] {
        rig.send(ada, "ada", "#shop!", id);
    }
    assert_eq!(rig.owed("bob"), [1]);
    rig.ack(bob, 1);
    assert_eq!(all_that_came(&mut rig, bob), [(1, false), (2, false)]);
    let cyd = member(&mut rig, "cyd");
    assert_eq!(all_that_came(&mut rig, cyd), [(3, false)]);
}

#[test]
fn it_is_dead_when_only_those_are_left_who_rejected_it() {
    let mut rig = Rig::new();
    let (ada, members) = given(&mut rig, &["bob", "cyd"]);
    reject(&mut rig, members[0]);
    retire(&mut rig, "cyd", None).unwrap();
    rig.pass(PATIENCE + SECOND);
    let why = "every member that is left rejected it".into();
    assert!(rig.states(ada).contains(&Stage::Dead { why }));
    assert!(rig.store.tables().leases.is_empty());
}

/// Ada's jobs wait, and cyd and she are the only members who are here; how often the disk was asked while
/// she did `what`.
fn asked_while(jobs: usize, what: impl Fn(&mut Rig, ConnId)) -> usize {
    let mut rig = Rig::new();
    let (ada, cyd) = (member(&mut rig, "ada"), member(&mut rig, "cyd"));
    let bob = member(&mut rig, "bob");
    rig.close(bob, true);
    rig.close(cyd, true);
    for n in 0..jobs {
        rig.send(ada, "ada", "#shop!", &format!("m{n}"));
    }
    let before = rig.store.asked.get();
    what(&mut rig, ada);
    let asked = rig.store.asked.get() - before;
    assert!(rig.owed("ada").is_empty(), "they are her own");
    asked
}

fn regroup(rig: &mut Rig, conn: ConnId, join: &[&str], leave: &[&str]) {
    let names = |of: &[&str]| {
        of.iter()
            .map(|name| GroupName::parse(name).unwrap())
            .collect()
    };
    let (join, leave) = (names(join), names(leave));
    rig.frame(conn, ClientFrame::Regroup { join, leave });
}

#[test]
fn to_join_a_group_again_has_nothing_looked_at() {
    let asked = asked_while(100, |rig, ada| regroup(rig, ada, &["shop"], &[]));
    assert_eq!(asked, 0);
}

#[test]
fn what_waits_is_looked_at_once_for_who_joins_and_not_when_it_cannot_have_it() {
    const JOBS: usize = 100;
    let asked = asked_while(JOBS, |rig, ada| {
        regroup(rig, ada, &[], &["shop"]);
        regroup(rig, ada, &["shop"], &[]);
    });
    assert!(asked <= JOBS + 10, "the disk was asked {asked} times");
}
