//! What is on its way to the agent in the result of a tool, or through a hook.

use std::sync::Arc;

use peerbus_peer::mailbox::{Attempt, AttemptId, AttemptItem, Content, Mail, Outcome};

use super::Mailbox;

/// Messages and notices that were taken to be shown. Dropped before [`Checkout::taken`], they go
/// back to where they were; marked as perhaps shown, if they had left.
#[must_use]
pub struct Checkout {
    mailbox: Mailbox,
    attempts: Vec<Attempt>,
    way: Way,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Here,
    Left,
    Taken,
}

impl Checkout {
    pub(super) fn new(mailbox: Mailbox, attempt: Option<Attempt>) -> Self {
        Self {
            mailbox,
            attempts: attempt.into_iter().collect(),
            way: Way::Here,
        }
    }

    /// Takes over what another one holds.
    pub fn join(&mut self, mut other: Self) {
        self.attempts.append(&mut other.attempts);
    }

    /// What is in it, in order of arrival, urgent messages first.
    pub fn items(&self) -> impl Iterator<Item = &AttemptItem> {
        let mut items: Vec<&AttemptItem> = self.attempts.iter().flat_map(|a| &a.items).collect();
        items.sort_by_key(|item| (!item.first, item.no));
        items.into_iter()
    }

    /// The messages in it, in that order.
    pub fn messages(&self) -> impl Iterator<Item = (&AttemptItem, &Arc<Mail>)> {
        self.items()
            .filter_map(|item| Some((item, item.content.mail()?)))
    }

    /// The notices in it.
    pub fn notices(&self) -> impl Iterator<Item = &str> {
        self.items().filter_map(|item| match &item.content {
            Content::Notice { sentence, .. } => Some(&**sentence),
            Content::Mail(_) => None,
        })
    }

    /// There is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }

    /// The attempt that it is, to be found in a transcript by its mark.
    #[must_use]
    pub fn attempt(&self) -> Option<AttemptId> {
        self.attempts.first().map(|attempt| attempt.id)
    }

    /// Its bytes left for the client: from now on nobody can say that it was not shown.
    pub fn left(&mut self) {
        self.way = Way::Left;
    }

    /// The client lives on after that, and may not have understood it.
    pub fn reached(&self) {
        if self.way == Way::Left {
            self.tell(Outcome::Reached);
        }
    }

    /// The client went on after it: it has it.
    pub fn taken(&mut self) {
        self.way = Way::Taken;
        self.tell(Outcome::Written);
        // Its conversation has by now what it left of it.
        self.mailbox.shared.goes_on.notify_one();
    }

    /// The client throws it away, whether it has it or not.
    pub fn cancelled(mut self) {
        if self.way == Way::Taken {
            self.way = Way::Left;
        }
    }

    fn tell(&self, outcome: Outcome) {
        for attempt in &self.attempts {
            self.mailbox.outcome(attempt.id, outcome);
        }
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        match self.way {
            Way::Here => self.tell(Outcome::Failed),
            Way::Left => self.tell(Outcome::Doubtful),
            Way::Taken => {}
        }
    }
}

impl std::fmt::Debug for Checkout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids = self.attempts.iter().map(|attempt| attempt.id);
        f.debug_list().entries(ids).finish()
    }
}
