//! The lines: JSON-RPC 2.0, one text a line, as MCP has it. `docs/NODE_PROTOCOL.md` has every message.

use serde_json::{Map, Value, json};

/// The revisions of MCP that are echoed at `initialize`; others are answered with the last.
const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// What a line that is no JSON is answered before the connection is closed.
const PARSE: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const UNKNOWN_METHOD: i64 = -32601;
const WRONG_PARAMS: i64 = -32602;
/// What was asked cannot be done now.
const UNABLE: i64 = -32000;
/// A gate is closed.
const CLOSED: i64 = -32003;

/// Longest `id`, in bytes, and most that is repeated of what was said, in characters: answers wait in
/// memory for those who asked.
const ID_MAX: usize = 1_024;
const QUOTED_CHARS: usize = 64;

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
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Message,
        Self::ToolCall,
        Self::ToolResult,
        Self::Status,
        Self::Bus,
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
        }
    }
}

/// Words for events that may be asked for and that no session here has.
const NEVER: [&str; 2] = ["approval_request", "approval_resolved"];

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
    },
    /// `session/status`
    Status,
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

    /// This gate of this file is closed.
    pub fn closed(gate: &str, file: &str, why: &str) -> Self {
        let message = format!("the gate `{gate}` is closed: {why}");
        let data = Some(json!({ "gate": gate, "file": file }));
        Self {
            data,
            ..Self::new(CLOSED, message)
        }
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
            let prompt = params
                .text("prompt")?
                .ok_or_else(|| Error::params("`prompt` is missing: the text to put in"))?;
            let source = params.text("source")?.unwrap_or_default().to_owned();
            match params.text("mode")? {
                None | Some("append") => {}
                Some(mode) => {
                    return Err(Error::params(format!(
                        "`mode` is {}, this session offers \"append\" only",
                        quoted(mode)
                    )));
                }
            }
            let prompt = prompt.to_owned();
            Call::Inject { prompt, source }
        }
        "session/status" => Call::Status,
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
                None if NEVER.contains(&word) => {}
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
pub fn initialized(revision: &str, inject: bool) -> Value {
    let known = REVISIONS.iter().find(|known| **known == revision);
    let [.., newest] = REVISIONS;
    json!({
        "protocolVersion": known.unwrap_or(&newest),
        "capabilities": {
            "session": {
                "subscribe": true,
                "inject": inject,
                "approve": false,
                "events": Kinds::ALL.words(),
            }
        },
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
mod tests {
    use super::*;

    fn refused(line: &str) -> (i64, String) {
        let request = read(line.as_bytes(), Some("s1")).unwrap().unwrap();
        let error = request.call.unwrap_err();
        (error.code, error.message)
    }

    fn asked(method: &str, params: &str) -> Result<Call, Error> {
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        read(line.as_bytes(), Some("s1")).unwrap().unwrap().call
    }

    #[test]
    fn a_call_is_read_with_what_it_leaves_out() {
        let kinds = Kinds::ALL;
        for (method, params, call) in [
            ("ping", "{}", Call::Ping),
            ("session/status", r#"{"session_id":"s1"}"#, Call::Status),
            ("initialize", "{}", Call::Initialize(String::new())),
            (
                "session/subscribe",
                r#"{"since":null}"#,
                Call::Subscribe { kinds, since: None },
            ),
            (
                "session/subscribe",
                r#"{"since":7,"events":["tool_call","approval_request"]}"#,
                Call::Subscribe {
                    kinds: Kinds([false, true, false, false, false]),
                    since: Some(7),
                },
            ),
            (
                "session/inject",
                r#"{"prompt":"hi","mode":"append","_meta":{}}"#,
                Call::Inject {
                    prompt: "hi".into(),
                    source: String::new(),
                },
            ),
        ] {
            assert_eq!(asked(method, params), Ok(call), "{method} {params}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_and_how() {
        for (method, params, code, says) in [
            ("session/approve", "{}", -32601, "session/approve"),
            ("session/control", "{}", -32601, "no method"),
            ("tools/list", "[]", -32602, "an object"),
            ("session/inject", "{}", -32602, "`prompt` is missing"),
            (
                "session/inject",
                r#"{"prompt":7}"#,
                -32602,
                "`prompt` to be",
            ),
            (
                "session/inject",
                r#"{"prompt":"x","mode":"interrupt"}"#,
                -32602,
                "\"interrupt\"",
            ),
            ("session/inject", r#"{"session_id":"s2"}"#, -32602, "\"s2\""),
            ("session/subscribe", r#"{"since":-1}"#, -32602, "`since`"),
            (
                "session/subscribe",
                r#"{"events":"status"}"#,
                -32602,
                "list",
            ),
            (
                "session/subscribe",
                r#"{"events":["stat"]}"#,
                -32602,
                "message, tool_call, tool_result, status, bus",
            ),
        ] {
            let error = asked(method, params).unwrap_err();
            assert_eq!(error.code, code, "{method} {params}");
            assert!(error.message.contains(says), "{}", error.message);
        }
        for (line, code, says) in [
            ("[]", -32600, "batches"),
            (r#"{"id":1,"method":"ping"}"#, -32600, "2.0"),
            (r#"{"jsonrpc":"2.0","id":1}"#, -32600, "`method`"),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#,
                -32600,
                "`id`",
            ),
        ] {
            let (found, message) = refused(line);
            assert_eq!(found, code, "{line}");
            assert!(message.contains(says), "{message}");
        }
        assert_eq!(read(b"hello", None).unwrap_err().code, -32700);
    }

    #[test]
    fn an_answer_repeats_little_of_what_was_said() {
        let long = json!("\u{7f}".repeat(100_000)).to_string();
        let short = |error: Error| assert!(error.line(&json!(1)).len() < 1_000);
        for (method, member) in [("ping", "session_id"), ("session/inject", "mode")] {
            let params = format!(r#"{{"prompt":"x","{member}":{long}}}"#);
            short(asked(method, &params).unwrap_err());
        }
        let events = format!(r#"{{"events":[{long}]}}"#);
        short(asked("session/subscribe", &events).unwrap_err());
        short(asked(&long[1..long.len() - 1], "{}").unwrap_err());
        let line = format!(r#"{{"jsonrpc":"2.0","id":{long},"method":"ping"}}"#);
        assert_eq!(refused(&line).0, -32600);
    }

    #[test]
    fn only_a_subscription_needs_no_id() {
        let read = |line: &str| super::read(line.as_bytes(), None).unwrap();
        assert_eq!(read(r#"{"jsonrpc":"2.0","method":"session/inject"}"#), None);
        assert_eq!(
            read(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#),
            None
        );
        assert_eq!(read(r#"{"jsonrpc":"2.0","id":4,"result":{}}"#), None);
        let line = r#"{"jsonrpc":"2.0","method":"session/subscribe"}"#;
        let request = read(line).unwrap();
        assert!(request.id.is_none() && request.call.is_ok());
    }

    #[test]
    fn the_capabilities_say_what_the_gate_lets_through_and_no_more() {
        let said = initialized("2024-11-05", false);
        assert_eq!(said["protocolVersion"], "2024-11-05");
        let session = &said["capabilities"]["session"];
        assert_eq!(session["inject"], false);
        assert_eq!(session["approve"], false);
        assert_eq!(initialized("1999", true)["protocolVersion"], "2025-11-25");
    }

    #[test]
    fn a_closed_gate_is_named_with_its_file() {
        let error = Error::closed("inject", "/c/sessions.toml", "`inject = false` in /c");
        let line: Value = serde_json::from_str(&error.line(&json!("a"))).unwrap();
        assert_eq!(line["id"], "a");
        assert_eq!(line["error"]["code"], -32003);
        let data = json!({ "gate": "inject", "file": "/c/sessions.toml" });
        assert_eq!(line["error"]["data"], data);
    }
}
