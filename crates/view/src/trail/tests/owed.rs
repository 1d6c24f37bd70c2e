//! What is said of messages that a member of a group has taken, and of those that owe an answer.

use super::*;

#[test]
fn of_a_message_for_one_of_a_group_it_says_who_has_it_and_who_had_it() {
    let at = |to: &str, stage| (Some(to.to_owned()), stage);
    let pushed = || Stage::Pushed {
        path: "socket".into(),
    };
    let recalled = |why: &str| Stage::Recalled { why: why.into() };
    let note = |mut steps: Vec<(Option<String>, Stage)>| {
        steps.insert(0, accepted(1));
        Trail::new("m1", &receipts(steps), NOW).note
    };
    let ended = || {
        vec![
            at("bob", pushed()),
            at("bob", recalled("its session ended")),
        ]
    };
    let waits = note([ended(), vec![at("#shop", Stage::Queued)]].concat());
    assert_eq!(
        waits,
        "it waits at the broker for one of #shop: no member is here that can take it, and the first \
         that comes gets it; before that bob had it (its session ended)"
    );
    let why = r#"it was declined there: "no \"time\"" "#.trim();
    let declined = vec![at("bob", recalled(why))];
    let quoted = note([declined, vec![at("cyd", Stage::Acked(None))]].concat());
    assert!(quoted.ends_with(&format!("bob had it ({why})")), "{quoted}");
    let has = note([ended(), vec![at("cyd", Stage::Acked(None))]].concat());
    assert!(has.starts_with("cyd acked it"), "{has}");
    assert!(
        has.ends_with("; before that bob had it (its session ended)"),
        "{has}"
    );
    let back = note([ended(), vec![at("bob", pushed())]].concat());
    assert!(back.starts_with("pushed to bob over socket"), "{back}");
}

#[test]
fn a_request_that_comes_again_is_where_it_is_now() {
    let said = || "half way".to_owned();
    for read in [Stage::Owed, Stage::Working { said: said() }] {
        let before = [at(Stage::Acked(None)), at(read)];
        for (now, says) in [
            (Stage::Delivered, "bob got it 40 s ago"),
            (Stage::Queued, "it waits at the broker for bob"),
        ] {
            let note = trail([&before[..], &[at(now)]].concat()).note;
            assert!(note.starts_with(says), "{note}");
        }
    }
}

#[test]
fn what_a_model_has_seen_is_said_to_be_seen_when_it_comes_again() {
    let path = || "acp".to_owned();
    for (now, says) in [
        (vec![Stage::Owed], ""),
        (
            vec![Stage::Queued],
            "; the session that had it left: the next one of bob's gets it",
        ),
        (
            vec![Stage::Delivered],
            "; another session of bob's got it 40 s ago",
        ),
        (
            vec![Stage::Delivered, Stage::Pushed { path: path() }],
            "; it was pushed again 40 s ago, over acp",
        ),
        (
            vec![Stage::Delivered, Stage::Presented { path: path() }],
            "; it was shown again 40 s ago, by acp",
        ),
        (
            vec![Stage::Delivered, Stage::Acked(None)],
            "; it was acked again 40 s ago",
        ),
    ] {
        let mut all = vec![accepted(1), seen("acp", "transcript")];
        all.extend(now.into_iter().map(at));
        let told = "bob's model has seen it and owes an answer";
        assert_eq!(trail(all).note, format!("{told}{says}"));
    }
}

#[test]
fn what_a_model_in_another_domain_has_seen_is_said_to_be_seen_while_an_answer_is_owed() {
    let bob = |stage| (Some("bob@beta".to_owned()), stage);
    let bridge = |online| PeerEntry {
        online,
        ..entry_named("bridge@beta")
    };
    let (_, seen) = seen("drain", "tool_call");
    let told = "bob@beta's model has seen it and owes an answer";
    for (now, online, says) in [
        (Stage::Owed, true, told.to_owned()),
        (
            Stage::Owed,
            false,
            format!(
                "{told}; beta cannot be reached: its bridge is not connected to this broker, so nothing newer \
                 is known"
            ),
        ),
        (
            Stage::Queued,
            true,
            "it waits at this broker for beta, which has not confirmed it yet".to_owned(),
        ),
    ] {
        let asked = receipts(vec![accepted(1), bob(seen.clone()), bob(now)]);
        let note = Trail::among("m1", &asked, among(&[bridge(online)])).note;
        assert_eq!(note, says);
    }
}

#[test]
fn what_a_session_had_that_is_gone_waits_at_the_broker() {
    let path = || "socket".to_owned();
    for had in [
        Stage::Pushed { path: path() },
        Stage::Presented { path: path() },
        Stage::Held { why: "asks".into() },
    ] {
        let (word, had) = (had.word(), at(had));
        let note = trail(vec![accepted(0), had.clone(), at(Stage::Queued)]).note;
        let says = "it waits at the broker for bob; no session of that name has it now, and the next \
                    one gets it; the session that had it left";
        assert_eq!(note, says, "{word}");
        let next = |now| trail(vec![accepted(1), had.clone(), now]).note;
        assert!(next(at(Stage::Delivered)).starts_with("bob got it 40 s ago"));
        assert!(next(seen("drain", "x")).starts_with("bob says that its model has seen it"));
    }
}

#[test]
fn what_one_whose_adapter_is_stopped_has_not_taken_says_so() {
    let bob = |online| PeerEntry {
        name: "bob".into(),
        online,
        presence: Presence::parse(r#"{"activity":"idle"}"#),
        stopped: true,
        ..PeerEntry::default()
    };
    let pushed = || at(Stage::Pushed { path: "x".into() });
    let stuck = "; bob is stuck: its adapter is stopped, as by Ctrl-Z";
    for (states, says) in [
        (
            vec![accepted(0), at(Stage::Queued)],
            "it waits at the broker for bob",
        ),
        (
            vec![accepted(1), at(Stage::Queued)],
            "it waits at the broker for bob",
        ),
        (
            vec![accepted(0), pushed(), at(Stage::Queued)],
            "it waits at the broker for bob",
        ),
        (
            vec![seen("drain", "tool_result"), at(Stage::Queued)],
            "bob's model has seen it and owes an answer; it waits at the broker to go there again",
        ),
        (
            vec![accepted(1), at(Stage::Delivered)],
            "it was sent to bob's adapter 40 s ago, which is stopped and may not have read it",
        ),
    ] {
        let note = Trail::among("m1", &receipts(states), among(&[bob(false)])).note;
        assert_eq!(note, format!("{says}{stuck}"));
    }
    let full = receipts(vec![accepted(1), at(Stage::Queued)]);
    let note = |peer| Trail::among("m1", &full, among(&[peer])).note;
    let here = note(bob(true));
    assert!(
        here.contains("bob is connected") && here.ends_with(stuck),
        "{here}"
    );
    let gone = note(PeerEntry {
        stopped: false,
        ..bob(false)
    });
    assert!(
        gone.contains("no session of that name has it now"),
        "{gone}"
    );
}

#[test]
fn who_owes_an_answer_and_is_away_is_said_to_be() {
    let peer = |online| PeerEntry {
        name: "bob".into(),
        online,
        ..PeerEntry::default()
    };
    let said = || "half way".to_owned();
    for read in [Stage::Owed, Stage::Working { said: said() }] {
        let receipts = receipts(vec![at(read)]);
        let away = |peers: &[PeerEntry]| {
            let note = Trail::among("m1", &receipts, among(peers)).note;
            note.ends_with("; bob is away")
        };
        assert!(away(&[peer(false)]));
        assert!(!away(&[peer(true)]) && !away(&[]));
    }
}

#[test]
fn a_turn_may_run_still_unless_its_peer_says_otherwise() {
    let path = "acp".to_owned();
    let receipts = receipts(vec![accepted(1), at(Stage::Presented { path })]);
    for (does, runs) in [
        ("busy", true),
        ("waiting", true),
        ("idle", false),
        ("stuck", false),
    ] {
        let bob = PeerEntry {
            name: "bob".into(),
            online: true,
            presence: Presence::parse(&format!(r#"{{"activity":"{does}"}}"#)),
            ..PeerEntry::default()
        };
        let note = Trail::among("m1", &receipts, among(&[bob])).note;
        assert_eq!(note.contains("its turn may run still"), runs, "{note}");
        assert_ne!(note.contains("it is owed until one shows"), runs, "{note}");
    }
}
