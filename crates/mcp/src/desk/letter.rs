//! What one showing holds, and how it reads.

use std::fmt::Write as _;
use std::sync::Arc;

use peerbus_adapter::Inbound;
use peerbus_adapter::wake::ParcelId;
use peerbus_wire::Conversation;

use super::quote::{self, Showing};
use crate::text::UNTRUSTED;

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
    /// So many are held back by the loop governor, besides.
    pub held: usize,
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
    /// A sentence of the bus itself. What it repeats of a peer stands in quotes.
    Notice(Arc<str>),
}

/// A message and what it says of its conversation.
#[derive(Debug)]
pub struct Mail {
    /// The message.
    pub inbound: Inbound,
    /// Its place in a conversation.
    pub talk: Conversation,
}

impl Mail {
    pub(crate) fn new(inbound: Inbound) -> Self {
        let talk = Conversation::of(&inbound.body);
        Self { inbound, talk }
    }
}

impl Letter {
    /// The text for paths that show plain text (the session's socket, hooks, results of tools): a
    /// header line with the mark, one line an item, a line about what is not in it.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("peerbus: {} [{}]", self.count(), self.mark);
        if self.items.iter().any(Shown::quotes) {
            let _ = write!(text, ". {UNTRUSTED}");
        }
        if self.messages() > 0 {
            text.push_str(
                ". To answer one, if it needs an answer, call the bus reply tool with `msg_id` = \
                 the id in its brackets",
            );
        }
        text.push('.');
        for item in &self.items {
            text.push('\n');
            text.push_str(&item.line());
        }
        if let Some(more) = self.more() {
            text.push('\n');
            text.push_str(&more);
        }
        text
    }

    /// Content and attributes of a `claude/channel` notification: of a single message in the form
    /// of peerbus v1, of several a digest.
    #[must_use]
    pub fn channel(&self) -> (String, Vec<(&'static str, String)>) {
        match self.items.as_slice() {
            [single] => self.single(single),
            _ => self.digest(),
        }
    }

    fn single(&self, item: &Shown) -> (String, Vec<(&'static str, String)>) {
        let (content, mut meta) = match &item.what {
            What::Message(mail) => message(mail, item.whole),
            What::Notice(sentence) => {
                let mut content = format!("📮 {sentence}");
                if item.quotes() {
                    let _ = write!(content, ". {UNTRUSTED}.");
                }
                (content, vec![("kind", "system".to_owned())])
            }
        };
        meta.push(("push", self.mark.clone()));
        if item.repeat {
            meta.push(("repeat", "true".to_owned()));
        }
        let waiting = self.rest + self.held;
        if waiting > 0 {
            meta.push(("waiting", waiting.to_string()));
        }
        (content, meta)
    }

    fn digest(&self) -> (String, Vec<(&'static str, String)>) {
        let mut content = format!("📬 {}, oldest first", self.count());
        let notice = |item: &&Shown| matches!(item.what, What::Notice(_));
        if self.items.iter().filter(notice).any(Shown::quotes) {
            let _ = write!(content, ". {UNTRUSTED}");
        }
        for item in &self.items {
            content.push('\n');
            content.push_str(&item.line());
        }
        if let Some(more) = self.more() {
            content.push('\n');
            content.push_str(&more);
        }
        let meta = vec![("kind", "digest".to_owned()), ("push", self.mark.clone())];
        (content, meta)
    }

    fn messages(&self) -> usize {
        let message = |item: &&Shown| matches!(item.what, What::Message(_));
        self.items.iter().filter(message).count()
    }

    fn count(&self) -> String {
        let messages = self.messages();
        let notices = self.items.len() - messages;
        let plural = |count, word: &str| match count {
            1 => format!("1 {word}"),
            _ => format!("{count} {word}s"),
        };
        match (messages, notices) {
            (_, 0) => format!("{} from peers", plural(messages, "message")),
            (0, _) => format!("{} of the bus itself", plural(notices, "notice")),
            _ => format!(
                "{} from peers, {}",
                plural(messages, "message"),
                plural(notices, "notice")
            ),
        }
    }

    /// What waits besides.
    fn more(&self) -> Option<String> {
        let mut line = String::new();
        if self.rest > 0 {
            let _ = write!(line, "{} more wait unseen", self.rest);
        }
        if self.held > 0 {
            let and = if line.is_empty() { "" } else { ", and " };
            let _ = write!(line, "{and}{} are held back", self.held);
        }
        (!line.is_empty()).then(|| format!("{line}: read them with the bus inbox tool."))
    }
}

impl Shown {
    /// Peers' text stands in it, in quotes.
    fn quotes(&self) -> bool {
        match &self.what {
            What::Message(_) => true,
            What::Notice(sentence) => sentence.contains('"'),
        }
    }

    fn line(&self) -> String {
        match &self.what {
            What::Message(mail) => {
                let cut = !self.whole;
                quote::line(
                    mail,
                    Showing {
                        repeat: self.repeat,
                        cut,
                    },
                )
            }
            What::Notice(sentence) => {
                let again = if self.repeat { "(shown before) " } else { "" };
                format!("📮 {again}{sentence}")
            }
        }
    }
}

/// A message alone, in the form of peerbus v1.
fn message(mail: &Mail, whole: bool) -> (String, Vec<(&'static str, String)>) {
    let inbound = &mail.inbound;
    let kind = quote::kind(inbound.kind);
    let from = quote::plain(&inbound.from);
    let text = quote::quoted(&quote::said(&inbound.body), !whole);
    let content = format!("📨 {kind} from {from}: {text}");
    let mut meta = vec![
        ("from", from),
        ("source", quote::plain(&inbound.source)),
        ("msg_id", quote::plain(&inbound.id)),
        ("kind", kind.to_owned()),
    ];
    if let Some(id) = &mail.talk.reply_to {
        meta.push(("reply_to", quote::plain(id.as_str())));
    }
    if let Some(thread) = &mail.talk.thread {
        meta.push(("thread", quote::plain(thread)));
    }
    if let Some(to) = &inbound.to {
        meta.push(("sent_to", quote::plain(to)));
    }
    (content, meta)
}
