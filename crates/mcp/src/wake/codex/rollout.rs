//! How the file of a thread reads, its rollout: one JSON object a line, in the order in which things
//! happened. A line of the user's is written right before the model is asked; an answer that stands
//! behind it in the same turn was made with it. Documented nowhere, seen with 0.169.0.

use peerbus_adapter::transcript::{LineReader, TranscriptLine};
use serde::Deserialize;
use serde_json::Value;

use crate::tools::BusCalls;

/// Before what a tool gave stands how long it took, and these words.
const TIME: &str = "Wall time: ";
const OUTPUT: &str = "\nOutput:\n";

/// Reads lines; each follows the one before in its turn.
#[derive(Debug, Default)]
pub(super) struct Lines {
    turn: Option<String>,
    count: u64,
    calls: BusCalls,
}

#[derive(Deserialize)]
struct Written {
    #[serde(rename = "type")]
    kind: String,
    payload: Payload,
}

#[derive(Deserialize)]
struct Payload {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    role: Option<String>,
    /// Of a tool, and of the server that has it.
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    call_id: Option<String>,
    #[serde(default)]
    turn_id: Option<String>,
    #[serde(rename = "internal_chat_message_metadata_passthrough", default)]
    about: Option<About>,
}

#[derive(Deserialize)]
struct About {
    #[serde(default)]
    turn_id: Option<String>,
}

impl Lines {
    fn name(&self, turn: &str) -> String {
        format!("{turn}#{}", self.count)
    }
}

impl LineReader for Lines {
    fn read(&mut self, line: &str) -> Option<TranscriptLine> {
        let Written { kind, payload } = serde_json::from_str(line).ok()?;
        if let Some(mut tool) = payload.name {
            if let Some(server) = payload.namespace {
                tool = format!("{server}__{tool}");
            }
            self.calls.add(&tool, payload.call_id);
        }
        let turn = payload.turn_id.or(payload.about.and_then(|a| a.turn_id));
        if turn.is_some() && turn != self.turn {
            self.turn = turn;
            self.count = 0;
        }
        let turn = self.turn.clone()?;
        let (presents, answers) = match (kind.as_str(), payload.kind.as_str()) {
            ("response_item", "message") => match payload.role.as_deref() {
                Some("user") => (true, false),
                Some("assistant") => (false, true),
                _ => return None,
            },
            ("response_item", kind) if is_output(kind) => (true, false),
            ("response_item", "function_call" | "custom_tool_call" | "local_shell_call") => {
                (false, true)
            }
            ("event_msg", "turn_aborted") => (false, false),
            _ if is_anew(&kind, &payload.kind) => (false, false),
            _ => return None,
        };
        let parent = (self.count > 0).then(|| self.name(&turn));
        self.count += 1;
        let id = self.name(&turn);
        Some(TranscriptLine {
            request: answers.then(|| id.clone()),
            id,
            parent,
            prompts: false,
            presents,
            answers,
            stopped: !presents && !answers,
        })
    }

    fn is_anew(&self, line: &str) -> bool {
        let line: Result<Written, _> = serde_json::from_str(line);
        line.is_ok_and(|line| is_anew(&line.kind, &line.payload.kind))
    }

    fn result(&self, line: &str) -> Option<Value> {
        let mut line: Value = serde_json::from_str(line).ok()?;
        let mut payload = line["payload"].take();
        payload["type"].as_str().filter(|kind| is_output(kind))?;
        if !self.calls.has(payload["call_id"].as_str()) {
            return Some(Value::Null);
        }
        let timed = payload["output"]
            .as_str()
            .filter(|text| text.starts_with(TIME));
        if let Some((_, own)) = timed.and_then(|text| text.split_once(OUTPUT)) {
            payload["output"] = own.into();
        }
        Some(payload)
    }
}

/// Whether the thread goes on without what stood before, or some of it: it was summed up, or the user went back.
fn is_anew(kind: &str, of: &str) -> bool {
    kind == "compacted" || (kind, of) == ("event_msg", "thread_rolled_back")
}

/// Whether an item is what a tool gave.
fn is_output(kind: &str) -> bool {
    matches!(kind, "function_call_output" | "custom_tool_call_output")
}

#[cfg(test)]
mod tests {
    use peerbus_adapter::mailbox::{Evidence, Sum};
    use peerbus_adapter::transcript::TranscriptReader;
    use serde_json::json;

    use super::*;

    const MARK: &str = "pb-0123456789abcdef-7";

    fn item(turn: &str, kind: &str, role: &str, text: &str) -> Value {
        let mut payload = json!({ "type": kind, "content": [{ "type": "input_text", "text": text }],
            "internal_chat_message_metadata_passthrough": { "turn_id": turn } });
        if !role.is_empty() {
            payload["role"] = role.into();
        }
        json!({ "timestamp": "2026-11-22T14:51:20Z", "type": "response_item", "payload": payload })
    }

    fn event(turn: &str, kind: &str, text: &str) -> Value {
        let payload = json!({ "type": kind, "turn_id": turn, "item": { "content": text } });
        json!({ "type": "event_msg", "payload": payload })
    }

    fn found(lines: &[Value]) -> Vec<&'static str> {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let mut transcript = TranscriptReader::new(Box::<Lines>::default());
        let marks = [MARK.to_owned()];
        let found = transcript.feed(text.as_bytes(), &marks).into_iter();
        let word = |evidence| match evidence {
            Evidence::Presented(_) => "presented",
            Evidence::Answered(_) => "answered",
            Evidence::InResult(found) if found.is_answer() => "answered, in a result",
            Evidence::InResult(found) if matches!(*found, Evidence::Cut(_)) => "cut",
            Evidence::InResult(_) => "presented, in a result",
            Evidence::Anew => "anew",
            other => panic!("{other:?}"),
        };
        found.map(word).collect()
    }

    #[test]
    fn an_answer_behind_it_in_the_same_turn_is_proof() {
        let before = [
            event("a", "task_started", ""),
            item("a", "message", "user", "what is new?"),
            item("a", "message", "assistant", "let me see"),
            item("a", "message", "user", MARK),
            event("a", "item_completed", MARK),
        ];
        assert_eq!(found(&before), ["presented"]);
        let mut answered = before.to_vec();
        answered.push(json!({ "type": "token_usage_record", "payload": { "turn_id": "a" } }));
        answered.push(item("a", "function_call", "", "bus_reply"));
        assert_eq!(found(&answered), ["presented", "answered"]);
    }

    #[test]
    fn neither_another_turn_nor_the_model_that_quotes_it_is_proof() {
        let down = [item("a", "message", "user", MARK), event("a", "error", "")];
        let other = item("b", "message", "assistant", "good morning");
        assert_eq!(found(&[down.to_vec(), vec![other]].concat()), ["presented"]);
        assert_eq!(found(&[item("a", "message", "assistant", MARK)]), [""; 0]);
        assert_eq!(found(&[item("a", "message", "developer", MARK)]), [""; 0]);
    }

    #[test]
    fn what_comes_after_the_user_stopped_the_model_is_no_proof() {
        let lines = [
            item("a", "message", "user", MARK),
            event("a", "turn_aborted", ""),
            item("a", "message", "assistant", "late"),
        ];
        assert_eq!(found(&lines), ["presented"]);
    }

    /// A call of a tool, and what it gave.
    fn ran(namespace: &str, tool: &str, output: &str) -> [Value; 2] {
        let mut call = item("a", "function_call", "", "");
        call["payload"]["name"] = tool.into();
        call["payload"]["namespace"] = namespace.into();
        let mut gave = item("a", "function_call_output", "", "");
        gave["payload"]["output"] = output.into();
        for line in [&mut call, &mut gave] {
            line["payload"]["call_id"] = "call_1".into();
        }
        [call, gave]
    }

    #[test]
    fn what_a_tool_of_ours_gave_is_told_apart() {
        let output = format!("[0.0 {MARK}]");
        for (server, tool, is_ours) in [
            ("mcp__peerbus", "bus_drain", true),
            ("mcp__other", "bus_drain", false),
            ("mcp__peerbus", "shell", false),
        ] {
            let mut lines = ran(server, tool, &output).to_vec();
            lines.push(item("a", "message", "assistant", "noted"));
            let expected = ["presented, in a result", "answered, in a result"];
            let expected = &expected[..if is_ours { 2 } else { 0 }];
            assert_eq!(found(&lines), expected, "{server} {tool}");
        }
    }

    #[test]
    fn what_stood_before_a_rollback_or_a_summary_is_not_answered() {
        let rollback = event("a", "thread_rolled_back", "");
        let summary = json!({ "type": "compacted", "payload": { "message": "…" } });
        for anew in [rollback, summary] {
            let lines = [
                item("a", "message", "user", MARK),
                anew,
                item("a", "message", "assistant", "what was it?"),
            ];
            assert_eq!(found(&lines), ["presented", "anew"]);
        }
    }

    #[test]
    fn a_tools_result_is_read_behind_the_time_that_it_took() {
        let gave = |text: &str| {
            let output = format!("Wall time: 0.0417 seconds\nOutput:\n{text}");
            found(&ran("mcp__peerbus", "bus_drain", &output))
        };
        let mut result = json!({ "text": "20 characters of this are cut" });
        let sum = Sum::of_result(&result, MARK);
        result["end"] = format!("[{sum} {MARK}]").into();
        let whole = result.to_string();
        assert_eq!(gave(&whole), ["presented, in a result"]);
        for cover in ["…20 chars truncated…", "…5 tokens truncated…"] {
            let cut = whole.replace("20 characters of thi", cover);
            assert_eq!(gave(&cut), ["cut"], "{cover}");
        }
    }
}
