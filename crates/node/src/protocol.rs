//! The lines: JSON-RPC 2.0, one text a line, as MCP has it. `docs/NODE_PROTOCOL.md` has every message.

use peerbus_adapter::mailbox::SOURCE_CHARS;
use serde_json::{Map, Value, json};

use crate::approvals::{Choice, Decision, Refused, Wish};

/// The revisions of MCP that are echoed at `initialize`; others are answered with the last.
const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// What a line that is no JSON is answered before the connection is closed.
const PARSE: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const UNKNOWN_METHOD: i64 = -32601;
const WRONG_PARAMS: i64 = -32602;
/// What was asked cannot be done now.
const UNABLE: i64 = -32000;
/// A gate is closed, or what was asked is not for the caller.
const CLOSED: i64 = -32003;

/// Longest `id`, in bytes, and most that is repeated of what was said, in characters: answers wait in
/// memory for those who asked.
const ID_MAX: usize = 1_024;
const QUOTED_CHARS: usize = 64;
/// Longest sentence to the model in a verdict, in characters.
const MESSAGE_CHARS: usize = 1_000;

/// What can be asked of the client of a driven session, by its own words.
pub const SUBTYPES: [&str; 8] = [
    "set_model",
    SET_MODE,
    "set_max_thinking_tokens",
    "mcp_status",
    "mcp_reconnect",
    "mcp_toggle",
    "mcp_set_servers",
    "rewind_files",
];
pub(crate) const SET_MODE: &str = "set_permission_mode";

/// What happens in a session. The words are the protocol's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
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
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Message,
        Self::ToolCall,
        Self::ToolResult,
        Self::Status,
        Self::Bus,
        Self::ApprovalRequest,
        Self::ApprovalResolved,
    ];

    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::ToolCall => "tool_call",
            Self::ToolResult => "tool_result",
            Self::Status => "status",
            Self::Bus => "bus",
            Self::ApprovalRequest => "approval_request",
            Self::ApprovalResolved => "approval_resolved",
        }
    }
}

/// A choice of kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kinds([bool; Kind::ALL.len()]);

impl Kinds {
    /// Every kind.
    pub const ALL: Self = Self([true; Kind::ALL.len()]);

    /// Whether this one is among them.
    #[must_use]
    pub fn has(self, kind: Kind) -> bool {
        self.0.get(kind as usize).copied().unwrap_or_default()
    }

    /// Their words.
    #[must_use]
    pub fn words(self) -> Vec<&'static str> {
        let chosen = Kind::ALL.into_iter().filter(|kind| self.has(*kind));
        chosen.map(Kind::word).collect()
    }
}

/// What somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// `initialize`: with this revision of MCP.
    Initialize(String),
    /// `ping`
    Ping,
    /// `session/subscribe`
    Subscribe {
        /// What to send.
        kinds: Kinds,
        /// The last `seq` that it has; `None`: what comes from now on.
        since: Option<u64>,
    },
    /// `session/inject`
    Inject {
        /// The text.
        prompt: String,
        /// What the caller calls itself.
        source: String,
        /// The turn that is under way is to end before.
        interrupts: bool,
    },
    /// `session/interrupt`
    Interrupt {
        /// What the caller calls itself.
        source: String,
    },
    /// `session/control`
    Control {
        /// What the client is asked for, one of [`SUBTYPES`].
        subtype: String,
        /// With what.
        params: Map<String, Value>,
        /// What the caller calls itself.
        source: String,
    },
    /// `session/stop`
    Stop {
        /// What the caller calls itself.
        source: String,
    },
    /// `session/status`
    Status,
    /// `session/approve`
    Approve(Wish),
    /// `session/held`
    Held,
    /// `session/release` and `session/refuse`
    Decide(Choice),
}

/// Why something is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    code: i64,
    message: String,
    data: Option<Value>,
}

impl Error {
    fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// The parameters are not what they should be: how.
    pub fn params(why: impl Into<String>) -> Self {
        Self::new(WRONG_PARAMS, why)
    }

    /// It cannot be done now.
    pub fn unable(why: impl Into<String>) -> Self {
        Self::new(UNABLE, why)
    }

    /// It is not for the caller.
    pub fn refused(why: impl Into<String>) -> Self {
        Self::new(CLOSED, why)
    }

    /// This gate of this file is closed.
    pub fn closed(gate: &str, file: &str, why: &str) -> Self {
        let message = format!("the gate `{gate}` is closed: {why}");
        let data = Some(json!({ "gate": gate, "file": file }));
        Self {
            data,
            ..Self::new(CLOSED, message)
        }
    }

    /// Nothing was tried: it is not for the caller, or a gate is closed.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        self.code == CLOSED
    }

    /// As the answer to the request `id`.
    #[must_use]
    pub fn line(&self, id: &Value) -> String {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        line(&json!({ "jsonrpc": "2.0", "id": id, "error": error }))
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Late(..) => Self::unable(refused.to_string()),
            _ => Self::params(refused.to_string()),
        }
    }
}

/// A line that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// `None`: a notification, which is not answered.
    pub id: Option<Value>,
    /// What is asked for, or why nothing can be.
    pub call: Result<Call, Error>,
}

/// Reads a line. `Ok(None)`: there is nothing to do about it.
///
/// # Errors
///
/// When it is no JSON: what to answer before the connection is closed.
pub fn read(line: &[u8], session: Option<&str>) -> Result<Option<Request>, Error> {
    let value: Value = serde_json::from_slice(line)
        .map_err(|error| Error::new(PARSE, format!("the line is no JSON: {error}")))?;
    let invalid = |why: &str| {
        Ok(Some(Request {
            id: Some(Value::Null),
            call: Err(Error::new(INVALID_REQUEST, why)),
        }))
    };
    let Value::Object(members) = value else {
        return invalid("expected one JSON object a line; batches are not served");
    };
    if members.get("jsonrpc") != Some(&Value::from("2.0")) {
        return invalid("expected \"jsonrpc\": \"2.0\"");
    }
    let id = members.get("id");
    let is_id = |id: &Value| match id {
        Value::String(id) => id.len() <= ID_MAX,
        id => id.is_number(),
    };
    if !id.is_none_or(is_id) {
        return invalid("expected an `id` that is a number or a string of at most 1,024 bytes");
    }
    let Some(Value::String(method)) = members.get("method") else {
        // An answer, to nothing that was asked here.
        let answer = members.contains_key("result") || members.contains_key("error");
        return if answer {
            Ok(None)
        } else {
            invalid("expected a `method` that is a string")
        };
    };
    if id.is_none() && method != "session/subscribe" {
        return Ok(None);
    }
    let empty = Map::new();
    let call = match members.get("params") {
        None => call(method, Params(&empty), session),
        Some(Value::Object(params)) => call(method, Params(params), session),
        Some(_) => Err(Error::params("expected `params` that are an object")),
    };
    let id = id.cloned();
    Ok(Some(Request { id, call }))
}

fn call(method: &str, params: Params<'_>, session: Option<&str>) -> Result<Call, Error> {
    if let Some(meant) = params.text("session_id")?
        && session.is_some_and(|session| session != meant)
    {
        let here = session.unwrap_or_default();
        return Err(Error::params(format!(
            "`session_id` is {}, this session's is {here:?}",
            quoted(meant)
        )));
    }
    Ok(match method {
        "initialize" => {
            let version = params.text("protocolVersion")?;
            Call::Initialize(version.unwrap_or_default().to_owned())
        }
        "ping" => Call::Ping,
        "session/subscribe" => Call::Subscribe {
            kinds: params.kinds()?,
            since: params.since()?,
        },
        "session/inject" => {
            let prompt = params.needed("prompt", "the text to put in")?;
            let interrupts = match params.text("mode")? {
                None | Some("append") => false,
                Some("interrupt") => true,
                Some(mode) => {
                    return Err(Error::params(format!(
                        "`mode` is {}: pass \"append\" or \"interrupt\"",
                        quoted(mode)
                    )));
                }
            };
            Call::Inject {
                prompt: prompt.to_owned(),
                source: params.source()?,
                interrupts,
            }
        }
        "session/interrupt" => Call::Interrupt {
            source: params.source()?,
        },
        "session/control" => params.control()?,
        "session/stop" => Call::Stop {
            source: params.source()?,
        },
        "session/status" => Call::Status,
        "session/approve" => Call::Approve(params.wish()?),
        "session/held" => Call::Held,
        "session/release" | "session/refuse" => Call::Decide(Choice {
            id: params.needed("id", "the id of the message")?.to_owned(),
            from: params.text("from")?.map(str::to_owned),
            digest: params.text("digest")?.map(str::to_owned),
            show: method == "session/release",
        }),
        _ => {
            let why = format!("there is no method {} here", quoted(method));
            return Err(Error::new(UNKNOWN_METHOD, why));
        }
    })
}

/// What somebody said, as an answer repeats it.
fn quoted(text: &str) -> String {
    format!("{:?}", text.chars().take(QUOTED_CHARS).collect::<String>())
}

#[derive(Clone, Copy)]
struct Params<'a>(&'a Map<String, Value>);

impl<'a> Params<'a> {
    fn get(self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn text(self, name: &str) -> Result<Option<&'a str>, Error> {
        let text = |value: &'a Value| {
            let wrong = || Error::params(format!("expected `{name}` to be a string"));
            value.as_str().ok_or_else(wrong)
        };
        self.get(name).map(text).transpose()
    }

    fn needed(self, name: &str, what: &str) -> Result<&'a str, Error> {
        let missing = || Error::params(format!("`{name}` is missing: {what}"));
        self.text(name)?.ok_or_else(missing)
    }

    fn source(self) -> Result<String, Error> {
        let source = self.text("source")?.unwrap_or_default();
        Ok(source.chars().take(SOURCE_CHARS).collect())
    }

    /// What is not ours is the client's.
    fn control(self) -> Result<Call, Error> {
        let subtypes = SUBTYPES.join(", ");
        let subtype = self.needed("subtype", &format!("one of {subtypes}"))?;
        if !SUBTYPES.contains(&subtype) {
            return Err(Error::params(format!(
                "`subtype` is {}; there are {subtypes}",
                quoted(subtype)
            )));
        }
        let mut params = self.0.clone();
        for ours in ["subtype", "session_id", "source", "_meta"] {
            params.remove(ours);
        }
        Ok(Call::Control {
            subtype: subtype.to_owned(),
            params,
            source: self.source()?,
        })
    }

    fn wish(self) -> Result<Wish, Error> {
        let id = self.needed("request_id", "the request, as its event names it")?;
        let word = self.needed("decision", "\"allow\", \"deny\" or \"allow_always\"")?;
        let decision = Decision::parse(word).ok_or_else(|| {
            Error::params(format!(
                "`decision` is {}: pass \"allow\", \"deny\" or \"allow_always\"",
                quoted(word)
            ))
        })?;
        let message = self.text("message")?;
        if message.is_some_and(|message| message.chars().count() > MESSAGE_CHARS) {
            return Err(Error::params(format!(
                "`message` is longer than {MESSAGE_CHARS} characters"
            )));
        }
        Ok(Wish {
            id: id.chars().take(QUOTED_CHARS).collect(),
            decision,
            digest: self.text("digest")?.map(str::to_owned),
            rule: self.text("rule")?.map(str::to_owned),
            destination: self.text("destination")?.map(str::to_owned),
            message: message.map(str::to_owned),
        })
    }

    fn since(self) -> Result<Option<u64>, Error> {
        let number = |value: &Value| {
            let wrong = || Error::params("expected `since` to be the `seq` of an event");
            value.as_u64().ok_or_else(wrong)
        };
        self.get("since").map(number).transpose()
    }

    fn kinds(self) -> Result<Kinds, Error> {
        let Some(events) = self.get("events") else {
            return Ok(Kinds::ALL);
        };
        let wrong = || Error::params("expected `events` to be a list of words");
        let mut kinds = Kinds([false; Kind::ALL.len()]);
        for word in events.as_array().ok_or_else(wrong)? {
            let word = word.as_str().ok_or_else(wrong)?;
            let known = Kind::ALL.iter().position(|kind| kind.word() == word);
            match known.and_then(|at| kinds.0.get_mut(at)) {
                Some(chosen) => *chosen = true,
                None => {
                    let all = Kinds::ALL.words().join(", ");
                    return Err(Error::params(format!(
                        "`events` has {}; there are {all}",
                        quoted(word)
                    )));
                }
            }
        }
        Ok(kinds)
    }
}

/// The answer to `initialize`.
pub fn initialized(revision: &str, inject: bool, interrupt: bool, approve: bool) -> Value {
    let known = REVISIONS.iter().find(|known| **known == revision);
    let [.., newest] = REVISIONS;
    let session = json!({
        "subscribe": true,
        "inject": inject,
        "interrupt": interrupt,
        "approve": approve,
        "events": Kinds::ALL.words(),
    });
    json!({
        "protocolVersion": known.unwrap_or(&newest),
        // Libraries show their programs what MCP does not define under `experimental` only.
        "capabilities": { "session": session, "experimental": { "session": session } },
        "serverInfo": { "name": "peerbus", "version": env!("CARGO_PKG_VERSION") },
    })
}

/// The answer to the request `id`.
pub fn answer(id: &Value, result: &Value) -> String {
    line(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

/// An event.
pub fn event(params: &Value) -> String {
    line(&json!({ "jsonrpc": "2.0", "method": "session/event", "params": params }))
}

fn line(value: &Value) -> String {
    format!("{value}\n")
}

#[cfg(test)]
mod tests;
