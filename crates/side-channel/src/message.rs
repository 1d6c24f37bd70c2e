//! A message of MCP as text: JSON-RPC 2.0, whose members are passed on as they were written.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

/// The member that says which channel a message belongs to.
const CHANNEL: &str = "channel";

/// Where a message has its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Beside `jsonrpc`.
    Top,
    /// In `params`.
    Params,
}

/// Members of an object, each as it was written.
pub(crate) type Members = BTreeMap<String, Box<RawValue>>;

/// A request, a notification or a response.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Message {
    jsonrpc: String,
    /// Absent on a notification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<Box<RawValue>>,
    /// Absent on a response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) method: Option<String>,
    /// What a request or a notification says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) params: Option<Box<RawValue>>,
    /// A response's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<Box<RawValue>>,
    /// A response's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Box<RawValue>>,
    /// Which channel it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) channel: Option<String>,
    /// How long the asker waits, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_ms: Option<u64>,
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It has an answer.
    Request,
    /// It has none.
    Notification,
    /// It is one.
    Response,
}

impl Message {
    /// Reads a message. `None`: it is none of JSON-RPC 2.0.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let message: Self = serde_json::from_str(text).ok()?;
        let answers = message.result.is_some() != message.error.is_some();
        let fits = match message.method {
            Some(_) => message.result.is_none() && message.error.is_none(),
            None => answers && message.id.is_some(),
        };
        (message.jsonrpc == "2.0" && fits).then_some(message)
    }

    /// A request, or a notification if it has no id.
    pub(crate) fn call(
        id: Option<Box<RawValue>>,
        method: &str,
        params: Option<Box<RawValue>>,
    ) -> Self {
        Self {
            jsonrpc: "2.0".into(),
            id,
            method: Some(method.into()),
            params,
            ..Self::default()
        }
    }

    /// The response to a request.
    pub(crate) fn result(id: Box<RawValue>, result: &Value) -> Self {
        Self {
            jsonrpc: "2.0".into(),
            id: Some(id),
            result: raw(result),
            ..Self::default()
        }
    }

    /// A request is not granted.
    pub(crate) fn refusal(id: Box<RawValue>, code: i64, why: &str) -> Self {
        Self {
            jsonrpc: "2.0".into(),
            id: Some(id),
            error: raw(&json!({ "code": code, "message": why })),
            ..Self::default()
        }
    }

    /// What it is.
    pub(crate) fn kind(&self) -> Kind {
        match (&self.method, &self.id) {
            (None, _) => Kind::Response,
            (Some(_), Some(_)) => Kind::Request,
            (Some(_), None) => Kind::Notification,
        }
    }

    /// Takes the channel out of the message, and says where it was.
    pub(crate) fn take_channel(&mut self) -> Option<(String, Place)> {
        if let Some(channel) = self.channel.take() {
            return Some((channel, Place::Top));
        }
        let mut params = self.members();
        let channel = params.remove(CHANNEL)?;
        let channel = serde_json::from_str(channel.get()).ok()?;
        self.params = write(&params);
        Some((channel, Place::Params))
    }

    /// Says which channel the message belongs to. A response has no `params`.
    pub(crate) fn put_channel(&mut self, channel: &str, place: Place) {
        if place == Place::Top || self.kind() == Kind::Response {
            self.channel = Some(channel.to_owned());
            return;
        }
        let mut params = self.members();
        params.extend(raw(&channel.into()).map(|channel| (CHANNEL.to_owned(), channel)));
        self.params = write(&params);
    }

    /// The members of its `params`; none if that is no object.
    pub(crate) fn members(&self) -> Members {
        object(self.params.as_deref())
    }

    /// Replaces its `params`.
    pub(crate) fn set_members(&mut self, members: &Members) {
        self.params = write(members);
    }

    /// The code of an error.
    pub(crate) fn code(&self) -> Option<i64> {
        let error: Value = serde_json::from_str(self.error.as_ref()?.get()).ok()?;
        error["code"].as_i64()
    }

    /// The message on one line.
    pub(crate) fn text(&self) -> String {
        // Texts and JSON that was read.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// An id, however it is written: it comes back in canonical form.
pub(crate) fn key(id: &RawValue) -> String {
    let id = serde_json::from_str::<Value>(id.get());
    id.map_or_else(|_| String::new(), |id| id.to_string())
}

/// The members of an object; none of anything else.
pub(crate) fn object(value: Option<&RawValue>) -> Members {
    let read = value.and_then(|value| serde_json::from_str(value.get()).ok());
    read.unwrap_or_default()
}

/// A value as text.
pub(crate) fn raw(value: &Value) -> Option<Box<RawValue>> {
    to_raw_value(value).ok()
}

/// An object of these members.
pub(crate) fn write(members: &Members) -> Option<Box<RawValue>> {
    to_raw_value(members).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ours_is_passed_on_as_it_was_written() {
        let text = r#"{"jsonrpc":"2.0","id":1.50,"method":"tools/call","params":{"n":1e400,"channel":"mcp://a/b/1"}}"#;
        let mut message = Message::parse(text).unwrap();
        assert_eq!(
            message.take_channel(),
            Some(("mcp://a/b/1".into(), Place::Params))
        );
        let bare = r#"{"jsonrpc":"2.0","id":1.50,"method":"tools/call","params":{"n":1e400}}"#;
        assert_eq!(message.text(), bare);
        message.put_channel("mcp://a/b/1", Place::Top);
        let (channel, place) = Message::parse(&message.text())
            .unwrap()
            .take_channel()
            .unwrap();
        assert_eq!((channel.as_str(), place), ("mcp://a/b/1", Place::Top));
    }

    #[test]
    fn an_id_is_the_same_however_it_is_written() {
        for [written, comes] in [
            [r#""a<b""#, r#""a\u003cb""#],
            ["1.50", "1.5"],
            ["\"é\"", "\"\\u00e9\""],
        ] {
            let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
            assert_eq!(key(&raw(written)), key(&raw(comes)), "{written}");
        }
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert_ne!(key(&raw("1")), key(&raw("\"1\"")));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for text in [
            "",
            "[]",
            r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","result":1}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"x","result":1}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
        ] {
            assert!(Message::parse(text).is_none(), "{text}");
        }
    }
}
