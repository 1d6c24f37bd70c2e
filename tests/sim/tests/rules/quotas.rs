//! How many bytes may wait: for one recipient, and from one token.

use peerbus_core::TokenHash;
use peerbus_core::broker::{BrokerConfig, BusEvent, Command, ConnId};
use peerbus_core::store::{OwedRow, Store as _};
use peerbus_wire::{ClientFrame, PeerName, RefusalCode, Register, Stage, Token};

use crate::rig::{OTHER_TOKEN, Rig, SECOND, TOKEN, accepted, envelope, ext};

/// Bytes of a message of the tests: names and ids are of one length each.
fn size() -> u64 {
    envelope("ada", "bob", "m1", "1").len() as u64
}

fn hash(token: &str) -> TokenHash {
    TokenHash::of(&Token::parse(token).unwrap())
}

fn with_other_token(name: &str) -> Register {
    Register {
        token: Token::parse(OTHER_TOKEN),
        ..ext(name, name)
    }
}

/// A broker that lets so many of these messages of a token wait.
fn lets_wait(messages: u64) -> impl FnOnce(&mut BrokerConfig) {
    move |config| config.owed_by_max = messages * size()
}

fn refusal(states: &[Stage]) -> Option<(RefusalCode, &str)> {
    states.iter().find_map(|state| match state {
        Stage::Refused(refusal) => Some((refusal.code, &*refusal.reason)),
        _ => None,
    })
}

fn code(rig: &mut Rig, conn: peerbus_core::broker::ConnId) -> Option<RefusalCode> {
    refusal(&rig.states(conn)).map(|(code, _)| code)
}

/// What waits, on disk: by number of the peer, its bytes in messages of [`size`], and the token.
fn waits(rig: &mut Rig) -> Vec<(u32, u64, u64, Option<TokenHash>)> {
    let rows = rig.store.load().unwrap().owed.into_iter();
    let row = |OwedRow {
                   peer,
                   token,
                   to,
                   by,
               }| (peer.0, to / size(), by / size(), token);
    rows.map(row).collect()
}

#[test]
fn a_recipient_that_is_owed_its_bytes_gets_no_more_until_it_reads() {
    let mut rig = Rig::with(|config| config.owed_to_max = 3 * size());
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    let cyd = rig.join(with_other_token("cyd"));
    rig.send(ada, "ada", "bob", "m1");
    rig.send(cyd, "cyd", "bob", "m1");
    rig.take(ada);
    rig.send(ada, "ada", "bob", "m2");
    let states = rig.states(ada);
    let (code, why) = refusal(&states).unwrap();
    assert_eq!(code, RefusalCode::QueueFull);
    let (has, fits) = (2 * size(), 3 * size() - 3 * size() / 8);
    let says = format!(
        "the queue of bob is full ({has} bytes wait, this has {}, and {fits} fit); send again",
        size()
    );
    assert!(why.starts_with(&says), "{why}");
    rig.send(ada, "ada", "cyd", "m3");
    assert_eq!(rig.states(ada)[0], accepted(1, 1), "others have room");
    rig.ack(bob, 1);
    rig.take(ada);
    rig.send(ada, "ada", "bob", "m2");
    assert_eq!(rig.states(ada)[0], accepted(1, 1));
}

#[test]
fn a_broadcast_goes_to_those_who_have_room() {
    let mut rig = Rig::with(|config| config.owed_to_max = 5 * size());
    let (ada, _bob) = (rig.ext("ada"), rig.ext("bob"));
    let _cyd = rig.ext("cyd");
    rig.send(ada, "ada", "bob", "m1");
    rig.send(ada, "ada", "bob", "m2");
    rig.take(ada);
    rig.send(ada, "ada", "*", "b1");
    assert_eq!(rig.states(ada)[0], accepted(1, 1));
    assert_eq!(rig.owed("bob"), [1, 2]);
}

/// A message with a body.
fn says(rig: &mut Rig, conn: ConnId, (from, to, id): (&str, &str, &str), body: &str) -> Stage {
    rig.take(conn);
    rig.text(conn, &envelope(from, to, id, body));
    rig.states(conn).remove(0)
}

fn is_full(stage: &Stage, says: &str) -> bool {
    matches!(stage, Stage::Refused(it) if it.code == RefusalCode::QueueFull && it.reason.contains(says))
}

#[test]
fn one_token_has_half_of_a_queue_however_many_names_it_has() {
    let mut rig = Rig::with(|config| config.queue_max = 6);
    let bob = rig.ext("bob");
    rig.close(bob, true);
    for name in ["eve1", "eve2", "eve3"] {
        let eve = rig.join(with_other_token(name));
        let stage = says(&mut rig, eve, (name, "bob", "m1"), "1");
        assert_eq!(stage, accepted(1, 0), "{name}");
    }
    for name in ["eve4", "eve5"] {
        let eve = rig.join(with_other_token(name));
        let stage = says(&mut rig, eve, (name, "bob", "m1"), "1");
        let why = "(3 messages that were sent with this token)";
        assert!(is_full(&stage, why), "{stage:?}");
        // As many are known after a kill.
        rig.restart();
    }
    let (ada, cyd) = (rig.ext("ada"), rig.ext("cyd"));
    assert_eq!(
        says(&mut rig, ada, ("ada", "bob", "m1"), "1"),
        accepted(1, 0)
    );
    assert_eq!(
        says(&mut rig, cyd, ("cyd", "bob", "m1"), "1"),
        accepted(1, 0)
    );
    let bob = rig.ext("bob");
    rig.ack(bob, 1);
    let eve = rig.join(with_other_token("eve1"));
    assert_eq!(
        says(&mut rig, eve, ("eve1", "bob", "m2"), "1"),
        accepted(1, 1)
    );
}

#[test]
fn one_token_has_half_of_the_bytes_of_a_queue() {
    let mut rig = Rig::with(|config| config.owed_to_max = 8 * size());
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.close(bob, true);
    let eve = rig.join(with_other_token("eve"));
    for id in ["m1", "m2", "m3"] {
        assert_eq!(says(&mut rig, eve, ("eve", "bob", id), "1"), accepted(1, 0));
    }
    let stage = says(&mut rig, eve, ("eve", "bob", "m4"), "1");
    let why = format!("({} bytes that were sent with this token wait", 3 * size());
    assert!(is_full(&stage, &why), "{stage:?}");
    // Others' mail finds room.
    for id in ["m1", "m2", "m3"] {
        assert_eq!(says(&mut rig, ada, ("ada", "bob", id), "1"), accepted(1, 0));
    }
}

#[test]
fn what_is_handed_over_counts_for_the_token_that_sent_it() {
    let mut rig = Rig::with(|config| config.queue_max = 8);
    let (bob, cyd) = (rig.ext("bob"), rig.ext("cyd"));
    let eve = rig.join(with_other_token("eve"));
    rig.send(eve, "eve", "cyd", "c1");
    rig.send(eve, "eve", "cyd", "c2");
    for id in ["m1", "m2", "m3", "m4"] {
        assert_eq!(says(&mut rig, eve, ("eve", "bob", id), "1"), accepted(1, 1));
    }
    let why = "(4 messages that were sent with this token)";
    let stage = says(&mut rig, eve, ("eve", "bob", "m5"), "1");
    assert!(is_full(&stage, why), "{stage:?}");
    let successor = Some("bob".to_owned());
    rig.frame(cyd, ClientFrame::Retire { successor });
    assert_eq!(rig.owed("bob"), [1, 2, 3, 4, 5, 6]);
    for seq in 1..=3 {
        rig.ack(bob, seq);
    }
    let stage = says(&mut rig, eve, ("eve", "bob", "m6"), "1");
    assert_eq!(stage, accepted(1, 1));
    let stage = says(&mut rig, eve, ("eve", "bob", "m7"), "1");
    assert!(is_full(&stage, why), "{stage:?}");
}

#[test]
fn an_answer_finds_room_where_other_mail_finds_none() {
    let mut rig = Rig::with(|config| config.queue_max = 16);
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    let eve = rig.join(with_other_token("eve"));
    assert_eq!(
        says(&mut rig, bob, ("bob", "ada", "q"), "1"),
        accepted(1, 1)
    );
    rig.send(bob, "bob", "eve", "q2");
    for n in 0..7 {
        let id = format!("m{n}");
        assert_eq!(
            says(&mut rig, eve, ("eve", "bob", &id), "1"),
            accepted(1, 1)
        );
        assert_eq!(
            says(&mut rig, ada, ("ada", "bob", &id), "1"),
            accepted(1, 1)
        );
    }
    let stage = says(&mut rig, ada, ("ada", "bob", "more"), "1");
    assert!(is_full(&stage, "(14 messages)"), "{stage:?}");
    let made_up = says(
        &mut rig,
        eve,
        ("eve", "bob", "x"),
        r#"{"reply_to":"nothing"}"#,
    );
    assert!(is_full(&made_up, "(14 messages)"), "{made_up:?}");
    let answer = |rig: &mut Rig, id| says(rig, ada, ("ada", "bob", id), r#"{"reply_to":"q"}"#);
    let again = |rig: &mut Rig, id| says(rig, eve, ("eve", "bob", id), r#"{"reply_to":"q2"}"#);
    assert_eq!(again(&mut rig, "r1"), accepted(1, 1));
    assert!(is_full(
        &again(&mut rig, "r2"),
        "(8 messages that were sent with this token)"
    ));
    assert_eq!(answer(&mut rig, "r1"), accepted(1, 1));
    assert!(is_full(&answer(&mut rig, "r2"), "(16 messages)"));
}

#[test]
fn a_token_whose_bytes_wait_sends_no_more_and_others_do() {
    let mut rig = Rig::with(lets_wait(3));
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    let cyd = rig.join(with_other_token("cyd"));
    for id in ["m1", "m2"] {
        rig.send(ada, "ada", "cyd", id);
    }
    rig.send(bob, "bob", "cyd", "m3");
    rig.take(ada);
    rig.send(ada, "ada", "bob", "m4");
    let states = rig.states(ada);
    let (code, why) = refusal(&states).unwrap();
    assert_eq!(code, RefusalCode::Quota);
    assert!(
        why.contains("were sent with this token wait to be read"),
        "{why}"
    );
    assert!(
        why.ends_with("send again when some of it was read"),
        "{why}"
    );
    rig.send(cyd, "cyd", "ada", "m1");
    assert_eq!(
        rig.states(cyd)[0],
        accepted(1, 1),
        "another token has its own"
    );
    rig.send(ada, "ada", "cyd", "m1");
    let again = rig.states(ada);
    assert!(
        matches!(&again[..], [Stage::Accepted(known)] if known.duplicate),
        "{again:?}"
    );
    // As many wait after the broker was killed.
    rig.restart();
    let (ada, cyd) = (rig.ext("ada"), rig.join(with_other_token("cyd")));
    rig.send(ada, "ada", "cyd", "m4");
    assert_eq!(self::code(&mut rig, ada), Some(RefusalCode::Quota));
    rig.ack(cyd, 3);
    rig.take(ada);
    rig.send(ada, "ada", "cyd", "m4");
    assert_eq!(rig.states(ada)[0], accepted(1, 1));
}

#[test]
fn one_token_of_the_gateway_leaves_half_to_the_others() {
    let size = envelope("web:ci", "bob", "m1", "1").len() as u64;
    let mut rig = Rig::with(|config| config.owed_by_max = 4 * size);
    rig.ext("bob");
    let (build, phone) = (rig.ext("web:ci"), rig.ext("web:me"));
    let mut sends = |conn, from, id| {
        let stage = says(&mut rig, conn, (from, "bob", id), "1");
        matches!(stage, Stage::Accepted(_))
    };
    assert_eq!(
        ["m1", "m2", "m3"].map(|id| sends(build, "web:ci", id)),
        [true, true, false]
    );
    assert_eq!(
        ["m1", "m2", "m3"].map(|id| sends(phone, "web:me", id)),
        [true, true, false]
    );
}

#[test]
fn each_copy_of_a_broadcast_counts() {
    // A broadcast is a few bytes longer.
    let mut rig = Rig::with(|config| config.owed_by_max = 2 * size() + 20);
    let ada = rig.ext("ada");
    let (bob, cyd) = (rig.ext("bob"), rig.ext("cyd"));
    rig.send(ada, "ada", "*", "b1");
    assert_eq!(rig.states(ada)[0], accepted(2, 2));
    rig.send(ada, "ada", "bob", "m1");
    assert_eq!(code(&mut rig, ada), Some(RefusalCode::Quota));
    rig.ack(bob, 1);
    rig.take(ada);
    rig.send(ada, "ada", "*", "b2");
    assert_eq!(
        code(&mut rig, ada),
        Some(RefusalCode::Quota),
        "all or nothing"
    );
    rig.ack(cyd, 1);
    rig.take(ada);
    rig.send(ada, "ada", "*", "b2");
    assert_eq!(rig.states(ada)[0], accepted(2, 2));
}

#[test]
fn a_token_may_have_a_limit_of_its_own() {
    let mut rig = Rig::with(|config| {
        lets_wait(1)(config);
        config.grants[1].quotas.bytes = Some(2 * size());
    });
    let ada = rig.ext("ada");
    let cyd = rig.join(with_other_token("cyd"));
    for (conn, from, to, took) in [
        (ada, "ada", "cyd", [true, false, false]),
        (cyd, "cyd", "ada", [true, true, false]),
    ] {
        let send = |id| {
            rig.send(conn, from, to, id);
            code(&mut rig, conn).is_none()
        };
        assert_eq!(["m1", "m2", "m3"].map(send), took, "{from}");
    }
}

#[test]
fn a_temporary_sender_is_counted_after_it_has_left() {
    let mut rig = Rig::with(lets_wait(1));
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    let cli = rig.join(Register {
        ephemeral: true,
        ..ext("cli", "x")
    });
    rig.send(cli, "cli", "bob", "m1");
    rig.close(cli, true);
    assert_eq!(rig.row("cli"), None);
    rig.send(ada, "ada", "bob", "m1");
    assert_eq!(code(&mut rig, ada), Some(RefusalCode::Quota));
    rig.restart();
    let (ada, bob_again) = (rig.ext("ada"), rig.ext("bob"));
    assert_ne!(bob, bob_again);
    rig.send(ada, "ada", "bob", "m1");
    assert_eq!(code(&mut rig, ada), Some(RefusalCode::Quota));
    rig.ack(bob_again, 1);
    rig.take(ada);
    rig.send(ada, "ada", "bob", "m1");
    assert_eq!(rig.states(ada)[0], accepted(1, 1));
    rig.ack(bob_again, 2);
    assert_eq!(waits(&mut rig), [], "nothing is kept of nothing");
}

#[test]
fn mail_that_goes_to_a_successor_or_expires_counts_where_it_is() {
    let mut rig = Rig::with(|config| config.expiry_ms = 100 * SECOND);
    let ada = rig.ext("ada");
    let bob = rig.ext("bob");
    rig.close(bob, true);
    let cyd = rig.ext("cyd");
    rig.close(cyd, true);
    rig.send(ada, "ada", "bob", "m1");
    let token = Some(hash(TOKEN));
    assert_eq!(waits(&mut rig), [(1, 0, 1, token), (2, 1, 0, None)]);
    let parse = |name| PeerName::parse(name).unwrap();
    let (name, successor) = (parse("bob"), Some(parse("cyd")));
    let command = Command::Retire { name, successor };
    rig.batch([]);
    let now = rig.now();
    let done = rig.broker.operate(now, &command, &mut rig.store).unwrap();
    assert_eq!(done, Ok(()));
    rig.batch([]);
    rig.commit();
    rig.pass(SECOND);
    assert_eq!(waits(&mut rig), [(1, 0, 1, token), (3, 1, 0, None)]);
    rig.pass(200 * SECOND);
    assert_eq!(waits(&mut rig), []);
}

#[test]
fn what_a_name_sent_counts_for_the_token_that_has_it() {
    let mut rig = Rig::with(lets_wait(1));
    let ada = rig.ext("ada");
    let bob = rig.ext("bob");
    rig.send(ada, "ada", "bob", "m1");
    rig.close(ada, true);
    rig.batch([]);
    let command = Command::Release(PeerName::parse("ada").unwrap());
    let now = rig.now();
    let done = rig.broker.operate(now, &command, &mut rig.store).unwrap();
    assert_eq!(done, Ok(()));
    rig.batch([]);
    rig.commit();
    rig.send(bob, "bob", "ada", "m1");
    assert_eq!(code(&mut rig, bob), Some(RefusalCode::Quota));
    let ada = rig.join(with_other_token("ada"));
    assert_eq!(waits(&mut rig)[0], (1, 0, 1, Some(hash(OTHER_TOKEN))));
    rig.send(bob, "bob", "ada", "m1");
    assert_eq!(rig.states(bob)[0], accepted(1, 1));
    rig.send(ada, "ada", "bob", "m2");
    assert_eq!(code(&mut rig, ada), Some(RefusalCode::Quota));
}

#[test]
fn a_v1_sender_above_its_quota_stays_connected_and_the_operator_is_told() {
    let mut rig = Rig::with(lets_wait(1));
    let (ada, bob) = (rig.v1("ada"), rig.ext("bob"));
    rig.send(ada, "ada", "bob", "m1");
    rig.send(ada, "ada", "bob", "m2");
    assert_eq!(rig.closed(ada), None);
    assert_eq!(rig.owed("bob"), [1]);
    let refused = rig.counts.iter().any(|count| {
        matches!(count, BusEvent::Refused { from, told: false, reason } if from == "ada" && reason.contains("with this token"))
    });
    assert!(refused, "{:?}", rig.counts);
    rig.ack(bob, 1);
    rig.send(ada, "ada", "bob", "m3");
    assert_eq!(rig.owed("bob"), [2]);
}
