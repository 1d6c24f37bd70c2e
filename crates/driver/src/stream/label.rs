//! What of a line a transport has to know that may lose lines and repeat them, whoever wrote it.

use peerbus_wire::lenient;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::SERVER;

/// How the client names the tool use that an MCP request is for.
const TOOL_USE: &str = "claudecode/toolUseId";

/// The identity of a line, and what it begins or ends.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Label {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    uuid: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    timestamp: Option<String>,
    #[serde(rename = "isReplay", default, deserialize_with = "lenient")]
    is_replay: Option<bool>,
    #[serde(default, deserialize_with = "lenient")]
    request_id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    request: Option<Asked>,
    #[serde(default, deserialize_with = "lenient")]
    response: Option<Answer>,
    #[serde(default, deserialize_with = "lenient")]
    message: Option<Message>,
}

#[derive(Debug, Default, Deserialize)]
struct Asked {
    #[serde(default, deserialize_with = "lenient")]
    subtype: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    message: Option<Value>,
}

/// An answer to a request.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Answer {
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) request_id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) error: Option<String>,
    /// Requests to use a tool that wait for an answer, as lines of their own.
    #[serde(
        rename = "pending_permission_requests",
        default,
        deserialize_with = "lenient"
    )]
    pub(crate) pending: Option<Vec<Box<RawValue>>>,
}

#[derive(Debug, Default, Deserialize)]
struct Message {
    #[serde(default, deserialize_with = "lenient")]
    content: Option<Vec<Value>>,
}

/// What a line is to a transport.
#[derive(Debug)]
pub(crate) enum Means<'a> {
    /// The model uses tools: their ids, and whether a tool is the bus's.
    Uses(Vec<(&'a str, bool)>),
    /// Uses of tools that are over.
    Used(Vec<&'a str>),
    /// A user's message, to the client or repeated by it.
    User,
    /// The client asks whether a tool may be used.
    MayUse,
    /// The client asks the server behind the stream: the method, and the use of a tool it is for.
    Mcp(&'a str, Option<&'a str>),
    /// Our first request.
    Initialize,
    /// Another request.
    Request,
    /// An answer.
    Answer(&'a Answer),
    /// The end of a turn.
    TurnEnd,
    /// It shows only that somebody is there.
    KeepAlive,
    Other,
}

impl Label {
    /// Reads a line. What is none has no label.
    pub(crate) fn read(line: &str) -> Self {
        serde_json::from_str(line).unwrap_or_default()
    }

    /// A name that only repeats of the line have. The client gives a user's message the uuid that
    /// it came with, and says it twice when it came twice: once with a time.
    pub(crate) fn name(&self) -> Option<String> {
        let kind = self.kind.as_deref()?;
        let uuid = self.uuid.as_deref()?;
        let timestamp = self.timestamp.as_deref().unwrap_or_default();
        Some(format!("{kind} {uuid} {timestamp}"))
    }

    /// The id of a request.
    pub(crate) fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    pub(crate) fn uuid(&self) -> Option<&str> {
        self.uuid.as_deref()
    }

    /// Whether this is how the client says that a user's message came a second time: it repeats it
    /// at once, without a time. (So it does with one of several that it merges.)
    pub(crate) fn may_be_receipt(&self) -> bool {
        self.is_replay == Some(true) && self.timestamp.is_none()
    }

    pub(crate) fn means(&self) -> Means<'_> {
        match self.kind.as_deref().unwrap_or_default() {
            "assistant" => Means::Uses(self.uses()),
            "user" => {
                let used = self.used();
                match used.is_empty() {
                    true => Means::User,
                    false => Means::Used(used),
                }
            }
            "result" => Means::TurnEnd,
            "keep_alive" => Means::KeepAlive,
            "control_request" => self.request.as_ref().map_or(Means::Request, Asked::means),
            "control_response" => self.response.as_ref().map_or(Means::Other, Means::Answer),
            _ => Means::Other,
        }
    }

    fn blocks(&self, kind: &str) -> impl Iterator<Item = &Value> {
        let content = self.message.as_ref().and_then(|m| m.content.as_ref());
        let blocks = content.into_iter().flatten();
        blocks.filter(move |block| block["type"].as_str() == Some(kind))
    }

    fn uses(&self) -> Vec<(&str, bool)> {
        let ours = format!("mcp__{SERVER}__");
        let is_ours = |block: &Value| {
            let name = block["name"].as_str().unwrap_or_default();
            name.starts_with(&ours)
        };
        let uses = self.blocks("tool_use");
        uses.filter_map(|block| Some((block["id"].as_str()?, is_ours(block))))
            .collect()
    }

    fn used(&self) -> Vec<&str> {
        let results = self.blocks("tool_result");
        results
            .filter_map(|block| block["tool_use_id"].as_str())
            .collect()
    }
}

impl Asked {
    fn means(&self) -> Means<'_> {
        match (self.subtype.as_deref(), &self.message) {
            (Some("initialize"), _) => Means::Initialize,
            (Some("can_use_tool"), _) => Means::MayUse,
            (Some("mcp_message"), Some(message)) => {
                let method = message["method"].as_str().unwrap_or_default();
                Means::Mcp(method, message["params"]["_meta"][TOOL_USE].as_str())
            }
            _ => Means::Request,
        }
    }
}
