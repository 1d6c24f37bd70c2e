//! What the agent sent of late: messages of others are led to by it, and the agent is told how far
//! it got.

use std::collections::VecDeque;

use peerbus_wire::{NameKey, PeerName, Receipt, Stage};

use super::MailboxMachine;
use super::governor::{WAY_ROUND, is_recent};

/// So many messages are remembered.
const SENT_MAX: usize = 1_024;

/// How far so many messages got is kept for the next thing that is shown.
const RECEIPTS_MAX: usize = 10;

/// A message of the agent.
#[derive(Debug)]
struct Sent {
    id: String,
    /// Its recipient, which may have another name than it was sent to; `None`: everybody.
    to: Option<NameKey>,
    /// So many replies led to it.
    hops: u32,
    at_ms: u64,
}

/// The last ones, oldest first.
#[derive(Debug, Default)]
pub(super) struct SentMail {
    sent: VecDeque<Sent>,
    receipts: VecDeque<Receipt>,
}

impl SentMail {
    /// The hops of the message with this id, if this peer got it.
    pub(super) fn question(&self, id: &str, from: &NameKey) -> Option<u32> {
        let of = |sent: &&Sent| sent.id == id && sent.is_to(from);
        self.sent.iter().rfind(of).map(|sent| sent.hops)
    }

    /// The hops of what this peer was sent last, if that was in the last ten minutes.
    pub(super) fn last_to(&self, now_ms: u64, peer: &NameKey) -> Option<u32> {
        self.recent(now_ms)
            .find(|sent| sent.is_to(peer))
            .map(|sent| sent.hops)
    }

    /// As many hops as a message to this peer, or to everybody, can have by what others say: the last one
    /// that went there has come round.
    fn round(&self, now_ms: u64, to: Option<&NameKey>) -> u32 {
        let there = |sent: &&Sent| to.map_or(sent.to.is_none(), |to| sent.is_to(to));
        let last = self.recent(now_ms).find(there);
        last.map_or(0, |sent| sent.hops)
            .saturating_add(WAY_ROUND + 1)
    }

    /// The most hops of what was sent in the last ten minutes.
    pub(super) fn most(&self, now_ms: u64) -> u32 {
        self.recent(now_ms).map(|sent| sent.hops).max().unwrap_or(0)
    }

    /// The newest first.
    fn recent(&self, now_ms: u64) -> impl Iterator<Item = &Sent> {
        let newest = self.sent.iter().rev();
        newest.take_while(move |sent| is_recent(now_ms, sent.at_ms))
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

    /// The broker says who got a message: that peer answers under its present name.
    pub(super) fn answers_as(&mut self, receipt: &Receipt) {
        let at = receipt.to.as_deref().map(PeerName::parse);
        let is_it = |sent: &&mut Sent| sent.id == receipt.id.as_str() && sent.to.is_some();
        if let (Some(Ok(at)), Some(sent)) = (at, self.sent.iter_mut().find(is_it)) {
            sent.to = Some(at.key());
        }
    }
}

impl Sent {
    fn is_to(&self, peer: &NameKey) -> bool {
        self.to.as_ref().is_none_or(|to| to == peer)
    }
}

impl MailboxMachine {
    /// So many replies lead to what the agent sends to a peer now, or to everybody, a reply excepted: one
    /// more than to what it was shown in this turn, if peers' mail may have started it, and that only as
    /// far as it can have led there where nothing but its senders says so. `claimed`: it says so many
    /// itself.
    #[must_use]
    pub fn hops(&self, now_ms: u64, to: Option<&NameKey>, claimed: u32) -> u32 {
        let led = self.turns.led(now_ms).map_or(0, |led| {
            let said = led.said.saturating_add(1);
            said.min(self.sent.round(now_ms, to))
                .max(led.known.saturating_add(1))
        });
        claimed.min(self.most_hops(now_ms)).max(led)
    }

    /// The agent sent the message `id`, to which so many replies led, to one peer; `None`: to
    /// everybody, or to a group.
    pub fn sent(&mut self, now_ms: u64, to: Option<&NameKey>, id: &str, hops: u32) {
        let sent = &mut self.sent.sent;
        if sent.len() >= SENT_MAX {
            sent.pop_front();
        }
        sent.push_back(Sent {
            id: id.to_owned(),
            to: to.cloned(),
            hops,
            at_ms: now_ms,
        });
    }

    /// The stages that messages of this session's reached since this was asked last: the newest of
    /// each, at most ten. They go along with the next thing that the agent is shown.
    pub fn take_receipts(&mut self) -> Vec<Receipt> {
        self.sent.receipts.drain(..).collect()
    }
}
