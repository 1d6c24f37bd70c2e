//! Who may take a name over.

use peerbus_core::broker::BrokerInput;
use peerbus_wire::{ClientFrame, Presence, Register, Token};

use crate::rig::{OTHER_TOKEN, Rig, SECOND, ext, message, register};

const TAKEN: Option<(u16, &str)> = Some((4000, "name taken over by a newer connection"));

fn closed(rig: &Rig, conn: peerbus_core::broker::ConnId) -> Option<(u16, String)> {
    rig.closed(conn)
}

fn taken() -> Option<(u16, String)> {
    TAKEN.map(|(code, text)| (code, text.to_owned()))
}

#[test]
fn two_without_instance_the_newcomer_takes_the_name_and_the_mail() {
    let mut rig = Rig::new();
    let old = rig.v1("ada");
    let bob = rig.v1("bob");
    rig.send(bob, "bob", "ada", "m1");
    rig.send(bob, "bob", "ada", "m2");
    assert_eq!(rig.delivered(old), [1, 2]);
    rig.ack(old, 1);
    let new = rig.v1("ada");
    assert_eq!(closed(&rig, old), taken());
    assert_eq!(
        rig.delivered(new),
        [2],
        "what was not acked, from the oldest on"
    );
    rig.ack(old, 2);
    assert_eq!(
        rig.owed("ada"),
        [2],
        "the old connection has no say any more"
    );
    rig.close(old, false);
    rig.send(bob, "bob", "ada", "m3");
    assert_eq!(rig.delivered(new), [3]);
}

#[test]
fn two_that_fight_for_a_name_take_it_once_a_second() {
    let mut rig = Rig::new();
    rig.v1("ada");
    let second = rig.v1("ada");
    let third = rig.ask(register("ada"));
    assert!(rig.take(third).peers.is_empty(), "it waits");
    assert_eq!(closed(&rig, third), None);
    assert_eq!(closed(&rig, second), None);
    let fourth = rig.ask(register("ada"));
    assert_eq!(
        closed(&rig, fourth),
        Some((1008, "name in use".into())),
        "one waits already"
    );
    rig.pass(SECOND);
    assert_eq!(rig.take(third).peers.len(), 1);
    assert_eq!(closed(&rig, second), taken());
}

#[test]
fn who_waits_for_a_name_gets_it_when_the_holder_leaves() {
    let mut rig = Rig::new();
    rig.v1("ada");
    let holder = rig.v1("ada");
    let newcomer = rig.ask(register("ada"));
    rig.close(holder, true);
    assert_eq!(rig.take(newcomer).peers.len(), 1);
}

#[test]
fn without_instance_nobody_takes_a_name_from_one_that_has_one() {
    let mut rig = Rig::new();
    let holder = rig.ext("ada");
    let newcomer = rig.ask(register("ada"));
    assert_eq!(closed(&rig, newcomer), Some((1008, "name in use".into())));
    assert_eq!(closed(&rig, holder), None);
    assert_eq!(rig.take(holder).pings, 0, "it is not even asked");
}

#[test]
fn with_instance_it_takes_the_name_from_one_that_has_none() {
    let mut rig = Rig::new();
    let holder = rig.v1("ada");
    rig.ext("ada");
    assert_eq!(closed(&rig, holder), taken());
}

#[test]
fn the_same_instance_resumes_at_once() {
    let mut rig = Rig::new();
    let old = rig.ext("ada");
    let bob = rig.v1("bob");
    rig.send(bob, "bob", "ada", "m1");
    let new = rig.ext("ada");
    assert_eq!(closed(&rig, old), taken());
    assert_eq!(rig.delivered(new), [1]);
}

#[test]
fn of_two_instances_the_holder_that_answers_stays() {
    let mut rig = Rig::new();
    let presence = Presence::parse(r#"{"client":"claude","project":"web"}"#);
    let holder = rig.join(Register {
        presence,
        ..ext("ada", "first")
    });
    let newcomer = rig.ask(ext("ada", "second"));
    assert_eq!(closed(&rig, newcomer), None, "the holder is asked first");
    assert_eq!(rig.take(holder).pings, 1);
    rig.input(BrokerInput::Pong(holder));
    let told = "name in use by claude in web".to_owned();
    assert_eq!(
        closed(&rig, newcomer),
        Some((1008, told)),
        "it says who holds the name"
    );
    rig.pass(5 * SECOND);
    assert_eq!(closed(&rig, holder), None);
}

#[test]
fn any_frame_of_the_holder_is_an_answer() {
    let mut rig = Rig::new();
    let holder = rig.ext("ada");
    let newcomer = rig.ask(ext("ada", "second"));
    rig.frame(holder, ClientFrame::Peers);
    assert_eq!(closed(&rig, newcomer).map(|(code, _)| code), Some(1008));
}

#[test]
fn a_silent_holder_loses_the_name_after_two_seconds() {
    let mut rig = Rig::new();
    let holder = rig.ext("ada");
    let bob = rig.v1("bob");
    rig.send(bob, "bob", "ada", "m1");
    let newcomer = rig.ask(ext("ada", "second"));
    rig.pass(2 * SECOND - 1);
    assert_eq!(closed(&rig, holder), None);
    rig.pass(1);
    assert_eq!(closed(&rig, holder), taken());
    let told = rig.take(newcomer);
    assert_eq!((told.peers.len(), told.delivered), (1, vec![1]));
    rig.input(BrokerInput::Pong(holder));
    assert_eq!(
        closed(&rig, newcomer),
        None,
        "an answer that comes too late"
    );
}

#[test]
fn a_holder_that_leaves_during_the_contest_has_lost_it() {
    let mut rig = Rig::new();
    let holder = rig.ext("ada");
    let newcomer = rig.ask(ext("ada", "second"));
    rig.close(holder, false);
    assert_eq!(rig.take(newcomer).peers.len(), 1);
}

#[test]
fn a_holder_that_resumes_during_the_contest_has_answered() {
    let mut rig = Rig::new();
    rig.ext("ada");
    let newcomer = rig.ask(ext("ada", "second"));
    let resumed = rig.ext("ada");
    assert_eq!(closed(&rig, newcomer).map(|(code, _)| code), Some(1008));
    assert_eq!(closed(&rig, resumed), None);
}

#[test]
fn a_newcomer_that_gives_up_leaves_the_holder_alone() {
    let mut rig = Rig::new();
    let holder = rig.ext("ada");
    let newcomer = rig.ask(ext("ada", "second"));
    rig.close(newcomer, false);
    rig.pass(5 * SECOND);
    assert_eq!(closed(&rig, holder), None);
    let third = rig.ask(ext("ada", "third"));
    assert_eq!(rig.take(holder).pings, 2, "another contest");
    assert_eq!(closed(&rig, third), None);
}

#[test]
fn what_a_contender_says_is_not_heard() {
    let mut rig = Rig::new();
    rig.ext("ada");
    rig.v1("bob");
    let newcomer = rig.ask(ext("ada", "second"));
    rig.input(message(newcomer, "ada", "bob", "m1"));
    assert!(rig.owed("bob").is_empty());
}

#[test]
fn nothing_follows_the_close_of_a_taken_over_connection() {
    let mut rig = Rig::new();
    let old = rig.v1("ada");
    let bob = rig.v1("bob");
    let new = rig.open();
    // The delivery waits for the commit when its connection is closed.
    let takes_over = BrokerInput::Frame(new, ClientFrame::Register(register("ada")));
    rig.batch([message(bob, "bob", "ada", "m1"), takes_over]);
    rig.commit();
    assert!(rig.take(old).delivered.is_empty());
    assert_eq!(rig.delivered(new), [1]);
}

/// A contest is for the name of who has it: when that one goes by another name, and its old one is
/// somebody else's, the contest gives nobody anything.
#[test]
fn who_waits_for_a_name_does_not_get_it_from_another_token_that_has_it_meanwhile() {
    let mut rig = Rig::new();
    let name = |name: &str| Register {
        ext: 2,
        ..register(name)
    };
    rig.join(name("phone"));
    let second = rig.join(name("phone"));
    let third = rig.ask(name("phone"));
    assert_eq!(closed(&rig, third), None, "it waits");
    // So many other names that the first one does not lead here any more.
    for n in 0..70 {
        let name = format!("eve{n}");
        rig.frame(second, ClientFrame::Rename { name });
        rig.pass(10);
    }
    let owner = rig.join(Register {
        token: Token::parse(OTHER_TOKEN),
        ..name("phone")
    });
    let bob = rig.ext("bob");
    rig.send(bob, "bob", "phone", "m1");
    rig.pass(2 * SECOND);
    let refused = (1008, "name claimed under a different token".to_owned());
    assert_eq!(closed(&rig, third), Some(refused));
    assert_eq!(closed(&rig, owner), None);
    assert_eq!(rig.delivered(owner), [1]);
}
