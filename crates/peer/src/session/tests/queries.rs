use peerbus_wire::{GroupName, PeerEntry, Presence};

use super::*;
use crate::session::connection::PING_MS;
use crate::session::queries::QUERIES_MAX;

fn peers(names: &[&str]) -> BrokerFrame {
    let names = names.iter().map(ToString::to_string).collect();
    BrokerFrame::Peers(PeersFrame {
        names,
        ..PeersFrame::default()
    })
}

#[test]
fn peers_queries_are_answered_in_order() {
    let mut rig = Rig::online(true);
    let first = rig.session.ask(Question::Peers(None), 60_000).unwrap();
    let second = rig.session.ask(Question::Peers(None), 60_000).unwrap();
    assert_eq!(rig.wire(), ["peers", "peers"]);
    let entry = PeerEntry {
        name: "alice".into(),
        online: false,
        unacked: Some(3),
        away_s: Some(9),
        activity_s: None,
        owes: Some(1),
        groups: Vec::new(),
        presence: None,
        stopped: false,
        token: None,
        old: Vec::new(),
    };
    let frame = PeersFrame {
        peers: Some(vec![entry]),
        omitted: 2,
        ..Default::default()
    };
    rig.receive(&BrokerFrame::Peers(frame.clone()));
    assert_eq!(
        rig.replies(),
        [Reply::Answered {
            query: first,
            outcome: Ok(Answer::Peers(Box::new(frame)))
        }]
    );
    rig.receive(&peers(&["x"]));
    assert!(matches!(&*rig.replies(), [Reply::Answered { query, .. }] if *query == second));
    rig.receive(&peers(&["unasked"]));
    assert!(rig.replies().is_empty());
}

#[test]
fn what_is_told_while_a_question_is_under_way_stands_in_the_answer_in_its_place() {
    let mut rig = Rig::online(true);
    rig.session
        .ask(Question::Statuses(vec![id("m1")]), 60_000)
        .unwrap();
    rig.wire();
    rig.receipt("m1", Stage::Forwarded, None);
    rig.receipt("m1", Stage::Queued, None);
    rig.receipt("m1", Stage::Forwarded, None);
    rig.receive(&peers(&[]));
    let replies = rig.replies();
    let [
        Reply::Answered {
            outcome: Ok(Answer::Statuses(told)),
            ..
        },
    ] = &*replies
    else {
        panic!("{replies:?}")
    };
    let states: Vec<_> = told.iter().map(|receipt| &receipt.stage).collect();
    assert_eq!(states, [&Stage::Queued, &Stage::Forwarded]);
}

#[test]
fn a_v1_broker_tells_names_between_deliveries() {
    let mut rig = Rig::online(false);
    rig.session.ask(Question::Peers(None), 60_000).unwrap();
    assert_eq!(rig.wire(), ["peers"]);
    rig.deliver("m1", "m1");
    rig.receive(&peers(&["alice", "bob"]));
    let replies = rig.replies();
    let [
        Reply::Answered {
            outcome: Ok(Answer::Peers(frame)),
            ..
        },
    ] = &*replies
    else {
        panic!("{replies:?}")
    };
    assert_eq!(frame.names, ["alice", "bob"]);
    assert_eq!(frame.peers, None);
    assert_eq!(rig.message().id, "m1");
}

#[test]
fn a_query_waits_for_a_connection_and_is_asked_again_on_the_next() {
    let mut rig = Rig::new(false);
    let query = rig.session.ask(Question::Peers(None), 60_000).unwrap();
    assert!(rig.wire().is_empty());
    rig.register(true);
    assert_eq!(rig.wire(), ["peers"]);
    rig.cut();
    rig.redial();
    rig.register(true);
    assert_eq!(rig.wire(), ["peers"]);
    rig.receive(&peers(&[]));
    assert!(
        matches!(&*rig.replies(), [Reply::Answered { query: q, outcome: Ok(_) }] if *q == query)
    );
}

#[test]
fn an_answer_after_the_deadline_is_not_taken_for_the_next_one() {
    let mut rig = Rig::online(true);
    let late = rig.session.ask(Question::Peers(None), 1_000).unwrap();
    assert_eq!(rig.wire(), ["peers"]);
    rig.wait();
    let failed = Reply::Answered {
        query: late,
        outcome: Err(QueryFailure::TimedOut),
    };
    assert_eq!(rig.replies(), [failed]);
    let next = rig.session.ask(Question::Peers(None), 60_000).unwrap();
    assert_eq!(rig.wire(), ["peers"]);
    rig.receive(&peers(&["late"]));
    assert!(rig.replies().is_empty());
    rig.receive(&peers(&["next"]));
    let replies = rig.replies();
    let [
        Reply::Answered {
            query,
            outcome: Ok(Answer::Peers(frame)),
        },
    ] = &*replies
    else {
        panic!("{replies:?}")
    };
    assert_eq!((*query, frame.names[0].as_str()), (next, "next"));
}

#[test]
fn statuses_are_collected_until_the_barrier_is_answered() {
    let mut rig = Rig::online(true);
    let query = rig
        .session
        .ask(Question::Statuses(vec![id("m1"), id("m2")]), 60_000)
        .unwrap();
    assert_eq!(rig.wire(), [r#"status ["m1", "m2"]"#, "peers"]);
    rig.receipt("m1", Stage::Queued, None);
    rig.receipt("m9", Stage::Delivered, None);
    rig.receipt("m2", Stage::Unknown, None);
    assert!(rig.replies().is_empty());
    rig.receive(&peers(&[]));
    let replies = rig.replies();
    let [
        Reply::Answered {
            query: q,
            outcome: Ok(Answer::Statuses(statements)),
        },
    ] = &*replies
    else {
        panic!("{replies:?}")
    };
    assert_eq!(*q, query);
    let states: Vec<_> = statements
        .iter()
        .map(|receipt| receipt.stage.clone())
        .collect();
    assert_eq!(states, [Stage::Queued, Stage::Unknown]);
    let Some(SessionEvent::Notice { receipt: other, .. }) = rig.session.poll_event() else {
        panic!("no event")
    };
    assert_eq!(
        other.id,
        id("m9"),
        "statements about other messages are events"
    );
    assert_eq!(rig.session.poll_event(), None);
}

#[test]
fn a_request_is_taken_back_and_what_is_said_of_it_is_the_answer() {
    let mut rig = Rig::online(true);
    let ask = |rig: &mut Rig| rig.session.ask(Question::Withdraw(id("q1")), 60_000);
    ask(&mut rig).unwrap();
    assert_eq!(rig.wire(), [r#"withdraw "q1""#, "peers"]);
    rig.receipt("q1", Stage::Withdrawn, None);
    rig.receipt("q2", Stage::Delivered, None);
    rig.receive(&peers(&[]));
    let replies = rig.replies();
    let [
        Reply::Answered {
            outcome: Ok(Answer::Statuses(said)),
            ..
        },
    ] = &*replies
    else {
        panic!("{replies:?}")
    };
    let said: Vec<_> = said.iter().map(|it| (it.id.as_str(), &it.stage)).collect();
    assert_eq!(said, [("q1", &Stage::Withdrawn)]);

    let mut rig = Rig::online(false);
    ask(&mut rig).unwrap();
    assert!(rig.wire().is_empty());
    let replies = rig.replies();
    let [Reply::Answered { outcome, .. }] = &*replies else {
        panic!("{replies:?}")
    };
    assert_eq!(*outcome, Err(QueryFailure::NotSupported));
}

#[test]
fn a_v1_broker_is_not_asked_for_statuses() {
    let mut rig = Rig::new(false);
    rig.session
        .ask(Question::Statuses(vec![id("m1")]), 60_000)
        .unwrap();
    rig.register(false);
    assert!(rig.wire().is_empty());
    let next = rig.session.poll_timeout();
    assert_eq!(next, Some(PING_MS), "it waits no more");
    rig.session
        .ask(Question::Statuses(vec![id("m1")]), 60_000)
        .unwrap();
    assert!(rig.wire().is_empty());
    let not_supported = |reply: &Reply| {
        matches!(
            reply,
            Reply::Answered {
                outcome: Err(QueryFailure::NotSupported),
                ..
            }
        )
    };
    let replies = rig.replies();
    assert!(
        replies.len() == 2 && replies.iter().all(not_supported),
        "{replies:?}"
    );
}

#[test]
fn queries_are_bounded() {
    let mut rig = Rig::new(false);
    for _ in 0..QUERIES_MAX {
        rig.session.ask(Question::Peers(None), 60_000).unwrap();
    }
    assert_eq!(
        rig.session
            .ask(Question::Peers(None), 60_000)
            .unwrap_err()
            .waiting,
        QUERIES_MAX
    );
}

#[test]
fn presence_is_told_when_it_changes() {
    let mut rig = Rig::online(true);
    let presence = Presence::parse(r#"{"project":"x"}"#).unwrap();
    rig.session.set_presence(presence.clone());
    assert!(matches!(&*rig.frames(), [ClientFrame::Presence(sent)] if *sent == presence));
    rig.session.set_presence(presence.clone());
    assert!(rig.frames().is_empty());

    rig.cut();
    rig.session.set_presence(Presence::parse("{}").unwrap());
    rig.session.set_presence(presence.clone());
    rig.redial();
    let register = rig.register(true);
    assert_eq!(register.presence, Some(presence));
    assert!(rig.frames().is_empty(), "the registration said it");
}

/// What goes to the broker of groups.
fn regrouped(rig: &mut Rig) -> Vec<String> {
    let sent = rig.wire().into_iter();
    sent.filter(|frame| frame.starts_with("Regroup")).collect()
}

fn in_groups(names: &[&str], reason: Option<&str>) -> BrokerFrame {
    let group = |name: &&str| GroupName::parse(name).unwrap();
    BrokerFrame::Peers(PeersFrame {
        groups: Some(names.iter().map(group).collect()),
        reason: reason.map(Into::into),
        ..PeersFrame::default()
    })
}

#[test]
fn who_left_a_group_does_not_join_it_again_with_the_next_connection() {
    let group = |name: &str| GroupName::parse(name).unwrap();
    let mut rig = Rig::new(false);
    rig.session.config.groups = vec![group("shop"), group("build")];
    rig.register(true);
    assert!(regrouped(&mut rig)[0].contains("#shop, #build]"));
    rig.receive(&in_groups(&["build", "shop"], None));
    let asked = Question::Regroup(vec![group("reviewers")], vec![group("shop")]);
    rig.session.ask(asked, 60_000).unwrap();
    rig.wire();
    rig.receive(&in_groups(&["build", "reviewers"], None));
    let asked = Question::Regroup(vec![group("more")], vec![group("build")]);
    rig.session.ask(asked, 60_000).unwrap();
    rig.wire();
    rig.receive(&in_groups(&["build", "reviewers"], Some("too many")));
    rig.cut();
    rig.redial();
    rig.register(true);
    let again = regrouped(&mut rig);
    assert!(again[0].contains("[#build, #reviewers]"), "{again:?}");
}

#[test]
fn that_the_groups_of_its_own_were_not_joined_is_told() {
    for (answer, why) in [
        (
            in_groups(&[], Some("a peer is in at most 64")),
            "a peer is in at most 64",
        ),
        (peers(&["Bob"]), "this broker knows no groups"),
    ] {
        let mut rig = Rig::new(false);
        rig.session.config.groups = vec![GroupName::parse("shop").unwrap()];
        rig.register(true);
        rig.wire();
        assert!(matches!(
            rig.session.poll_event(),
            Some(SessionEvent::Registered { .. })
        ));
        rig.receive(&answer);
        let why = why.to_owned();
        assert!(rig.session.has_event());
        assert_eq!(
            rig.session.poll_event(),
            Some(SessionEvent::NotJoined { why })
        );
        assert_eq!(rig.session.poll_event(), None);
        assert!(rig.replies().is_empty());
    }
    let mut old = Rig::new(false);
    old.session.config.groups = vec![GroupName::parse("shop").unwrap()];
    old.register(false);
    old.session.poll_event();
    let why = "this broker knows no groups".to_owned();
    assert_eq!(
        old.session.poll_event(),
        Some(SessionEvent::NotJoined { why })
    );
}

#[test]
fn groups_are_joined_however_much_else_is_asked() {
    let mut rig = Rig::new(false);
    rig.session.config.groups = vec![GroupName::parse("shop").unwrap()];
    while rig.session.ask(Question::Peers(None), 60_000).is_ok() {}
    rig.register(true);
    assert_eq!(regrouped(&mut rig).len(), 1);
}
