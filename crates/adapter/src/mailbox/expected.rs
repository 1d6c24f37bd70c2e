//! Questions that wait for their answers.

use peerbus_core::mailbox::AskId;

use super::{Checkout, Mailbox};

/// A question that waits for its answer. Dropped, the answer is ordinary mail again.
#[derive(Debug)]
pub struct Expected {
    mailbox: Mailbox,
    ask: AskId,
}

impl Expected {
    pub(super) fn new(mailbox: Mailbox, ask: AskId) -> Self {
        Self { mailbox, ask }
    }

    /// Waits for the answer, and checks it out. Dropping the future loses nothing.
    pub async fn arrived(&mut self) -> Checkout {
        let mailbox = self.mailbox.clone();
        let mut answers = mailbox.shared.answers.subscribe();
        loop {
            let attempt = mailbox.with(|state, now_ms| state.machine.take_answer(now_ms, self.ask));
            if attempt.is_some() {
                return Checkout::new(mailbox.clone(), attempt);
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
