//! How far a message is: said by its holder, told to its sender, remembered.

use peerbus_core::broker::{BusEvent, ConnId};
use peerbus_wire::{ClientFrame, How, MessageId, Receipt, Seq, Stage};

use crate::rig::{DAY, Rig, SECOND, accepted, ack, ids};

fn progress(seq: u64, stage: Stage) -> ClientFrame {
    ClientFrame::progress(Seq(seq).key(), stage)
}

fn pushed(path: &str) -> Stage {
    Stage::Pushed { path: path.into() }
}

fn presented(path: &str) -> Stage {
    Stage::Presented { path: path.into() }
}

fn held(reason: &str) -> Stage {
    Stage::Held { why: reason.into() }
}

/// What became of `m1`: seconds since the beginning, and what.
fn history(rig: &mut Rig, conn: ConnId) -> Vec<(Option<u64>, Stage)> {
    rig.take(conn);
    rig.frame(conn, ClientFrame::Status { ids: ids(&["m1"]) });
    let zero = rig.now().wall_ms - rig.ms;
    let second = |receipt: &Receipt| receipt.at_ms.map(|at| (at - zero) / 1_000);
    let receipts = rig.take(conn).receipts;
    receipts
        .into_iter()
        .map(|receipt| (second(&receipt), receipt.stage))
        .collect()
}

#[test]
fn the_sender_is_told_how_far_its_message_is_and_nothing_is_settled() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.send(ada, "ada", "bob", "m1");
    rig.take(ada);
    for step in [pushed("socket"), presented("socket"), held("its user")] {
        rig.frame(bob, progress(1, step.clone()));
        assert_eq!(rig.states(ada), std::slice::from_ref(&step));
        rig.frame(bob, progress(1, step));
        assert!(rig.states(ada).is_empty(), "the same once more is no news");
    }
    assert_eq!(rig.owed("bob"), [1]);
    let held: Vec<_> = rig
        .counts
        .iter()
        .filter(|count| matches!(count, BusEvent::Held { .. }))
        .collect();
    assert_eq!(
        held,
        [&BusEvent::Held {
            from: "ada".into(),
            to: "bob".into(),
            id: MessageId::parse("m1").unwrap(),
            reason: "its user".into()
        }]
    );
}

#[test]
fn what_a_holder_says_again_after_a_cut_is_news_to_a_new_broker_alone() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.send(ada, "ada", "bob", "m1");
    rig.frame(bob, progress(1, pushed("socket")));
    rig.frame(bob, progress(1, held("its user")));
    let told = history(&mut rig, ada);
    rig.close(bob, false);
    rig.pass(1_000);
    let bob = rig.ext("bob");
    rig.take(ada);
    rig.counts.clear();
    rig.frame(bob, progress(1, held("its user")));
    assert!(rig.states(ada).is_empty(), "it was told");
    assert!(
        !rig.counts
            .iter()
            .any(|it| matches!(it, BusEvent::Held { .. }))
    );
    assert_eq!(history(&mut rig, ada), told);
    rig.frame(bob, progress(1, pushed("socket")));
    rig.frame(bob, progress(1, held("its user")));
    assert_eq!(rig.states(ada), [pushed("socket"), held("its user")]);
    rig.restart();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.take(ada);
    rig.frame(bob, progress(1, held("its user")));
    assert_eq!(rig.states(ada), [held("its user")]);
    let last = history(&mut rig, ada).pop();
    assert_eq!(last.map(|(_, stage)| stage), Some(held("its user")));
}

#[test]
fn what_was_so_before_the_broker_came_back_has_the_time_at_which_it_was() {
    let mut rig = Rig::new();
    let (ada, _bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.pass(1_000);
    rig.send(ada, "ada", "bob", "m1");
    rig.pass(9_000);
    rig.restart();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    let said = |stage, age_ms| ClientFrame::Progress {
        key: Seq(1).key(),
        stage,
        age_ms,
    };
    rig.frame(bob, said(pushed("socket"), 7_000));
    let expected = |rest: &[(Option<u64>, Stage)]| {
        let first = [
            (Some(1), accepted(1, 1)),
            (Some(3), Stage::Delivered),
            (Some(3), pushed("socket")),
        ];
        [&first, rest].concat()
    };
    assert_eq!(history(&mut rig, ada), expected(&[]));
    rig.frame(bob, said(presented("socket"), 4_000));
    let presented = (Some(6), presented("socket"));
    assert_eq!(
        history(&mut rig, ada),
        expected(std::slice::from_ref(&presented))
    );
    let ClientFrame::Ack(mut ack) = ack(1, None) else {
        panic!()
    };
    ack.age_ms = 2_000;
    rig.frame(bob, ClientFrame::Ack(ack.clone()));
    let rest = [presented, (Some(8), Stage::Acked(None))];
    let told = history(&mut rig, ada);
    assert_eq!(told[1..], expected(&rest)[1..]);
    // Nothing was so before there was the message, or its first delivery.
    rig.send(ada, "ada", "bob", "m2");
    ack.key = Seq(2).key();
    ack.age_ms = u32::MAX;
    rig.take(ada);
    rig.frame(bob, ClientFrame::Ack(ack));
    let receipts = rig.take(ada).receipts;
    let last = receipts.last().and_then(|receipt| receipt.at_ms);
    assert_eq!(last, Some(rig.now().wall_ms));
}

#[test]
fn no_holder_moves_what_the_broker_knows_of_it() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.close(bob, false);
    rig.pass(1_000);
    rig.send(ada, "ada", "bob", "m1");
    rig.pass(5_000);
    let bob = rig.ext("bob");
    let said = |stage| ClientFrame::Progress {
        key: Seq(1).key(),
        stage,
        age_ms: 4_000,
    };
    rig.frame(bob, said(pushed("socket")));
    let known = [
        (Some(1), accepted(1, 1)),
        (Some(6), Stage::Delivered),
        (Some(6), pushed("socket")),
    ];
    assert_eq!(history(&mut rig, ada), known, "it was not here before");
    rig.close(bob, false);
    rig.pass(5_000);
    let bob = rig.ext("bob");
    rig.frame(bob, said(presented("socket")));
    let told = history(&mut rig, ada);
    assert_eq!(told[..3], known);
    assert_eq!(told.last(), Some(&(Some(7), presented("socket"))));
}

#[test]
fn of_the_next_session_that_has_it_only_what_that_one_said_is_the_last() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.send(ada, "ada", "bob", "m1");
    rig.frame(bob, progress(1, pushed("socket")));
    rig.frame(bob, progress(1, held("its user")));
    rig.close(bob, true);
    rig.pass(1_000);
    let bob = rig.ext("bob");
    let last = |rig: &mut Rig| history(rig, ada).pop().map(|(_, stage)| stage);
    assert_eq!(last(&mut rig), Some(Stage::Delivered));
    rig.frame(bob, progress(1, pushed("socket")));
    let told = history(&mut rig, ada);
    let told: Vec<_> = told.into_iter().map(|(_, stage)| stage).collect();
    let now = [held("its user"), Stage::Delivered, pushed("socket")];
    assert!(told.ends_with(&now), "{told:?}");
}

#[test]
fn only_the_holder_says_how_far_a_message_is() {
    let mut rig = Rig::new();
    let (ada, bob, cyd) = (rig.ext("ada"), rig.ext("bob"), rig.ext("cyd"));
    rig.send(ada, "ada", "bob", "m1");
    rig.take(ada);
    rig.frame(cyd, progress(1, pushed("socket")));
    rig.frame(ada, progress(1, pushed("socket")));
    rig.frame(bob, progress(2, pushed("socket")));
    rig.frame(bob, ack(1, None));
    rig.take(ada);
    rig.frame(bob, progress(1, pushed("socket")));
    assert!(rig.states(ada).is_empty());
    let v1 = rig.v1("dan");
    rig.send(ada, "ada", "dan", "m2");
    rig.take(ada);
    rig.frame(v1, progress(2, pushed("socket")));
    assert!(rig.states(ada).is_empty(), "version 1 has no such frame");
}

#[test]
fn status_gives_the_whole_history_in_order_of_time() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.pass(1_000);
    rig.send(ada, "ada", "bob", "m1");
    rig.pass(1_000);
    rig.frame(bob, progress(1, pushed("channel")));
    rig.pass(1_000);
    rig.close(bob, false);
    let delivered = Stage::Delivered;
    let queued = Stage::Queued;
    let first = [
        (Some(1), accepted(1, 0)),
        (Some(1), delivered),
        (Some(2), pushed("channel")),
    ];
    assert_eq!(
        history(&mut rig, ada),
        [first.as_slice(), &[(None, queued)]].concat()
    );
    rig.pass(1_000);
    let bob = rig.ext("bob");
    rig.frame(bob, progress(1, pushed("socket")));
    rig.pass(1_000);
    rig.frame(bob, progress(1, presented("socket")));
    rig.pass(1_000);
    rig.frame(bob, ack(1, Some(how("socket"))));
    let rest = [
        (Some(4), pushed("socket")),
        (Some(5), presented("socket")),
        (Some(6), seen("socket")),
    ];
    assert_eq!(
        history(&mut rig, ada),
        [first.as_slice(), &rest].concat(),
        "after the ack"
    );
    rig.restart();
    let ada = rig.ext("ada");
    assert_eq!(
        history(&mut rig, ada),
        [first.as_slice(), &rest].concat(),
        "what ended is on the disk with its steps"
    );
}

fn how(path: &str) -> How {
    How::Seen {
        path: path.into(),
        evidence: "transcript".into(),
    }
}

fn seen(path: &str) -> Stage {
    Stage::Acked(Some(how(path)))
}

/// The last thing that is known of `m1`, asked on a connection of its own.
fn last(rig: &mut Rig) -> Stage {
    let ada = rig.ext("ada");
    let (_, last) = history(rig, ada).pop().unwrap();
    rig.close(ada, false);
    last
}

#[test]
fn how_a_delivery_ended_is_known_for_seven_days_and_over_restarts() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.send(ada, "ada", "bob", "m1");
    rig.frame(bob, ack(1, Some(how("drain"))));
    rig.close(ada, false);
    for days in [0, 1, 6] {
        rig.pass(days * DAY - if days == 6 { 300 * SECOND } else { 0 });
        rig.restart();
        assert_eq!(last(&mut rig), seen("drain"), "{days} days later");
    }
    rig.pass(600 * SECOND);
    assert_eq!(last(&mut rig), Stage::Unknown);
}

#[test]
fn an_id_may_be_used_anew_once_its_message_is_forgotten() {
    let mut rig = Rig::with(|config| config.history_ms = 800 * SECOND);
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.send(ada, "ada", "bob", "m1");
    rig.frame(bob, ack(1, None));
    rig.pass(1_000 * SECOND);
    rig.close(bob, false);
    rig.send(ada, "ada", "bob", "m1");
    rig.close(ada, false);
    rig.restart();
    assert_eq!(last(&mut rig), Stage::Queued, "it may be used anew");
    let bob = rig.ext("bob");
    rig.frame(bob, ClientFrame::reject(Seq(2).key(), "forged".into()));
    let why = "forged".to_owned();
    let dead = Stage::Dead { why };
    assert_eq!(last(&mut rig), dead);
    rig.pass(1_000 * SECOND);
    rig.restart();
    let recipients = 1;
    assert_eq!(last(&mut rig), Stage::Settled { recipients }, "how is gone");
}

#[test]
fn a_broadcast_is_known_until_its_last_end_is_old() {
    let mut rig = Rig::new();
    let (ada, bob, cyd) = (rig.ext("ada"), rig.ext("bob"), rig.ext("cyd"));
    rig.send(ada, "ada", "*", "m1");
    rig.frame(bob, ack(1, None));
    rig.close(ada, false);
    rig.pass(5 * DAY);
    rig.frame(cyd, ack(1, None));
    rig.pass(3 * DAY);
    rig.restart();
    let ada = rig.ext("ada");
    let known: Vec<_> = history(&mut rig, ada);
    let stages: Vec<_> = known.iter().map(|(_, stage)| stage.clone()).collect();
    assert_eq!(
        stages,
        [
            accepted(2, 0),
            Stage::Delivered,
            Stage::Acked(None),
            Stage::Settled { recipients: 1 }
        ]
    );
    rig.pass(5 * DAY);
    assert_eq!(history(&mut rig, ada)[0].1, Stage::Unknown);
}

#[test]
fn the_operator_sees_the_histories_of_any_sender() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.send(ada, "ada", "bob", "same-id");
    rig.send(bob, "bob", "ada", "same-id");
    let look = |rig: &mut Rig, seqs: &[u64]| {
        let seqs: Vec<_> = seqs.iter().copied().map(Seq).collect();
        rig.batch([]);
        let histories = rig.broker.histories_of(&seqs, &mut rig.store).unwrap();
        rig.commit();
        histories
    };
    let histories = look(&mut rig, &[1, 2]);
    let seen: Vec<_> = histories
        .iter()
        .map(|history| (history.from.as_str(), history.receipts.len()))
        .collect();
    assert_eq!(seen, [("ada", 2), ("bob", 2)]);
    assert!(look(&mut rig, &[3]).is_empty());
}

#[test]
fn a_delivery_says_when_it_was_made_before_on_another_connection() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.send(ada, "ada", "bob", "m1");
    rig.take(bob);
    rig.close(bob, false);
    rig.send(ada, "ada", "bob", "m2");
    let again = |text: &String| text.contains(r#","again":true,"#);
    let bob = rig.ext("bob");
    let said: Vec<_> = rig.take(bob).texts.iter().map(again).collect();
    assert_eq!(said, [true, false], "m2 was never delivered before");
    rig.close(bob, true);
    let bob = rig.v1("bob");
    let said: Vec<_> = rig.take(bob).texts.iter().map(again).collect();
    assert_eq!(said, [false, false], "version 1 knows no such word");
}

#[test]
fn what_is_remembered_of_messages_is_bounded() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.send(ada, "ada", "bob", "m1");
    for turn in 0..100 {
        rig.frame(bob, progress(1, pushed(&format!("path-{turn}"))));
    }
    let all = history(&mut rig, ada);
    assert!(all.len() < 20, "{} steps", all.len());
    let last = all.last().map(|(_, state)| state.clone());
    assert_eq!(last, Some(pushed("path-99")), "the newest are kept");
    rig.pass(30 * DAY + 120 * SECOND);
    let expired = history(&mut rig, ada);
    assert!(
        matches!(expired.last(), Some((Some(_), Stage::Expired { .. }))),
        "{expired:?}"
    );
}

/// Sixteen times what is as long as it may be, and its number.
fn long_steps() -> impl Iterator<Item = Stage> {
    (10..26).map(|turn| held(&format!("{turn}{}", "x".repeat(510))))
}

#[test]
fn what_a_holder_says_is_kept_as_far_as_it_is_short_the_newest_first() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.send(ada, "ada", "bob", "m1");
    for step in long_steps() {
        rig.frame(bob, progress(1, step));
    }
    let last = long_steps().last().unwrap();
    for ended in [false, true] {
        if ended {
            rig.frame(bob, ack(1, None));
            rig.restart();
        }
        let ada = rig.ext("ada");
        let said = history(&mut rig, ada).into_iter().map(|(_, stage)| stage);
        let said: Vec<_> = said.filter(Stage::is_progress).collect();
        let bytes: usize = said.iter().map(Stage::bytes).sum();
        assert!(bytes <= 1_024, "{bytes} bytes of one delivery");
        assert_eq!(said.last(), Some(&last), "the newest is kept");
        rig.close(ada, true);
    }
}

#[test]
fn what_was_said_of_an_end_counts_as_what_it_takes() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    let mut takes = |id: &str, seq: u64, says: Option<Stage>| {
        let kept = |rig: &Rig| {
            rig.store
                .tables()
                .fates
                .values()
                .last()
                .map_or(0, |row| row.total)
        };
        let before = kept(&rig);
        rig.send(ada, "ada", "bob", id);
        if let Some(stage) = says {
            rig.frame(bob, progress(seq, stage));
        }
        rig.frame(bob, ack(seq, None));
        kept(&rig) - before
    };
    let (short, long) = (takes("m1", 1, None), takes("m2", 2, long_steps().next()));
    assert!(
        long >= short + 512,
        "{long} bytes, and {short} without words"
    );
}

#[test]
fn a_question_that_names_a_message_often_is_answered_once() {
    let mut rig = Rig::new();
    let (ada, _bob) = (rig.ext("ada"), rig.ext("bob"));
    rig.send(ada, "ada", "bob", "m1");
    let mut told = |named: &[&str]| {
        rig.take(ada);
        rig.frame(ada, ClientFrame::Status { ids: ids(named) });
        rig.take(ada).receipts
    };
    let once = told(&["m1", "m2"]);
    assert_eq!(told(&["m1", "m2", "m1", "m1", "m2"]), once);
}

#[test]
fn how_several_messages_ended_is_read_together() {
    const MESSAGES: usize = 100;
    let mut rig = Rig::new();
    let (ada, bob) = (rig.ext("ada"), rig.ext("bob"));
    let names: Vec<_> = (1..=MESSAGES).map(|n| format!("m{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for (id, seq) in names.iter().zip(1..) {
        rig.send(ada, "ada", "bob", id);
        rig.frame(bob, ack(seq, None));
    }
    rig.take(ada);
    let before = rig.store.asked.get();
    rig.frame(ada, ClientFrame::Status { ids: ids(&names) });
    let asked = rig.store.asked.get() - before;
    assert_eq!(rig.states(ada).len(), 3 * MESSAGES);
    assert!(
        asked < 2 * MESSAGES + 10,
        "the disk was asked {asked} times"
    );
}
