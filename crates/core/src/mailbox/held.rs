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
    /// Keeps a message out of the agent's sight, and tells all three parties, once.
    pub(super) fn hold(&mut self, mut message: Message, mail: &Mail, reason: &str, tell: bool) {
        let why: Arc<str> = reason.into();
        if tell {
            let from = plain(&mail.inbound.from);
            self.warn(&format!("mail of {from} is {why}"));
            let sentence = format!("mail of {from} is {why}; the bus inbox tool reads it");
            self.put_notice(&sentence, None, Priority::Quiet);
        }
        if !self.mutations.broken(MailboxMutation::PushHeld) {
            message.place = Place::Held(why.clone());
        }
        let no = self.insert(message);
        let reason = format!("{why}; the recipient's agent can read it in its inbox");
        let (key, stage) = (mail.inbound.key, Stage::Held { why: reason });
        self.tell(mail, MailboxOutput::Progress { no, key, stage });
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
            bytes += self.messages.get(&no).map_or(0, body_len);
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

    fn held_of(&self, from: &NameKey) -> Vec<No> {
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
        *message.rest_mut() = Place::New;
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

fn body_len(message: &Message) -> usize {
    let mail = message.content.mail();
    mail.map_or(0, |mail| mail.inbound.body.len())
}

/// A name as it can stand in a sentence of the bus: names have no other characters than these.
pub(super) fn plain(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._@:-".contains(c);
    let shown = name.chars().take(128);
    shown.map(|c| if plain(c) { c } else { '_' }).collect()
}
