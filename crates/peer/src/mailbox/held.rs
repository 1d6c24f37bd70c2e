//! What the governor keeps out of the agent's sight.

use std::sync::Arc;

use peerbus_wire::{NameKey, Priority, Stage};

use super::MailboxMachine;
use super::message::{Message, Place};
use super::mutation::MailboxMutation;
use super::types::{Mail, MailboxOutput, No};

/// Messages of one peer that are held, and their bodies in bytes.
const HELD_MAX: usize = 32;
const HELD_BYTES_MAX: usize = 128 * 1024;

impl MailboxMachine {
    /// Keeps a message out of the agent's sight. Its sender is told; the agent and the human are of the
    /// first of that sender for a while.
    pub(super) fn hold(&mut self, now_ms: u64, mut message: Message, mail: &Arc<Mail>, why: &str) {
        let from = message.from.as_ref();
        if from.is_some_and(|from| self.paused_told.is_news(now_ms, from.as_str())) {
            let from = plain(&mail.inbound.from);
            self.warn(&format!("mail of {from} is {why}"));
            let sentence = format!("mail of {from} is {why}; the bus inbox tool reads it");
            self.put_notice(&sentence, None, Priority::Quiet);
        }
        if !self.mutations.broken(MailboxMutation::PushHeld) {
            message.place = Place::Held(why.into());
        }
        let no = self.insert(message);
        let why = format!("{why}; the recipient's agent can read it in its inbox");
        self.tell(mail, Stage::Held { why });
        self.bound_held(no);
    }

    pub(super) fn warn(&mut self, line: &str) {
        self.outputs.push_back(MailboxOutput::Warn(line.into()));
    }

    /// A peer whose mail is held fills so much of the window and no more: what is older goes along
    /// with what is shown next.
    fn bound_held(&mut self, newest: No) {
        let Some(from) = self.messages.get(&newest).and_then(|m| m.from.clone()) else {
            return;
        };
        let (mut count, mut bytes) = (0, 0);
        let mut over = Vec::new();
        for no in self.held_of(&from).into_iter().rev() {
            count += 1;
            let mail = self.messages.get(&no).and_then(|it| it.content.mail());
            bytes += mail.map_or(0, |mail| mail.inbound.body.len());
            if count > HELD_MAX || bytes > HELD_BYTES_MAX {
                over.push(no);
            }
        }
        for no in over {
            self.let_go(no);
        }
    }

    /// What is held of a peer goes along with what is shown next.
    pub(super) fn release(&mut self, from: &NameKey) {
        for no in self.held_of(from) {
            self.let_go(no);
        }
    }

    pub(super) fn held_of(&self, from: &NameKey) -> Vec<No> {
        let of_them =
            |message: &Message| message.from.as_ref() == Some(from) && message.held().is_some();
        let held = self.messages.iter().filter(|(_, m)| of_them(m));
        held.map(|(no, _)| *no).collect()
    }

    fn let_go(&mut self, no: No) {
        let Some(mut message) = self.messages.remove(&no) else {
            return;
        };
        message.priority = Priority::Quiet;
        message.place = Place::New;
        if self.mutations.broken(MailboxMutation::ReleaseLast) {
            self.insert(message);
        } else {
            self.messages.insert(no, message);
        }
    }

    /// So many messages are held, and why the last of them is.
    #[must_use]
    pub fn held(&self) -> (usize, Option<Arc<str>>) {
        let held = || self.messages.values().filter_map(Message::held);
        (held().count(), held().next_back().cloned())
    }
}

/// A text that can stand in an attribute or outside quotes, of at most 128 characters: names, ids, sources
/// and times have no other characters than these, and whoever lets one through does not get to forge an
/// attribute.
#[must_use]
pub fn plain(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._@:+-".contains(c);
    let shown = text.chars().take(128);
    shown.map(|c| if plain(c) { c } else { '_' }).collect()
}
