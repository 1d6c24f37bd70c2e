//! What the driver answers when the client asks whether a tool may be used. Pure.

use peerbus_node::approvals::{self, Asked, By, Decision};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::SERVER;

/// The message about a tool that nobody allowed in time, or that nobody may allow.
const DENIED: &str = "nobody answered this permission request in time, in a session that peerbus \
    drives: its user can allow tools beforehand, with `peerbus run --permission-mode MODE`, with \
    `peerbus run -- --allowedTools TOOLS`, or in the settings. Go on without, or say what is needed";
const UNASKED: &str = "nobody could answer this permission request in a session that peerbus drives: \
    the gate `approve` was closed. Its user can open that, or allow tools beforehand, with \
    `peerbus run --permission-mode MODE`, with `peerbus run -- --allowedTools TOOLS`, or in the \
    settings. Go on without, or say what is needed";

/// What is said of a tool that somebody denied without a word.
const REFUSED: &str = "The user denied this.";

/// Whether a tool is one of ours. Where the client says which server it belongs to, it must be the
/// one behind the stream: a configuration may have another of the same name. The name of the tool
/// has to be one of ours, too: `mcp__peerbus__x__y` is also the tool `y` of a server `peerbus__x`.
pub(crate) fn is_ours(asked: &Value) -> bool {
    let name = asked["tool_name"].as_str().unwrap_or_default();
    let rest = name
        .strip_prefix("mcp__")
        .and_then(|rest| rest.strip_prefix(SERVER)?.strip_prefix("__"));
    let behind = asked["mcp_server"]["source"].as_str();
    rest.is_some_and(peerbus_mcp::is_tool) && behind.is_none_or(|source| source == "sdk")
}

/// What the client asks, as whoever may answer is shown it.
pub(crate) fn shown(asked: &Value, input: &RawValue) -> Asked {
    let text = |member: &str| asked[member].as_str().map(str::to_owned);
    let tool = text("tool_name").unwrap_or_default();
    let suggestions = asked["permission_suggestions"].as_array();
    let suggestions = suggestions.map_or(&[][..], Vec::as_slice);
    Asked {
        description: text("description"),
        blocked_path: text("blocked_path"),
        decision_reason: text("decision_reason"),
        agent_id: text("agent_id"),
        ..Asked::new(&tool, input.get()).suggested(suggestions)
    }
}

/// The answer to a request that somebody has decided on, or nobody.
pub(crate) fn answer<'a>(verdict: &'a approvals::Verdict, input: &'a RawValue) -> Verdict<'a> {
    match verdict.decision {
        Some(Decision::Allow | Decision::AllowAlways) => Verdict::Allow {
            input: match &verdict.input {
                Some(input) => Input::Instead(input.value()),
                None => Input::AsItCame(input),
            },
            updates: verdict.updates(),
        },
        Some(Decision::Deny) => Verdict::Deny {
            message: verdict.message.as_deref().unwrap_or(REFUSED),
            interrupt: verdict.interrupt,
        },
        None => Verdict::Deny {
            message: match verdict.by {
                By::Nobody => UNASKED,
                _ => DENIED,
            },
            interrupt: false,
        },
    }
}

#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Input<'a> {
    AsItCame(&'a RawValue),
    Instead(&'a Value),
}

#[derive(Serialize)]
#[serde(tag = "behavior", rename_all = "lowercase")]
pub(crate) enum Verdict<'a> {
    /// With the input as it came, or another.
    Allow {
        #[serde(rename = "updatedInput")]
        input: Input<'a>,
        #[serde(rename = "updatedPermissions", skip_serializing_if = "Option::is_none")]
        updates: Option<Value>,
    },
    Deny {
        message: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        interrupt: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bus_tool_of_the_server_behind_the_stream_is_ours() {
        for (asked, ours) in [
            (r#"{"tool_name":"mcp__peerbus__bus_send"}"#, true),
            (
                r#"{"tool_name":"mcp__peerbus__bus_send","mcp_server":{"source":"sdk"}}"#,
                true,
            ),
            (
                r#"{"tool_name":"mcp__peerbus__bus_send","mcp_server":{"source":"user"}}"#,
                false,
            ),
            (r#"{"tool_name":"mcp__peerbus__x__delete"}"#, false),
            (r#"{"tool_name":"mcp__peerbus__x__bus_send"}"#, false),
            (r#"{"tool_name":"mcp__peerbus___bus_send"}"#, false),
            (r#"{"tool_name":"mcp__peerbus2__bus_send"}"#, false),
            (r#"{"tool_name":"mcp__peerbus__"}"#, false),
            (r#"{"tool_name":"bus_send"}"#, false),
            ("{}", false),
        ] {
            let asked: Value = serde_json::from_str(asked).unwrap();
            assert_eq!(is_ours(&asked), ours, "{asked:?}");
        }
    }
}
