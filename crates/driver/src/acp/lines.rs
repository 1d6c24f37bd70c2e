//! What an agent's lines say, one by one. Pure.

use peerbus_node::claude_code;
use peerbus_wire::escape;
use peerbus_wire::jsonrpc::RpcError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::WHY_CHARS;
use crate::protocol::Heard;

/// An agent wants its user to log in first.
const LOG_IN: i64 = -32_000;
/// Longest parameters of which everything is read, in bytes.
const LONG: usize = 1 << 20;
/// Longest id of a session, in bytes.
const ID_MAX: usize = 1_024;
/// A line without a method within so many bytes may be an answer.
const HEAD: usize = 1_024;

/// A call of a tool or its result, for whoever watches.
pub(super) fn events(update: &Value) -> Vec<Heard> {
    let id = &update["toolCallId"];
    let mut heard = Vec::new();
    if update["sessionUpdate"] == "tool_call" || update["status"] == "pending" {
        let name = update["name"].as_str().or(update["title"].as_str());
        let call = json!([{ "type": "tool_use", "id": id, "name": name,
            "input": update["rawInput"] }]);
        heard.extend(told("assistant", &call));
    }
    if let Some(status @ ("completed" | "failed")) = update["status"].as_str() {
        let content = match &update["content"] {
            Value::Null => &update["rawOutput"],
            content => content,
        };
        let result = json!([{ "type": "tool_result", "tool_use_id": id, "content": content,
            "is_error": status == "failed" }]);
        heard.extend(told("user", &result));
    }
    heard
}

/// Events in the form that Claude Code's messages have.
pub(super) fn told(role: &str, content: &Value) -> Vec<Heard> {
    let line = json!({ "type": role, "message": { "role": role, "content": content } });
    let events = claude_code::read(&line.to_string()).into_iter();
    events.map(Heard::Event).collect()
}

/// The parameters of an update. Of one that is long only what decides is read: as values its lists
/// would take many times their text.
pub(super) fn params(text: &str) -> Value {
    #[derive(Deserialize, Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        session_id: String,
        update: Update,
    }
    #[derive(Deserialize, Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Update {
        session_update: String,
        tool_call_id: Option<String>,
        message_id: Option<String>,
        status: Option<String>,
        title: Option<String>,
        /// Not all of it is kept.
        #[serde(skip_deserializing, default = "yes")]
        cut: bool,
    }
    fn yes() -> bool {
        true
    }
    if text.len() <= LONG {
        return serde_json::from_str(text).unwrap_or_default();
    }
    let long = serde_json::from_str::<Params>(text).ok();
    long.and_then(|long| serde_json::to_value(long).ok())
        .unwrap_or_default()
}

/// The id of a session, if it is one.
pub(super) fn id(answer: &Value) -> Option<String> {
    let id = answer["sessionId"].as_str()?;
    (id.len() <= ID_MAX).then(|| id.to_owned())
}

/// Why an agent cannot be used.
pub(super) fn refused(error: &RpcError) -> String {
    let why = escape(&error.message, WHY_CHARS);
    match error.code {
        LOG_IN => format!("{why}: log in with the agent's own command first"),
        _ => why,
    }
}

/// What comes of a line that is no message. One that was cut and may have been an answer is waited for
/// by somebody.
pub(super) fn unread(line: &str, error: &RpcError) -> Vec<Heard> {
    let shown = escape(line, WHY_CHARS);
    tracing::warn!(
        "an agent wrote a line that is not understood ({}): {shown}",
        error.message
    );
    let head = &line[..line.floor_char_boundary(HEAD)];
    let cut = line.len() >= crate::process::LINE_MAX && !head.contains("\"method\"");
    let why = || Heard::Broken("it wrote a line that is too long to be read".to_owned());
    cut.then(why).into_iter().collect()
}
