//! What the agent sends, and questions that wait for their answers.

use peerbus_peer::mailbox::AskId;
use peerbus_wire::{Conversation, MessageId, PeerName};

use super::{Checkout, Mailbox};

/// A question that waits for its answer. Dropped, the answer is ordinary mail again.
#[derive(Debug)]
pub struct Expected {
    mailbox: Mailbox,
    ask: AskId,
}

impl Mailbox {
    /// What the agent sends now as `talk` says, a reply excepted, with the replies that led to it: to this
    /// peer or group; `None`: to everybody.
    #[must_use]
    pub fn led_to(&self, to: Option<&str>, talk: Conversation) -> Conversation {
        let to = to.and_then(|to| PeerName::parse(to).ok());
        let to = to.map(|to| to.key());
        let hops = self.with(|state, now_ms| state.machine.hops(now_ms, to.as_ref(), talk.hops));
        Conversation { hops, ..talk }
    }

    /// The agent sent the message `id` to this peer or group; `None`: to everybody.
    pub fn sent(&self, to: Option<&str>, id: &str, talk: &Conversation) {
        let peer = to.filter(|to| !to.starts_with('#')).map(PeerName::parse);
        if let Some(Err(_)) = peer {
            return;
        }
        let peer = peer.and_then(Result::ok).map(|peer| peer.key());
        self.with(|state, now_ms| state.machine.sent(now_ms, peer.as_ref(), id, talk.hops));
    }

    /// From now on the message from `from` that replies to `question` goes to the caller.
    #[must_use]
    pub fn expect(&self, question: &MessageId, from: &str) -> Expected {
        Expected {
            mailbox: self.clone(),
            ask: self.machine(|it, _| it.expect(question, from)),
        }
    }
}

impl Expected {
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
