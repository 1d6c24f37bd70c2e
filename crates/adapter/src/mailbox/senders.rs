//! Mail that waits for the user, who said so of its sender.

use std::sync::Arc;

use super::{Mail, Mailbox, No};

/// Why a message cannot be decided about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undecided {
    /// No message with this id waits for the user, or none of that sender.
    Unknown,
    /// Several senders used this id.
    Several,
}

impl Mailbox {
    /// Messages that wait for the user, in order of arrival. The agent does not know of them.
    #[must_use]
    pub fn withheld(&self) -> Vec<Arc<Mail>> {
        let waiting = self.waiting_for_user();
        waiting.into_iter().map(|(_, mail)| mail).collect()
    }

    /// The user decides about a message: the agent gets it (`show`), or its sender is told that it
    /// does not. Gives the message.
    ///
    /// # Errors
    ///
    /// When it is not known which is meant; nothing was changed.
    pub fn decide(&self, id: &str, from: Option<&str>, show: bool) -> Result<Arc<Mail>, Undecided> {
        let mut meant = self.waiting_for_user();
        let is_of =
            |mail: &Mail| from.is_none_or(|from| mail.inbound.from.eq_ignore_ascii_case(from));
        meant.retain(|(_, mail)| mail.inbound.id == id && is_of(mail));
        let (no, mail) = meant.pop().ok_or(Undecided::Unknown)?;
        if !meant.is_empty() {
            return Err(Undecided::Several);
        }
        let decided = self.with(|state, now_ms| state.machine.decide(now_ms, no, show));
        decided.then_some(mail).ok_or(Undecided::Unknown)
    }

    fn waiting_for_user(&self) -> Vec<(No, Arc<Mail>)> {
        let senders = self.shared.bus.shared().senders();
        self.with(|state, now_ms| {
            state.machine.set_senders(now_ms, &senders);
            let waiting = state.machine.withheld();
            waiting.map(|(no, mail)| (no, Arc::clone(mail))).collect()
        })
    }
}
