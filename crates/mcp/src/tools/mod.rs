//! The bus tools, one file each.

pub(crate) mod ack;
pub(crate) mod ask;
pub(crate) mod broadcast;
pub(crate) mod drain;
pub(crate) mod inbox;
pub(crate) mod peers;
pub(crate) mod rename;
pub(crate) mod reply;
pub(crate) mod send;
pub(crate) mod status;
mod talk;

use std::sync::Arc;
use std::time::Duration;

use peerbus_adapter::{Bus, SendError, Sent, Stage};
use peerbus_wire::neutralise_json;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::desk::Desk;
use crate::rpc::Caller;
use crate::rpc::schemars::{self, JsonSchema};
use crate::session::Reply;

/// How long a tool waits for the broker. Clients wait longer than this for an answer.
const DEADLINE: Duration = Duration::from_secs(4);

/// A tool as its client is shown it.
pub(crate) struct Tool {
    /// Dotted.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    /// JSON Schema of the arguments.
    pub(crate) input: Value,
    /// JSON Schema of the result.
    pub(crate) output: Arc<Map<String, Value>>,
    /// It changes nothing, here or elsewhere.
    pub(crate) read_only: bool,
    /// Calling it again with the same arguments changes nothing more.
    pub(crate) idempotent: bool,
    /// It reaches beyond this session.
    pub(crate) open_world: bool,
    /// The model often needs it: it is shown at once, where others wait until they are looked for.
    pub(crate) always: bool,
}

/// What a call has to do with.
pub(crate) struct Context<'a> {
    pub(crate) bus: &'a Bus,
    /// What waits for this session's agent.
    pub(crate) desk: &'a Desk,
    /// Who waits for the answer.
    pub(crate) caller: &'a Caller,
}

/// Every tool.
pub(crate) fn all() -> [Tool; 10] {
    [
        send::tool(),
        reply::tool(),
        ask::tool(),
        status::tool(),
        broadcast::tool(),
        peers::tool(),
        rename::tool(),
        inbox::tool(),
        ack::tool(),
        drain::tool(),
    ]
}

/// The tools that read what is here already: they need no link, and what they are called for goes
/// along with nothing else.
pub(crate) fn is_local(name: &str) -> bool {
    matches!(name, drain::NAME | inbox::NAME | ack::NAME)
}

/// What is known of a sent message.
#[derive(Debug, Clone, Serialize, JsonSchema)]
struct Known {
    /// The message's id.
    id: String,
    /// How far it is known to have got: `accepted`, the broker has it on disk, or `written`, the
    /// bytes left for a v1 broker, which confirms nothing.
    status: &'static str,
    /// How many peers it is owed to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    recipients: Option<u32>,
    /// How many of those are connected now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    online: Option<u32>,
}

impl From<&Sent> for Known {
    fn from(sent: &Sent) -> Self {
        let accepted = sent.accepted;
        Self {
            id: sent.id.clone(),
            status: accepted.map_or("written", |accepted| Stage::Accepted(accepted).word()),
            recipients: accepted.map(|accepted| accepted.recipients),
            online: accepted.map(|accepted| accepted.online),
        }
    }
}

/// A successful reply with this result.
fn done(result: &impl Serialize) -> Result<Reply, String> {
    let json = serde_json::to_string(result)
        .map_err(|error| format!("the answer could not be written: {error}"))?;
    Ok(Reply::Done {
        structured: neutralise_json(&json),
        taken: None,
    })
}

/// Why a message is not known to be accepted, as a sentence.
fn failure(error: &SendError) -> String {
    match error {
        // These say themselves whether it was sent.
        SendError::TimedOut { .. } | SendError::Closed => error.to_string(),
        _ => format!("not sent: {error}"),
    }
}

/// The JSON text of the message body in a call.
fn body(arguments: &crate::arguments::Arguments) -> Result<&str, String> {
    arguments.json("body").ok_or_else(|| {
        "the argument body is missing; it is the message, a text or any JSON value".to_owned()
    })
}
