//! The results of tool calls.

use peerbus_adapter::mailbox::{Checkout, Push};
use serde_json::Value;

/// The outcome of a tool.
pub(crate) struct Reply {
    /// JSON text of an object.
    pub(crate) structured: String,
    /// The mail in it, which is told what becomes of the answer.
    pub(crate) mail: Option<Checkout>,
}

impl Reply {
    /// Says this, too, in a member of the result.
    pub(crate) fn saying(self, name: &str, text: &str) -> Self {
        Self {
            structured: with_member(self.structured, name, text),
            ..self
        }
    }

    /// Has this mail told what becomes of the answer.
    pub(crate) fn with(self, mail: Checkout) -> Self {
        Self {
            mail: Some(mail),
            ..self
        }
    }
}

/// An object as JSON text, with another member at its end, a text.
pub(crate) fn with_member(mut object: String, name: &str, text: &str) -> String {
    if object.pop() != Some('}') {
        return object;
    }
    let comma = if object.ends_with('{') { "" } else { "," };
    format!(r#"{object}{comma}"{name}":{}}}"#, Value::from(text))
}

pub(crate) struct Answer {
    /// `Err` is a sentence that the agent can act on.
    pub(crate) reply: Result<Reply, String>,
    /// What goes along with it.
    pub(crate) along: Option<(Push, Checkout)>,
}
