//! What a driver needs of a protocol in which an agent is spoken with.

use std::io;

use peerbus_adapter::mailbox::{BoxFuture, Image, Path};
use peerbus_mcp::ClientInfo;
use peerbus_node::approvals::{Asked, Verdict};
use peerbus_node::{EventKind, FeedEvent};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::process::Command;

use crate::process::{AgentLines, Process};

/// Speaks with the processes of an agent, one after the other.
pub(crate) trait Protocol: Send + Sync {
    /// What its agent is called, for people.
    fn title(&self) -> &str;

    /// How text reaches the model.
    fn path(&self) -> Path;

    /// An editor has the agent, and its user the say; when it ends, nothing is started again.
    fn is_in_editor(&self) -> bool {
        false
    }

    /// Starts a process that goes on with this session, or begins one.
    fn start(&self, command: Command, resume: Option<&str>) -> io::Result<Process>;

    /// Greets a process. It is given turns once it is [`Heard::Ready`].
    fn greet<'a>(&'a self, to: &'a AgentLines) -> BoxFuture<'a, bool>;

    /// Reads a line of a process, and answers what nobody else has to decide about.
    fn hear<'a>(&'a self, to: &'a AgentLines, line: &'a str) -> BoxFuture<'a, Vec<Heard>>;

    /// Gives the model a turn, under this id. Whether it left.
    fn prompt<'a>(&'a self, to: &'a AgentLines, id: &str, given: Given<'_>) -> BoxFuture<'a, bool>;

    /// Whether a turn may have images; if not, why.
    fn takes_images(&self) -> Result<(), String> {
        Ok(())
    }

    /// The model was given the text with this mark by a tool, which answered this. Whether what comes of it will be
    /// [`Heard::Known`]; else the next answer is to it.
    fn returned(&self, mark: &str, line: &str) -> bool {
        let _ = (mark, line);
        false
    }

    /// Ends the turn that is under way.
    fn interrupt<'a>(&'a self, to: &'a AgentLines) -> BoxFuture<'a, Result<(), String>>;

    /// Asks the agent for something, by its own words.
    fn control<'a>(
        &'a self,
        to: &'a AgentLines,
        subtype: &'a str,
        params: Map<String, Value>,
    ) -> BoxFuture<'a, Result<Value, String>>;

    /// The answer to a request to use a tool, as a line. `None`: nobody waits for it any more.
    fn answer(&self, asked: &Permission, verdict: &Verdict) -> Option<String>;

    /// Whether a session can be gone on with, once an agent was met.
    fn goes_on(&self) -> bool {
        true
    }

    /// The process is about to be ended in a turn. Must not wait for an answer.
    fn leave<'a>(&'a self, to: &'a AgentLines) -> BoxFuture<'a, ()> {
        let _ = to;
        Box::pin(std::future::ready(()))
    }

    /// The process is gone: nobody waits for it any more.
    fn ended(&self);
}

/// The content that a turn gives the model.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Given<'a> {
    pub(crate) text: &'a str,
    /// It stands in the text.
    pub(crate) mark: Option<&'a str>,
    /// Those of the peers' messages in it.
    pub(crate) ids: &'a [String],
    /// Behind the text, which names them.
    pub(crate) images: &'a [&'a Image],
}

impl<'a> From<&'a str> for Given<'a> {
    fn from(text: &'a str) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }
}

/// A word of an agent.
#[derive(Debug)]
pub(crate) enum Heard {
    /// It takes turns.
    Ready,
    /// It does not, and why.
    Unready(String),
    /// It cannot be spoken with any more, and why: it is started again.
    Broken(String),
    /// Who it says it is.
    Met(ClientInfo),
    /// The session's id, and whether it has only just begun.
    Session(String, bool),
    /// Something for whoever watches.
    Event(FeedEvent),
    /// The text of the turn with this id stands in the conversation.
    Shown(String),
    /// The result of a tool stands in the conversation: its text.
    Result(String),
    /// What came of the text with this mark, as a session's history shows it, or the end of a turn in which
    /// a tool gave it to the model.
    Known(String, TurnEnd),
    /// The model's words, of the answer with this id; without one they prove nothing by themselves.
    Words {
        answer: Option<String>,
        texts: Vec<String>,
    },
    /// A turn ended: the ids that it names, and how.
    TurnEnd { ids: Vec<String>, end: TurnEnd },
    /// Somebody else's turn is under way, or not any more.
    Elsewhere(bool),
    /// It asks whether it may use a tool.
    Asks(Permission),
    /// It asks, under this id, what is to become of a hook. Its answer is written by the last.
    Hook(String, Value, fn(&str, &Value) -> String),
    /// It does not wait any more for the answer to this request.
    Withdrawn(String),
}

impl Heard {
    /// Whether more than a piece of what is said may have changed.
    pub(crate) fn is_news(&self) -> bool {
        !matches!(self, Self::Event(event) if event.kind == EventKind::Partial)
    }
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TurnEnd {
    /// What the model answered, it answered.
    Well,
    /// As if it had gone well, but nothing shows that the model had anything to do with it.
    Unproven,
    /// Somebody stopped it, in the agent's words.
    Stopped(String),
    /// The model was never given its text.
    Unshown,
    /// It failed, and why.
    Failed(String),
}

/// A request to use a tool.
#[derive(Debug)]
pub(crate) struct Permission {
    pub(crate) id: String,
    pub(crate) asked: Asked,
    /// What the tool would get, as it was written.
    pub(crate) input: Box<RawValue>,
    /// What can be answered, as the agent wrote it, where that differs from question to question.
    pub(crate) options: Value,
}
