//! Answers that somebody waits for.

use super::*;

/// An answer to the message `question`.
fn answer(rig: &mut Rig, from: &str, question: &str) -> No {
    let talk = Conversation {
        reply_to: Some(MessageId::parse(question).unwrap()),
        ..Conversation::default()
    };
    rig.arrives(from, 100, talk, false)
}

fn expect(rig: &mut Rig, question: &str, from: &str) -> AskId {
    let question = MessageId::parse(question).unwrap();
    rig.mailbox.expect(&question, from)
}

fn take(rig: &mut Rig, ask: AskId) -> Option<Attempt> {
    rig.input(|mailbox, now| mailbox.take_answer(now, ask, |_| Portion::All))
}

fn unexpect(rig: &mut Rig, ask: AskId) {
    rig.input(|mailbox, now| mailbox.unexpect(now, ask));
}

fn answers(rig: &mut Rig) -> Vec<AskId> {
    rig.take(|output| match output {
        MailboxOutput::Answered(ask) => Some(*ask),
        _ => None,
    })
}

#[test]
fn an_expected_answer_is_shown_to_nobody_but_the_one_who_asked() {
    let mut rig = Rig::new(&[&SOCKET]);
    let ask = expect(&mut rig, "q1", "Bob");
    assert_eq!(take(&mut rig, ask), None);
    let no = answer(&mut rig, "bob", "q1");
    assert_eq!(answers(&mut rig), [ask]);
    rig.pass(3_600_000);
    assert_eq!(rig.wanted(), None);
    assert_eq!(rig.along(&HOOK), None);
    assert!(rig.mailbox.look().is_empty());
    assert_eq!(rig.check_out(&[(no, Portion::All)]), None);
    assert_eq!(rig.named(no), Named::NotShown);
    assert_eq!((rig.mailbox.waiting(), rig.mailbox.unseen()), (0, 1));
    let given = take(&mut rig, ask).unwrap();
    assert_eq!((given.path, repeats(&given)), (&ASK, vec![false]));
    assert_eq!(take(&mut rig, ask), None, "it is on its way");
    rig.outcome(&given, Outcome::Written);
    unexpect(&mut rig, ask);
    assert_eq!(rig.wanted(), None);
    rig.answered(&given);
    assert_eq!(rig.acked(), [(no, seen("ask", "transcript"))]);
}

#[test]
fn an_answer_that_did_not_reach_the_one_who_asked_is_ordinary_mail() {
    for (outcome, repeat) in [(Outcome::Failed, false), (Outcome::Doubtful, true)] {
        for leaves_first in [false, true] {
            let mut rig = Rig::new(&[&SOCKET]);
            let ask = expect(&mut rig, "q1", "bob");
            let no = answer(&mut rig, "bob", "q1");
            let given = take(&mut rig, ask).unwrap();
            if leaves_first {
                unexpect(&mut rig, ask);
                rig.outcome(&given, outcome);
            } else {
                rig.outcome(&given, outcome);
                assert_eq!(rig.wanted(), None, "it is still waited for");
                unexpect(&mut rig, ask);
            }
            let push = rig.push();
            assert_eq!((ids(&push), repeats(&push)), (vec![no.0], vec![repeat]));
        }
    }
}

#[test]
fn an_answer_that_comes_after_its_asker_left_is_ordinary_mail() {
    let mut rig = Rig::new(&[&SOCKET]);
    let ask = expect(&mut rig, "q1", "bob");
    unexpect(&mut rig, ask);
    let no = answer(&mut rig, "bob", "q1");
    assert_eq!(answers(&mut rig), []);
    assert_eq!(ids(&rig.push()), [no.0]);
}

#[test]
fn others_and_other_messages_are_no_answer_and_one_is_enough() {
    let mut rig = Rig::new(&[]);
    let ask = expect(&mut rig, "q1", "bob");
    answer(&mut rig, "mallory", "q1");
    answer(&mut rig, "bob", "q2");
    rig.next();
    assert_eq!((answers(&mut rig), rig.mailbox.waiting()), (vec![], 3));
    answer(&mut rig, "bob", "q1");
    answer(&mut rig, "bob", "q1");
    assert_eq!((answers(&mut rig), rig.mailbox.waiting()), (vec![ask], 4));
}

#[test]
fn an_answer_does_not_wait_for_the_governor() {
    let mut rig = Rig::governed(Policy::Auto, Some(0), &[]);
    rig.input(|mailbox, now| mailbox.sent(now, Some(&key_of("bob")), "q1", 0));
    let ask = expect(&mut rig, "q1", "bob");
    answer(&mut rig, "bob", "q1");
    assert_eq!((answers(&mut rig), rig.mailbox.held().0), (vec![ask], 0));
}

/// The broker says where a question is, asked or not.
fn hears(rig: &mut Rig, id: &str, at: &str, stage: Stage, asked: bool) {
    let receipt = receipt(id, at, stage);
    rig.input(|mailbox, now| match asked {
        true => mailbox.heard(now, &receipt),
        false => mailbox.receipt(now, &receipt, None, None),
    });
}

#[test]
fn of_a_group_only_that_one_answers_that_has_the_question() {
    for asked in [false, true] {
        let mut rig = Rig::new(&[]);
        let ask = expect(&mut rig, "q1", "#shop");
        answer(&mut rig, "bob", "q2");
        hears(&mut rig, "q1", "cyd", Stage::Owed, asked);
        answer(&mut rig, "eve", "q1");
        assert_eq!((answers(&mut rig), rig.mailbox.waiting()), (vec![], 2));
        assert_eq!((take(&mut rig, ask), rig.mailbox.claims(ask)), (None, 0));
        let no = answer(&mut rig, "Cyd", "q1");
        assert_eq!((answers(&mut rig), rig.mailbox.waiting()), (vec![ask], 2));
        assert_eq!(take(&mut rig, ask).unwrap().items[0].no, no);
    }
}

#[test]
fn a_claim_to_answer_for_a_group_waits_for_the_brokers_word() {
    for asked in [false, true] {
        let mut rig = Rig::new(&[&SOCKET]);
        let ask = expect(&mut rig, "q1", "#shop");
        let eve = answer(&mut rig, "eve", "q1");
        let bob = answer(&mut rig, "bob", "q1");
        hears(&mut rig, "q2", "eve", Stage::Owed, asked);
        assert_eq!((answers(&mut rig), take(&mut rig, ask)), (vec![], None));
        assert_eq!((rig.wanted(), rig.mailbox.claims(ask)), (None, 2));
        hears(&mut rig, "q1", "bob", Stage::Owed, asked);
        assert_eq!(answers(&mut rig), [ask]);
        assert_eq!(ids(&rig.push()), [eve.0], "it is ordinary mail");
        assert_eq!(take(&mut rig, ask).unwrap().items[0].no, bob);
    }
}

#[test]
fn the_result_of_a_group_is_what_the_broker_says_whoever_has_the_question_then() {
    let mut rig = Rig::new(&[]);
    let ask = expect(&mut rig, "q1", "#shop");
    let why = || String::from("gone");
    hears(&mut rig, "q1", "bob", Stage::Owed, false);
    hears(&mut rig, "q1", "bob", Stage::Recalled { why: why() }, false);
    let bob = answer(&mut rig, "bob", "q1");
    assert_eq!(answers(&mut rig), [], "another one gets it");
    let reply = MessageId::parse(&format!("m{}", bob.0)).unwrap();
    hears(&mut rig, "q1", "bobby", Stage::Done { reply }, false);
    assert_eq!(answers(&mut rig), [ask], "it has another name by now");
    assert_eq!(take(&mut rig, ask).unwrap().items[0].no, bob);
}

#[test]
fn what_only_claims_to_be_an_answer_passes_no_pause() {
    let mut rig = Rig::governed(Policy::Auto, Some(0), &[]);
    rig.input(|mailbox, now| mailbox.sent(now, Some(&key_of("eve")), "x1", 0));
    let ask = expect(&mut rig, "q1", "#shop");
    let talk = Conversation {
        reply_to: Some(MessageId::parse("q1").unwrap()),
        hops: 9,
        ..Conversation::default()
    };
    rig.arrives("eve", 100, talk, false);
    assert_eq!((take(&mut rig, ask), rig.mailbox.held().0), (None, 1));
}

#[test]
fn a_question_ends_as_the_broker_says_it_and_no_other_does() {
    let reply = || MessageId::parse("a1").unwrap();
    let why = || "x".to_owned();
    let ends = [
        Stage::Done { reply: reply() },
        Stage::Failed { reply: reply() },
        Stage::Declined { why: why() },
        Stage::Unanswered { why: why() },
        Stage::Withdrawn,
        Stage::Expired { why: why() },
        Stage::Dead { why: why() },
    ];
    for end in ends {
        let mut rig = Rig::new(&[]);
        let (ask, other) = (
            expect(&mut rig, "q1", "bob"),
            expect(&mut rig, "q2", "#shop"),
        );
        let told = |rig: &mut Rig, id: &str, stage: Stage| {
            let receipt = receipt(id, "bob", stage);
            rig.input(|mailbox, now| mailbox.receipt(now, &receipt, None, None));
        };
        for stage in [
            Stage::Acked(None),
            Stage::Owed,
            Stage::Working { said: why() },
        ] {
            told(&mut rig, "q1", stage);
        }
        assert!(!rig.mailbox.is_ended(ask), "{end:?}");
        told(&mut rig, "q1", end.clone());
        assert!(rig.mailbox.is_ended(ask), "{end:?}");
        assert!(!rig.mailbox.is_ended(other), "{end:?}");
        assert_eq!(answers(&mut rig), [], "its answer is not here");
    }
}
