//! What a driver hears of the agent that it drives, whatever that is spoken with.

use peerbus_mcp::ClientInfo;
use peerbus_node::FeedEvent;
use peerbus_node::approvals::Asked;
use serde_json::value::RawValue;

/// What an agent says.
#[derive(Debug)]
pub(crate) enum Heard {
    /// It takes turns.
    Ready,
    /// It does not, and why.
    Unready(String),
    /// Who it says it is.
    Met(ClientInfo),
    /// The session's id.
    Session(String),
    /// Something for whoever watches.
    Event(FeedEvent),
    /// A text for the model stands in the conversation, with these marks.
    Shown {
        /// Its turn's id, where it is repeated as it was sent here.
        id: Option<String>,
        marks: Vec<String>,
    },
    /// The model's words, of the answer with this id; without one they are an error's.
    Words {
        answer: Option<String>,
        texts: Vec<String>,
    },
    /// A turn ended: the ids that it names, and why it failed if it did.
    TurnEnd {
        ids: Vec<String>,
        failed: Option<String>,
    },
    /// It asks whether it may use a tool.
    Asks(Permission),
    /// It does not wait any more for the answer to this request.
    Withdrawn(String),
}

/// A request to use a tool.
#[derive(Debug)]
pub(crate) struct Permission {
    pub(crate) id: String,
    pub(crate) asked: Asked,
    /// What the tool would get, as it was written.
    pub(crate) input: Box<RawValue>,
}
