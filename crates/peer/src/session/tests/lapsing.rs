//! What a peer has for a while: one for a member of a group, and requests.

use peerbus_wire::{DeliveryKey, Recall};

use super::*;
use crate::session::inbox::OWED_MAX;

/// One for any member of a group, and this peer has it.
fn job(rig: &mut Rig, key: &str, message: &str) {
    rig.text(&deliver_text(key, &signed("alice", "#shop!", message)));
}

/// A request, and this peer has it.
fn request(rig: &mut Rig, key: &str, message: &str) {
    let text = deliver_text(key, &signed("alice", "bob", message));
    let within = r#""delivery_key":"17","within_ms":60000"#;
    rig.text(&text.replace(r#""delivery_key":"17""#, within));
}

fn recall(rig: &mut Rig, key: &str) {
    rig.receive(&BrokerFrame::Recall(Recall {
        key: DeliveryKey::parse(key).unwrap(),
        reason: "its time is over".into(),
    }));
}

fn lapsed(key: Key, reason: Option<&str>) -> Option<SessionEvent> {
    let reason = reason.map(str::to_owned);
    Some(SessionEvent::Lapsed { key, reason })
}

const OVER: Option<&str> = Some("its time is over");

#[test]
fn what_is_recalled_is_forgotten_and_comes_again_as_new() {
    let mut rig = Rig::online(true);
    job(&mut rig, "17", "m1");
    recall(&mut rig, "17");
    assert_eq!(rig.session.poll_event(), None, "nobody took it");
    job(&mut rig, "17", "m1");
    let inbound = rig.message();
    assert!(inbound.one && inbound.group.as_deref() == Some("shop"));
    recall(&mut rig, "17");
    assert_eq!(rig.session.poll_event(), lapsed(inbound.key, OVER));
    rig.ack(inbound.key, seen());
    assert!(rig.wire().is_empty(), "there is no answer");
    job(&mut rig, "17", "m1");
    assert_eq!(rig.message().key, inbound.key);
    rig.session.give_back(rig.now(), inbound.key);
    let back = r#"Release { key: DeliveryKey("17"), again: true }"#;
    assert_eq!(rig.wire(), [back]);
    job(&mut rig, "17", "m1");
    assert_eq!(rig.message().key, inbound.key);
}

#[test]
fn after_another_connection_one_of_a_group_comes_again_and_other_mail_is_kept() {
    let mut rig = Rig::online(true);
    job(&mut rig, "17", "m1");
    let key = rig.message().key;
    job(&mut rig, "18", "m2");
    rig.deliver("19", "m3");
    let path = "socket".to_owned();
    assert_eq!(reached(&mut rig, key, Stage::Pushed { path }).len(), 1);
    let pushed_ms = rig.ms;
    rig.cut();
    rig.redial();
    rig.register(true);
    assert!(matches!(
        rig.session.poll_event(),
        Some(SessionEvent::Registered { .. })
    ));
    assert_eq!(rig.session.poll_event(), lapsed(key, None));
    assert_eq!(rig.message().id, "m3", "m2 was not taken");
    job(&mut rig, "17", "m1");
    job(&mut rig, "18", "m2");
    let again = [rig.message().id, rig.message().id];
    assert_eq!(again, ["m1", "m2"]);
    let age_ms = rig.ms - pushed_ms;
    let stage = r#"Pushed { path: "socket" }"#;
    let told =
        format!(r#"Progress {{ key: DeliveryKey("17"), stage: {stage}, age_ms: {age_ms} }}"#);
    assert_eq!(rig.wire(), std::slice::from_ref(&told), "it was shown");
    job(&mut rig, "17", "m1");
    assert_eq!(rig.message().id, "m1", "its lease begins anew");
    rig.ack(key, seen());
    assert_eq!(rig.wire(), [told, "ack 17 seen".into()]);
}

#[test]
fn a_goodbye_gives_back_what_nobody_took_of_a_group() {
    let mut rig = Rig::online(true);
    rig.deliver("16", "m0");
    job(&mut rig, "17", "m1");
    rig.session.close();
    let back = r#"Release { key: DeliveryKey("17"), again: true }"#;
    assert_eq!(rig.wire(), [back]);
}

fn reached(rig: &mut Rig, key: Key, stage: Stage) -> Vec<String> {
    let now = rig.now();
    rig.session.reached(now, key, stage);
    rig.session.check();
    rig.wire()
}

fn working() -> Stage {
    Stage::Working {
        said: "on it".into(),
    }
}

fn declined() -> Stage {
    Stage::Declined { why: "no".into() }
}

const WORKING: &str =
    r#"Progress { key: DeliveryKey("17"), stage: Working { said: "on it" }, age_ms: 0 }"#;

/// A request that was read, and its key.
fn owes() -> (Rig, Key) {
    let mut rig = Rig::online(true);
    request(&mut rig, "17", "m1");
    let inbound = rig.message();
    assert_eq!((inbound.within_ms, inbound.one), (60_000, false));
    rig.ack(inbound.key, seen());
    assert_eq!(rig.wire(), ["ack 17 seen"]);
    (rig, inbound.key)
}

#[test]
fn a_request_to_a_group_is_for_one_member() {
    let mut rig = Rig::online(true);
    let text = deliver_text("17", &signed("alice", "#shop", "m1"));
    rig.text(&text.replace(r#""envelope""#, r#""within_ms":5,"envelope""#));
    assert!(rig.message().one);
}

#[test]
fn a_request_that_was_read_is_worked_at_until_it_is_declined() {
    let (mut rig, key) = owes();
    assert_eq!(reached(&mut rig, key, working()), [WORKING]);
    assert_eq!(reached(&mut rig, key, declined()), ["reject 17: no"]);
    rig.cut();
    rig.redial();
    rig.register(true);
    assert_eq!(
        rig.wire(),
        ["reject 17: no"],
        "the broker may not have heard"
    );
    assert!(reached(&mut rig, key, declined()).is_empty(), "it is over");
}

#[test]
fn what_is_declined_without_a_connection_is_declined_with_the_next() {
    let (mut rig, key) = owes();
    rig.cut();
    assert!(reached(&mut rig, key, declined()).is_empty());
    rig.redial();
    rig.register(true);
    assert_eq!(rig.wire(), ["reject 17: no"]);
}

#[test]
fn an_unread_request_is_declined_like_mail_that_is_not_wanted() {
    let mut rig = Rig::online(true);
    request(&mut rig, "17", "m1");
    let key = rig.message().key;
    assert_eq!(reached(&mut rig, key, working()), [WORKING]);
    assert_eq!(reached(&mut rig, key, declined()), ["reject 17: no"]);
    request(&mut rig, "17", "m1");
    assert_eq!(rig.session.poll_event(), None, "it ended");
    assert_eq!(rig.wire(), ["reject 17: no"]);
}

#[test]
fn a_request_is_owed_no_more_once_its_answer_is_accepted() {
    let (mut rig, key) = owes();
    let now = rig.now();
    let body = r#"{"text":"yes","reply_to":"m1"}"#.to_owned();
    for (name, owed) in [("carol", true), ("Alice", false)] {
        let draft = Draft {
            id: id(&format!("to-{name}")),
            to: Address::Peer(self::name(name)),
            body: body.clone(),
            ..draft("a")
        };
        rig.session.send(now, draft, 1_000).unwrap();
        rig.wire();
        rig.accept(&format!("to-{name}"));
        assert_eq!(reached(&mut rig, key, working()).len(), usize::from(owed));
    }
}

#[test]
fn a_request_that_is_answered_before_its_ack_is_not_owed_after_it() {
    let mut rig = Rig::online(true);
    request(&mut rig, "17", "m1");
    let key = rig.message().key;
    let body = r#"{"text":"yes","reply_to":"m1"}"#.to_owned();
    let answer = Draft { body, ..draft("a") };
    rig.session.send(rig.now(), answer, 1_000).unwrap();
    rig.wire();
    rig.accept("a");
    rig.ack(key, seen());
    assert_eq!(rig.wire(), ["ack 17 seen"]);
    assert!(reached(&mut rig, key, working()).is_empty());
}

#[test]
fn a_request_that_was_read_and_is_recalled_is_forgotten_and_may_come_again() {
    let (mut rig, key) = owes();
    recall(&mut rig, "17");
    assert_eq!(rig.session.poll_event(), lapsed(key, OVER));
    assert!(reached(&mut rig, key, working()).is_empty());
    request(&mut rig, "17", "m1");
    assert_eq!(rig.message().key, key);
}

#[test]
fn a_request_that_was_read_and_comes_again_is_owed_under_its_new_delivery() {
    let (mut rig, key) = owes();
    let text = deliver_text("18", &signed("alice", "bob", "m1"));
    rig.text(&text.replace(r#""envelope""#, r#""within_ms":5,"envelope""#));
    assert_eq!(rig.wire(), ["ack 18 seen"]);
    let works = reached(&mut rig, key, working());
    assert_eq!(works, [WORKING.replace("17", "18")]);
}

#[test]
fn as_many_requests_are_remembered_as_may_be_owed() {
    let (mut rig, first) = owes();
    for n in 0..OWED_MAX {
        let (key, message) = (format!("{}", 100 + n), format!("r{n}"));
        let text = deliver_text(&key, &signed("alice", "bob", &message));
        rig.text(&text.replace(r#""envelope""#, r#""within_ms":5,"envelope""#));
        let inbound = rig.message();
        rig.ack(inbound.key, seen());
    }
    rig.wire();
    assert!(reached(&mut rig, first, working()).is_empty());
}

#[test]
fn what_is_owed_under_one_name_is_not_under_another() {
    let (mut rig, key) = owes();
    rig.session.take_name(name("carl"));
    assert!(reached(&mut rig, key, working()).is_empty());
}
