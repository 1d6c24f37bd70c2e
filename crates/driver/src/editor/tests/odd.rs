//! Agents and editors that do what hardly any does.

use super::*;

#[test]
fn whose_turn_a_session_asks_in_that_is_no_peer_is_said_only_where_that_is_known() {
    let asks = |session: &str| {
        line(
            json!({ "id": 70, "method": "session/request_permission", "params": {
            "sessionId": session, "toolCall": { "toolCallId": "t", "title": "bus_send" },
            "options": [{ "kind": "allow_always" }] } }),
        )
    };
    let mut mux = known();
    // The agent opened it before it was greeted, say.
    mux.agent(&line(json!({ "id": 6, "result": { "sessionId": "own" } })));
    mux.driver(1, &text(prompt(json!(3))));
    let passes = |mux: &mut Mux, session: &str| {
        told(mux.agent(&asks(session))) == [Told::Editor(String::from_utf8(asks(session)).unwrap())]
    };
    assert!(passes(&mut mux, "own"));
    // A turn of the editor's is under way somewhere.
    let elsewhere =
        json!({ "id": 8, "method": "session/prompt", "params": { "sessionId": "other" } });
    mux.editor(&line(elsewhere));
    assert!(passes(&mut mux, "other"));
    let left = told(mux.agent(&asks("helper")));
    let [Told::Editor(marked)] = &left[..] else {
        panic!("{left:?}")
    };
    assert!(
        marked.contains("may have led to this: bus_send"),
        "{marked}"
    );
    assert!(!marked.contains("allow_always") && !mux.hides(), "{marked}");
    mux.agent(&line(json!({ "id": 8, "result": {} })));
    let left = told(mux.agent(&asks("helper")));
    assert!(matches!(left[..], [Told::Driver(_)]), "{left:?}");
}

#[test]
fn a_question_that_the_agent_takes_back_is_nobodys_and_its_id_is_free() {
    let mut mux = open();
    mux.driver(1, &text(prompt(json!(3))));
    let back = json!({ "method": "$/cancel_request", "params": { "requestId": 70 } });
    for title in ["ls", "rm"] {
        let left = told(mux.agent(&line(asks(title))));
        let [Told::Driver(asked), Told::Editor(_)] = &left[..] else {
            panic!("{left:?}")
        };
        assert_eq!(asked["params"]["toolCall"]["title"], title);
        let left = told(mux.agent(&line(back.clone())));
        let [Told::Driver(gone), Told::Editor(passed)] = &left[..] else {
            panic!("{left:?}")
        };
        assert_eq!(
            (gone["params"]["requestId"].as_u64(), passed),
            (Some(70), &text(back.clone()))
        );
    }
    let answer = line(json!({ "id": 70, "error": { "code": -32_800, "message": "" } }));
    assert!(matches!(told(mux.editor(&answer))[..], [Told::Agent(_)]));
}

#[test]
fn a_copy_and_a_new_session_go_on_with_none() {
    for method in ["session/new", "session/fork"] {
        let mut mux = open();
        let opens =
            json!({ "id": "f", "method": method, "params": { "sessionId": "s", "cwd": "/" } });
        let outs = mux.editor(&line(opens));
        let [Out::Joins(2, place)] = &outs[..] else {
            panic!("{method}: {}", outs.len())
        };
        assert_eq!(place.resume, None, "{method}");
    }
}

#[test]
fn a_session_whose_close_is_refused_stays_a_peer() {
    let mut mux = open();
    let close = |id: u64| {
        line(json!({ "method": "session/close", "id": id, "params": { "sessionId": "s" } }))
    };
    mux.editor(&close(5));
    assert_eq!(told(mux.driver(1, &text(prompt(json!(3))))).len(), 1);
    let refused = json!({ "id": 5, "error": { "code": -32_601, "message": "" } });
    assert!(matches!(
        told(mux.agent(&line(refused)))[..],
        [Told::Editor(_)]
    ));
    assert_eq!(mux.seat_of(Some("s")), Some(1));
    mux.editor(&close(6));
    let left = told(mux.agent(&line(json!({ "id": 6, "result": {} }))));
    assert!(
        matches!(left[..], [Told::Other, Told::Editor(_)]),
        "{left:?}"
    );
    assert!(mux.seats.is_empty());
}

#[test]
fn what_opens_a_session_waits_for_the_answer_to_the_greeting() {
    for (version, joins) in [(1, true), (3, false)] {
        let mut mux = unheard();
        mux.editor(&line(
            json!({ "id": 0, "method": "initialize", "params": {} }),
        ));
        let new = json!({ "id": 1, "method": "session/new", "params": { "cwd": "/" } });
        assert_eq!(told(mux.editor(&line(new.clone()))), []);
        assert_eq!(told(mux.editor(&line(prompt(json!(2))))), []);
        let hello = json!({ "protocolVersion": version, "agentCapabilities": {} });
        let hello = json!({ "id": 0, "result": hello });
        let left = told(mux.agent(&line(hello.clone())));
        let opens = match joins {
            true => Told::Other,
            false => Told::Agent(text(new)),
        };
        let next = Told::Agent(text(prompt(json!(2))));
        assert_eq!(left, [opens, next, Told::Editor(text(hello))]);
    }
}

#[test]
fn a_greeting_that_is_refused_changes_nothing_and_other_ids_than_ours_pass() {
    let mut mux = open();
    mux.editor(&line(
        json!({ "id": 9, "method": "initialize", "params": {} }),
    ));
    let hello = json!({ "id": 1, "method": "initialize", "params": {} });
    assert_eq!(told(mux.driver(1, &text(hello))).len(), 1);
    mux.agent(&line(
        json!({ "id": 9, "error": { "code": -32_600, "message": "" } }),
    ));
    let new = json!({ "id": "b", "method": "session/new", "params": { "cwd": null } });
    assert_eq!(told(mux.editor(&line(new))), [Told::Other]);
    // That of another one of us, of which this is the editor.
    let [one, two] = [known(), known()].map(|mux| Mux::of(mux.agent.unwrap()).own);
    assert_ne!(one, two);
}

#[test]
fn what_waits_in_all_sessions_is_bounded_by_its_bytes() {
    let mut mux = open();
    mux.driver(1, &text(prompt(json!(3))));
    let long = |id: u64| {
        let mut long = prompt(json!(id));
        long["params"]["prompt"] = "x".repeat(30 << 20).into();
        line(long)
    };
    for id in [4, 5] {
        assert_eq!(told(mux.editor(&long(id))), []);
    }
    let left = told(mux.editor(&long(6)));
    assert!(matches!(left[..], [Told::Editor(_)]), "{left:?}");
}

#[test]
fn a_prompt_that_says_odd_things_beside_its_session_waits_for_a_turn_of_mail() {
    let mut mux = open();
    mux.driver(1, &text(prompt(json!(3))));
    let mut odd = prompt(json!(7));
    odd["params"]["cwd"] = Value::Null;
    assert_eq!(told(mux.editor(&line(odd))), []);
}

#[test]
fn an_answer_without_a_version_ends_its_turn_too() {
    for over in [
        r#"{"id":7,"result":{"stopReason":"end_turn"}}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1,"message":""}}"#,
    ] {
        let mut mux = open();
        mux.editor(&line(prompt(json!(7))));
        assert_eq!(told(mux.editor(&line(prompt(json!(8))))), []);
        let left = told(mux.agent(over.as_bytes()));
        assert!(
            left.contains(&Told::Agent(text(prompt(json!(8))))),
            "{left:?}"
        );
        // It passes as it was written.
        assert_eq!(left.last(), Some(&Told::Editor(over.to_owned())));
    }
}

#[test]
fn a_question_that_was_answered_is_answered_once_however_late_the_editor_is() {
    let mut mux = open();
    mux.driver(1, &text(prompt(json!(3))));
    mux.agent(&line(asks("run")));
    let answer = json!({ "id": 70, "result": {} });
    mux.driver(1, &text(answer.clone()));
    mux.agent(&line(json!({ "id": "peerbus-2", "result": {} })));
    mux.editor(&line(prompt(json!(7))));
    assert_eq!(told(mux.editor(&line(answer))), []);
}
