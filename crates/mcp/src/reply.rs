//! What a tool call comes to.

use peerbus_adapter::mailbox::{Checkout, Push};
use serde_json::Value;

/// What becomes of an answer. Dropped before it is taken, the client does not have it, or at least
/// never showed that it has.
pub(crate) trait Receipt: Send {
    /// Its bytes left. The client may have it from now on.
    fn flushed(&mut self);

    /// The client lives on after that: its line arrived.
    fn reached(&mut self);

    /// The client asked for something after that: it has the answer.
    fn taken(&mut self);

    /// The client throws the answer away, taken or not.
    fn cancelled(self: Box<Self>);
}

/// The result of a tool call.
pub(crate) enum Reply {
    /// It did what it says.
    Done {
        /// JSON text of an object.
        structured: String,
        /// Told what becomes of the answer.
        receipt: Option<Box<dyn Receipt>>,
    },
    /// It did not: a sentence that the agent can act on.
    Failed(String),
}

impl Reply {
    /// Says this, too, in a member of the result.
    pub(crate) fn saying(mut self, name: &str, text: &str) -> Self {
        if let Self::Done { structured, .. } = &mut self {
            *structured = with_member(std::mem::take(structured), name, text);
        }
        self
    }

    /// Has this mail told what becomes of the answer.
    pub(crate) fn with(self, mail: Checkout) -> Self {
        match self {
            Self::Done { structured, .. } => Self::Done {
                structured,
                receipt: receipt_of(mail),
            },
            failed @ Self::Failed(_) => failed,
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

/// What is told of the answer with which mail goes; nothing where there is none.
pub(crate) fn receipt_of(mail: Checkout) -> Option<Box<dyn Receipt>> {
    (!mail.is_empty()).then(|| Box::new(mail) as Box<dyn Receipt>)
}

impl Receipt for Checkout {
    fn flushed(&mut self) {
        self.left();
    }

    fn reached(&mut self) {
        Self::reached(self);
    }

    fn taken(&mut self) {
        Self::taken(self);
    }

    fn cancelled(self: Box<Self>) {
        Self::cancelled(*self);
    }
}

/// What a client gets for a call.
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    /// What goes along with it.
    pub(crate) along: Option<(Push, Checkout)>,
}
