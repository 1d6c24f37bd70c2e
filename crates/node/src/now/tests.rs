use std::path::PathBuf;

use peerbus_adapter::PeerEntry;
use peerbus_wire::Presence;

use super::*;

fn now(status: &str, approvals: Vec<Value>, approve: bool) -> SessionNow {
    SessionNow {
        approvals,
        ..SessionNow::listed(LiveSession {
            id: "1".into(),
            name: Some("bob".into()),
            wanted_name: None,
            client: "c".into(),
            version: None,
            cwd: None,
            status: Some(status.into()),
            stuck: None,
            stuck_at: None,
            stopped: false,
            tty: Some("pts/1".into()),
            pid: None,
            windowless: false,
            asked: 0,
            held: 0,
            paused: 0,
            started_at: String::new(),
            active_at: None,
            socket: PathBuf::new(),
            gates: Gates {
                approve,
                ..Gates::default()
            },
            gates_file: "/c/sessions.toml".into(),
        })
    }
}

#[test]
fn a_session_without_a_terminal_is_in_the_window_of_its_client() {
    let mut now = now("idle", Vec::new(), true);
    now.session.tty = None;
    now.session.socket = "/s/0.4518.sock".into();
    for (pid, process) in [(None, 4518), (Some(4515), 4515)] {
        now.session.pid = pid;
        let place = format!("in its window (c, process {process})");
        assert_eq!(now.session.answered_at(), Some(place));
        assert_eq!(now.session.process(), format!("process {process}"));
    }
}

#[test]
fn more_than_is_listed_is_not_kept_secret() {
    let request = |id: &str| json!({ "request_id": id, "tool": "Bash", "input": "x" });
    let now = SessionNow {
        unlisted: true,
        ..now("waiting_approval", vec![request("a"), request("b")], true)
    };
    let says = now.way_out().unwrap();
    let more = "(and 1 more, and not all that it asks is listed)";
    assert!(says.contains(more), "{says}");
}

#[test]
fn a_dialog_that_nobody_answered_from_elsewhere_in_time_is_answered_there_alone() {
    let at = |at: &str| format!("1970-01-01T00:0{at}:00.000Z");
    let over = json!({ "request_id": "qkzmw", "tool": "Bash", "input": "npm test",
        "decision": null, "by": "timeout", "at": at("2") });
    let says = |since: &str, over: &Value| {
        let mut now = now("waiting_approval", Vec::new(), true);
        now.session.active_at = Some(at(since));
        now.over.push(over.clone());
        now.way_out().unwrap()
    };
    let there = "Bash: \"npm test\", asked more than ten minutes ago: it is answered at pts/1 only";
    assert_eq!(says("1", &over), there);
    let unknown = "what it asks is not known here: answer at pts/1";
    assert_eq!(says("3", &over), unknown, "another dialog");
    let mut answered = over.clone();
    (answered["by"], answered["decision"]) = ("node".into(), "allow".into());
    let said = says("1", &answered);
    assert_eq!(
        said,
        "Bash: \"npm test\" is allowed, and it has not gone on yet: if it asks still, answer at pts/1"
    );
    assert_eq!(says("3", &answered), unknown, "another dialog");
    let mut gone = over;
    gone["by"] = "client".into();
    assert_eq!(says("1", &gone), unknown);
}

#[test]
fn what_nobody_decided_is_said_until_something_else_was_asked() {
    let over = |decision: &str, by: &str| {
        json!({ "request_id": "qkzmw", "tool": "Bash", "input": "npm test", "decision": decision,
            "by": by, "at": "1970-01-01T00:01:00.000Z" })
    };
    let says = |over: Vec<Value>, since_ms| {
        let now = SessionNow {
            over,
            ..now("idle", Vec::new(), true)
        };
        let denied = now.denied(since_ms, None).into_iter();
        denied.map(|it| it.says(100_000)).collect::<Vec<_>>()
    };
    let denied = "bob was denied Bash: \"npm test\" [qkzmw], 40 s ago: ";
    for (by, why) in [
        ("timeout", "nobody decided in time"),
        ("nobody", "the gate `approve` was closed; it is open now"),
    ] {
        let said = says(vec![over("deny", by)], 60_000);
        assert_eq!(said, [format!("{denied}{why}")]);
        assert_eq!(says(vec![over("deny", by)], 60_001), [""; 0], "asked later");
        let both = says(
            vec![over("allow", "node"), over("deny", by), over("deny", by)],
            0,
        );
        assert_eq!(both.len(), 2);
        assert_eq!(
            says(vec![over("deny", by), over("allow", "node")], 0),
            [""; 0]
        );
    }
    assert_eq!(says(vec![over("deny", "node")], 0), [""; 0]);
}

#[test]
fn what_was_denied_is_said_of_the_messages_in_its_turn_and_the_gate_as_it_was() {
    let over = |id: &str, turn: Value| {
        json!({ "request_id": id, "tool": "Bash", "input": "ls", "decision": "deny",
            "by": "nobody", "at": "1970-01-01T00:01:00.000Z", "turn": turn })
    };
    let mut now = now("idle", Vec::new(), false);
    let mut allowed = over("c", json!(["m2"]));
    allowed["decision"] = "allow".into();
    let mut old = over("d", Value::Null);
    old["at"] = "1970-01-01T00:01:01.000Z".into();
    now.over = vec![over("a", json!(["m1"])), over("b", json!([])), allowed, old];
    let of = |id: &str| {
        let denied = now.denied(0, Some(id)).into_iter();
        denied.map(|it| it.says(60_000)).collect::<Vec<_>>()
    };
    let says = "bob was denied Bash: \"ls\" [a], just now: the gate `approve` was closed; it still is, in \
                /c/sessions.toml";
    assert_eq!(of("m1"), [says]);
    assert_eq!(of("m2"), [""; 0]);
}

#[test]
fn one_off_the_bus_of_which_nothing_more_is_known_is_away() {
    let mut session = now("unknown", Vec::new(), false).session;
    assert_eq!(session.state(), PeerState::Online);
    session.name = None;
    assert_eq!(session.state(), PeerState::Away);
    session.status = Some("thinking".into());
    assert_eq!(session.state(), PeerState::Busy);
}

#[test]
fn the_way_out_of_one_that_is_stuck_in_no_window_is_its_end() {
    let mut session = now("idle", Vec::new(), false).session;
    // No process has either number.
    session.socket = "/s/4294967294.4294967295.sock".into();
    session.stuck = Some("its last turn failed".into());
    assert_eq!(session.goes_on(), None, "its window tells");
    session.windowless = true;
    let way = "`kill 4294967295` ends it, and its mail waits for the next session of its name";
    assert_eq!(session.goes_on().as_deref(), Some(way));
    session.stuck = None;
    assert_eq!(session.goes_on(), None);
}

#[test]
fn one_that_no_broker_tells_of_is_told_with_all_that_its_user_can_do() {
    let mut now = now("idle", Vec::new(), false);
    assert_eq!(now.needs(true), None);
    now.session.paused = 1;
    assert_eq!(
        (now.needs(false), now.needs(true)),
        (None, Some(SHOWS_HELD.into()))
    );
    now.session.stuck = Some("socket".into());
    let look = "look at pts/1, or end it and start it anew";
    assert_eq!(now.needs(false).as_deref(), Some(look));
    now.session.held = 2;
    assert_eq!(now.needs(false), Some(format!("{SHOWS_HELD}; {look}")));
    let stands = now.stands();
    let says = "stuck, held 2, paused 1: \"socket\"";
    assert!(
        stands.starts_with("bob (process") && stands.ends_with(says),
        "{stands}"
    );
}

#[test]
fn one_that_asks_something_waits_whatever_its_client_says_that_it_does() {
    let mut session = now("thinking", Vec::new(), false).session;
    session.active_at = Some("1970-01-01T00:00:01.000Z".into());
    assert_eq!(session.does(61_000), "busy 60 s");
    session.asked = 1;
    // When it asked is not known.
    assert_eq!(session.does(61_000), "waits for you");
    session.stuck = Some("socket".into());
    assert_eq!(session.does(61_000), "waits for you");
    // Nobody may allow it: it is denied at once.
    session.windowless = true;
    assert_eq!(session.does(61_000), "stuck");
    session.gates.remote = vec!["phone".into()];
    assert_eq!(session.does(61_000), "waits for you");
    session.asked = 0;
    assert_eq!(session.does(61_000), "stuck");
    session.stuck_at = Some("1970-01-01T00:00:31.000Z".into());
    assert_eq!(session.does(61_000), "stuck 30 s");
    session.stopped = true;
    assert_eq!(session.does(61_000), "stuck", "the rest is old");
}

#[test]
fn the_ways_to_answer_are_those_that_are_open() {
    let asks = |input: Value| {
        let request = json!({ "request_id": "qkzmw", "tool": "Bash", "input": input });
        vec![request]
    };
    let npm = || asks(json!({ "command": "npm test\u{1b}" }));
    let titled = |title: &str| {
        let input = json!({ "command": title.trim_matches('`') });
        vec![json!({ "request_id": "qkzmw", "tool": title, "input": input })]
    };
    let long = format!(
        "\"rm {}…\": answer at pts/1, or `peerbus session approve qkzmw`",
        "x".repeat(77)
    );
    let waits = "waiting_approval";
    let driven = |mut now: SessionNow| {
        now.session.windowless = true;
        now
    };
    for (now, says) in [
        (now("thinking", Vec::new(), true), None),
        (
            now(waits, Vec::new(), true),
            Some("what it asks is not known here: answer at pts/1"),
        ),
        (
            now(waits, npm(), true),
            Some("Bash: \"npm test\\u001b\": answer at pts/1, or `peerbus session approve qkzmw`"),
        ),
        (
            now(waits, asks(json!({ "command": "rm", "x": 1 })), true),
            Some("Bash: \"rm\": answer at pts/1, or `peerbus session approve qkzmw`"),
        ),
        (
            now(waits, titled("rm -rf build"), true),
            Some("\"rm -rf build\": answer at pts/1, or `peerbus session approve qkzmw`"),
        ),
        (
            now(waits, titled(&format!("`rm {}`", "x".repeat(90))), true),
            Some(&long),
        ),
        (
            now(waits, npm(), false),
            Some(
                "Bash: \"npm test\\u001b\": answer at pts/1; the gate `approve` is closed: a person opens it with \
                 `approve = true` in /c/sessions.toml, at once also for what is asked now; `peerbus session \
                 approve qkzmw` answers it then, too",
            ),
        ),
        (
            driven(now(waits, npm(), false)),
            Some(
                "Bash: \"npm test\\u001b\": the gate `approve` is closed: a person opens it with `approve = true` in \
                 /c/sessions.toml, at once also for what is asked now; `peerbus session approve qkzmw` answers it \
                 then",
            ),
        ),
    ] {
        assert_eq!(now.way_out().as_deref(), says);
    }
}

#[test]
fn a_session_is_stuck_since_its_adapter_knows_it_however_young_the_broker_is() {
    let mut session = now("idle", Vec::new(), false).session;
    session.stuck = Some("socket".into());
    session.stuck_at = Some("1970-01-01T00:00:00.000Z".into());
    let entry = PeerEntry {
        name: "bob".into(),
        online: true,
        activity_s: Some(1),
        presence: Presence::parse(r#"{"activity":"stuck","tried":"socket"}"#),
        ..PeerEntry::default()
    };
    let mut peer = PeerView::new(&entry, Audience::Owner);
    session.add_to(&mut peer);
    assert!(peer.activity_s.is_some_and(|seconds| seconds > 1_000));
    session.stuck_at = None;
    let mut peer = PeerView::new(&entry, Audience::Owner);
    session.add_to(&mut peer);
    assert_eq!(peer.activity_s, Some(1), "of an older adapter");
}

#[test]
fn a_session_in_no_window_says_when_it_is_denied_what_nobody_answers() {
    let until = peerbus_wire::rfc3339(wall_ms() + 300_500);
    let asks =
        vec![json!({ "request_id": "qkzmw", "tool": "Bash", "input": "ls", "until": until })];
    let says = |approve, remote: &[&str]| {
        let mut now = now("thinking", asks.clone(), approve);
        now.session.windowless = true;
        now.session.gates.remote = remote.iter().map(ToString::to_string).collect();
        now.way_out().unwrap()
    };
    let way =
        "Bash: \"ls\": `peerbus session approve qkzmw`; it is denied in 5 min, if nobody answers";
    assert_eq!(says(true, &[]), way);
    let closed = says(false, &[]);
    let denied = "Bash: \"ls\": it is denied in 5 min; the gate `approve` is closed: a person ";
    assert!(closed.starts_with(denied), "{closed}");
    let phone = says(false, &["phone"]);
    assert!(
        phone.contains("denied in 5 min, unless phone answers; the gate"),
        "{phone}"
    );
}

#[test]
fn a_question_that_is_over_was_answered_and_not_allowed() {
    let over = json!({ "request_id": "qkzmw", "decision": "allow", "question": true });
    assert_eq!(decided(&over), "answered");
}
