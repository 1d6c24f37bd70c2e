//! What one showing holds.

use std::sync::Arc;

use peerbus_adapter::Inbound;
use peerbus_adapter::wake::ParcelId;
use peerbus_wire::Conversation;

/// One showing over a path that nobody asked for: messages and notices, in order of arrival.
#[derive(Debug, Clone)]
pub struct Letter {
    /// Its name in the ladder.
    pub parcel: ParcelId,
    /// What identifies its text in a transcript.
    pub mark: String,
    /// What is shown.
    pub items: Vec<Shown>,
    /// So many more wait unseen and are not in it.
    pub rest: usize,
    /// So many of the governor's are held, besides.
    pub held: usize,
    /// A sender marked something in it as urgent.
    pub urgent: bool,
}

/// An item of a letter.
#[derive(Debug, Clone)]
pub struct Shown {
    /// What it is.
    pub what: What,
    /// It may have been shown before.
    pub repeat: bool,
    /// All of it is shown; otherwise its beginning.
    pub whole: bool,
}

/// A message or a notice.
#[derive(Debug, Clone)]
pub enum What {
    /// A peer's message. Untrusted, as it came.
    Message(Arc<Mail>),
    /// A sentence of the bus itself, in which peers' text is neutralised.
    Notice(String),
}

/// A message and what it says of its conversation.
#[derive(Debug)]
pub struct Mail {
    /// The message.
    pub inbound: Inbound,
    /// Its place in a conversation.
    pub talk: Conversation,
}

impl Letter {
    /// The text for paths that show plain text (the session's socket, hooks): a header line with
    /// the mark, one line an item, a line about the rest.
    #[must_use]
    pub fn text(&self) -> String {
        String::new()
    }

    /// Content and attributes of a `claude/channel` notification: of a single message in the form
    /// of peerbus v1, of several a digest.
    #[must_use]
    pub fn channel(&self) -> (String, Vec<(&'static str, String)>) {
        (String::new(), Vec::new())
    }
}
