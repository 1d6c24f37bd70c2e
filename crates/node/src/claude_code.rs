//! What happened in a session of Claude Code, by the lines of its transcript, or of its stream where
//! it is driven: their messages have one form. What becomes of each line is said here alone.

use serde_json::{Value, json};

use crate::feed::FeedEvent;
use crate::protocol::EventKind;

/// Longest text that an event repeats, in characters; `cut` says how many more there were.
const TEXT_CHARS: usize = 65_536;

/// The events of a line, in order. What a subagent does is not the session's.
#[must_use]
pub fn read(line: &str) -> Vec<FeedEvent> {
    let Ok(line) = serde_json::from_str::<Value>(line) else {
        return Vec::new();
    };
    let is = |member: &str| line[member] == true;
    // What the client itself notes for the model, unless somebody sent it.
    let noted = is("isMeta") && line["origin"].is_null();
    let inside = is("isSidechain") || line["parent_tool_use_id"].is_string();
    if inside || noted {
        return Vec::new();
    }
    let found = match line["type"].as_str() {
        Some("user") => said("user", &line["message"]["content"]),
        Some("assistant") => said("assistant", &line["message"]["content"]),
        // What joined a turn that was under way.
        Some("attachment") if line["attachment"]["type"] == "queued_command" => {
            said("user", &line["attachment"]["prompt"])
        }
        Some("stream_event") => Vec::from_iter(piece(&line["event"]["delta"])),
        _ => Vec::from_iter(told(&line)),
    };
    let text = |member: &str| line[member].as_str().map(str::to_owned);
    let failed = is("isApiErrorMessage");
    let event = |(kind, mut members): Found| {
        if failed {
            members["error"] = true.into();
        }
        FeedEvent {
            kind,
            session_id: text("sessionId"),
            timestamp: text("timestamp"),
            members,
        }
    };
    found.into_iter().map(event).collect()
}

/// A turn that failed, as what is said in the model's place.
#[must_use]
pub fn failed(why: &str) -> Value {
    let (_, mut members) = message("assistant", why);
    members["error"] = true.into();
    members
}

/// An object as an event has it: its members as far as they are not too long.
pub(crate) fn bounded(object: &Value) -> Value {
    let names: Vec<_> = object.as_object().into_iter().flatten().collect();
    some(
        object,
        &names
            .iter()
            .map(|(name, _)| name.as_str())
            .collect::<Vec<_>>(),
    )
}

type Found = (EventKind, Value);

/// What is told besides messages: a line's `type` and `subtype` (`*`: any), the event, and the members that
/// this has of the line, in the client's words.
const TOLD: [(&str, &str, EventKind, &[&str]); 13] = [
    (
        "result",
        "*",
        EventKind::Result,
        &[
            "subtype",
            "is_error",
            "result",
            "errors",
            "structured_output",
            "stop_reason",
            "terminal_reason",
            "api_error_status",
            "num_turns",
            "duration_ms",
            "duration_api_ms",
            "total_cost_usd",
            "usage",
            "modelUsage",
            "model_usage_since_last_result",
            "permission_denials",
        ],
    ),
    (
        "system",
        "init",
        EventKind::Settings,
        &[
            "model",
            "permissionMode",
            "tools",
            "mcp_servers",
            "slash_commands",
            "agents",
            "skills",
            "plugins",
            "output_style",
            "apiKeySource",
            "claude_code_version",
        ],
    ),
    (
        "system",
        "status",
        EventKind::Compaction,
        &["status", "permissionMode"],
    ),
    (
        "system",
        "compact_boundary",
        EventKind::Compaction,
        &["compact_metadata", "compactMetadata"],
    ),
    ("system", "task_started", EventKind::Task, TASK),
    ("system", "task_progress", EventKind::Task, TASK),
    ("system", "task_notification", EventKind::Task, TASK),
    (
        "tool_progress",
        "*",
        EventKind::ToolProgress,
        &["tool_use_id", "tool_name", "elapsed_time_seconds"],
    ),
    (
        "tool_use_summary",
        "*",
        EventKind::ToolProgress,
        &["summary", "preceding_tool_use_ids"],
    ),
    ("system", "hook_*", EventKind::Hook, HOOK),
    (
        "auth_status",
        "*",
        EventKind::Auth,
        &["isAuthenticating", "output", "error"],
    ),
    (
        "system",
        "api_retry",
        EventKind::Retry,
        &[
            "attempt",
            "max_retries",
            "retry_delay_ms",
            "error_status",
            "error",
        ],
    ),
    (
        "system",
        "files_persisted",
        EventKind::Files,
        &["files", "failed", "processed_at"],
    ),
];
const TASK: &[&str] = &[
    "subtype",
    "task_id",
    "tool_use_id",
    "status",
    "description",
    "summary",
    "output_file",
    "usage",
];
const HOOK: &[&str] = &[
    "subtype",
    "hook_id",
    "hook_name",
    "hook_event",
    "outcome",
    "exit_code",
    "output",
    "stdout",
    "stderr",
];

fn told(line: &Value) -> Option<Found> {
    let is = |named: &str, member: &str| {
        let said = line[member].as_str().unwrap_or_default();
        match named.strip_suffix('*') {
            Some(beginning) => said.starts_with(beginning),
            None => said == named,
        }
    };
    let mut all = TOLD.iter();
    let found = all.find(|(kind, subtype, ..)| is(kind, "type") && is(subtype, "subtype"));
    let (_, _, kind, names) = found?;
    let members = some(line, names);
    // A change of the mode comes as a status, too.
    let is_mode = *kind == EventKind::Compaction && members["permissionMode"].is_string();
    match is_mode && members["status"].is_null() {
        true => Some((EventKind::Settings, some(line, &["permissionMode"]))),
        false => Some((*kind, members)),
    }
}

/// These members of a line. The text of one that is long is cut; another one is left out, and named.
fn some(line: &Value, names: &[&str]) -> Value {
    let mut members = json!({});
    for name in names {
        let value = &line[*name];
        let is_long = || value.to_string().len() > TEXT_CHARS;
        if value.is_string() {
            members = with(members, name, value);
        } else if line.get(*name).is_some() && !is_long() {
            members[*name] = value.clone();
        } else if line.get(*name).is_some() {
            let mut left = members["left_out"].as_array().cloned().unwrap_or_default();
            left.push(json!(name));
            members["left_out"] = left.into();
        }
    }
    members
}

/// A piece of what the model says.
fn piece(delta: &Value) -> Option<Found> {
    let members = with(json!({}), "content", &delta["text"].as_str()?.into());
    Some((EventKind::Partial, members))
}

/// What somebody said: a text, or blocks.
fn said(role: &str, content: &Value) -> Vec<Found> {
    match content {
        Value::String(text) => vec![message(role, text)],
        Value::Array(blocks) => blocks.iter().filter_map(|b| block(role, b)).collect(),
        _ => Vec::new(),
    }
}

fn block(role: &str, block: &Value) -> Option<Found> {
    match block["type"].as_str()? {
        "text" => Some(message(role, block["text"].as_str()?)),
        "tool_use" => {
            let call = json!({ "tool_use_id": block["id"], "tool": block["name"] });
            Some((EventKind::ToolCall, with(call, "input", &block["input"])))
        }
        "tool_result" => {
            let id = &block["tool_use_id"];
            let result = json!({ "tool_use_id": id, "is_error": block["is_error"] == true });
            let result = with(result, "content", &block["content"]);
            Some((EventKind::ToolResult, result))
        }
        _ => None,
    }
}

fn message(role: &str, text: &str) -> Found {
    let members = with(json!({ "role": role }), "content", &text.into());
    (EventKind::Message, members)
}

/// With a value as it is, or the beginning of its text where it is long.
fn with(mut members: Value, name: &str, value: &Value) -> Value {
    let text = match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    let Some((end, _)) = text.char_indices().nth(TEXT_CHARS) else {
        members[name] = value.clone();
        return members;
    };
    let (beginning, rest) = text.split_at(end);
    members[name] = beginning.into();
    members["cut"] = rest.chars().count().into();
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(line: &Value) -> Vec<(Value, Value)> {
        let events = read(&line.to_string()).into_iter();
        let event = |event: FeedEvent| (json!(event.kind), event.members);
        events.map(event).collect()
    }

    #[test]
    fn a_turn_is_messages_calls_and_results() {
        let prompt = json!({ "type": "user", "message": { "role": "user", "content": "do it" } });
        let said = json!({ "role": "user", "content": "do it" });
        assert_eq!(events(&prompt), [("message".into(), said)]);
        let answer = json!({ "type": "assistant", "message": { "content": [
            { "type": "thinking", "thinking": "hm" },
            { "type": "text", "text": "I will" },
            { "type": "tool_use", "id": "t1", "name": "Bash", "input": { "command": "ls" } },
        ] } });
        let call = json!({ "tool_use_id": "t1", "tool": "Bash", "input": { "command": "ls" } });
        let will = json!({ "role": "assistant", "content": "I will" });
        assert_eq!(
            events(&answer),
            [("message".into(), will), ("tool_call".into(), call)]
        );
        let result = json!({ "type": "user", "message": { "content": [
            { "type": "tool_result", "tool_use_id": "t1", "content": "a b", "is_error": true },
        ] } });
        let got = json!({ "tool_use_id": "t1", "content": "a b", "is_error": true });
        assert_eq!(events(&result), [("tool_result".into(), got)]);
        let queued = json!({ "type": "attachment",
            "attachment": { "type": "queued_command", "prompt": "and this" } });
        let and = json!({ "role": "user", "content": "and this" });
        assert_eq!(events(&queued), [("message".into(), and)]);
    }

    #[test]
    fn when_and_whose_it_was_stands_in_the_line() {
        let line = json!({ "type": "assistant", "sessionId": "s", "isApiErrorMessage": true,
            "timestamp": "2026-01-01T00:00:00.000Z", "message": { "content": "down" } });
        let [event] = &read(&line.to_string())[..] else {
            panic!("one event");
        };
        assert_eq!(event.session_id.as_deref(), Some("s"));
        assert_eq!(event.timestamp.as_deref(), Some("2026-01-01T00:00:00.000Z"));
        assert_eq!(event.members["error"], true);
    }

    #[test]
    fn what_is_not_of_the_session_or_not_understood_is_left_out() {
        let sidechain =
            json!({ "type": "user", "isSidechain": true, "message": { "content": "x" } });
        let meta = json!({ "type": "user", "isMeta": true, "message": { "content": "x" } });
        let hook = json!({ "type": "attachment", "attachment": { "type": "hook_success" } });
        let inside =
            json!({ "type": "user", "parent_tool_use_id": "t", "message": { "content": "x" } });
        for line in [
            inside,
            sidechain,
            meta,
            hook,
            json!({ "type": "summary" }),
            json!([]),
        ] {
            assert_eq!(events(&line), [], "{line}");
        }
        assert_eq!(read("no json"), []);
    }

    /// Lines of the stream, and the event of each.
    const STREAM: [(&str, &str, &str); 15] = [
        (
            r#"{"type":"result","subtype":"success","is_error":false,"total_cost_usd":0.5,"structured_output":null,"uuid":"u"}"#,
            "result",
            r#"{"subtype":"success","is_error":false,"total_cost_usd":0.5,"structured_output":null}"#,
        ),
        (
            r#"{"type":"system","subtype":"init","model":"m","tools":["Bash"],"cwd":"/"}"#,
            "settings",
            r#"{"model":"m","tools":["Bash"]}"#,
        ),
        (
            r#"{"type":"system","subtype":"status","status":"compacting"}"#,
            "compaction",
            r#"{"status":"compacting"}"#,
        ),
        (
            r#"{"type":"system","subtype":"status","status":null,"permissionMode":"plan"}"#,
            "settings",
            r#"{"permissionMode":"plan"}"#,
        ),
        (
            r#"{"type":"system","subtype":"compact_boundary","compact_metadata":{"pre_tokens":9}}"#,
            "compaction",
            r#"{"compact_metadata":{"pre_tokens":9}}"#,
        ),
        (
            r#"{"type":"system","subtype":"task_notification","task_id":"t","status":"failed"}"#,
            "task",
            r#"{"subtype":"task_notification","task_id":"t","status":"failed"}"#,
        ),
        (
            r#"{"type":"tool_progress","tool_use_id":"t","elapsed_time_seconds":3}"#,
            "tool_progress",
            r#"{"tool_use_id":"t","elapsed_time_seconds":3}"#,
        ),
        (
            r#"{"type":"tool_use_summary","summary":"read it","preceding_tool_use_ids":["t"]}"#,
            "tool_progress",
            r#"{"summary":"read it","preceding_tool_use_ids":["t"]}"#,
        ),
        (
            r#"{"type":"system","subtype":"hook_started","hook_id":"i","hook_event":"Stop"}"#,
            "hook",
            r#"{"subtype":"hook_started","hook_id":"i","hook_event":"Stop"}"#,
        ),
        (
            r#"{"type":"system","subtype":"hook_progress","hook_id":"i","stdout":"so far"}"#,
            "hook",
            r#"{"subtype":"hook_progress","hook_id":"i","stdout":"so far"}"#,
        ),
        (
            r#"{"type":"system","subtype":"hook_response","hook_name":"h","exit_code":2}"#,
            "hook",
            r#"{"subtype":"hook_response","hook_name":"h","exit_code":2}"#,
        ),
        (
            r#"{"type":"auth_status","isAuthenticating":true}"#,
            "auth",
            r#"{"isAuthenticating":true}"#,
        ),
        (
            r#"{"type":"system","subtype":"api_retry","attempt":2}"#,
            "retry",
            r#"{"attempt":2}"#,
        ),
        (
            r#"{"type":"system","subtype":"files_persisted","files":[]}"#,
            "files",
            r#"{"files":[]}"#,
        ),
        (
            r#"{"type":"stream_event","event":{"delta":{"type":"text_delta","text":"he"}}}"#,
            "partial",
            r#"{"content":"he"}"#,
        ),
    ];

    #[test]
    fn what_the_stream_tells_besides_messages_is_told_in_its_words() {
        let json = |text| serde_json::from_str::<Value>(text).unwrap();
        for (line, kind, members) in STREAM {
            let told = [(kind.into(), json(members))];
            assert_eq!(events(&json(line)), told, "{line}");
        }
        for line in [
            r#"{"type":"stream_event","event":{"delta":{"type":"thinking_delta","thinking":"hm"}}}"#,
            r#"{"type":"system","subtype":"prompt_draft_activity"}"#,
            r#"{"type":"keep_alive"}"#,
        ] {
            assert_eq!(events(&json(line)), [], "{line}");
        }
        let long = json!({ "type": "result", "usage": ["x".repeat(TEXT_CHARS)], "num_turns": 1 });
        let told = json!({ "left_out": ["usage"], "num_turns": 1 });
        assert_eq!(events(&long), [("result".into(), told)]);
    }

    #[test]
    fn what_is_long_is_cut_and_the_cut_is_told() {
        let long = "é".repeat(TEXT_CHARS + 3);
        let line = json!({ "type": "user", "message": { "content": long } });
        let [(_, event)] = &events(&line)[..] else {
            panic!("one event");
        };
        assert_eq!(event["cut"], 3);
        let shown = event["content"].as_str().unwrap().chars().count();
        assert_eq!(shown, TEXT_CHARS);
    }
}
