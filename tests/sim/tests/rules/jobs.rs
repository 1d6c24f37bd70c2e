//! Messages for one member of a group: who has one, when the next one gets it, and what its sender is
//! told.

use peerbus_core::broker::{ConnId, Mutation};
use peerbus_wire::{ClientFrame, GroupName, Presence, RefusalCode, Register, Seq, Stage};

use crate::retire::retire;
use crate::rig::{Rig, SECOND, accepted, ext};

const PATIENCE: u64 = 600 * SECOND;

fn join(rig: &mut Rig, register: Register) -> ConnId {
    let conn = rig.join(register);
    let join = vec![GroupName::parse("shop").unwrap()];
    let leave = Vec::new();
    rig.frame(conn, ClientFrame::Regroup { join, leave });
    conn
}

fn member(rig: &mut Rig, name: &str) -> ConnId {
    join(rig, ext(name, name))
}

fn says(activity: &str, wake: &str) -> Option<Presence> {
    Presence::parse(&format!(r#"{{"activity":"{activity}","wake":[{wake}]}}"#))
}

fn does(rig: &mut Rig, conn: ConnId, activity: &str, wake: &str) {
    let presence = says(activity, wake).unwrap();
    rig.frame(conn, ClientFrame::Presence(presence));
}

/// A sender, and a job of its that one of these members has.
fn given(rig: &mut Rig, names: &[&str]) -> (ConnId, Vec<ConnId>) {
    let ada = rig.ext("ada");
    let members: Vec<_> = names.iter().map(|name| member(rig, name)).collect();
    rig.send(ada, "ada", "#shop!", "m1");
    assert_eq!(rig.states(ada)[0], accepted(1, 1));
    (ada, members)
}

/// Gives the job back.
fn release(rig: &mut Rig, conn: ConnId, again: bool) {
    let key = Seq(1).key();
    rig.frame(conn, ClientFrame::Release { key, again });
}

/// Whether the job has come, and as one that may have been shown.
fn came(rig: &mut Rig, conn: ConnId) -> Option<bool> {
    let text = rig.take(conn).texts.pop()?;
    Some(text.contains(r#""again":true"#))
}

fn recalled(rig: &mut Rig, conn: ConnId) -> Vec<(Option<String>, String)> {
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
    assert!(rig.store.tables().jobs.is_empty() && rig.store.tables().deliveries.is_empty());
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
    rig.broker.mutate(Mutation::BusyFirst);
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
fn who_has_it_too_long_is_asked_for_it_and_the_next_one_gets_it() {
    let mut rig = Rig::new();
    let (ada, members) = given(&mut rig, &["bob", "cyd"]);
    rig.take(members[0]);
    rig.pass(PATIENCE - SECOND);
    assert!(rig.take(members[0]).recalled.is_empty());
    rig.pass(2 * SECOND);
    assert_eq!(rig.take(members[0]).recalled, [1]);
    assert_eq!(
        came(&mut rig, members[1]),
        None,
        "bob has it until he answers"
    );
    release(&mut rig, members[0], false);
    assert_eq!(came(&mut rig, members[1]), Some(false), "nobody saw it");
    let why = "it was not seen there in time".to_owned();
    assert_eq!(recalled(&mut rig, ada), [(Some("bob".into()), why)]);
    // What comes late changes nothing.
    rig.ack(members[0], 1);
    assert_eq!(rig.owed("cyd"), [1]);
}

#[test]
fn who_may_have_shown_it_says_so_and_who_does_not_answer_counts_as_such() {
    for answers in [true, false] {
        let mut rig = Rig::new();
        let (_, members) = given(&mut rig, &["bob", "cyd"]);
        rig.pass(PATIENCE);
        if answers {
            release(&mut rig, members[0], true);
        } else {
            rig.pass(4 * SECOND);
            assert_eq!(came(&mut rig, members[1]), None);
            rig.pass(2 * SECOND);
        }
        assert_eq!(came(&mut rig, members[1]), Some(true), "{answers}");
    }
}

#[test]
fn where_nobody_else_is_free_it_stays_until_somebody_comes() {
    let mut rig = Rig::new();
    let (_, members) = given(&mut rig, &["bob"]);
    rig.pass(3 * PATIENCE);
    assert!(rig.take(members[0]).recalled.is_empty());
    let cyd = member(&mut rig, "cyd");
    assert_eq!(rig.take(members[0]).recalled, [1]);
    release(&mut rig, members[0], false);
    assert_eq!(came(&mut rig, cyd), Some(false));
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
fn who_holds_it_back_is_asked_for_it() {
    let mut rig = Rig::new();
    let (_, members) = given(&mut rig, &["bob", "cyd"]);
    let (key, stage) = (
        Seq(1).key(),
        Stage::Held {
            why: "quiet".into(),
        },
    );
    rig.frame(members[0], ClientFrame::Progress { key, stage });
    rig.pass(1);
    assert_eq!(rig.take(members[0]).recalled, [1]);
}

#[test]
fn who_holds_it_back_is_asked_for_it_as_soon_as_another_one_comes() {
    let mut rig = Rig::new();
    let (_, members) = given(&mut rig, &["bob"]);
    let (key, why) = (Seq(1).key(), "quiet".into());
    let stage = Stage::Held { why };
    rig.frame(members[0], ClientFrame::Progress { key, stage });
    rig.pass(SECOND);
    assert!(rig.take(members[0]).recalled.is_empty());
    member(&mut rig, "cyd");
    assert_eq!(rig.take(members[0]).recalled, [1]);
}

#[test]
fn who_has_it_too_long_may_come_back_from_a_broken_connection_all_the_same() {
    let mut rig = Rig::new();
    let (_, members) = given(&mut rig, &["bob"]);
    rig.pass(2 * PATIENCE);
    rig.close(members[0], false);
    rig.pass(SECOND);
    let cyd = member(&mut rig, "cyd");
    rig.pass(SECOND);
    assert_eq!(rig.owed("bob"), [1]);
    let bob = rig.ext("bob");
    assert_eq!(rig.take(bob).recalled, [1]);
    release(&mut rig, bob, false);
    assert_eq!(came(&mut rig, cyd), Some(true));
}

#[test]
fn who_comes_back_after_its_time_to_answer_hears_that_it_goes_to_another_one() {
    let mut rig = Rig::new();
    let (_, members) = given(&mut rig, &["bob", "cyd"]);
    rig.pass(PATIENCE + SECOND);
    assert_eq!(rig.take(members[0]).recalled, [1]);
    rig.pass(3 * SECOND);
    rig.close(members[0], false);
    rig.pass(3 * SECOND);
    let bob = rig.ext("bob");
    let told = rig.take(bob);
    assert_eq!((told.recalled, told.delivered), (vec![1], vec![]));
    assert_eq!(came(&mut rig, members[1]), Some(true));
    release(&mut rig, bob, true);
    assert_eq!(rig.owed("cyd"), [1]);
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
    assert!(rig.store.tables().jobs.is_empty());
}

#[test]
#[should_panic(expected = "nobody is left")]
fn a_job_that_comes_again_to_a_member_who_rejected_it() {
    let mut rig = Rig::new();
    rig.broker.mutate(Mutation::GiveToRejected);
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

fn reject(rig: &mut Rig, conn: ConnId) {
    let (key, reason) = (Seq(1).key(), "not mine".into());
    rig.frame(conn, ClientFrame::Reject { key, reason });
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
    assert!(rig.store.tables().owed.is_empty() && rig.store.tables().jobs.is_empty());
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
        "nobody else is in #shop now; there are #shop"
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
            .starts_with("10000 messages for one of a group")
    );
    // All of them go to the first that comes, some at a time.
    rig.ext("bob");
    rig.pass(SECOND);
    assert_eq!(rig.owed("bob").len(), 10_000);
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
    // Nor does it help to come back while it is asked for it.
    for _ in 0..4 {
        rig.pass(SECOND);
        rig.close(bob, false);
        bob = rig.ext("bob");
        assert_eq!(rig.take(bob).recalled, [1]);
    }
    rig.pass(SECOND);
    assert_eq!(came(&mut rig, members[1]), Some(true));
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
    rig.frame(members[0], ClientFrame::Reject { key, reason });
    let dead = Stage::Dead {
        why: "not mine".into(),
    };
    assert!(rig.states(ada).contains(&dead));
}
