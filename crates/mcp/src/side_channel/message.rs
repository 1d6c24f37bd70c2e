//! A message of MCP as text: JSON-RPC 2.0, whose members are passed on as they were written.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use peerbus_wire::jsonrpc::{INVALID_REQUEST, RpcError, RpcMessage};
pub(crate) use peerbus_wire::jsonrpc::{RpcKind as Kind, raw};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

const CHANNEL: &str = "channel";
/// The channels that a request came through, in its `_meta`.
pub(crate) const VIA: &str = "peerbus/via";
pub(crate) const META: &str = "_meta";

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

/// A message, and what is said beside it.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Message {
    #[serde(flatten)]
    pub(crate) rpc: RpcMessage,
    #[serde(flatten)]
    pub(crate) beside: Beside,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Beside {
    /// Which channel a message belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) channel: Option<String>,
    /// How long the asker waits, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_ms: Option<u64>,
}

impl From<RpcMessage> for Message {
    fn from(rpc: RpcMessage) -> Self {
        let beside = Beside::default();
        Self { rpc, beside }
    }
}

impl Deref for Message {
    type Target = RpcMessage;

    fn deref(&self) -> &RpcMessage {
        &self.rpc
    }
}

impl DerefMut for Message {
    fn deref_mut(&mut self) -> &mut RpcMessage {
        &mut self.rpc
    }
}

impl Message {
    /// Reads a message; otherwise what is wrong.
    pub(crate) fn read(text: &str) -> Result<Self, RpcError> {
        let rpc = RpcMessage::read(text.as_bytes())?;
        let beside = serde_json::from_str(text)
            .map_err(|error| RpcError::new(INVALID_REQUEST, error.to_string()))?;
        Ok(Self { rpc, beside })
    }

    /// Reads a message. `None`: it is none of JSON-RPC 2.0.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::read(text).ok()
    }

    pub(crate) fn result(id: Box<RawValue>, result: &Value) -> Self {
        RpcMessage::response(id, &Ok::<_, ()>(result)).into()
    }

    pub(crate) fn refusal(id: Box<RawValue>, code: i64, why: &str) -> Self {
        RpcMessage::response(id, &Err::<(), _>(RpcError::new(code, why))).into()
    }

    /// The same, with what programs read.
    pub(crate) fn refusal_with(id: Box<RawValue>, code: i64, why: &str, data: Value) -> Self {
        let mut error = RpcError::new(code, why);
        error.data = Some(data);
        RpcMessage::response(id, &Err::<(), _>(error)).into()
    }

    /// Takes the channel out of the message, and says where it was.
    pub(crate) fn take_channel(&mut self) -> Option<(String, Place)> {
        if let Some(channel) = self.beside.channel.take() {
            return Some((channel, Place::Top));
        }
        let mut params = self.members();
        let channel = params.remove(CHANNEL)?;
        let channel = serde_json::from_str(channel.get()).ok()?;
        self.params = raw(&params);
        Some((channel, Place::Params))
    }

    /// Says which channel the message belongs to. A response has no `params`.
    pub(crate) fn put_channel(&mut self, channel: &str, place: Place) {
        if place == Place::Top || self.kind() == Kind::Response {
            self.beside.channel = Some(channel.to_owned());
            return;
        }
        let mut params = self.members();
        params.extend(raw(channel).map(|channel| (CHANNEL.to_owned(), channel)));
        self.params = raw(&params);
    }

    /// The members of its `params`; none if that is no object.
    pub(crate) fn members(&self) -> Members {
        object(self.params.as_deref())
    }

    pub(crate) fn failed(&self) -> Option<RpcError> {
        self.done()?.err()
    }

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

/// The channels that a request came through.
pub(crate) fn via(message: &Message) -> Vec<String> {
    let params: Members = message.members();
    let meta = object(params.get(META).map(AsRef::as_ref));
    let via = meta
        .get(VIA)
        .and_then(|via| serde_json::from_str::<Value>(via.get()).ok());
    let texts = via.iter().filter_map(Value::as_array).flatten();
    texts
        .filter_map(|text| text.as_str().map(str::to_owned))
        .collect()
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
}
