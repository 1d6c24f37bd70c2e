use serde_json::{Value, json};

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

/// One with a session that is open, whose driver asked under 1 and 2.
fn open() -> Mux {
    let mut mux = Mux::default();
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
        (&refused["id"], &refused["error"]["code"]),
        (&json!(3), &json!(crate::acp::NOT_ASKED))
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
    let asks = json!({ "id": 70, "method": "session/request_permission", "params": {
        "sessionId": "helper", "toolCall": { "toolCallId": "t", "title": "run" }, "options": [] } });
    assert_eq!(
        told(mux.agent(&line(asks.clone()))),
        [Told::Editor(text(asks.clone()))]
    );
    mux.driver(1, &text(prompt(json!(3))));
    let left = told(mux.agent(&line(asks)));
    let [Told::Driver(_), Told::Editor(marked)] = &left[..] else {
        panic!("{left:?}")
    };
    assert!(
        marked.contains("A message of a peer led to this: run"),
        "{marked}"
    );
}
