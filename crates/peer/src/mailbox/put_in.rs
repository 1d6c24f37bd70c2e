//! Texts that were put in here. They are shown like messages; nobody owes them, and they are no
//! peer's.

use std::sync::Arc;

use peerbus_wire::Stage;

use super::MailboxMachine;
use super::message::Message;
use super::mutation::MailboxMutation;
use super::types::{Mail, MailboxOutput};

/// Such texts that wait unseen at a time.
pub const PUT_IN_MAX: usize = 32;

impl MailboxMachine {
    /// A program here puts a text in; its mail is [local](Mail::is_local). False: too many wait already,
    /// and nothing was changed.
    #[must_use]
    pub fn put_in(&mut self, now_ms: u64, mail: &Arc<Mail>) -> bool {
        let waiting = self.messages.values().filter(|m| m.is_local()).count();
        if waiting >= PUT_IN_MAX && !self.mutations.broken(MailboxMutation::CrowdLocal) {
            return false;
        }
        self.advance(now_ms);
        let message = Message::of(mail);
        if self.hops_max.is_some() && self.mutations.broken(MailboxMutation::HoldLocal) {
            self.hold(now_ms, message, mail, "paused: like a peer's");
        } else {
            self.insert(message);
        }
        self.finish(now_ms);
        true
    }

    /// A message is so far: says so to whom that is to be told.
    pub(super) fn tell(&mut self, mail: &Arc<Mail>, stage: Stage) {
        let mail = Arc::clone(mail);
        let local = mail.is_local() && !self.mutations.broken(MailboxMutation::AckLocal);
        self.outputs.push_back(match local {
            true => MailboxOutput::Local { mail, stage },
            false => MailboxOutput::Reached { mail, stage },
        });
    }
}
