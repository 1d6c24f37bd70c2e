//! What the agent sent of late: the governor counts it under the name that answers, and the agent
//! is told how far it got.

use std::collections::VecDeque;

use peerbus_wire::{NameKey, PeerName, Receipt, Stage};

use super::Mailbox;

/// So many messages are remembered.
const SENT_MAX: usize = 256;

/// How far so many messages got is kept for the next thing that is shown.
const RECEIPTS_MAX: usize = 10;

/// A message of the agent whose recipient may have another name than it was sent to.
#[derive(Debug)]
struct Sent {
    id: String,
    to: NameKey,
    thread: Option<String>,
    /// So many replies led to it.
    hops: u32,
}

/// The last ones, oldest first.
#[derive(Debug, Default)]
pub(super) struct SentMail {
    sent: VecDeque<Sent>,
    receipts: VecDeque<Receipt>,
}

impl SentMail {
    /// So many replies can have led to an answer of this peer's to a message of this session's.
    pub(super) fn answer_hops(&self, question: &str, from: &NameKey) -> Option<u32> {
        let is_it = |sent: &&Sent| sent.id == question && sent.to == *from;
        let sent = self.sent.iter().rfind(is_it)?;
        Some(sent.hops.saturating_add(1))
    }

    /// A message of this session's got further: the newest of each is kept.
    pub(super) fn reached(&mut self, receipt: &Receipt) {
        if !matches!(
            receipt.stage,
            Stage::Pushed { .. } | Stage::Presented { .. } | Stage::Acked { .. }
        ) {
            return;
        }
        let same = |known: &Receipt| {
            known.id == receipt.id && known.to.as_deref() == receipt.to.as_deref()
        };
        self.receipts.retain(|known| !same(known));
        if self.receipts.len() >= RECEIPTS_MAX {
            self.receipts.pop_front();
        }
        self.receipts.push_back(receipt.clone());
    }
}

impl Mailbox {
    /// So many replies lead to what the agent sends now, by what it was shown in a turn that peers'
    /// mail started; 0 in any other turn.
    pub fn hops(&mut self, now_ms: u64) -> u32 {
        self.turns.send(now_ms, None)
    }

    /// As [`Mailbox::hops`], of a reply: by what it answers and nothing else that the agent was
    /// shown. `hops`: by what that message says of itself.
    pub fn reply_hops(&mut self, now_ms: u64, hops: u32) -> u32 {
        self.turns.send(now_ms, Some(hops))
    }

    /// The agent sent the message `id`, to which so many replies led, to one peer.
    pub fn sent(&mut self, now_ms: u64, to: &NameKey, id: &str, thread: Option<&str>, hops: u32) {
        if let Some(governor) = &mut self.governor {
            governor.sent(now_ms, to, thread);
        }
        let sent = &mut self.sent.sent;
        if sent.len() >= SENT_MAX {
            sent.pop_front();
        }
        sent.push_back(Sent {
            id: id.to_owned(),
            to: to.clone(),
            thread: thread.map(str::to_owned),
            hops,
        });
    }

    /// The agent sent something to everybody.
    pub fn sent_to_all(&mut self, now_ms: u64, thread: Option<&str>) {
        if let Some(governor) = &mut self.governor {
            governor.sent_to_all(now_ms, thread);
        }
    }

    /// The stages that messages of this session's reached since this was asked last: the newest of
    /// each, at most ten. They go along with the next thing that the agent is shown.
    pub fn take_receipts(&mut self) -> Vec<Receipt> {
        self.sent.receipts.drain(..).collect()
    }

    /// The broker says who got a message. It may have been sent to an old name of that peer's,
    /// which answers under its present one.
    pub(super) fn answers_as(&mut self, now_ms: u64, receipt: &Receipt) {
        let Some(at) = receipt
            .to
            .as_deref()
            .and_then(|to| PeerName::parse(to).ok())
        else {
            return;
        };
        let is_it = |sent: &&mut Sent| sent.id == receipt.id.as_str();
        let Some(sent) = self.sent.sent.iter_mut().find(is_it) else {
            return;
        };
        if std::mem::replace(&mut sent.to, at.key()) == at.key() {
            return;
        }
        if let Some(governor) = &mut self.governor {
            governor.sent(now_ms, &at.key(), sent.thread.as_deref());
        }
    }
}
