//! What the agent sent of late: the governor counts it under the name that answers.

use std::collections::VecDeque;

use peerbus_adapter::{PeerName, Receipt};
use peerbus_wire::NameKey;

use super::state::State;

/// So many messages are remembered.
const SENT_MAX: usize = 256;

/// A message of the agent whose recipient may have another name than it was sent to.
pub(super) struct Sent {
    id: String,
    to: NameKey,
    thread: Option<String>,
}

/// The last ones, oldest first.
pub(super) type SentMail = VecDeque<Sent>;

impl State {
    /// The agent sent a message to one peer.
    pub(super) fn sent(&mut self, now_ms: u64, to: &NameKey, id: &str, thread: Option<&str>) {
        let Some(governor) = &mut self.governor else {
            return;
        };
        governor.sent(now_ms, to, thread);
        if self.sent.len() >= SENT_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back(Sent {
            id: id.to_owned(),
            to: to.clone(),
            thread: thread.map(str::to_owned),
        });
    }

    /// The broker says who got a message. It may have been sent to an old name of that peer's,
    /// which answers under its present one.
    pub(super) fn got(&mut self, now_ms: u64, receipt: &Receipt) {
        let Some(at) = receipt
            .to
            .as_deref()
            .and_then(|to| PeerName::parse(to).ok())
        else {
            return;
        };
        let is_it = |sent: &Sent| sent.id == receipt.id.as_str();
        let Some(sent) = self.sent.iter().position(is_it) else {
            return;
        };
        let Some(sent) = self.sent.remove(sent) else {
            return;
        };
        if let Some(governor) = self.governor.as_mut().filter(|_| sent.to != at.key()) {
            governor.sent(now_ms, &at.key(), sent.thread.as_deref());
        }
    }
}
