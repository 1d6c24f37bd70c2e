//! JSON-RPC 2.0: messages whose members stay as they were written.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// A line is no JSON.
pub const NO_JSON: i64 = -32_700;
/// It is no message.
pub const INVALID_REQUEST: i64 = -32_600;
/// There is no such method.
pub const UNKNOWN_METHOD: i64 = -32_601;
/// The parameters are not what they should be.
pub const WRONG_PARAMS: i64 = -32_602;

const VERSION: &str = "2.0";

/// A request, a notification or a response. Members that are not of JSON-RPC are left out.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RpcMessage {
    /// `2.0`; empty where an end that writes none is spoken with.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub jsonrpc: Cow<'static, str>,
    /// JSON text, `null` included. Absent on a notification.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub id: Option<Box<RawValue>>,
    /// Absent on a response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// What a request or a notification says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<Box<RawValue>>,
    /// A response's: JSON text, `null` included.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// A response's, an [`RpcError`] of the other end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<RawValue>>,
}

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RpcKind {
    /// It has an answer.
    Request,
    /// It has none.
    Notification,
    /// It is one.
    Response,
}

/// Why something that was asked is not done.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RpcError {
    /// One of JSON-RPC's or of the protocol that it carries.
    pub code: i64,
    /// A sentence.
    pub message: String,
    /// What programs read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcMessage {
    /// Reads a message.
    ///
    /// # Errors
    ///
    /// [`NO_JSON`] or [`INVALID_REQUEST`], and what is wrong: what to answer, with `null` for the id.
    pub fn read(line: &[u8]) -> Result<Self, RpcError> {
        let mut read: Self = match serde_json::from_slice(line) {
            Ok(read) => read,
            // What is no message is one without anything.
            Err(error) if error.is_data() => Self::default(),
            Err(error) => {
                let why = format!("the line is no JSON: {error}");
                return Err(RpcError::new(NO_JSON, why));
            }
        };
        // Some ends write both members of a response.
        if read.error.is_some() {
            read.result.take_if(|result| result.get() == "null");
        }
        let fits = match read.method {
            Some(_) => read.result.is_none() && read.error.is_none(),
            None => read.id.is_some() && read.result.is_some() != read.error.is_some(),
        };
        // serde reads structs from lists, too.
        if fits && read.jsonrpc == VERSION && line.trim_ascii_start().starts_with(b"{") {
            return Ok(read);
        }
        Err(RpcError::new(
            INVALID_REQUEST,
            "expected one message of JSON-RPC, no batch: an object with \"jsonrpc\": \"2.0\", and a \
             `method` that is a string, or an `id` with a `result` or an `error`",
        ))
    }

    /// A request, or a notification if it has no id.
    #[must_use]
    pub fn call(id: Option<Box<RawValue>>, method: &str, params: Option<Box<RawValue>>) -> Self {
        Self {
            jsonrpc: VERSION.into(),
            id,
            method: Some(method.to_owned()),
            params,
            ..Self::default()
        }
    }

    /// A request with a number of ours.
    #[must_use]
    pub fn request(id: u64, method: &str, params: &impl Serialize) -> Self {
        Self::call(raw(&id), method, raw(params))
    }

    /// What has no answer.
    #[must_use]
    pub fn notification(method: &str, params: &impl Serialize) -> Self {
        Self::call(None, method, raw(params))
    }

    /// The response to the request `id`.
    #[must_use]
    pub fn response(id: Box<RawValue>, done: &Result<impl Serialize, impl Serialize>) -> Self {
        let (result, error) = match done {
            Ok(result) => (raw(result), None),
            Err(error) => (None, raw(error)),
        };
        Self {
            jsonrpc: VERSION.into(),
            id: Some(id),
            result,
            error,
            ..Self::default()
        }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> RpcKind {
        match (&self.method, &self.id) {
            (None, _) => RpcKind::Response,
            (Some(_), Some(_)) => RpcKind::Request,
            (Some(_), None) => RpcKind::Notification,
        }
    }

    /// Its id, where that is a number of ours.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        self.id.as_ref()?.get().parse().ok()
    }

    /// What a response says. `None`: it is none.
    #[must_use]
    pub fn done(&self) -> Option<Result<Value, RpcError>> {
        match (&self.result, &self.error) {
            (_, Some(error)) => Some(Err(serde_json::from_str(error.get()).unwrap_or_default())),
            (Some(result), None) => serde_json::from_str(result.get()).ok().map(Ok),
            (None, None) => None,
        }
    }

    /// The message as JSON text, on one line.
    #[must_use]
    pub fn text(&self) -> String {
        // Texts and JSON that was read.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The message and the end of its line.
    #[must_use]
    pub fn line(&self) -> String {
        self.text() + "\n"
    }
}

impl RpcError {
    /// One without data.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }
}

/// A value as JSON text. `None`: it cannot be written as such.
pub fn raw(value: &(impl Serialize + ?Sized)) -> Option<Box<RawValue>> {
    to_raw_value(value).ok()
}

/// A member that is there, if only as `null`.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_on_stays_as_it_was_written() {
        for text in [
            r#"{"jsonrpc":"2.0","id":1.50,"method":"tools/call","params":{"n":1e400}}"#,
            r#"{"jsonrpc":"2.0","id":"\u00e9","result":null}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}"#,
        ] {
            assert_eq!(RpcMessage::read(text.as_bytes()).unwrap().text(), text);
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for (text, code) in [
            ("", NO_JSON),
            ("hello", NO_JSON),
            ("[]", INVALID_REQUEST),
            (r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#, INVALID_REQUEST),
            (r#"{"id":1,"method":"x"}"#, INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1}"#, INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","result":1}"#, INVALID_REQUEST),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#,
                INVALID_REQUEST,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"x","result":1}"#,
                INVALID_REQUEST,
            ),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, INVALID_REQUEST),
        ] {
            assert_eq!(
                RpcMessage::read(text.as_bytes()).unwrap_err().code,
                code,
                "{text}"
            );
        }
    }

    #[test]
    fn a_response_says_what_was_done_or_why_not() {
        let refused = RpcError::new(-32_000, "not now");
        let id = || raw(&7_u64).unwrap();
        let done = [Ok(Value::from(1)), Err(refused)];
        for done in done {
            let message = RpcMessage::response(id(), &done);
            assert_eq!((message.number(), message.done()), (Some(7), Some(done)));
        }
        assert_eq!(RpcMessage::request(1, "x", &()).done(), None);
    }
}
