//! What happened in a session of Claude Code, by the lines of its transcript, or of its stream where
//! it is driven: their messages have one form.

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
        _ => Vec::new(),
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

type Found = (EventKind, Value);

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
