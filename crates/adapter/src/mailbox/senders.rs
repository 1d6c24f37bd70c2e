//! Mail that waits for the user, who said so of its sender.

use std::sync::Arc;

use super::{Mail, Mailbox, No};
use crate::{LinkState, RegistrationRefusal};

/// Why a message cannot be decided about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undecided {
    /// None of those that wait for the user is meant.
    Unknown,
    /// Several are.
    Several,
    /// It waits no more.
    Gone,
}

impl Mailbox {
    /// Its name was ended for good, and the mail for it has expired.
    fn is_ended(&self) -> bool {
        let link = self.shared.bus.link();
        let state = link.borrow();
        matches!(
            *state,
            LinkState::Refused {
                why: RegistrationRefusal::Ended,
                ..
            }
        )
    }

    /// Why the governor keeps mail from the agent, for each message that it keeps and that is owed.
    #[must_use]
    pub fn paused(&self) -> Vec<String> {
        if self.is_ended() {
            return Vec::new();
        }
        self.machine(|it, _| it.paused().map(ToString::to_string).collect())
    }

    /// Messages that wait for the user, in order of arrival. The agent does not know of them.
    #[must_use]
    pub fn withheld(&self) -> Vec<(No, Arc<Mail>)> {
        if self.is_ended() {
            return Vec::new();
        }
        let senders = self.shared.bus.shared().senders();
        self.machine(|it, now_ms| {
            it.set_senders(now_ms, &senders);
            let waiting = it.withheld();
            waiting.map(|(no, mail)| (no, Arc::clone(mail))).collect()
        })
    }

    /// The user decides about a message: the agent gets it (`show`), or its sender is told that it
    /// does not. Gives the message.
    ///
    /// # Errors
    ///
    /// When it is not known which is meant; nothing was changed.
    pub fn decide(
        &self,
        is_meant: impl Fn(&Mail) -> bool,
        show: bool,
    ) -> Result<Arc<Mail>, Undecided> {
        let mut meant = self.withheld();
        meant.retain(|(_, mail)| is_meant(mail));
        let (no, mail) = meant.pop().ok_or(Undecided::Unknown)?;
        if !meant.is_empty() {
            return Err(Undecided::Several);
        }
        let decided = self.machine(|it, now_ms| it.decide(now_ms, no, show));
        decided.then_some(mail).ok_or(Undecided::Gone)
    }
}
