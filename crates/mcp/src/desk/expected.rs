//! Questions that wait for their answers.

use std::sync::Arc;

use peerbus_adapter::PeerName;
use peerbus_wire::{MessageId, NameKey};
use tokio::sync::oneshot;

use super::Desk;
use super::letter::Mail;
use super::taken::Taken;

/// Those who wait.
#[derive(Default)]
pub(super) struct Waiters {
    waiting: Vec<Waiter>,
    last: u64,
}

struct Waiter {
    number: u64,
    question: MessageId,
    from: Option<NameKey>,
    answer: oneshot::Sender<Arc<Mail>>,
}

impl Waiters {
    pub(super) fn wait(
        &mut self,
        question: &MessageId,
        from: &str,
    ) -> (u64, oneshot::Receiver<Arc<Mail>>) {
        self.last += 1;
        let (answer, receiver) = oneshot::channel();
        self.waiting.push(Waiter {
            number: self.last,
            question: question.clone(),
            from: PeerName::parse(from).ok().map(|name| name.key()),
            answer,
        });
        (self.last, receiver)
    }

    pub(super) fn leave(&mut self, number: u64) {
        self.waiting.retain(|waiter| waiter.number != number);
    }

    /// Gives a message to the one who waits for it, or back.
    pub(super) fn offer(&mut self, mail: Arc<Mail>) -> Option<Arc<Mail>> {
        let Some(question) = &mail.talk.reply_to else {
            return Some(mail);
        };
        let from = PeerName::parse(&mail.inbound.from)
            .ok()
            .map(|name| name.key());
        let waits = |waiter: &Waiter| waiter.question == *question && waiter.from == from;
        match self.waiting.iter().position(waits) {
            Some(at) => self.waiting.swap_remove(at).answer.send(mail).err(),
            None => Some(mail),
        }
    }
}

/// A question that waits for its answer. Dropped, the answer is ordinary mail again.
pub(crate) struct Expected {
    desk: Desk,
    number: u64,
    answer: oneshot::Receiver<Arc<Mail>>,
}

impl Expected {
    pub(super) fn new(desk: Desk, question: &MessageId, from: &str) -> Self {
        let (number, answer) = desk.with(|state, _| state.waiters.wait(question, from));
        Self {
            desk,
            number,
            answer,
        }
    }

    /// Waits for the answer. It is acked when what is returned is confirmed, and ordinary mail
    /// again when that is dropped.
    pub(crate) async fn arrived(&mut self) -> Taken {
        match (&mut self.answer).await {
            Ok(mail) => Taken::answer(self.desk.clone(), mail),
            // It was given already.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.desk.with(|state, _| state.waiters.leave(self.number));
        if let Ok(mail) = self.answer.try_recv() {
            drop(Taken::answer(self.desk.clone(), mail));
        }
    }
}
