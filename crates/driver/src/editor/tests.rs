mod odd;

use std::rc::Rc;

use peerbus_adapter::agents::Agent;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::sync::Notify;
use tokio::task::LocalSet;

use super::backlog::writer;
use super::mux::{Mux, Out};

/// What a mux has to say, and to whom.
#[derive(Debug, PartialEq)]
enum Told {
    Editor(String),
    Agent(String),
    Driver(Value),
    Other,
}

fn told(outs: Vec<Out>) -> Vec<Told> {
    let text = |line| String::from_utf8(line).unwrap();
    let all = outs.into_iter().map(|out| match out {
        Out::Editor(line) => Told::Editor(text(line)),
        Out::Agent(line) => Told::Agent(text(line)),
        Out::Driver(1, line) => Told::Driver(serde_json::from_str(&line).unwrap()),
        _ => Told::Other,
    });
    all.collect()
}

fn line(mut message: Value) -> Vec<u8> {
    message["jsonrpc"] = "2.0".into();
    format!("{message}\n").into_bytes()
}

fn text(message: Value) -> String {
    String::from_utf8(line(message)).unwrap()
}

fn prompt(id: Value) -> Value {
    json!({ "id": id, "method": "session/prompt", "params": { "sessionId": "s", "prompt": [] } })
}

/// One that has heard nothing, whose ids are known.
fn unheard() -> Mux {
    let mut mux = Mux::of(&Agent::UNKNOWN);
    mux.own = "\"peerbus-".to_owned();
    mux
}

/// One with a session that is open, whose driver asked under 1 and 2.
fn open() -> Mux {
    let mut mux = unheard();
    let hello = json!({ "protocolVersion": 1, "agentCapabilities": {} });
    mux.editor(&line(
        json!({ "id": 0, "method": "initialize", "params": {} }),
    ));
    mux.agent(&line(json!({ "id": 0, "result": hello })));
    let new = r#"{"jsonrpc":"2.0","id":"a","method":"session/new","params":{"cwd":"/","_meta":{"n":1.50},"mcpServers":[{"b":1,"a":2}]}}"#;
    assert_eq!(told(mux.editor(new.as_bytes())), [Told::Other]);
    let servers = json!({ "mcpServers": [{ "name": "bus" }] });
    let asks = json!({ "id": 2, "method": "session/new", "params": servers });
    let with = new.replace(r#"{"b":1,"a":2}]"#, r#"{"b":1,"a":2},{"name":"bus"}]"#);
    // Members stand in the order of their names.
    let with = with.replace(
        r#""cwd":"/","_meta":{"n":1.50},"#,
        r#""_meta":{"n":1.50},"cwd":"/","#,
    );
    let left = told(mux.driver(1, &text(asks)));
    assert_eq!(left, [Told::Agent(with + "\n")]);
    mux.agent(&line(json!({ "id": "a", "result": { "sessionId": "s" } })));
    mux
}

#[test]
fn a_prompt_of_mail_that_meets_a_turn_of_the_editors_was_never_shown() {
    let mut mux = open();
    mux.editor(&line(prompt(json!(7))));
    let left = told(mux.driver(1, &text(prompt(json!(3)))));
    let [Told::Driver(refused)] = &left[..] else {
        panic!("{left:?}")
    };
    assert_eq!(
        (&refused["method"], &refused["params"]),
        (&json!(crate::acp::UNASKED), &json!({ "id": 3 }))
    );
    mux.agent(&line(
        json!({ "id": 7, "result": { "stopReason": "end_turn" } }),
    ));
    let left = told(mux.driver(1, &text(prompt(json!(4)))));
    assert!(
        matches!(&left[..], [Told::Editor(_), Told::Agent(_)]),
        "{left:?}"
    );
}

#[test]
fn ids_are_told_apart_and_an_answer_to_ours_is_never_the_editors() {
    let mut mux = open();
    let left = told(mux.driver(1, &text(prompt(json!(7)))));
    let [_, Told::Agent(asked)] = &left[..] else {
        panic!("{left:?}")
    };
    let asked: Value = serde_json::from_str(asked).unwrap();
    let ends = |id: &Value| line(json!({ "id": id, "result": { "stopReason": "end_turn" } }));
    // The editor's request of the same number passes.
    let other = line(json!({ "id": 7, "method": "x" }));
    assert_eq!(told(mux.editor(&other)).len(), 1);
    assert!(matches!(
        told(mux.agent(&ends(&json!(7))))[..],
        [Told::Editor(_)]
    ));
    let left = told(mux.agent(&ends(&asked["id"])));
    let [Told::Driver(ended)] = &left[..] else {
        panic!("{left:?}")
    };
    assert_eq!(ended["id"], 7);
    assert_eq!(told(mux.agent(&ends(&asked["id"]))), []);
}

#[test]
fn what_the_editor_takes_back_of_what_waits_never_gets_to_the_agent() {
    let mut mux = open();
    mux.driver(1, &text(prompt(json!(3))));
    for id in [7, 8] {
        assert_eq!(told(mux.editor(&line(prompt(json!(id))))), []);
    }
    let back = json!({ "method": "$/cancel_request", "params": { "requestId": 7 } });
    let passed = Told::Agent(text(back.clone()));
    let left = told(mux.editor(&line(back)));
    let [Told::Editor(answer), other] = &left[..] else {
        panic!("{left:?}")
    };
    let answer: Value = serde_json::from_str(answer).unwrap();
    assert_eq!(
        (&answer["id"], &answer["result"]["stopReason"]),
        (&json!(7), &json!("cancelled"))
    );
    assert_eq!(*other, passed);
    let over = json!({ "id": "peerbus-2", "result": { "stopReason": "end_turn" } });
    let next = told(mux.agent(&line(over)));
    assert!(
        next.contains(&Told::Agent(text(prompt(json!(8))))),
        "{next:?}"
    );
}

#[test]
fn a_session_whose_driver_ends_first_is_opened_without_the_bus() {
    let mut mux = open();
    let new = json!({ "id": "b", "method": "session/new", "params": { "cwd": "/" } });
    assert_eq!(told(mux.editor(&line(new.clone()))), [Told::Other]);
    assert_eq!(told(mux.gone(2)), [Told::Agent(text(new))]);
}

#[test]
fn a_question_of_a_helpers_session_in_a_turn_of_mail_is_marked() {
    let mut mux = open();
    let helper = json!({ "id": 70, "method": "session/request_permission", "params": {
        "sessionId": "helper", "toolCall": { "toolCallId": "t", "title": "run" }, "options": [] } });
    assert_eq!(
        told(mux.agent(&line(helper.clone()))),
        [Told::Editor(text(helper.clone()))]
    );
    mux.driver(1, &text(prompt(json!(3))));
    let left = told(mux.agent(&line(helper)));
    let [Told::Driver(_), Told::Editor(marked)] = &left[..] else {
        panic!("{left:?}")
    };
    assert!(
        marked.contains("A message of a peer led to this: run"),
        "{marked}"
    );
    // An id that would take much to keep.
    let mut long = asks("run");
    long["id"] = "x".repeat(crate::acp::lines::ID_MAX).into();
    let left = told(mux.agent(&line(long)));
    let [Told::Agent(answer)] = &left[..] else {
        panic!("{left:?}")
    };
    assert!(answer.contains(r#""outcome":"cancelled""#), "{answer}");
}

fn load(id: &str) -> Value {
    json!({ "id": id, "method": "session/load", "params": { "sessionId": "s", "cwd": "/" } })
}

fn asks(title: &str) -> Value {
    json!({ "id": 70, "method": "session/request_permission", "params": {
        "sessionId": "s", "toolCall": { "toolCallId": "t", "title": title }, "options": [] } })
}

/// Of an agent that is known.
fn known() -> Mux {
    let mut all = peerbus_adapter::agents::ALL.into_iter();
    let mut mux = open();
    mux.agent = all.find(|agent| agent.word == "kimi");
    mux
}

#[test]
fn what_is_told_again_while_a_session_is_loaded_shows_nothing_of_mail() {
    let mut mux = open();
    mux.driver(1, &text(prompt(json!(3))));
    mux.editor(&line(load("l")));
    let update =
        json!({ "method": "session/update", "params": { "sessionId": "s", "update": {} } });
    let passes = Told::Editor(text(update.clone()));
    assert_eq!(told(mux.agent(&line(update.clone()))), [passes]);
    // Some agents answer first.
    mux.agent(&line(json!({ "id": "l", "result": {} })));
    assert_eq!(told(mux.agent(&line(update.clone()))).len(), 1);
    mux.agent(&line(json!({ "id": "peerbus-2", "result": {} })));
    assert_eq!(told(mux.agent(&line(update))).len(), 2);
}

#[test]
fn what_the_editor_says_of_a_session_stays_behind_what_opens_it_and_behind_its_prompts() {
    let mut mux = open();
    mux.editor(&line(
        json!({ "method": "session/close", "id": 5, "params": { "sessionId": "s" } }),
    ));
    let mode = json!({ "id": 6, "method": "session/set_mode", "params": { "sessionId": "s" } });
    for (said, left) in [
        (load("l"), 1),
        (mode.clone(), 0),
        (load("m"), 0),
        (prompt(json!(7)), 0),
    ] {
        assert_eq!(told(mux.editor(&line(said))).len(), left);
    }
    let servers = json!({ "mcpServers": [{ "name": "bus" }] });
    let joins = json!({ "id": 2, "method": "session/resume", "params": servers });
    let left: Vec<_> = told(mux.driver(2, &text(joins)));
    let agents = left.iter().filter_map(|told| match told {
        Told::Agent(line) => serde_json::from_str::<Value>(line).ok(),
        _ => None,
    });
    let ids: Vec<_> = agents.map(|it| it["id"].clone()).collect();
    assert_eq!(ids, [json!("l"), json!(6), json!("m"), json!(7)]);

    // And behind a prompt that waits.
    assert_eq!(told(mux.editor(&line(prompt(json!(8))))), []);
    assert_eq!(told(mux.editor(&line(mode.clone()))), []);
    let over = json!({ "id": 7, "result": { "stopReason": "end_turn" } });
    let left = told(mux.agent(&line(over)));
    let [.., Told::Agent(next), Told::Agent(then), Told::Editor(_)] = &left[..] else {
        panic!("{left:?}")
    };
    assert_eq!([next, then], [&text(prompt(json!(8))), &text(mode)]);
}

#[test]
fn an_id_is_the_same_however_it_is_written() {
    let mut mux = open();
    mux.editor(&line(prompt(json!("a/b"))));
    mux.editor(&line(prompt(json!(8))));
    let over = r#"{"jsonrpc":"2.0","id":"a\/b","result":null,"error":{"code":1,"message":""}}"#;
    let left = told(mux.agent(over.as_bytes()));
    assert!(
        left.contains(&Told::Agent(text(prompt(json!(8))))),
        "{left:?}"
    );
    let over = r#"{"jsonrpc":"2.0","id":8.0,"result":{}}"#;
    mux.agent(over.as_bytes());
    assert_eq!(told(mux.editor(&line(prompt(json!(9))))).len(), 2);
}

#[test]
fn a_session_has_one_peer() {
    let mut mux = open();
    mux.editor(&line(
        json!({ "id": "b", "method": "session/new", "params": { "cwd": "/" } }),
    ));
    let servers = json!({ "mcpServers": [{ "name": "bus" }] });
    mux.driver(
        2,
        &text(json!({ "id": 2, "method": "session/new", "params": servers })),
    );
    let left = told(mux.agent(&line(json!({ "id": "b", "result": { "sessionId": "s" } }))));
    assert!(
        matches!(left[..], [Told::Other, Told::Editor(_)]),
        "{left:?}"
    );
    assert_eq!(mux.seat_of(Some("s")), Some(1));
    assert_eq!(mux.seats.len(), 1);
}

#[test]
fn an_answer_that_is_still_to_come_is_forgotten_when_its_id_means_something_else() {
    let mut mux = open();
    mux.driver(1, &text(prompt(json!(3))));
    mux.agent(&line(asks("run")));
    let answer = json!({ "id": 70, "result": {} });
    mux.driver(1, &text(answer.clone()));
    mux.agent(&line(json!({ "id": 70, "method": "fs/read_text_file" })));
    let passes = Told::Agent(text(answer.clone()));
    assert_eq!(told(mux.editor(&line(answer))), [passes]);
}

#[test]
fn what_a_driver_does_not_answer_by_itself_is_asked_of_the_editor() {
    for is_left in [false, true] {
        let mut mux = known();
        mux.driver(1, &text(prompt(json!(3))));
        let left = told(mux.agent(&line(asks("bus_send"))));
        assert!(matches!(left[..], [Told::Driver(_)]), "{left:?}");
        let left = if is_left {
            told(mux.gone(1))
        } else {
            assert_eq!(told(mux.passed()), []);
            told(mux.passed())
        };
        let [Told::Editor(marked)] = &left[..] else {
            panic!("{left:?}")
        };
        assert!(marked.contains("A message of a peer led"), "{marked}");
        assert!(!mux.hides());
    }
}

#[test]
fn a_line_that_is_too_long_is_never_asked_in_a_turn_of_mail_and_begins_none() {
    let mut mux = open();
    let asks =
        br#"{"jsonrpc":"2.0","id":"q","method":"session/request_permission","params":{"x":""#;
    assert!(mux.agent_long(asks).unwrap().0);
    mux.driver(1, &text(prompt(json!(3))));
    let (passes, outs) = mux.agent_long(asks).unwrap();
    let left = told(outs);
    assert!(!passes && matches!(left[..], [Told::Agent(_)]), "{left:?}");
    assert!(mux.agent_long(br#"{"id":1,"result":"x"#).is_err());
    let updates = br#"{"method":"session/update","params":{"x"#;
    assert!(mux.agent_long(updates).unwrap().0);
    for begins in [
        &br#"{"id":4,"method":"session/prompt","params":{"x"#[..],
        br#"{"id":4,"params":["x"#,
    ] {
        let (passes, outs) = mux.editor_long(begins).unwrap();
        let left = told(outs);
        let [Told::Editor(refused)] = &left[..] else {
            panic!("{left:?}")
        };
        let refused: Value = serde_json::from_str(refused).unwrap();
        assert!(!passes && refused["id"] == 4 && refused["error"].is_object());
    }
    assert!(mux.editor_long(br#"{"id":4,"result":"x"#).unwrap().0);
}

#[tokio::test(flavor = "current_thread")]
async fn nobody_waits_for_an_end_that_takes_nothing_and_a_line_in_pieces_is_not_broken_up() {
    let passes = async {
        let (end, mut read) = tokio::io::duplex(8);
        let room = Rc::new(Notify::new());
        let (mut way, writes) = writer(end, &room);
        way.begins();
        way.part(b"one ".to_vec());
        way.send(b"two\n".to_vec());
        way.part(b"line\n".to_vec());
        way.ends();
        assert!(way.has_room());
        for _ in 0..2_000 {
            way.send(b"x\n".to_vec());
        }
        assert!(!way.has_room() && !way.is_stuck());
        drop(way);
        let mut all = String::new();
        read.read_to_string(&mut all).await.unwrap();
        assert_eq!(all, format!("one line\ntwo\n{}", "x\n".repeat(2_000)));
        writes.await.unwrap();

        let (end, read) = tokio::io::duplex(8);
        let (mut way, _) = writer(end, &room);
        drop(read);
        way.send(b"x\n".to_vec());
        while !way.is_closed() {
            room.notified().await;
        }
    };
    LocalSet::new().run_until(passes).await;
}
