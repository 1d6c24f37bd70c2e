//! What the driver answers when the client asks whether a tool may be used. Pure.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::SERVER;
use crate::stream::Asked;

/// What is said of a tool that nobody is there to allow.
pub(crate) const DENIED: &str = "nobody answers permission requests in a session that peerbus \
    drives: its user can allow tools beforehand, with `peerbus run --permission-mode MODE`, with \
    `peerbus run -- --allowedTools TOOLS`, or in the settings. Go on without, or say what is needed";

/// Whether a tool is one of ours. Where the client says which server it belongs to, it must be the
/// one behind the stream: a configuration may have another of the same name.
pub(crate) fn is_ours(asked: &Asked) -> bool {
    let name = asked.tool_name.as_deref().unwrap_or_default();
    let rest = name
        .strip_prefix("mcp__")
        .and_then(|rest| rest.strip_prefix(SERVER));
    let behind = asked
        .mcp_server
        .as_ref()
        .and_then(|server| server.source.as_deref());
    rest.is_some_and(|rest| rest.starts_with("__")) && behind.is_none_or(|source| source == "sdk")
}

/// A verdict, in the client's form.
#[derive(Serialize)]
#[serde(tag = "behavior", rename_all = "lowercase")]
pub(crate) enum Verdict<'a> {
    /// With the input as it came.
    Allow {
        #[serde(rename = "updatedInput")]
        input: &'a RawValue,
    },
    Deny {
        message: &'a str,
    },
}
