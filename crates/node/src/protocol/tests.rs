use super::*;

fn text(text: &str) -> Prompt {
    serde_json::from_value(text.into()).unwrap()
}

fn refused(line: &str) -> (i64, String) {
    let request = read(line.as_bytes(), Some("s1")).unwrap().unwrap();
    let error = request.call.unwrap_err();
    (error.0.code, error.0.message)
}

fn asked(method: &str, params: &str) -> Result<Call, NodeError> {
    let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    read(line.as_bytes(), Some("s1")).unwrap().unwrap().call
}

#[test]
fn a_call_is_read_with_what_it_leaves_out() {
    for (method, params, call) in [
        ("ping", r#"{"more":1}"#, Call::Ping {}),
        ("session/status", r#"{"session_id":"s1"}"#, Call::Status {}),
        ("initialize", "{}", Call::Initialize { revision: None }),
        (
            "session/subscribe",
            r#"{"since":null}"#,
            Call::Subscribe {
                events: None,
                since: None,
            },
        ),
        (
            "session/subscribe",
            r#"{"since":7,"events":["tool_call","approval_request"]}"#,
            Call::Subscribe {
                events: Some(vec![EventKind::ToolCall, EventKind::ApprovalRequest]),
                since: Some(7),
            },
        ),
        (
            "session/inject",
            r#"{"prompt":"hi","mode":"append","_meta":{}}"#,
            Call::Inject {
                prompt: text("hi"),
                source: String::new(),
                mode: Some(InjectMode::Append),
            },
        ),
        (
            "session/inject",
            r#"{"prompt":"hi","mode":"interrupt","source":"me"}"#,
            Call::Inject {
                prompt: text("hi"),
                source: "me".into(),
                mode: Some(InjectMode::Interrupt),
            },
        ),
        (
            "session/control",
            r#"{"subtype":"set_model","model":"m","session_id":"s1","source":"me","_meta":{}}"#,
            Call::Control {
                subtype: "set_model".into(),
                params: Map::from_iter([("model".to_owned(), "m".into())]),
                source: "me".into(),
            },
        ),
    ] {
        assert_eq!(asked(method, params), Ok(call), "{method} {params}");
    }
}

#[test]
fn what_is_wrong_is_said_and_how() {
    for (method, params, code, says) in [
        (
            "session/approve",
            "{}",
            -32602,
            "missing field `request_id`",
        ),
        (
            "session/approve",
            r#"{"request_id":"abcde","decision":"maybe"}"#,
            -32602,
            "`maybe`, expected one of `allow`, `deny`, `allow_always`",
        ),
        ("session/kill", "{}", -32601, "no method"),
        (
            "session/control",
            "{}",
            -32602,
            "set_model, set_permission_mode, set_max_thinking_tokens, mcp_status",
        ),
        (
            "session/control",
            r#"{"subtype":"Set_Model"}"#,
            -32602,
            "\"Set_Model\"",
        ),
        ("tools/list", "[]", -32602, "an object"),
        ("session/inject", "{}", -32602, "missing field `prompt`"),
        (
            "session/inject",
            r#"{"prompt":7}"#,
            -32602,
            "params.prompt: expected a text, or a list of blocks",
        ),
        (
            "session/inject",
            r#"{"prompt":"x","mode":"now"}"#,
            -32602,
            "`append` or `interrupt`",
        ),
        ("session/inject", r#"{"session_id":"s2"}"#, -32602, "\"s2\""),
        (
            "session/subscribe",
            r#"{"since":-1}"#,
            -32602,
            "params.since",
        ),
        (
            "session/subscribe",
            r#"{"events":"status"}"#,
            -32602,
            "params.events: invalid type: string \"status\", expected a sequence",
        ),
        (
            "session/subscribe",
            r#"{"events":["stat"]}"#,
            -32602,
            "`stat`, expected one of `message`, `tool_call`, `tool_result`, `status`, `bus`, `appr",
        ),
    ] {
        let error = asked(method, params).unwrap_err();
        assert_eq!(error.0.code, code, "{method} {params}");
        assert!(error.0.message.contains(says), "{}", error.0.message);
    }
}

#[test]
fn a_line_that_is_no_request_is_answered_so() {
    for (line, code, says) in [
        ("[]", -32600, "no batch"),
        (r#"{"id":1,"method":"ping"}"#, -32600, "2.0"),
        (r#"{"jsonrpc":"2.0","id":1}"#, -32600, "`method`"),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#,
            -32600,
            "`id`",
        ),
    ] {
        let (found, message) = refused(line);
        assert_eq!(found, code, "{line}");
        assert!(message.contains(says), "{message}");
    }
    assert_eq!(read(b"hello", None).unwrap_err().0.code, -32700);
}

#[test]
fn an_answer_repeats_little_of_what_was_said() {
    let long = json!("\u{7f}".repeat(100_000)).to_string();
    let short = |error: NodeError| assert!(error.0.message.len() < 1_000);
    for (method, member) in [
        ("ping", "session_id"),
        ("session/inject", "mode"),
        ("session/control", "subtype"),
    ] {
        let params = format!(r#"{{"prompt":"x","{member}":{long}}}"#);
        short(asked(method, &params).unwrap_err());
    }
    let events = format!(r#"{{"events":[{long}]}}"#);
    short(asked("session/subscribe", &events).unwrap_err());
    short(asked(&long[1..long.len() - 1], "{}").unwrap_err());
    let line = format!(r#"{{"jsonrpc":"2.0","id":{long},"method":"ping"}}"#);
    assert_eq!(refused(&line).0, -32600);
}

#[test]
fn only_a_subscription_needs_no_id() {
    let read = |line: &str| super::read(line.as_bytes(), None).unwrap();
    assert!(read(r#"{"jsonrpc":"2.0","method":"session/inject"}"#).is_none());
    assert!(read(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).is_none());
    assert!(read(r#"{"jsonrpc":"2.0","id":4,"result":{}}"#).is_none());
    let line = r#"{"jsonrpc":"2.0","method":"session/subscribe"}"#;
    let request = read(line).unwrap();
    assert!(request.id.is_none() && request.call.is_ok());
}

#[test]
fn the_capabilities_say_what_the_gate_lets_through_and_no_more() {
    let said = initialized(Some("2024-11-05"), false, true, true);
    assert_eq!(said["protocolVersion"], "2024-11-05");
    let session = &said["capabilities"]["session"];
    assert_eq!(session["inject"], false);
    assert_eq!(session["interrupt"], true);
    assert_eq!(session["approve"], true);
    assert_eq!(
        initialized(Some("1999"), true, false, false)["protocolVersion"],
        "2025-11-25"
    );
}

#[test]
fn a_closed_gate_is_named_with_its_file() {
    let error = NodeError::closed("inject", "/c/sessions.toml", "`inject = false` in /c");
    let id = RawValue::from_string("\"a\"".to_owned()).unwrap();
    let line: Value = serde_json::from_str(&answer(id, Err(error))).unwrap();
    assert_eq!(line["id"], "a");
    assert_eq!(line["error"]["code"], -32003);
    let data = json!({ "gate": "inject", "file": "/c/sessions.toml" });
    assert_eq!(line["error"]["data"], data);
}
