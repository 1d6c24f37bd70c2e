//! The lines that Claude Code and a program that drives it exchange: one JSON text a line, the same
//! over every transport.
//!
//! Documented nowhere: seen with 2.1.330 and 2.1.114, of which `testdata` has lines. Everything in
//! them is optional here.

use std::collections::BTreeMap;
use std::ops::Deref;

use peerbus_adapter::mailbox::Image;
use peerbus_wire::readable;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::protocol::Given;

/// A line, whoever wrote it. What a reader of JSON refuses in it is replaced.
#[derive(Debug, Default)]
pub(crate) struct Line(Value);

impl Deref for Line {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

/// The name of the model in what the client says in its place, such as errors.
const SYNTHETIC: &str = "<synthetic>";

impl Line {
    /// Reads a line.
    ///
    /// # Errors
    ///
    /// When it is no JSON object.
    pub(crate) fn read(text: &str) -> serde_json::Result<Self> {
        let members: Map<String, Value> = serde_json::from_str(&readable(text))?;
        Ok(Self(members.into()))
    }

    pub(crate) fn kind(&self) -> &str {
        self["type"].as_str().unwrap_or_default()
    }

    pub(crate) fn uuid(&self) -> Option<&str> {
        self["uuid"].as_str()
    }

    /// The client repeats what was sent here.
    pub(crate) fn is_replay(&self) -> bool {
        self["isReplay"] == true
    }

    /// The blocks of its message of this type.
    pub(crate) fn blocks(&self, kind: &str) -> impl Iterator<Item = &Value> {
        let blocks = self["message"]["content"].as_array().into_iter().flatten();
        blocks.filter(move |block| block["type"] == kind)
    }

    /// The answer of the model's that it is part of. `None`: it is none, but an error.
    pub(crate) fn answer(&self) -> Option<&str> {
        let failed = self["error"].is_string() || self["is_api_error_message"] == true;
        let made_up = self["message"]["model"] == SYNTHETIC;
        let id = self["message"]["id"].as_str();
        id.filter(|_| !failed && !made_up)
    }

    /// Why the turn failed that it ends; `None`: it did not. An error of the model's service has the
    /// subtype `success`.
    pub(crate) fn failed(&self) -> Option<String> {
        let subtype = self["subtype"].as_str().unwrap_or("unknown");
        if subtype == "success" && self["is_error"] != true {
            return None;
        }
        let errors: Vec<_> = texts(&self["errors"]).collect();
        let errors = errors.join("; ");
        let said = self["result"].as_str().unwrap_or_default();
        let why = if errors.is_empty() { said } else { &errors };
        Some(format!("{subtype}: {why}"))
    }

    /// The id under which it asks for something, or takes that back.
    pub(crate) fn request_id(&self) -> Option<&str> {
        self["request_id"].as_str()
    }
}

/// The texts in a list.
pub(crate) fn texts(list: &Value) -> impl Iterator<Item = &str> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(Value::as_str)
}

/// A member of a JSON object, as it was written. `None`: there is none, or it is `null`.
pub(crate) fn member(object: &str, name: &str) -> Option<Box<RawValue>> {
    let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(object).ok()?;
    members.remove(name).filter(|value| value.get() != "null")
}

/// The requests for permission that the client had asked before and still waits for, as lines of
/// their own.
pub(crate) fn pending(line: &str) -> Vec<Box<RawValue>> {
    let pending = member(line, "response")
        .and_then(|answer| member(answer.get(), "pending_permission_requests"))
        .and_then(|pending| serde_json::from_str(pending.get()).ok());
    pending.unwrap_or_default()
}

/// Asks the client for something, by its own words.
pub(crate) fn request(request_id: &str, subtype: &str, mut params: Map<String, Value>) -> String {
    params.insert("subtype".into(), subtype.into());
    json!({ "type": "control_request", "request_id": request_id, "request": params }).to_string()
}

/// Gives the client variables. Newer ones answer under the id, with those that they took.
pub(crate) fn environment(request_id: &str, variables: &Value) -> String {
    let kind = "update_environment_variables";
    json!({ "type": kind, "request_id": request_id, "variables": variables }).to_string()
}

/// A user's message, with an id of ours.
pub(crate) fn user(uuid: &str, given: Given<'_>) -> String {
    let image = |image: &&Image| {
        let Image { media_type, data } = image;
        let source = json!({ "type": "base64", "media_type": media_type, "data": data });
        json!({ "type": "image", "source": source })
    };
    let content: Value = match given.images {
        [] => given.text.into(),
        images => [json!({ "type": "text", "text": given.text })]
            .into_iter()
            .chain(images.iter().map(image))
            .collect(),
    };
    json!({
        "type": "user",
        "message": { "role": "user", "content": content },
        "parent_tool_use_id": null,
        "session_id": "",
        "uuid": uuid,
    })
    .to_string()
}

/// Answers a request with this.
pub(crate) fn success(request_id: &str, response: &impl Serialize) -> String {
    // What is written here has no maps but those with texts for keys: it cannot fail.
    let response = serde_json::to_string(response).unwrap_or_default();
    let id = json!(request_id);
    format!(
        r#"{{"type":"control_response","response":{{"subtype":"success","request_id":{id},"response":{response}}}}}"#
    )
}

/// Answers a request with a sentence on why it is not served.
pub(crate) fn failure(request_id: &str, error: &str) -> String {
    let response = json!({ "subtype": "error", "request_id": request_id, "error": error });
    json!({ "type": "control_response", "response": response }).to_string()
}
