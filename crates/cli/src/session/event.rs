//! Events of sessions, for people.

use peerbus_view::PeerState;
use peerbus_wire::{escape, from_rfc3339, printable};
use serde_json::Value;

use super::{CELL_CHARS, LINE_CHARS, asked};
use crate::{here, told};

/// An event, for people.
pub(super) fn text(event: &Value) -> String {
    let word = |member: &str| escape(event[member].as_str().unwrap_or_default(), CELL_CHARS);
    let value = |member: &str| {
        let text = match &event[member] {
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        lines(&text)
    };
    let said = match event["type"].as_str().unwrap_or_default() {
        "message" => {
            let content = event["content"].as_str().map(for_people);
            let content = content.map_or_else(|| value("content"), |content| lines(&content));
            format!("{}: {content}", word("role"))
        }
        "tool_call" => format!("calls {}: {}", word("tool"), value("input")),
        "tool_result" => {
            let failed = if event["is_error"] == true {
                " (failed)"
            } else {
                ""
            };
            format!("result{failed}: {}", value("content"))
        }
        "status" if event["status"].is_null() => "status: not known".to_owned(),
        "status" => {
            let state = PeerState::of(event["status"].as_str());
            format!("status: {}", state.word(here::audience()))
        }
        "bus" => {
            let peer = ["from", "to"]
                .into_iter()
                .find(|way| event[way].is_string());
            let peer = peer.map(|way| format!(" {way} {}", word(way)));
            let peer = peer.unwrap_or_default();
            format!("bus: {}{peer}: {}", word("id"), word("stage"))
        }
        "gap" => format!("… {} events are missing", value("missed")),
        "approval_request" => format!("asks: {}", asked::asked(event)),
        "approval_resolved" => asked::resolved(event),
        "result" => result(event),
        kind => format!("{}: {}", escape(kind, CELL_CHARS), told_of(event)),
    };
    let time = event["timestamp"].as_str().unwrap_or_default();
    let time = from_rfc3339(time).map(|at_ms| told::local(at_ms, "%H:%M:%S"));
    format!("{} {said}", time.unwrap_or_default())
}

/// What a turn came to, on a line.
fn result(event: &Value) -> String {
    let figure = |member: &str, unit: &str| {
        let figure = &event[member];
        figure.is_number().then(|| format!(", {figure}{unit}"))
    };
    let figures = [
        figure("num_turns", " turns"),
        figure("duration_ms", " ms"),
        figure("total_cost_usd", " USD in all"),
    ];
    let figures: String = figures.into_iter().flatten().collect();
    let word = escape(event["subtype"].as_str().unwrap_or_default(), CELL_CHARS);
    format!("result: {word}{figures}")
}

/// What an event says besides what all say.
fn told_of(event: &Value) -> String {
    let all = ["type", "seq", "session_id", "timestamp"];
    let members = event.as_object().into_iter().flatten();
    let members = members.filter(|(name, _)| !all.contains(&name.as_str()));
    let members: serde_json::Map<_, _> = members.map(|(n, v)| (n.clone(), v.clone())).collect();
    lines(&Value::from(members).to_string())
}

/// A message without what is in it for a model: the frame around peers' words, and escapes of what
/// opens nothing on a terminal. Line breaks of a peer's stay escapes, in quotes.
fn for_people(content: &str) -> String {
    let frame = |line: &&str| !matches!(*line, "<peerbus_messages>" | "</peerbus_messages>");
    let plain = |line: &str| match line.starts_with('📨') {
        true => line.replace("\\u003c", "<").replace("\\u003e", ">"),
        false => line.to_owned(),
    };
    let lines: Vec<_> = content.lines().filter(frame).map(plain).collect();
    lines.join("\n")
}

/// The beginning of a text with its line breaks, and nothing else that a terminal would take for
/// more than text.
pub(super) fn lines(text: &str) -> String {
    let (shown, more) = match text.char_indices().nth(LINE_CHARS) {
        Some((end, _)) => text.split_at(end),
        None => (text, ""),
    };
    let mut lines = printable(shown).replace('\n', "\n    ");
    if !more.is_empty() {
        lines.push_str(&format!("… [{} more characters]", more.chars().count()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_a_line_that_no_text_can_forge() {
        let at = "2026-01-02T03:04:05.678Z";
        for (event, line) in [
            (
                json!({ "type": "message", "role": "assistant", "content": "a\n\u{1b}[2Jb" }),
                "assistant: a\n    \\u001b[2Jb",
            ),
            (
                json!({ "type": "message", "role": "user", "content": "<a>\t\"b\" \\u003c" }),
                "user: <a>\t\"b\" \\u003c",
            ),
            (
                json!({ "type": "message", "role": "user",
                    "content": "<peerbus_messages>\n📨 bob: \"1 \\u003c 2\\u000a\\u202e\" [m1]\n</peerbus_messages>" }),
                "user: 📨 bob: \"1 < 2\\u000a\\u202e\" [m1]",
            ),
            (
                json!({ "type": "tool_call", "tool": "Bash", "input": { "command": "ls" } }),
                r#"calls Bash: {"command":"ls"}"#,
            ),
            (
                json!({ "type": "tool_result", "content": "no", "is_error": true }),
                "result (failed): no",
            ),
            (
                json!({ "type": "status", "status": "idle" }),
                "status: idle",
            ),
            (
                json!({ "type": "status", "status": "waiting_approval" }),
                "status: waits for you",
            ),
            (
                json!({ "type": "status", "status": "thinking" }),
                "status: busy",
            ),
            (
                json!({ "type": "bus", "id": "1", "from": "alice", "stage": "seen" }),
                "bus: 1 from alice: seen",
            ),
            (
                json!({ "type": "result", "subtype": "success\u{9b}", "num_turns": 2, "total_cost_usd": 0.5 }),
                "result: success\\u009b, 2 turns, 0.5 USD in all",
            ),
            (
                json!({ "type": "compaction\n", "seq": 7, "status": "compacting\u{1b}" }),
                r#"compaction\u000a: {"status":"compacting\u001b"}"#,
            ),
            (
                json!({ "type": "gap", "missed": 7 }),
                "… 7 events are missing",
            ),
            (
                json!({ "type": "gap", "missed": "\u{9b}2J" }),
                "… \\u009b2J events are missing",
            ),
        ] {
            let mut event = event;
            event["timestamp"] = at.into();
            assert_eq!(text(&event), format!("03:04:05Z {line}"));
        }
    }
}
