//! What bridges bring, each of them by itself.

use peerbus_core::TokenHash;
use peerbus_core::broker::ConnId;
use peerbus_core::grant::Grant;
use peerbus_wire::{ClientFrame, Instance, MessageId, Register, Seq, Stage, Token, TokenName};

use crate::domains::{alpha, alpha_with, bridge, refused, says, take, to, told};
use crate::rig::{Rig, accepted, envelope, ext};

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

/// A request of `from` to `to`, as an envelope frame.
fn request(from: &str, to: &str) -> String {
    let text = envelope(from, to, "q1", r#"{"wants":"result","within_ms":60000}"#);
    format!(r#"{},"within_ms":60000}}"#, text.strip_suffix('}').unwrap())
}

#[test]
fn a_request_to_another_domain_is_owed_here_until_its_answer_is_brought() {
    let mut rig = alpha();
    let alice = rig.ext("alice");
    let beta = rig.join(bridge("beta", "B1"));
    rig.text(alice, &request("alice@alpha", "bob@beta"));
    let text = rig.take(beta).texts.pop().unwrap();
    assert!(text.contains(r#""within_ms":60000,"envelope""#), "{text}");
    says(&mut rig, beta, 1, Stage::Forwarded);
    says(&mut rig, beta, 1, Stage::Acked(None));
    let said = || Stage::Working {
        said: "half way".into(),
    };
    says(&mut rig, beta, 1, said());
    let read = [
        to("forwarded", "bob@beta"),
        to("acked", "bob@beta"),
        to("working", "bob@beta"),
    ];
    assert!(told(&mut rig, alice).ends_with(&read));
    // Another process of the bridge does not get it again: the other broker owes it.
    rig.close(beta, false);
    let beta = rig.join(Register {
        instance: Instance::parse("another"),
        ..bridge("beta", "B1")
    });
    assert!(rig.delivered(beta).is_empty());
    answer(&mut rig, beta, "bob@beta", "a1");
    let ended = rig.take(alice);
    assert_eq!(ended.delivered.len(), 1);
    let reply = MessageId::parse("a1").unwrap();
    assert_eq!(ended.receipts.last().unwrap().stage, Stage::Done { reply });
    assert!(rig.store.tables().leases.is_empty());
}

/// An answer to `q1` of `from`, which its bridge brings.
fn answer(rig: &mut Rig, beta: ConnId, from: &str, id: &str) {
    let answer = envelope(from, "alice@alpha", id, r#"{"reply_to":"q1"}"#);
    rig.text(
        beta,
        &format!(
            r#"{{"protocol_version":"v1","type":"take","mark":"B1:{id}","envelope":{answer}}}"#
        ),
    );
}

#[test]
fn of_another_domain_nobody_ends_a_request_but_who_was_asked() {
    for read in [false, true] {
        let mut rig = alpha();
        let alice = rig.ext("alice");
        let beta = rig.join(bridge("beta", "B1"));
        rig.text(alice, &request("alice@alpha", "Bob@beta"));
        says(&mut rig, beta, 1, Stage::Forwarded);
        if read {
            says(&mut rig, beta, 1, Stage::Acked(None));
        }
        rig.take(alice);
        answer(&mut rig, beta, "hal@beta", "a1");
        let aside = rig.take(alice);
        assert_eq!((aside.delivered.len(), aside.receipts.len()), (1, 0));
        assert_eq!(open(&mut rig, beta, None), [Seq(1)]);
        answer(&mut rig, beta, "boB@Beta", "a2");
        let reply = MessageId::parse("a2").unwrap();
        assert_eq!(rig.states(alice).last(), Some(&Stage::Done { reply }));
        assert!(rig.store.tables().leases.is_empty());
    }
}

/// A request that is owed to the bridge to beta, and was read there.
fn read_abroad(rig: &mut Rig) -> (ConnId, ConnId) {
    let alice = rig.ext("alice");
    let beta = rig.join(bridge("beta", "B1"));
    rig.text(alice, &request("alice@alpha", "bob@beta"));
    says(rig, beta, 1, Stage::Forwarded);
    says(rig, beta, 1, Stage::Acked(None));
    rig.take(alice);
    (alice, beta)
}

/// What a bridge is told that it has forwarded and that has not ended, behind `after`.
fn open(rig: &mut Rig, beta: ConnId, after: Option<u64>) -> Vec<Seq> {
    let after = after.map(|seq| Seq(seq).key());
    rig.take(beta);
    rig.frame(beta, ClientFrame::Forwarded { after });
    let open = rig.take(beta).forwarded.into_iter();
    open.filter_map(|it| it.key.seq()).collect()
}

#[test]
fn a_request_that_was_read_in_another_domain_is_asked_about_until_it_ends() {
    let mut rig = alpha();
    let (alice, beta) = read_abroad(&mut rig);
    assert_eq!(open(&mut rig, beta, None), [Seq(1)]);
    rig.send(alice, "alice@alpha", "carol@beta", "m2");
    rig.text(
        alice,
        &request("alice@alpha", "bob@beta").replace("q1", "q3"),
    );
    says(&mut rig, beta, 2, Stage::Forwarded);
    says(&mut rig, beta, 3, Stage::Acked(None));
    assert_eq!(open(&mut rig, beta, None), [1, 2, 3].map(Seq));
    assert_eq!(open(&mut rig, beta, Some(1)), [2, 3].map(Seq));
    assert_eq!(open(&mut rig, beta, Some(3)), []);
    let why = "not mine".to_owned();
    says(&mut rig, beta, 1, Stage::Declined { why });
    assert_eq!(open(&mut rig, beta, None), [2, 3].map(Seq));
}

#[test]
fn long_messages_of_one_sender_are_asked_about_beside_those_of_another() {
    let mut rig = alpha();
    let beta = rig.join(bridge("beta", "B1"));
    let body = format!("\"{}\"", "x".repeat(900_000));
    for (name, seqs) in [("alice", 1..=4), ("carol", 5..=5)] {
        let conn = rig.ext(name);
        for seq in seqs {
            let from = format!("{name}@alpha");
            rig.text(
                conn,
                &envelope(&from, "bob@beta", &format!("m{seq}"), &body),
            );
            says(&mut rig, beta, seq, Stage::Forwarded);
        }
    }
    let first = open(&mut rig, beta, None);
    let mut all = first.clone();
    while let Some(Seq(last)) = all.last().copied() {
        let more = open(&mut rig, beta, Some(last));
        if more.is_empty() {
            break;
        }
        all.extend(more);
    }
    assert!(first.len() < 4, "{first:?}");
    assert_eq!(all, [1, 2, 3, 4, 5].map(Seq));
}

#[test]
fn a_request_that_another_domain_forgot_after_it_was_read_comes_there_again() {
    let mut rig = alpha();
    let (alice, beta) = read_abroad(&mut rig);
    rig.close(beta, true);
    let beta = rig.join(bridge("beta", "B1"));
    assert!(rig.delivered(beta).is_empty());
    rig.close(beta, true);
    let beta = rig.join(bridge("beta", "B2"));
    assert_eq!(rig.delivered(beta), [1]);
    says(&mut rig, beta, 1, Stage::Forwarded);
    says(&mut rig, beta, 1, Stage::Acked(None));
    rig.pass(60_000);
    let ends = rig.states(alice);
    let why = "its time is over; bob@beta acked it and said nothing more".to_owned();
    assert_eq!(ends.last(), Some(&Stage::Unanswered { why }));
    assert!(rig.store.tables().leases.is_empty());
}

#[test]
fn a_request_that_is_declined_in_another_domain_ends_here_and_no_other_domain_ends_it() {
    let mut rig = alpha();
    let alice = rig.ext("alice");
    let beta = rig.join(bridge("beta", "B1"));
    let gamma = rig.join(bridge("gamma", "G1"));
    rig.text(alice, &request("alice@alpha", "bob@beta"));
    says(&mut rig, beta, 1, Stage::Forwarded);
    says(&mut rig, beta, 1, Stage::Acked(None));
    let why = || "not mine".to_owned();
    says(&mut rig, gamma, 1, Stage::Declined { why: why() });
    assert!(!rig.store.tables().leases.is_empty());
    says(&mut rig, beta, 1, Stage::Declined { why: why() });
    assert!(rig.states(alice).contains(&Stage::Declined { why: why() }));
    assert!(rig.store.tables().leases.is_empty());
}

#[test]
fn a_request_that_a_bridge_brings_is_owed_here_and_its_answer_goes_home() {
    let mut rig = alpha();
    let bob = rig.ext("bob");
    let beta = rig.join(bridge("beta", "B1"));
    let brought = request("alice@beta", "bob@alpha");
    rig.text(
        beta,
        &format!(r#"{{"protocol_version":"v1","type":"take","mark":"B1:1","envelope":{brought}}}"#),
    );
    assert_eq!(rig.delivered(bob), [1]);
    rig.ack(bob, 1);
    let body = r#"{"reply_to":"q1"}"#;
    rig.text(bob, &envelope("bob@alpha", "alice@beta", "a1", body));
    let told = rig.take(beta);
    assert_eq!(told.delivered, [2]);
    let reply = MessageId::parse("a1").unwrap();
    assert_eq!(told.receipts.last().unwrap().stage, Stage::Done { reply });
    assert!(rig.store.tables().leases.is_empty());
}
