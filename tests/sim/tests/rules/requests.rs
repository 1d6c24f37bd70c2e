//! Requests: until when they are owed, by whom, and how they end.

use peerbus_core::broker::{BrokerInput, Command, ConnId};
use peerbus_core::store::Store as _;
use peerbus_wire::{ClientFrame, Conversation, MessageId, RefusalCode, Register, Seq, Stage};

use crate::leases::{does, join, member};
use crate::retire::retire;
use crate::rig::{DAY, Rig, SECOND, accepted, envelope, ext, ids};

pub(crate) const HOUR: u64 = 3_600 * SECOND;

pub(crate) fn request(from: &str, to: &str, id: &str, within_ms: u64) -> String {
    let body =
        format!(r#"{{"text":"are the tests green?","wants":"result","within_ms":{within_ms}}}"#);
    let text = envelope(from, to, id, &body);
    format!(
        r#"{},"within_ms":{within_ms}}}"#,
        text.strip_suffix('}').unwrap()
    )
}

pub(crate) fn ask(rig: &mut Rig, conn: ConnId, (from, to): (&str, &str), id: &str) {
    let text = request(from, to, id, HOUR);
    rig.text(conn, &text);
}

/// Answers the request `of`.
pub(crate) fn answer(
    rig: &mut Rig,
    conn: ConnId,
    (from, to): (&str, &str),
    (id, of): (&str, &str),
) {
    let body = format!(r#"{{"text":"yes","reply_to":"{of}"}}"#);
    let text = envelope(from, to, id, &body);
    rig.text(conn, &text);
}

/// Ada, who asked bob, and bob, who has read it.
fn asked() -> (Rig, ConnId, ConnId) {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    ask(&mut rig, ada, ("ada", "bob"), "q1");
    assert_eq!(rig.states(ada), [accepted(1, 1), Stage::Delivered]);
    let text = rig.take(bob).texts.pop().unwrap();
    assert!(text.contains(r#""within_ms":3600000,"envelope""#), "{text}");
    rig.ack(bob, 1);
    assert_eq!(rig.states(ada), [Stage::Acked(None)]);
    (rig, ada, bob)
}

pub(crate) fn id(text: &str) -> MessageId {
    MessageId::parse(text).unwrap()
}

/// What status says of `q1`, but for the times.
fn status(rig: &mut Rig, conn: ConnId) -> Vec<Stage> {
    rig.take(conn);
    rig.frame(conn, ClientFrame::Status { ids: ids(&["q1"]) });
    rig.states(conn)
}

fn working(rig: &mut Rig, conn: ConnId, said: &str) {
    let (key, said) = (Seq(1).key(), said.to_owned());
    rig.frame(conn, ClientFrame::progress(key, Stage::Working { said }));
}

pub(crate) fn is_over(rig: &Rig) -> bool {
    let tables = rig.store.tables();
    tables.leases.is_empty() && tables.deliveries.keys().all(|(_, _, seq)| *seq != Seq(1))
}

pub(crate) fn another(name: &str) -> Register {
    ext(name, &format!("another-instance-of-{name}"))
}

#[test]
fn a_request_that_was_read_is_owed_until_its_holder_answers() {
    let (mut rig, ada, bob) = asked();
    assert!(!is_over(&rig));
    let read = [Stage::Acked(None), Stage::Owed];
    assert!(status(&mut rig, ada).ends_with(&read));
    working(&mut rig, bob, "half \"way\"");
    let said = Stage::Working {
        said: "half \"way\"".into(),
    };
    assert_eq!(rig.states(ada), std::slice::from_ref(&said));
    rig.restart();
    let ada = rig.ext("ada");
    assert_eq!(status(&mut rig, ada).last(), Some(&said));
    let bob = rig.ext("bob");
    assert!(rig.delivered(bob).is_empty(), "the same process knows it");
    answer(&mut rig, bob, ("bob", "ada"), ("a1", "q1"));
    let told = rig.take(ada);
    assert_eq!(told.delivered, [2]);
    let done = Stage::Done { reply: id("a1") };
    assert_eq!(told.receipts.last().unwrap().stage, done);
    assert!(is_over(&rig));
    rig.restart();
    let ada = rig.ext("ada");
    assert!(status(&mut rig, ada).ends_with(&[said, done]));
}

#[test]
fn an_answer_that_says_so_ends_it_as_failed() {
    let (mut rig, ada, bob) = asked();
    let body = r#"{"text":"no compiler here","reply_to":"q1","outcome":"failed"}"#;
    rig.text(bob, &envelope("bob", "ada", "a1", body));
    let failed = Stage::Failed { reply: id("a1") };
    assert_eq!(rig.states(ada).last(), Some(&failed));
    assert!(is_over(&rig));
}

#[test]
fn a_request_may_be_answered_before_it_is_acked_and_by_version_1() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    ask(&mut rig, ada, ("ada", "bob"), "q1");
    let text = rig.take(bob).texts.pop().unwrap();
    assert!(
        !text.contains(r#""within_ms":3600000,"envelope""#),
        "version 1: {text}"
    );
    answer(&mut rig, bob, ("bob", "ada"), ("a1", "q1"));
    assert!(rig.states(ada).contains(&Stage::Done { reply: id("a1") }));
    assert!(is_over(&rig));
    // What comes late changes nothing.
    rig.ack(bob, 1);
    assert!(rig.states(ada).is_empty());
}

#[test]
fn what_version_1_has_read_comes_to_it_no_more() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.v1("bob"));
    ask(&mut rig, ada, ("ada", "bob"), "q1");
    rig.ack(bob, 1);
    rig.close(bob, true);
    let bob = rig.v1("bob");
    assert!(rig.delivered(bob).is_empty());
    rig.pass(HOUR);
    let Some(Stage::Unanswered { why }) = rig.states(ada).pop() else {
        panic!("it waits for ever");
    };
    assert_eq!(why, "its time is over; bob acked it and said nothing more");
}

#[test]
fn nobody_else_ends_it() {
    let (mut rig, ada, bob) = asked();
    let cyd = rig.ext("cyd");
    answer(&mut rig, cyd, ("cyd", "ada"), ("a1", "q1"));
    answer(&mut rig, bob, ("bob", "cyd"), ("a2", "q1"));
    answer(&mut rig, bob, ("bob", "ada"), ("a3", "q2"));
    let (key, reason) = (Seq(1).key(), "mine".to_owned());
    rig.frame(cyd, ClientFrame::reject(key, reason));
    working(&mut rig, cyd, "at it");
    rig.frame(cyd, ClientFrame::Withdraw { id: id("q1") });
    assert!(!is_over(&rig));
    // A question back is none either.
    let back =
        request("bob", "ada", "q9", HOUR).replace(r#""wants""#, r#""reply_to":"q1","wants""#);
    rig.text(bob, &back);
    assert!(!is_over(&rig));
    assert!(rig.states(ada).iter().all(|stage| !stage.is_end()));
}

#[test]
fn who_does_not_do_it_says_so_and_the_asker_hears_it_even_later() {
    let (mut rig, ada, bob) = asked();
    rig.close(ada, true);
    let (key, reason) = (Seq(1).key(), "not my repository".to_owned());
    rig.frame(bob, ClientFrame::reject(key, reason));
    assert!(is_over(&rig));
    let ada = rig.ext("ada");
    let why = "not my repository".to_owned();
    assert_eq!(rig.states(ada), [Stage::Declined { why }]);
}

#[test]
fn one_that_is_declined_while_the_broker_is_away_has_the_time_at_which_it_was() {
    let (mut rig, _, _) = asked();
    rig.restart();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.pass(9_000);
    let (key, reason, age_ms) = (Seq(1).key(), "not mine".to_owned(), 4_000);
    let declined = ClientFrame::Reject {
        key,
        reason,
        age_ms,
    };
    rig.frame(bob, declined);
    rig.take(ada);
    rig.frame(ada, ClientFrame::Status { ids: ids(&["q1"]) });
    let last = rig.take(ada).receipts.pop().unwrap();
    assert!(matches!(last.stage, Stage::Declined { .. }), "{last:?}");
    assert_eq!(last.at_ms, Some(rig.now().wall_ms - 4_000));
}

#[test]
fn a_request_has_its_time_whether_it_was_read_or_not() {
    for read in [false, true] {
        let mut rig = Rig::new();
        let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
        ask(&mut rig, ada, ("ada", "bob"), "q1");
        if read {
            rig.ack(bob, 1);
            working(&mut rig, bob, "half way");
        }
        rig.pass(HOUR - SECOND);
        assert!(
            rig.states(ada).iter().all(|stage| !stage.is_end()),
            "{read}"
        );
        rig.pass(2 * SECOND);
        let last = match read {
            true => "bob said last: \"half way\"",
            false => "bob has not acked it",
        };
        let why = format!("its time is over; {last}");
        assert_eq!(rig.states(ada), [Stage::Unanswered { why }]);
        assert_eq!(rig.take(bob).recalled, [1], "{read}");
        assert!(is_over(&rig));
        // A late answer is a message.
        answer(&mut rig, bob, ("bob", "ada"), ("a1", "q1"));
        assert_eq!(rig.delivered(ada).len(), 1);
    }
}

#[test]
fn it_ends_in_time_while_the_member_that_has_it_is_away() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let bob = member(&mut rig, "bob");
    rig.text(ada, &request("ada", "#shop", "q1", 2_000));
    rig.ack(bob, 1);
    rig.close(bob, false);
    rig.pass(2 * SECOND);
    let last = rig.states(ada).pop();
    assert!(matches!(last, Some(Stage::Unanswered { .. })), "{last:?}");
}

#[test]
fn the_next_process_of_its_holders_name_gets_it_again() {
    let (mut rig, ada, bob) = asked();
    rig.close(bob, false);
    let bob = rig.ext("bob");
    assert!(rig.delivered(bob).is_empty(), "it is the same");
    rig.close(bob, true);
    let bob = rig.join(another("bob"));
    let text = rig.take(bob).texts.pop().unwrap();
    assert!(text.contains(r#""again":true"#), "{text}");
    rig.ack(bob, 1);
    assert!(!is_over(&rig));
    answer(&mut rig, bob, ("bob", "ada"), ("a1", "q1"));
    assert!(rig.states(ada).contains(&Stage::Done { reply: id("a1") }));
    assert!(is_over(&rig));
}

#[test]
fn what_a_group_is_asked_one_member_has_and_the_next_one_when_that_is_gone() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let (bob, cyd) = (member(&mut rig, "bob"), member(&mut rig, "cyd"));
    ask(&mut rig, ada, ("ada", "#shop"), "q1");
    assert_eq!(rig.states(ada)[0], accepted(1, 1));
    assert_eq!((rig.delivered(bob), rig.delivered(cyd)), (vec![1], vec![]));
    rig.ack(bob, 1);
    rig.close(bob, true);
    rig.pass(1);
    let text = rig.take(cyd).texts.pop().unwrap();
    assert!(text.contains(r#""again":true"#), "{text}");
    let told: Vec<_> = rig.states(ada).iter().map(Stage::word).collect();
    assert_eq!(told, ["acked", "recalled", "delivered"]);
    rig.ack(cyd, 1);
    answer(&mut rig, cyd, ("cyd", "ada"), ("a1", "q1"));
    assert!(rig.states(ada).contains(&Stage::Done { reply: id("a1") }));
}

#[test]
fn a_member_at_work_keeps_it_and_one_that_idles_for_ten_minutes_loses_it() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let bob = member(&mut rig, "bob");
    ask(&mut rig, ada, ("ada", "#shop"), "q1");
    rig.ack(bob, 1);
    let cyd = member(&mut rig, "cyd");
    does(&mut rig, bob, "waiting", r#""channel""#);
    rig.pass(1_500 * SECOND);
    assert!(rig.delivered(cyd).is_empty(), "it waits for its user");
    does(&mut rig, bob, "idle", r#""channel""#);
    working(&mut rig, bob, "nearly");
    rig.pass(500 * SECOND);
    assert!(rig.delivered(cyd).is_empty(), "it said so");
    rig.pass(101 * SECOND);
    assert_eq!(rig.delivered(cyd), [1]);
    assert_eq!(rig.take(bob).recalled, [1]);
    let why = "it was read there, and nothing more was said of it".to_owned();
    assert!(rig.states(ada).contains(&Stage::Recalled { why }));
}

#[test]
fn a_group_declines_when_all_who_are_left_have() {
    let mut rig = Rig::new();
    let ada = rig.ext("ada");
    let (bob, cyd) = (member(&mut rig, "bob"), member(&mut rig, "cyd"));
    ask(&mut rig, ada, ("ada", "#shop"), "q1");
    rig.ack(bob, 1);
    let reject = |reason: &str| ClientFrame::reject(Seq(1).key(), reason.into());
    rig.frame(bob, reject("not mine"));
    assert_eq!(rig.delivered(cyd), [1]);
    assert!(rig.states(ada).iter().all(|stage| !stage.is_end()));
    rig.ack(cyd, 1);
    rig.frame(cyd, reject("nor mine"));
    let why = "nor mine".to_owned();
    assert_eq!(rig.states(ada).last(), Some(&Stage::Declined { why }));
    assert!(is_over(&rig));
}

#[test]
fn its_asker_takes_it_back_and_its_holder_hears_it_once() {
    let (mut rig, ada, bob) = asked();
    rig.frame(ada, ClientFrame::Withdraw { id: id("q1") });
    assert!(rig.states(ada).contains(&Stage::Withdrawn));
    assert_eq!(rig.take(bob).recalled, [1]);
    rig.frame(ada, ClientFrame::Withdraw { id: id("q1") });
    assert!(rig.take(bob).recalled.is_empty());
    assert!(is_over(&rig));
    let ada = rig.join(another("cyd"));
    rig.frame(ada, ClientFrame::Withdraw { id: id("q1") });
    assert_eq!(rig.states(ada), [Stage::Unknown]);
}

#[test]
fn the_operator_takes_a_request_back() {
    let (mut rig, ada, _) = asked();
    rig.store.begin().unwrap();
    let all = rig.broker.open_requests(rig.now(), &mut rig.store, None);
    let (all, more) = all.unwrap();
    assert!(!more);
    rig.store.rollback();
    let shown = (
        all[0].from.as_str(),
        all[0].to.as_str(),
        all[0].read,
        all[0].left_ms,
    );
    assert_eq!(shown, ("ada", "bob", true, HOUR));
    rig.input(BrokerInput::Operate(Command::Withdraw(Seq(1))));
    assert_eq!(rig.states(ada), [Stage::Withdrawn]);
    assert!(is_over(&rig));
}

#[test]
fn the_answer_to_one_who_has_left_is_kept_and_ends_it() {
    let mut rig = Rig::new();
    let temporary = Register {
        ephemeral: true,
        ..ext("shell", "shell")
    };
    let (shell, bob) = (rig.join(temporary), rig.ext("bob"));
    ask(&mut rig, shell, ("shell", "bob"), "q1");
    rig.ack(bob, 1);
    rig.close(shell, true);
    answer(&mut rig, bob, ("bob", "shell"), ("a1", "q1"));
    assert_eq!(rig.states(bob), [accepted(0, 0)]);
    assert!(is_over(&rig));
    let done = Stage::Done { reply: id("a1") };
    rig.store.begin().unwrap();
    let seqs = [Seq(1), Seq(2)];
    let kept = rig.broker.histories_of(&seqs, &mut rig.store).unwrap();
    rig.store.rollback();
    assert_eq!(kept[0].receipts.last().unwrap().stage, done);
    assert_eq!(kept[1].from, "bob", "its text is kept");
}

#[test]
fn an_answer_without_room_is_kept_and_its_asker_is_told_until_it_takes_note() {
    let mut rig = Rig::with(|config| config.queue_max = 2);
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    ask(&mut rig, ada, ("ada", "bob"), "q1");
    rig.ack(bob, 1);
    let cyd = rig.ext("cyd");
    for id in ["m1", "m2", "m3"] {
        rig.send(cyd, "cyd", "ada", id);
    }
    // What answers takes the last place.
    let body = r#"{"reply_to":"q1","wants":"nothing"}"#;
    rig.text(cyd, &envelope("cyd", "ada", "m4", body));
    rig.close(ada, true);
    rig.take(bob);
    answer(&mut rig, bob, ("bob", "ada"), ("a1", "q1"));
    let kept = rig.states(bob) == [accepted(0, 0)];
    let ada = rig.ext("ada");
    let told = rig.take(ada);
    let done = Stage::Done { reply: id("a1") };
    match kept {
        true => {
            let notice = told.receipts.iter().find(|receipt| receipt.stage == done);
            assert!(notice.is_some_and(|it| it.key.is_some()), "{told:?}");
        }
        false => assert!(told.delivered.len() > 1, "it had room after all"),
    }
    assert!(is_over(&rig));
}

#[test]
fn a_name_that_ends_leaves_what_it_owes_to_its_successor_or_ends_it() {
    for successor in [Some("heir"), None] {
        let (mut rig, ada, bob) = asked();
        let heir = rig.ext("heir");
        rig.close(bob, true);
        retire(&mut rig, "bob", successor).unwrap();
        match successor {
            Some(_) => {
                let text = rig.take(heir).texts.pop().unwrap();
                assert!(text.contains(r#""again":true"#), "{text}");
                answer(&mut rig, heir, ("heir", "ada"), ("a1", "q1"));
                assert!(rig.states(ada).contains(&Stage::Done { reply: id("a1") }));
            }
            None => {
                let why = "its name ended; bob acked it and said nothing more".to_owned();
                assert_eq!(rig.states(ada), [Stage::Unanswered { why }]);
            }
        }
        assert!(is_over(&rig));
    }
}

#[test]
fn a_frame_that_says_another_thing_than_its_body_and_a_request_to_all_are_refused() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    let other =
        request("ada", "bob", "q1", HOUR).replace(r#""within_ms":3600000}"#, r#""within_ms":1}"#);
    let other = other.replacen(
        r#""wants":"result","within_ms":1}"#,
        r#""wants":"result","within_ms":3600000}"#,
        1,
    );
    rig.text(ada, &other);
    let Some(Stage::Refused(refusal)) = rig.states(ada).pop() else {
        panic!("{other}");
    };
    assert_eq!(refusal.code, RefusalCode::Invalid);
    assert!(
        refusal.reason.contains("the body `within_ms` 3600000"),
        "{}",
        refusal.reason
    );
    let all = request("ada", "*", "q2", HOUR).replace(r#""kind":"msg""#, r#""kind":"broadcast""#);
    rig.text(ada, &all);
    let Some(Stage::Refused(refusal)) = rig.states(ada).pop() else {
        panic!("{all}");
    };
    assert!(
        refusal
            .reason
            .contains("for one peer, or for one of a group")
    );
    // Without the frame's word it is a message.
    let body = r#"{"wants":"result","within_ms":60000}"#;
    assert_eq!(Conversation::of(body).within_ms, Some(60_000));
    rig.text(ada, &envelope("ada", "bob", "q3", body));
    rig.ack(bob, 1);
    assert!(rig.store.tables().leases.is_empty() && rig.store.tables().deliveries.is_empty());
}

#[test]
fn a_name_that_owes_an_answer_is_not_lost_to_a_new_one() {
    let (mut rig, _, bob) = asked();
    rig.close(bob, true);
    rig.pass(DAY / 48);
    let cyd = join(&mut rig, ext("cyd", "cyd"));
    rig.frame(cyd, ClientFrame::Rename { name: "bob".into() });
    let refused = rig.take(cyd).names.pop().unwrap().refused;
    assert_eq!(
        refused.as_deref(),
        Some("bob owes 1 answers; register as bob to give them, or retire it")
    );
}
