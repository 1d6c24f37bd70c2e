//! The lines that Claude Code and a program that drives it exchange: one JSON text a line, the same
//! over every transport.
//!
//! Documented nowhere: seen with 2.1.330 and 2.1.114, of which `testdata` has lines. Everything in
//! them is optional here. What is not known is [`Said::Other`], and ends nothing.

use peerbus_wire::{lenient, readable};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

pub(crate) mod label;

/// What the client says.
#[derive(Debug)]
pub(crate) enum Said {
    /// A turn begins; which session this is.
    Init(Init),
    /// Text for the model: a user's that was sent here, or the result of a tool.
    User(User),
    /// The model's.
    Assistant(Assistant),
    /// The end of a turn.
    Result(TurnEnd),
    /// It asks, and waits for an answer.
    Request(Request),
    /// It answers what was asked here.
    Response(Response),
    /// It does not wait any more for the answer to this request.
    Cancel(String),
    /// Any other, by its type and subtype.
    Other(String),
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Init {
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) session_id: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct User {
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) uuid: Option<String>,
    /// It repeats what was sent here.
    #[serde(rename = "isReplay", default, deserialize_with = "lenient")]
    pub(crate) is_replay: Option<bool>,
    /// An agent's inside the session.
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) parent_tool_use_id: Option<String>,
    /// The words in it that may be marks of ours.
    #[serde(skip)]
    pub(crate) marks: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Assistant {
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) parent_tool_use_id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    error: Option<String>,
    #[serde(rename = "is_api_error_message", default, deserialize_with = "lenient")]
    is_api_error: Option<bool>,
    #[serde(default, deserialize_with = "lenient")]
    message: Option<Message>,
}

#[derive(Debug, Default, Deserialize)]
struct Message {
    #[serde(default, deserialize_with = "lenient")]
    id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    model: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    content: Option<Vec<Value>>,
}

/// The name of the model in what the client says in its place, such as errors.
const SYNTHETIC: &str = "<synthetic>";

impl Assistant {
    /// The answer of the model's that it is part of. `None`: it is none, but an error.
    pub(crate) fn answer(&self) -> Option<&str> {
        let message = self.message.as_ref()?;
        let failed = self.error.is_some() || self.is_api_error == Some(true);
        let made_up = message.model.as_deref() == Some(SYNTHETIC);
        message.id.as_deref().filter(|_| !failed && !made_up)
    }

    /// What it says, without calls of tools.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        let content = self.message.as_ref().and_then(|m| m.content.as_ref());
        let blocks = content.into_iter().flatten();
        blocks.filter_map(|block| match block["type"].as_str() {
            Some("text") => block["text"].as_str(),
            _ => None,
        })
    }
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct TurnEnd {
    #[serde(default, deserialize_with = "lenient")]
    subtype: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    is_error: Option<bool>,
    #[serde(default, deserialize_with = "lenient")]
    errors: Option<Vec<String>>,
    #[serde(default, deserialize_with = "lenient")]
    result: Option<String>,
    /// What it answers, where the client says so.
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) user_message_uuids: Option<Vec<String>>,
}

impl TurnEnd {
    /// Why the turn failed; `None`: it did not. An error of the model's service has the subtype
    /// `success`.
    pub(crate) fn failed(&self) -> Option<String> {
        let subtype = self.subtype.as_deref().unwrap_or("unknown");
        if subtype == "success" && self.is_error != Some(true) {
            return None;
        }
        let errors = self.errors.as_deref().unwrap_or_default().join("; ");
        let said = self.result.clone().unwrap_or_default();
        let why = if errors.is_empty() { said } else { errors };
        Some(format!("{subtype}: {why}"))
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Request {
    pub(crate) request_id: String,
    pub(crate) request: Asked,
}

/// What is asked, whatever it is.
#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) subtype: Option<String>,
    /// Of `can_use_tool`.
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) tool_name: Option<String>,
    /// Of `can_use_tool`: the server of the tool, where the client says so.
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) mcp_server: Option<McpServer>,
    /// Of `can_use_tool`, as it was written.
    #[serde(default)]
    pub(crate) input: Option<Box<RawValue>>,
    /// Of `can_use_tool`: the rules and modes that the client offers to change.
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) permission_suggestions: Option<Vec<Value>>,
    /// Of `can_use_tool`.
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) description: Option<String>,
    /// Of `can_use_tool`.
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) blocked_path: Option<String>,
    /// Of `can_use_tool`.
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) decision_reason: Option<String>,
    /// Of `can_use_tool`: the agent inside the session that asks.
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) agent_id: Option<String>,
    /// Of `mcp_message`, as it was written.
    #[serde(default)]
    pub(crate) message: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct McpServer {
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) source: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Response {
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) response: Option<Answered>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Answered {
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) request_id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) error: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) response: Option<Value>,
    /// Requests that it had asked before and still waits for.
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) pending_permission_requests: Option<Vec<Request>>,
}

impl Answered {
    /// What it answers, or its sentence on why not.
    pub(crate) fn result(self) -> Result<Value, String> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.response.unwrap_or_default()),
        }
    }
}

/// What sorts a line.
#[derive(Deserialize)]
struct Head {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    subtype: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    request_id: Option<String>,
}

impl Said {
    /// Reads a line.
    ///
    /// # Errors
    ///
    /// When it is no JSON object, or a request that cannot be answered.
    pub(crate) fn read(line: &str) -> serde_json::Result<Self> {
        let head: Head = serde_json::from_str(line)?;
        let kind = head.kind.unwrap_or_default();
        Ok(match (kind.as_str(), head.subtype.as_deref()) {
            ("system", Some("init")) => Self::Init(serde_json::from_str(line)?),
            ("user", _) => {
                let mut user: User = serde_json::from_str(&readable(line))?;
                user.marks = marks(line);
                Self::User(user)
            }
            // Models write half of a surrogate pair now and then.
            ("assistant", _) => Self::Assistant(serde_json::from_str(&readable(line))?),
            ("result", _) => Self::Result(serde_json::from_str(&readable(line))?),
            ("control_request", _) => Self::Request(serde_json::from_str(line)?),
            ("control_response", _) => Self::Response(serde_json::from_str(line)?),
            ("control_cancel_request", _) => Self::Cancel(head.request_id.unwrap_or_default()),
            (_, Some(subtype)) => Self::Other(format!("{kind}/{subtype}")),
            (_, None) => Self::Other(kind),
        })
    }
}

/// Words that may be marks of a push. The mailbox knows which are.
fn marks(line: &str) -> Vec<String> {
    let words = line.match_indices("pb-").map(|(at, _)| {
        let word = &line[at..];
        let end = word.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
        word[..end.unwrap_or(word.len())].to_owned()
    });
    let mut found: Vec<String> = words.collect();
    found.dedup();
    found
}

/// Names the MCP server behind this stream, and what the model is told beside its instructions.
pub(crate) fn initialize(request_id: &str, server: &str, instructions: &str) -> String {
    let request = json!({
        "subtype": "initialize",
        "sdkMcpServers": [server],
        "appendSystemPrompt": instructions,
    });
    json!({ "type": "control_request", "request_id": request_id, "request": request }).to_string()
}

/// Asks the client for something, by its own words.
pub(crate) fn request(request_id: &str, subtype: &str, mut params: Map<String, Value>) -> String {
    params.insert("subtype".into(), subtype.into());
    json!({ "type": "control_request", "request_id": request_id, "request": params }).to_string()
}

/// A user's message, with an id of ours.
pub(crate) fn user(uuid: &str, text: &str) -> String {
    json!({
        "type": "user",
        "message": { "role": "user", "content": text },
        "parent_tool_use_id": null,
        "session_id": "",
        "uuid": uuid,
    })
    .to_string()
}

#[derive(Serialize)]
struct Reply<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    response: Success<'a>,
}

#[derive(Serialize)]
struct Success<'a> {
    subtype: &'static str,
    request_id: &'a str,
    response: &'a RawValue,
}

/// Answers a request with this.
pub(crate) fn success(request_id: &str, response: &impl Serialize) -> String {
    // What is written here has no maps but those with texts for keys: it cannot fail.
    let response = to_raw_value(response).unwrap_or_default();
    let response = Success {
        subtype: "success",
        request_id,
        response: &response,
    };
    let kind = "control_response";
    serde_json::to_string(&Reply { kind, response }).unwrap_or_default()
}

/// Answers a request with a sentence on why it is not served.
pub(crate) fn failure(request_id: &str, error: &str) -> String {
    let response = json!({ "subtype": "error", "request_id": request_id, "error": error });
    json!({ "type": "control_response", "response": response }).to_string()
}

/// Takes back a request of the client's, as it does itself.
pub(crate) fn cancel(request_id: &str) -> String {
    json!({ "type": "control_cancel_request", "request_id": request_id }).to_string()
}

/// Says only that somebody is there.
pub(crate) fn keep_alive() -> String {
    json!({ "type": "keep_alive" }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_a_real_stream_is_understood_or_carried_on() {
        for lines in [
            include_str!("../testdata/2.1.330.ndjson"),
            include_str!("../testdata/2.1.114.ndjson"),
        ] {
            let mut other = Vec::new();
            let mut asked = Vec::new();
            for line in lines.lines() {
                match Said::read(line).unwrap() {
                    Said::Other(kind) => other.push(kind),
                    Said::Init(init) => assert!(init.session_id.is_some()),
                    Said::Request(request) => asked.extend(request.request.subtype),
                    _ => {}
                }
            }
            other.dedup();
            assert!(
                other.is_empty() || other == ["command_lifecycle"],
                "{other:?}"
            );
            asked.dedup();
            let wanted = ["mcp_message", "can_use_tool", "mcp_message", "can_use_tool"];
            assert_eq!(asked, wanted);
        }
    }

    #[test]
    fn what_has_another_form_says_nothing_and_ends_nothing() {
        let read = |line| Said::read(line).unwrap();
        assert!(matches!(read(r#"{"type":7}"#), Said::Other(kind) if kind.is_empty()));
        assert!(
            matches!(read(r#"{"type":"new","subtype":"er"}"#), Said::Other(k) if k == "new/er")
        );
        let Said::Assistant(said) = read(r#"{"type":"assistant","message":{"content":"x"}}"#)
        else {
            panic!("an assistant's");
        };
        assert_eq!((said.answer(), said.texts().count()), (None, 0));
        let half =
            r#"{"type":"assistant","message":{"content":[{"type":"text","text":"half \ud82d"}]}}"#;
        let Said::Assistant(said) = read(half) else {
            panic!("an assistant's");
        };
        assert_eq!(said.texts().collect::<Vec<_>>(), ["half \u{fffd}"]);
        assert!(Said::read("no JSON").is_err());
        assert!(Said::read(r#"{"type":"control_request"}"#).is_err());
    }

    #[test]
    fn what_is_answered_is_what_was_written() {
        let line = r#"{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","input":{"n":1.50,"n":1e400}}}"#;
        let Said::Request(asked) = Said::read(line).unwrap() else {
            panic!("a request");
        };
        let input = asked.request.input.unwrap();
        let verdict = crate::permission::Verdict::Allow {
            input: &input,
            rules: None,
        };
        let said = success("r", &verdict);
        assert!(
            said.contains(r#""updatedInput":{"n":1.50,"n":1e400}"#),
            "{said}"
        );
    }
}
