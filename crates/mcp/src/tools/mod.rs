//! The bus tools, one file each.

mod ack;
mod ask;
mod broadcast;
pub(crate) mod drain;
mod groups;
mod inbox;
mod peers;
mod rename;
mod reply;
pub(crate) mod room;
mod send;
mod status;
mod talk;

pub use peers::peer_lines;
pub use send::{is_address, send_text};

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use peerbus_adapter::mailbox::{Checkout, Mailbox, Sum, receipt, without_marks};
use peerbus_adapter::{Bus, SendError, SentMessage, Stage};
use peerbus_wire::escape_json;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::arguments::{Argument, Arguments};
use crate::reply::Reply;
use crate::rpc::Caller;
use crate::rpc::schemars::{self, JsonSchema};
use crate::spelling::means;

/// How the member begins that ends a result.
pub(crate) const END: &str = r#""end":"["#;

/// How long a tool waits for the broker. Clients wait longer than this for an answer.
const DEADLINE: Duration = Duration::from_secs(4);

/// Members of the bodies in which an adapter asks its user's phone for an approval, and says what
/// became of it.
const ADAPTERS: [&str; 3] = ["approval", "approval_resolved", "approval_refused"];

/// A tool: what its client is shown of it, and what a call of it means.
pub(crate) struct Tool {
    /// Dotted.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    /// Schemas are made when they are asked for: kept, those of all tools would take half a megabyte of
    /// each session.
    pub(crate) input: &'static [Argument],
    /// Makes the JSON Schema of the result.
    pub(crate) output: fn() -> Map<String, Value>,
    /// It changes nothing, here or elsewhere.
    pub(crate) read_only: bool,
    /// Calling it again with the same arguments changes nothing more.
    pub(crate) idempotent: bool,
    /// It reaches beyond this session.
    pub(crate) open_world: bool,
    /// The model often needs it: it is shown at once, where others wait until they are looked for.
    pub(crate) always: bool,
    /// It reads mail: what it takes is enough, and nothing more goes along.
    pub(crate) reads: bool,
    /// It says itself which of the messages that it names were unseen.
    pub(crate) acks: bool,
    /// The link that it needs.
    pub(crate) link: Link,
    pub(crate) run: Run,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// One that is up, or comes up by itself.
    Needed,
    /// One, but it helps also where the broker has refused this session.
    EvenRefused,
    /// None: what it is about is here already.
    Unneeded,
}

type Running<'a> = Pin<Box<dyn Future<Output = Result<Reply, String>> + Send + 'a>>;
type Run = for<'a> fn(&'a Context<'a>, &'a Arguments) -> Running<'a>;

impl Tool {
    const fn new(name: &'static str, run: Run) -> Self {
        Self {
            name,
            title: "",
            description: "",
            input: &[],
            output: Map::new,
            read_only: false,
            idempotent: false,
            open_world: false,
            always: false,
            reads: false,
            acks: false,
            link: Link::Needed,
            run,
        }
    }
}

pub(crate) struct Context<'a> {
    pub(crate) bus: &'a Bus,
    /// What waits for this session's agent.
    pub(crate) mailbox: &'a Mailbox,
    /// Who waits for the answer.
    pub(crate) caller: &'a Caller,
}

/// Whether a bus tool has this name, in either spelling.
#[must_use]
pub fn is_tool(name: &str) -> bool {
    tool_title(name).is_some()
}

/// What the bus tool of this name, in either spelling, is called for people.
#[must_use]
pub fn tool_title(name: &str) -> Option<&'static str> {
    let tool = ALL.iter().find(|tool| means(name, tool.name))?;
    Some(tool.title)
}

/// Whether a tool is one of ours, by the client's name for it: of the server that an install adds, or of the plugin's.
pub(crate) fn is_tool_of_ours(name: &str) -> bool {
    let rest = name.strip_prefix("mcp__").unwrap_or_default();
    let rest = rest.strip_prefix("plugin_peerbus_").unwrap_or(rest);
    rest.strip_prefix("peerbus__").is_some_and(is_tool)
}

/// Calls of bus tools that are remembered: those of one answer run at a time.
const CALLS_MAX: usize = 64;

/// The last calls of bus tools in a conversation, by their ids.
#[derive(Debug, Default)]
pub struct BusCalls(VecDeque<String>);

impl BusCalls {
    /// Takes in a call of a tool, by the client's name for it, if that is one of ours.
    pub fn add(&mut self, tool: &str, call: Option<String>) {
        if is_tool_of_ours(tool) {
            self.0.extend(call);
            let more = self.0.len().saturating_sub(CALLS_MAX);
            self.0.drain(..more);
        }
    }

    /// Whether a result is of one of these calls.
    #[must_use]
    pub fn has(&self, call: Option<&str>) -> bool {
        self.0.iter().any(|ours| Some(&**ours) == call)
    }
}

pub(crate) static ALL: [Tool; 12] = [
    send::TOOL,
    reply::TOOL,
    ask::TOOL,
    status::TOOL,
    broadcast::TOOL,
    peers::TOOL,
    rename::TOOL,
    groups::JOIN,
    groups::LEAVE,
    inbox::TOOL,
    ack::TOOL,
    drain::TOOL,
];

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
    recipients: Option<u32>,
    /// How many of those are connected now.
    #[serde(skip_serializing_if = "Option::is_none")]
    online: Option<u32>,
}

impl Known {
    pub(super) fn id(&self) -> &str {
        &self.id
    }
}

impl From<&SentMessage> for Known {
    fn from(sent: &SentMessage) -> Self {
        let accepted = sent.accepted;
        Self {
            id: sent.id.clone(),
            status: accepted.map_or("written", |accepted| Stage::Accepted(accepted).word()),
            recipients: accepted.map(|accepted| accepted.recipients),
            online: accepted.map(|accepted| accepted.online),
        }
    }
}

/// The mark of what is returned: it is found again where the client keeps its conversation. It ends the result,
/// since clients cut what is too long; the sum of the rest stands there, too.
fn marked(mailbox: &Mailbox, checkout: &Checkout) -> String {
    let mark = checkout.attempt().map(|attempt| mailbox.mark(attempt));
    mark.map_or_else(String::new, |mark| format!("[{mark}]"))
}

/// How far messages of this session's own got since it was told last.
fn receipts(mailbox: &Mailbox) -> Vec<Value> {
    let receipts = mailbox.machine(|it, _| it.take_receipts());
    receipts.iter().filter_map(receipt).collect()
}

fn done(result: &impl Serialize) -> Result<Reply, String> {
    let mut structured = json(result)?;
    // Quotes within a text are escaped.
    if let Some(at) = structured.rfind(END) {
        let result = serde_json::from_str(&structured).map_err(unwritten)?;
        let mark = structured[at + END.len()..].split(']').next();
        let sum = Sum::of_result(&result, mark.unwrap_or_default());
        structured.insert_str(at + END.len(), &format!("{sum} "));
    }
    Ok(Reply {
        structured,
        mail: None,
    })
}

/// JSON text as it stands in a result.
fn json(it: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(it)
        .map(|json| without_marks(&escape_json(&json), END))
        .map_err(unwritten)
}

fn unwritten(error: serde_json::Error) -> String {
    format!("the answer could not be written: {error}")
}

/// Why a message is not known to be accepted, as a sentence.
fn failure(error: &SendError) -> String {
    match error {
        // These say themselves whether it was sent.
        SendError::TimedOut { .. } | SendError::Closed => error.to_string(),
        _ => format!("not sent: {error}"),
    }
}

/// The JSON text of the message body in a call. Clients are told that it is a text, because the models of
/// some get no tool with an argument of any type; JSON of every type is taken. What reads like a request for an approval, or like
/// its end, is none: its user answers those, and has to know that no model wrote them.
fn body(arguments: &Arguments) -> Result<&str, String> {
    let body = arguments.json("body").ok_or_else(|| {
        "the argument body is missing; it is the message, a text or any JSON value".to_owned()
    })?;
    sendable(body).map(|()| body)
}

/// Whether the agent may send this JSON text.
fn sendable(body: &str) -> Result<(), String> {
    // A text looks the same to whoever reads it.
    let text = serde_json::from_str::<String>(body);
    let value: Option<Value> = serde_json::from_str(text.as_deref().unwrap_or(body)).ok();
    let members = value.as_ref().and_then(Value::as_object);
    let ours = |member: &&&str| members.is_some_and(|members| members.contains_key(**member));
    match ADAPTERS.iter().find(ours) {
        None => Ok(()),
        Some(member) => Err(format!(
            "not sent: a body with the member `{member}` is how this session's adapter asks for \
             approvals, and nobody else: say it in words, or under another name"
        )),
    }
}
