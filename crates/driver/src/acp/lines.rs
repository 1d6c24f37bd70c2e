//! What an agent's lines say, one by one. Pure.

use std::fmt;

use peerbus_adapter::mailbox::Image;
use peerbus_node::claude_code;
use peerbus_wire::jsonrpc::{RpcError, RpcMessage};
use peerbus_wire::{escape, readable};
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::Answer;
use crate::WHY_CHARS;
use crate::protocol::{Heard, TurnEnd};

/// An agent wants its user to log in first.
const LOG_IN: i64 = -32_000;
/// Longest member of an update that is read, in bytes.
pub(crate) const LONG: usize = 64 << 10;
/// Longest answer that is read as a whole: some offer many models.
const ANSWER_MAX: usize = 1 << 20;
/// The members of an update, and of the call that a question is about, that are read.
const UPDATE: [&str; 14] = [
    "sessionUpdate",
    "toolCallId",
    "messageId",
    "status",
    "title",
    "name",
    "kind",
    "rawInput",
    "rawOutput",
    "content",
    "_meta",
    "state",
    "stopReason",
    "usage",
];
/// Those of an answer that is long.
const ANSWER: [&str; 4] = ["sessionId", "messageId", "stopReason", "usage"];
/// Longest id of a session, or of a question that is kept, in bytes.
pub(crate) const ID_MAX: usize = 1_024;
/// A line without a method within so many bytes may be an answer.
const HEAD: usize = 1_024;

/// An image of a prompt.
pub(super) fn image(image: &Image) -> Value {
    json!({ "type": "image", "mimeType": image.media_type, "data": image.data })
}

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
    as_claude_code(&json!({ "type": role, "message": { "role": role, "content": content } }))
}

/// A piece of what the agent says.
pub(super) fn piece(text: &str) -> Vec<Heard> {
    as_claude_code(&json!({ "type": "stream_event", "event": { "delta": { "text": text } } }))
}

/// What a turn came to, by the answer to its prompt.
pub(super) fn result(end: &TurnEnd, answer: &Answer) -> Vec<Heard> {
    let (subtype, errors) = match end {
        TurnEnd::Well | TurnEnd::Unproven => ("success", Vec::new()),
        TurnEnd::Stopped(why) => ("cancelled", vec![why.as_str()]),
        TurnEnd::Failed(why) => ("error", vec![why.as_str()]),
        TurnEnd::Unshown => return Vec::new(),
    };
    let is_error = subtype != "success";
    let mut line = json!({ "type": "result", "subtype": subtype, "is_error": is_error });
    if is_error {
        line["errors"] = json!(errors);
    }
    if let Ok(answer) = answer {
        for (name, theirs) in [("stop_reason", "stopReason"), ("usage", "usage")] {
            line[name] = answer[theirs].clone();
        }
    }
    as_claude_code(&line)
}

fn as_claude_code(line: &Value) -> Vec<Heard> {
    let events = claude_code::read(&line.to_string()).into_iter();
    events.map(Heard::Event).collect()
}

/// Reads members of an object, and keeps the name of the last one that it came to.
struct Named<'a, const N: usize> {
    names: [&'static str; N],
    values: [Option<&'a str>; N],
    last: String,
}

impl<'a, const N: usize> Visitor<'a> for &mut Named<'a, N> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key()? {
            self.last = name;
            // As it was written: what nests deeply is read by no other type.
            let value: &RawValue = map.next_value()?;
            if let Some(at) = self.names.iter().position(|name| **name == self.last) {
                self.values[at] = Some(value.get());
            }
        }
        Ok(())
    }
}

/// The members of an object with these names, as they were written; of several the last. Of a text that
/// is cut, those before the one in which it is, and the name of that.
pub(crate) fn cut<'a, const N: usize>(
    object: &'a str,
    names: [&'static str; N],
) -> ([Option<&'a str>; N], String) {
    let (values, last) = ([None; N], String::new());
    let mut read = Named {
        names,
        values,
        last,
    };
    // What is no object has none.
    let _ = serde_json::Deserializer::from_str(object).deserialize_map(&mut read);
    (read.values, read.last)
}

/// The members of an object that is whole.
pub(crate) fn members<'a, const N: usize>(
    object: &'a str,
    names: [&'static str; N],
) -> [Option<&'a str>; N] {
    cut(object, names).0
}

/// An object with these members of another one. As values, lists take up to a hundred times their text:
/// a member of more than so many bytes is left out, and one that is no value here; `cut` says so.
pub(crate) fn object<const N: usize>(
    object: Option<&str>,
    most: usize,
    names: [&'static str; N],
) -> Value {
    let mut read = Map::new();
    let texts = members(object.unwrap_or_default(), names);
    for (name, text) in names.into_iter().zip(texts) {
        let Some(text) = text else { continue };
        let short = Some(text).filter(|text| text.len() <= most);
        match short.and_then(|text| serde_json::from_str(text).ok()) {
            Some(value) => read.insert(name.to_owned(), value),
            None => read.insert("cut".to_owned(), true.into()),
        };
    }
    read.into()
}

/// A message, and an answer as some write it: without the version, or with both of its members.
///
/// # Errors
///
/// When it is neither.
pub(crate) fn message(line: &str) -> Result<RpcMessage, RpcError> {
    let line = readable(line);
    RpcMessage::read(line.as_bytes()).or_else(|why| loose(&line).ok_or(why))
}

fn loose(line: &str) -> Option<RpcMessage> {
    serde_json::from_str::<&RawValue>(line).ok()?;
    let read = members(line, ["id", "method", "result", "error"]);
    let [id, method, result, error] = read.map(|text| text.filter(|text| *text != "null"));
    let raw = |text: Option<&str>| RawValue::from_string(text?.to_owned()).ok();
    let done = match raw(error) {
        Some(error) => Err(error),
        None => Ok(raw(result)?),
    };
    let id = raw(id.filter(|_| method.is_none()))?;
    Some(RpcMessage::response(id, &done))
}

/// What is read of the parameters of an update.
pub(crate) fn update(params: Option<&RawValue>) -> Value {
    let params = params.map(RawValue::get);
    let [update] = members(params.unwrap_or_default(), ["update"]);
    let mut read = object(params, LONG, ["sessionId"]);
    read["update"] = object(update, LONG, UPDATE);
    if read["update"]["content"].is_null() {
        // Words are kept whole.
        let [content] = members(update.unwrap_or_default(), ["content"]);
        let [text] = members(content.unwrap_or_default(), ["text"]);
        let text = text.and_then(|text| serde_json::from_str::<String>(text).ok());
        read["update"]["content"] = text.map(|text| json!({ "text": text })).unwrap_or_default();
    }
    read
}

/// What is read of a question whether a tool may be used: of its call in either version.
pub(crate) fn question(params: Option<&RawValue>) -> Value {
    let params = params.map(RawValue::get);
    let [call, subject] = members(params.unwrap_or_default(), ["toolCall", "subject"]);
    let [other] = members(subject.unwrap_or_default(), ["toolCall"]);
    let call = call.filter(|call| *call != "null").or(other);
    let mut read = object(params, LONG, ["sessionId", "options", "_meta"]);
    read["toolCall"] = object(call, LONG, UPDATE);
    read
}

/// What is read of an answer.
pub(crate) fn answer(message: &RpcMessage) -> Option<Answer> {
    if let Some(error) = &message.error {
        let error = object(Some(error.get()), ANSWER_MAX, ["code", "message"]);
        let said = error["message"].as_str().unwrap_or_default();
        return Some(Err(RpcError::new(
            error["code"].as_i64().unwrap_or_default(),
            said,
        )));
    }
    let result = message.result.as_deref()?.get();
    let short = Some(result).filter(|result| result.len() <= ANSWER_MAX);
    let whole = short.and_then(|result| serde_json::from_str(result).ok());
    Some(Ok(
        whole.unwrap_or_else(|| object(Some(result), LONG, ANSWER))
    ))
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
