//! A question whose answer somebody waits for.

use peerbus_peer::mailbox::{AskId, Mail, Portion};
use peerbus_wire::MessageId;

use super::{Checkout, Mailbox, State};

/// A question that waits for its answer. Dropped, the answer is ordinary mail again.
#[derive(Debug)]
pub struct Expected {
    mailbox: Mailbox,
    ask: AskId,
}

impl Mailbox {
    /// From now on the message from `from`, a peer or the one of a group that has it, that replies to `question`
    /// goes to the caller.
    #[must_use]
    pub fn expect(&self, question: &MessageId, from: &str) -> Expected {
        Expected {
            mailbox: self.clone(),
            ask: self.machine(|it, _| it.expect(question, from)),
        }
    }
}

impl Expected {
    /// Waits for the answer, and checks out what `has_room` of it. Dropping the future loses nothing.
    pub async fn arrived(&self, has_room: impl Fn(&Mail) -> Portion) -> Checkout {
        let ask = self.ask;
        let take = |state: &mut State, now_ms| state.machine.take_answer(now_ms, ask, &has_room);
        let attempt = self.until(take).await;
        Checkout::new(self.mailbox.clone(), Some(attempt))
    }

    /// Waits until the broker says how the question ended: its answer, if it has one, is here or on its
    /// way. Dropping the future loses nothing.
    pub async fn ended(&self) {
        let ask = self.ask;
        self.until(|state, _| state.machine.is_ended(ask).then_some(()))
            .await;
    }

    /// So many messages claimed to be the answer before the broker said who has the question.
    #[must_use]
    pub fn claims(&self) -> usize {
        self.mailbox.machine(|it, _| it.claims(self.ask))
    }

    /// Waits until more than so many do. Dropping the future loses nothing.
    pub async fn claimed(&self, seen: usize) {
        let ask = self.ask;
        self.until(|state, _| (state.machine.claims(ask) > seen).then_some(()))
            .await;
    }

    async fn until<T>(&self, found: impl Fn(&mut State, u64) -> Option<T>) -> T {
        let mut answers = self.mailbox.shared.answers.subscribe();
        loop {
            if let Some(found) = self.mailbox.with(&found) {
                return found;
            }
            // The sender lives as long as the mailbox: waiting cannot fail.
            let _ = answers.changed().await;
        }
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        let ask = self.ask;
        self.mailbox
            .with(|state, now_ms| state.machine.unexpect(now_ms, ask));
    }
}
