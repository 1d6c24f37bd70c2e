//! The lines: JSON-RPC 2.0, one text a line, as MCP has it. `docs/NODE_PROTOCOL.md` has every message.

use peerbus_adapter::mailbox::SOURCE_CHARS;
use peerbus_wire::jsonrpc::{
    INVALID_REQUEST, NO_JSON, RpcError, RpcMessage, UNKNOWN_METHOD, WRONG_PARAMS,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::approvals::{Choice, VerdictRefusal, Wish};
use crate::prompt::Prompt;

/// The revisions of MCP that are echoed at `initialize`; others are answered with the last.
const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// What was asked cannot be done now.
const UNABLE: i64 = -32000;
/// A gate is closed, or what was asked is not for the caller.
pub(crate) const CLOSED: i64 = -32003;

/// Longest `id`, in bytes, and most that is repeated of what was said, in characters: answers wait in
/// memory for those who asked.
const ID_MAX: usize = 1_024;
const QUOTED_CHARS: usize = 64;
/// What is left of a sentence that repeats what was said, at its beginning and at its end.
const SENTENCE_CHARS: (usize, usize) = (100, 300);
/// Longest sentence to the model in a verdict, in characters.
const MESSAGE_CHARS: usize = 1_000;

/// What can be asked of the client of a driven session, by its own words.
pub(crate) const SUBTYPES: [&str; 9] = [
    "set_model",
    SET_MODE,
    "set_max_thinking_tokens",
    "mcp_status",
    "mcp_reconnect",
    "mcp_toggle",
    "mcp_set_servers",
    "rewind_files",
    SET_ENVIRONMENT,
];
pub(crate) const SET_ENVIRONMENT: &str = "update_environment_variables";
pub(crate) const SET_MODE: &str = "set_permission_mode";

/// What happens in a session. The words are the protocol's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// Somebody says something.
    Message,
    /// The model calls a tool.
    ToolCall,
    /// What a tool answered.
    ToolResult,
    /// What the session does.
    Status,
    /// How far a message of the bus is, or a text that was put in here.
    Bus,
    /// The session asks its user whether it may use a tool.
    ApprovalRequest,
    /// Such a request is over.
    ApprovalResolved,
    /// A turn is over: what it came to, and what it cost.
    Result,
    /// A piece of what the model is saying. It is not kept: who asked for it gets it as it comes.
    Partial,
    /// What the session works with: its model, its mode, its tools.
    Settings,
    /// The conversation is made shorter.
    Compaction,
    /// How far a task in the background is.
    Task,
    /// How far a call of a tool is.
    ToolProgress,
    /// The client runs a hook of its user's, or a program answered one.
    Hook,
    /// The client wants to know what a program makes of something: one that asked for this, and answers.
    HookCallback,
    /// How far the client's login is.
    Auth,
    /// The client asks the model's service again.
    Retry,
    /// Files were kept at the client's vendor.
    Files,
}

impl EventKind {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::Message,
        Self::ToolCall,
        Self::ToolResult,
        Self::Status,
        Self::Bus,
        Self::ApprovalRequest,
        Self::ApprovalResolved,
        Self::Result,
        Self::Partial,
        Self::Settings,
        Self::Compaction,
        Self::Task,
        Self::ToolProgress,
        Self::Hook,
        Self::HookCallback,
        Self::Auth,
        Self::Retry,
        Self::Files,
    ];

    /// Whoever names no kinds is told of it, too.
    #[must_use]
    pub const fn is_for_all(self) -> bool {
        !matches!(self, Self::Partial | Self::HookCallback)
    }
}

/// What somebody asks for. Members that are not known are ignored, but for [`Wish`]. `source` is what the caller calls
/// itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "method", content = "params")]
pub(crate) enum Call {
    /// Asks what is served here. Not needed before anything else.
    #[serde(rename = "initialize")]
    Initialize {
        #[serde(rename = "protocolVersion")]
        revision: Option<String>,
    },
    #[serde(rename = "ping")]
    Ping {},
    #[serde(rename = "session/subscribe")]
    Subscribe {
        /// What to send; `None`: everything that [is for all](EventKind::is_for_all).
        events: Option<Vec<EventKind>>,
        /// The last `seq` that the caller has; `None`: what comes from now on.
        since: Option<u64>,
    },
    #[serde(rename = "session/inject")]
    Inject {
        prompt: Prompt,
        #[serde(default, deserialize_with = "source")]
        source: String,
        /// When it is shown; `None`: as [`InjectMode::Append`].
        mode: Option<InjectMode>,
    },
    #[serde(rename = "session/interrupt")]
    Interrupt {
        #[serde(default, deserialize_with = "source")]
        source: String,
    },
    /// Asks the client of a driven session to work otherwise.
    #[serde(rename = "session/control")]
    Control {
        /// What the client is asked for, one of [`SUBTYPES`].
        #[serde(default)]
        subtype: String,
        #[serde(default, deserialize_with = "source")]
        source: String,
        /// Members that are the client's own.
        #[serde(flatten)]
        params: Map<String, Value>,
    },
    /// Answers a hook of the client's.
    #[serde(rename = "session/hook")]
    Hook {
        request_id: String,
        /// The client's own words.
        response: Map<String, Value>,
        #[serde(default, deserialize_with = "source")]
        source: String,
    },
    #[serde(rename = "session/stop")]
    Stop {
        #[serde(default, deserialize_with = "source")]
        source: String,
    },
    #[serde(rename = "session/status")]
    Status {},
    #[serde(rename = "session/approve")]
    Approve(Wish),
    /// Asks which mail waits for the user.
    #[serde(rename = "session/held")]
    Held {},
    /// Gives the agent a message that waits.
    #[serde(rename = "session/release")]
    Release(Choice),
    /// Tells the sender of one that the agent does not get it.
    #[serde(rename = "session/refuse")]
    Refuse(Choice),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InjectMode {
    /// After what is under way, or along with it.
    Append,
    /// The turn that is under way is to end before.
    Interrupt,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeError(pub(crate) RpcError);

impl NodeError {
    fn new(code: i64, message: impl Into<String>) -> Self {
        Self(RpcError::new(code, message))
    }

    /// The parameters are not what they should be: how.
    pub(crate) fn params(why: impl Into<String>) -> Self {
        Self::new(WRONG_PARAMS, why)
    }

    /// It cannot be done now.
    pub(crate) fn unable(why: impl Into<String>) -> Self {
        Self::new(UNABLE, why)
    }

    /// It is not for the caller.
    pub(crate) fn refused(why: impl Into<String>) -> Self {
        Self::new(CLOSED, why)
    }

    /// This gate of this file is closed.
    pub(crate) fn closed(gate: &str, file: &str, why: &str) -> Self {
        let mut error = Self::refused(format!("the gate `{gate}` is closed: {why}"));
        error.0.data = Some(json!({ "gate": gate, "file": file }));
        error
    }

    /// Nothing was tried: it is not for the caller, or a gate is closed.
    pub(crate) const fn is_refusal(&self) -> bool {
        self.0.code == CLOSED
    }
}

impl From<VerdictRefusal> for NodeError {
    fn from(refused: VerdictRefusal) -> Self {
        match refused {
            VerdictRefusal::Late(why, _) => Self::unable(why),
            VerdictRefusal::Wrong(why) => Self::params(why),
        }
    }
}

#[derive(Debug)]
pub(crate) struct NodeRequest {
    /// JSON text. `None`: a notification, which is not answered.
    pub(crate) id: Option<Box<RawValue>>,
    /// What is asked for, or why nothing can be.
    pub(crate) call: Result<Call, NodeError>,
}

/// Reads a line. `Ok(None)`: there is nothing to do about it. An error says what to answer before the
/// connection is closed.
pub(crate) fn read(line: &[u8], session: Option<&str>) -> Result<Option<NodeRequest>, NodeError> {
    let invalid = |error| {
        Ok(Some(NodeRequest {
            id: Some(RawValue::NULL.to_owned()),
            call: Err(NodeError(error)),
        }))
    };
    let message = match RpcMessage::read(line) {
        Ok(message) => message,
        Err(error) if error.code == NO_JSON => return Err(NodeError(error)),
        Err(error) => return invalid(error),
    };
    if !message.id.as_deref().is_none_or(is_id) {
        let why = "expected an `id` that is a number or a string of at most 1,024 bytes";
        return invalid(RpcError::new(INVALID_REQUEST, why));
    }
    // An answer is one to nothing that was asked here.
    let method = message.method.unwrap_or_default();
    if method.is_empty() || message.id.is_none() && method != "session/subscribe" {
        return Ok(None);
    }
    let params = message.params.as_deref().map_or("{}", RawValue::get);
    Ok(Some(NodeRequest {
        id: message.id,
        call: call(&method, params, session),
    }))
}

fn is_id(id: &RawValue) -> bool {
    match serde_json::from_str(id.get()) {
        Ok(Value::String(id)) => id.len() <= ID_MAX,
        Ok(Value::Number(_)) => id.get().len() <= ID_MAX,
        _ => false,
    }
}

fn call(method: &str, params: &str, session: Option<&str>) -> Result<Call, NodeError> {
    let Ok(Value::Object(mut params)) = serde_json::from_str(params) else {
        return Err(NodeError::params("expected `params` that are an object"));
    };
    match params.get("session_id").unwrap_or(&Value::Null) {
        Value::Null => {}
        Value::String(meant) if session.is_none_or(|session| session == meant) => {}
        Value::String(meant) => {
            let here = session.unwrap_or_default();
            return Err(NodeError::params(format!(
                "`session_id` is {}, this session's is {here:?}",
                quoted(meant)
            )));
        }
        _ => return Err(NodeError::params("expected `session_id` to be a string")),
    }
    // What is left is the method's own.
    for ours in ["session_id", "_meta"] {
        params.remove(ours);
    }
    let call = json!({ "method": method, "params": params });
    let call = serde_path_to_error::deserialize(call).map_err(|error| {
        let path = error.path().to_string();
        match path.as_str() {
            "method" => {
                let why = format!("there is no method {} here", quoted(method));
                NodeError::new(UNKNOWN_METHOD, why)
            }
            path => NodeError::params(bounded(&format!("{path}: {}", error.inner()))),
        }
    })?;
    checked(call)
}

/// What serde does not look at.
fn checked(mut call: Call) -> Result<Call, NodeError> {
    match &mut call {
        Call::Control { subtype, .. } if !SUBTYPES.contains(&subtype.as_str()) => {
            return Err(NodeError::params(format!(
                "`subtype` is {}; there are {}",
                quoted(subtype),
                SUBTYPES.join(", ")
            )));
        }
        Call::Approve(Wish { id, message, .. }) => {
            *id = id.chars().take(QUOTED_CHARS).collect();
            let long = |message: &String| message.chars().count() > MESSAGE_CHARS;
            if message.as_ref().is_some_and(long) {
                return Err(NodeError::params(format!(
                    "`message` is longer than {MESSAGE_CHARS} characters"
                )));
            }
        }
        _ => {}
    }
    Ok(call)
}

/// What a program calls itself, as far as that is kept.
fn source<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let source = Option::<String>::deserialize(from)?.unwrap_or_default();
    Ok(source.chars().take(SOURCE_CHARS).collect())
}

/// What somebody said, as an answer repeats it.
pub(crate) fn quoted(text: &str) -> String {
    format!("{:?}", text.chars().take(QUOTED_CHARS).collect::<String>())
}

/// A sentence that may repeat what was said, and says at its end what was expected.
fn bounded(text: &str) -> String {
    let (head, tail) = SENTENCE_CHARS;
    let Some(skipped) = text.chars().count().checked_sub(head + tail) else {
        return text.to_owned();
    };
    let head: String = text.chars().take(head).collect();
    let tail = text.chars().skip(head.chars().count() + skipped);
    format!("{head}…{}", tail.collect::<String>())
}

pub(crate) fn initialized(
    revision: Option<&str>,
    inject: bool,
    interrupt: bool,
    approve: bool,
) -> Value {
    let known = REVISIONS.iter().find(|known| Some(**known) == revision);
    let [.., newest] = REVISIONS;
    let session = json!({
        "subscribe": true,
        "inject": inject,
        "interrupt": interrupt,
        "approve": approve,
        "events": EventKind::ALL,
    });
    json!({
        "protocolVersion": known.unwrap_or(&newest),
        // Libraries show their programs what MCP does not define under `experimental` only.
        "capabilities": { "session": session, "experimental": { "session": session } },
        "serverInfo": { "name": "peerbus", "version": env!("CARGO_PKG_VERSION") },
    })
}

pub(crate) fn answer(id: Box<RawValue>, done: Result<Value, NodeError>) -> String {
    RpcMessage::response(id, &done.map_err(|NodeError(error)| error)).line()
}

pub(crate) fn event(params: &Value) -> String {
    RpcMessage::notification("session/event", params).line()
}

#[cfg(test)]
mod tests;
