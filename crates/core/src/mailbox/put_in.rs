//! Texts that were put in here. They are shown like messages; nobody owes them, and they are no
//! peer's.

use std::sync::Arc;

use peerbus_wire::Stage;

use super::MailboxMachine;
use super::message::{Message, Place};
use super::mutation::MailboxMutation;
use super::types::{Content, Mail, MailboxOutput, Traits};

/// Such texts that wait unseen at a time.
pub const PUT_IN_MAX: usize = 32;

/// [`PUT_IN_MAX`] texts wait unseen already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl MailboxMachine {
    /// A program here puts a text in; its mail is [local](Mail::is_local).
    ///
    /// # Errors
    ///
    /// When too many wait; nothing was changed.
    pub fn put_in(&mut self, now_ms: u64, mail: Arc<Mail>) -> Result<(), Full> {
        let waiting = self.messages.values().filter(|m| m.is_local()).count();
        if waiting >= PUT_IN_MAX && !self.mutations.broken(MailboxMutation::CrowdLocal) {
            return Err(Full);
        }
        self.advance(now_ms);
        let traits = Traits {
            priority: mail.talk.priority,
            bytes: mail.bytes,
            again: false,
        };
        let message = Message::new(Content::Mail(Arc::clone(&mail)), traits, Place::New);
        if self.hops_max.is_some() && self.mutations.broken(MailboxMutation::HoldLocal) {
            self.hold(message, &mail, "paused: like a peer's", false);
        } else {
            self.insert(message);
        }
        self.finish(now_ms);
        Ok(())
    }

    /// Says what becomes of a message to whom that is to be told.
    pub(super) fn tell(&mut self, mail: &Mail, output: MailboxOutput) {
        let local = mail.is_local() && !self.mutations.broken(MailboxMutation::AckLocal);
        self.outputs.push_back(match output {
            MailboxOutput::Ack { key, how, .. } if local => {
                let stage = Stage::Acked(Some(how));
                MailboxOutput::Local { key, stage }
            }
            MailboxOutput::Reject { key, reason, .. } if local => {
                let stage = Stage::Dead { why: reason.into() };
                MailboxOutput::Local { key, stage }
            }
            MailboxOutput::Progress { key, stage, .. } if local => {
                MailboxOutput::Local { key, stage }
            }
            output => output,
        });
    }
}
