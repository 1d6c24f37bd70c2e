use peerbus_wire::{AuditAction, BrokerFrame, CloseReason, NameError, PeersFrame, Window};

use super::*;
use crate::session::connection::{
    DEAD_MS, IN_USE_MS, PING_MS, REFUSED_MS, REGISTER_MS, REREAD_MS, TOKEN_MS,
};

fn sentence(rig: &Rig) -> &str {
    match rig.session.status() {
        Status::Connecting {
            last_error: Some(why),
        } => why,
        other => panic!("no sentence in {other:?}"),
    }
}

#[test]
fn it_registers_and_says_so_once_for_each_connection() {
    let mut rig = Rig::new(false);
    rig.connect();
    assert_eq!(rig.session.poll_timeout(), Some(REGISTER_MS));
    let window = Some(Window {
        messages: 9,
        bytes: 99,
    });
    rig.receive(&BrokerFrame::Peers(PeersFrame {
        ext: Some(1),
        window,
        ..Default::default()
    }));
    assert_eq!(
        rig.session.status(),
        &Status::Online {
            name: name("Bob"),
            ext: true
        }
    );
    let registered = |window| SessionEvent::Registered {
        name: "Bob".into(),
        ext: true,
        window,
    };
    let granted = Window {
        messages: 9,
        bytes: 99,
    };
    assert_eq!(rig.session.poll_event(), Some(registered(granted)));
    assert_eq!(rig.session.poll_event(), None);

    for _ in 0..3 {
        rig.cut();
        rig.redial();
        rig.register(true);
    }
    assert_eq!(
        rig.session.poll_event(),
        Some(registered(rig.session.config.window)),
        "one is enough for three unread"
    );
    assert_eq!(rig.session.poll_event(), None);
}

#[test]
fn only_a_broker_that_takes_audit_records_is_told_what_was_done() {
    for (level, told) in [(None, 0), (Some(1), 0), (Some(2), 64)] {
        let mut rig = Rig::new(false);
        // More than may wait.
        for pid in 0..70 {
            rig.session.audit(AuditRecord {
                pid: Some(pid),
                ..AuditRecord::new(AuditAction::Inject, "done")
            });
        }
        assert_eq!(rig.connect().ext, 2);
        rig.receive(&BrokerFrame::Peers(PeersFrame {
            names: vec!["Bob".into()],
            ext: level,
            ..Default::default()
        }));
        let pid = |frame: ClientFrame| match frame {
            ClientFrame::Audit(record) => record.pid,
            other => panic!("{other:?}"),
        };
        let pids: Vec<_> = rig.frames().into_iter().filter_map(pid).collect();
        assert_eq!(pids, (0..told).collect::<Vec<u32>>(), "{level:?}");
        // Its last words leave with the goodbye.
        rig.session
            .audit(AuditRecord::new(AuditAction::Control, "done"));
        rig.session.close();
        let left = rig.frames().len();
        assert_eq!(left, usize::from(told > 0), "{level:?}");
    }
}

#[test]
fn a_broker_that_cannot_be_reached_is_dialed_again_later_and_later() {
    let mut rig = Rig::new(false);
    let mut waited = Vec::new();
    for _ in 0..200 {
        rig.session
            .handle_unreachable(rig.now(), true, "connection refused".into());
        assert_eq!(sentence(&rig), "connection refused");
        let before = rig.ms;
        rig.redial();
        waited.push(rig.ms - before);
    }
    assert!(waited[0] <= 50 && waited[1] <= 100, "{waited:?}");
    assert!(waited.iter().all(|ms| *ms <= 1_000));
    assert!(
        waited.iter().sum::<u64>() > 50_000,
        "the mean is half of the cap"
    );
}

#[test]
fn missing_credentials_are_looked_for_again() {
    let mut rig = Rig::new(false);
    rig.session
        .handle_no_credentials(rig.now(), "looked in /nowhere".into());
    let status = Status::NeedCredentials {
        looked: "looked in /nowhere".into(),
    };
    assert_eq!(rig.session.status(), &status);
    rig.redial();
    rig.register(true);
    assert!(matches!(rig.session.status(), Status::Online { .. }));
}

#[test]
fn a_register_without_answer_ends_the_connection() {
    let mut rig = Rig::new(false);
    rig.connect();
    rig.wait();
    assert_eq!(rig.ms, REGISTER_MS);
    assert_eq!(rig.actions(), [Action::HangUp]);
    assert_eq!(
        sentence(&rig),
        "the broker did not answer `register` within 10 s"
    );
    rig.redial();
}

#[test]
fn a_connection_to_itself_is_recognised() {
    let mut rig = Rig::new(false);
    rig.session.handle_connected(rig.now(), credentials());
    let echo = rig.session.poll_transmit().unwrap().encode();
    rig.text(&echo);
    assert_eq!(rig.actions(), [Action::HangUp]);
    assert!(
        sentence(&rig).contains("leads back to this process"),
        "{}",
        sentence(&rig)
    );
    rig.redial();
}

#[test]
fn a_silent_broker_is_pinged_then_left() {
    let mut rig = Rig::online(true);
    assert_eq!(rig.wait(), PING_MS);
    assert_eq!(rig.actions(), [Action::Ping]);
    rig.ms += 1_000;
    rig.session.handle_alive(rig.now());
    let pong = rig.ms;
    assert_eq!(rig.wait(), REREAD_MS);
    assert_eq!(rig.actions(), [Action::Reread]);
    assert_eq!(rig.wait(), pong + PING_MS);
    assert_eq!(rig.actions(), [Action::Ping]);
    assert_eq!(rig.wait(), pong + DEAD_MS);
    assert_eq!(rig.actions(), [Action::HangUp]);
    assert_eq!(sentence(&rig), "the broker was silent for 75 s");
}

#[test]
fn a_verbatim_name_is_refused_and_tried_again_slowly() {
    let in_use = |by: Option<&str>| RegistrationRefusal::InUse {
        by: by.map(str::to_owned),
    };
    let other = |reason: &CloseReason| RegistrationRefusal::Other(reason.text());
    let reserved = CloseReason::InvalidName(NameError::Reserved);
    let version = CloseReason::UnsupportedVersion;
    let cases = [
        (
            CloseReason::NameClaimed,
            REFUSED_MS,
            RegistrationRefusal::NameClaimed,
        ),
        (
            CloseReason::TokenRevoked,
            TOKEN_MS,
            RegistrationRefusal::Revoked,
        ),
        (
            CloseReason::TokenExpired,
            TOKEN_MS,
            RegistrationRefusal::Expired,
        ),
        (
            CloseReason::NameForbidden {
                allowed: "build-*".into(),
            },
            REFUSED_MS,
            RegistrationRefusal::NameForbidden {
                allowed: "build-*".into(),
            },
        ),
        (CloseReason::NameInUse, IN_USE_MS, in_use(None)),
        (
            CloseReason::TakenOver,
            REFUSED_MS,
            RegistrationRefusal::TakenOver,
        ),
        (
            CloseReason::InvalidToken,
            TOKEN_MS,
            RegistrationRefusal::Token,
        ),
        (reserved.clone(), REFUSED_MS, other(&reserved)),
        (version.clone(), REFUSED_MS, other(&version)),
    ];
    for (reason, after_ms, expected) in cases {
        let mut rig = Rig::new(false);
        rig.connect();
        rig.closed(&reason);
        let refused = rig.session.status().clone();
        let Status::Refused { why, .. } = &refused else {
            panic!("{reason:?}: {refused:?}")
        };
        assert_eq!(why, &expected);
        rig.redial();
        let slowly = after_ms..=after_ms * 9 / 8;
        assert!(slowly.contains(&rig.ms), "{reason:?} {}", rig.ms);
        assert_eq!(rig.session.status(), &refused, "it stands meanwhile");
    }
    let mut rig = Rig::new(false);
    rig.connect();
    rig.end(&ConnectionEnd::Closed {
        code: 1008,
        text: "name in use by codex in web".into(),
    });
    let Status::Refused { why, .. } = rig.session.status() else {
        panic!("{:?}", rig.session.status())
    };
    assert_eq!(why, &in_use(Some("codex in web")));
}

#[test]
fn a_generated_name_that_is_taken_is_replaced() {
    for reason in [
        CloseReason::NameClaimed,
        CloseReason::NameInUse,
        CloseReason::NameKnown,
        CloseReason::NameEnded,
    ] {
        let mut rig = Rig::new(true);
        rig.send("m1", 60_000);
        rig.connect();
        rig.closed(&reason);
        assert_eq!(rig.actions(), [Action::Rename]);
        rig.session.go_by(rig.now(), name("other-name-000"), true);
        rig.redial();
        rig.register(true);
        assert_eq!(rig.session.name(), &name("other-name-000"));
        let frames = rig.frames();
        assert_eq!(decode(&frames[0]).envelope.from, "other-name-000");
    }
}

#[test]
fn a_session_that_the_operator_takes_off_the_bus_stays_off_under_any_name() {
    for generated in [false, true] {
        let mut rig = Rig::new(generated);
        rig.register(true);
        rig.actions();
        rig.closed(&CloseReason::NameEnded);
        let why = match rig.session.status() {
            Status::Refused { why, .. } => why,
            status => panic!("{status:?}"),
        };
        assert_eq!(*why, RegistrationRefusal::Ended);
        assert_eq!(rig.actions(), []);
    }
}

#[test]
fn a_generated_name_is_made_to_begin_as_those_of_its_token_do() {
    let forbidden = |allowed: &str| CloseReason::NameForbidden {
        allowed: allowed.into(),
    };
    for (allowed, begins) in [
        ("laptop*", "laptop-"),
        ("ci.*, x", "ci."),
        ("Bot-*", "Bot-"),
    ] {
        let mut rig = Rig::new(true);
        rig.connect();
        rig.closed(&forbidden(allowed));
        assert_eq!(rig.actions(), [Action::Rename]);
        assert_eq!(rig.session.begins(), Some(begins));
        rig.session
            .go_by(rig.now(), name(&format!("{begins}other")), true);
        rig.redial();
        // It was done as told, and is turned down all the same.
        rig.closed(&forbidden(allowed));
        assert_eq!(rig.actions(), []);
    }
    for allowed in ["phone", "*", "a*b", "-*", ""] {
        let mut rig = Rig::new(true);
        rig.connect();
        rig.closed(&forbidden(allowed));
        assert_eq!(rig.actions(), [], "{allowed}");
    }
    let mut chosen = Rig::new(false);
    chosen.connect();
    chosen.closed(&forbidden("laptop*"));
    assert_eq!(chosen.actions(), [], "a person chose it");
}

#[test]
fn other_ends_are_retried_soon() {
    for reason in [
        CloseReason::GoingAway,
        CloseReason::Full,
        CloseReason::Unresponsive,
    ] {
        let mut rig = Rig::online(true);
        rig.closed(&reason);
        assert!(
            sentence(&rig).contains(&reason.text()),
            "{}",
            sentence(&rig)
        );
        rig.redial();
        assert!(rig.ms <= 50, "{}", rig.ms);
    }
    let mut rig = Rig::online(true);
    rig.session.handle_closed(
        rig.now(),
        &ConnectionEnd::Closed {
            code: 1000,
            text: "a\u{1b}[31m\nb".into(),
        },
    );
    assert_eq!(
        sentence(&rig),
        r#"the broker closed the connection: "a\u001b[31m\u000ab" (code 1000)"#
    );
}

#[test]
fn two_processes_that_cut_each_other_slow_down() {
    let mut rig = Rig::online(false);
    for _ in 0..100 {
        rig.cut();
        rig.redial();
        rig.register(false);
    }
    assert!(rig.ms > 20_000, "a hundred rounds took {} ms", rig.ms);
}

#[test]
fn a_closed_session_answers_everything_and_flushes_its_acks() {
    let mut rig = Rig::online(true);
    rig.deliver("1", "in");
    let inbound = rig.message();
    rig.ack(inbound.key, seen());
    rig.send("left", 60_000);
    assert_eq!(rig.wire(), ["ack 1 seen", "left"]);
    rig.deliver("2", "in2");
    let inbound = rig.message();
    rig.ack(inbound.key, pushed());
    rig.send("waits", 60_000);
    rig.session.ask(Question::Peers(None), 60_000).unwrap();
    rig.session.close();
    rig.session.check();

    assert_eq!(rig.wire(), ["ack 2 pushed"]);
    let outcomes = rig.replies();
    assert!(matches!(
        &*outcomes,
        [
            Reply::Sent {
                outcome: Err(Unsent::Unconfirmed { resent_for_ms: 0 }),
                ..
            },
            Reply::Sent {
                outcome: Err(Unsent::NeverLeft),
                ..
            },
            Reply::Answered {
                outcome: Err(QueryFailure::Closed),
                ..
            },
        ]
    ));
    assert_eq!(rig.session.poll_event(), None);
    assert_eq!(rig.session.poll_timeout(), None);

    rig.send("late", 1_000);
    rig.session.ask(Question::Peers(None), 60_000).unwrap();
    assert_eq!(rig.replies().len(), 2);
    rig.cut();
    assert!(rig.actions().is_empty() && rig.frames().is_empty());
}

#[test]
fn a_connection_that_opens_after_the_close_is_dropped() {
    let mut rig = Rig::new(false);
    rig.session.close();
    rig.session.handle_connected(rig.now(), credentials());
    assert_eq!(rig.actions(), [Action::HangUp]);
    assert!(rig.frames().is_empty());
}

#[test]
fn frames_that_a_connection_did_not_take_are_not_sent_on_the_next_one() {
    let mut rig = Rig::online(true);
    rig.deliver("1", "m1");
    let inbound = rig.message();
    rig.ack(inbound.key, seen());
    rig.session.ask(Question::Peers(None), 60_000).unwrap();
    rig.cut();
    rig.redial();
    rig.register(true);
    assert_eq!(
        rig.wire(),
        ["peers"],
        "`register` came first, and the message comes again"
    );
}

#[test]
fn what_came_for_another_name_is_not_acked_under_the_new_one() {
    let mut rig = Rig::new(true);
    rig.register(true);
    rig.deliver("1", "m1");
    assert!(matches!(
        rig.session.poll_event(),
        Some(SessionEvent::Registered { .. })
    ));
    let inbound = rig.message();
    rig.cut();
    rig.redial();
    rig.connect();
    rig.closed(&CloseReason::NameClaimed);
    assert_eq!(rig.actions(), [Action::Rename]);
    rig.session.go_by(rig.now(), name("other-name-000"), true);
    rig.redial();
    rig.register(true);
    rig.ack(inbound.key, seen());
    assert!(
        rig.wire().is_empty(),
        "the key may name another delivery there"
    );
}
