//! What became of our own messages, kept until the host takes it or, where the broker keeps it,
//! until it is told.

use std::collections::{BTreeMap, VecDeque};

use peerbus_wire::{DeliveryKey, MessageId, Receipt};

use super::PeerSession;
use super::types::{NoticeId, SessionEvent};

/// Most statements that are kept for the host, or that it took and did not tell. Those that can be asked for again make room for
/// newer ones; those that the broker keeps are then left to the broker.
pub(super) const NOTICES_MAX: usize = 1_024;
/// Most statements that are remembered as told, to recognise one that comes again.
const TOLD_MAX: usize = 4_096;

type Kept = (DeliveryKey, MessageId);

/// Statements for the host.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// Those that the broker told once.
    passing: VecDeque<SessionEvent>,
    /// Those that the broker repeats until they are acked: until the host takes one, what it says.
    kept: BTreeMap<NoticeId, (Kept, Option<Receipt>)>,
    next: u64,
    told: VecDeque<Kept>,
}

impl Notices {
    /// A statement that the broker does not keep.
    pub(super) fn push(&mut self, event: SessionEvent) {
        if self.passing.len() >= NOTICES_MAX {
            self.passing.pop_front();
        }
        self.passing.push_back(event);
    }

    /// A statement that the broker keeps under `key`. `true` when it was told: ack it.
    pub(super) fn arrive(&mut self, key: DeliveryKey, receipt: Receipt) -> bool {
        let notice = (key, receipt.id.clone());
        if self.told.contains(&notice) {
            return true;
        }
        let known = self.kept.values().any(|(kept, _)| *kept == notice);
        if !known && self.kept.len() < NOTICES_MAX {
            self.kept
                .insert(NoticeId(self.next), (notice, Some(receipt)));
            self.next += 1;
        }
        false
    }

    /// The next statement.
    pub(super) fn take(&mut self) -> Option<SessionEvent> {
        if let Some(event) = self.passing.pop_front() {
            return Some(event);
        }
        let mut kept = self.kept.iter_mut();
        kept.find_map(|(id, (_, receipt))| {
            let (id, receipt) = (Some(*id), receipt.take()?);
            Some(SessionEvent::Notice { receipt, id })
        })
    }

    /// The host told it; gives what to ack.
    pub(super) fn told(&mut self, id: NoticeId) -> Option<DeliveryKey> {
        let (notice, _) = self.kept.remove(&id)?;
        if self.told.len() >= TOLD_MAX {
            self.told.pop_front();
        }
        let key = notice.0.clone();
        self.told.push_back(notice);
        Some(key)
    }

    /// The process goes by another name now, for which the broker keeps none of these: what is
    /// left of them is shown all the same.
    pub(super) fn disown(&mut self) {
        self.told.clear();
        for (_, receipt) in std::mem::take(&mut self.kept).into_values() {
            if let Some(receipt) = receipt {
                self.push(SessionEvent::Notice { receipt, id: None });
            }
        }
    }

    pub(super) fn has_event(&self) -> bool {
        // The host takes the oldest first.
        let newest = self.kept.last_key_value();
        !self.passing.is_empty() || newest.is_some_and(|(_, (_, receipt))| receipt.is_some())
    }

    pub(super) fn close(&mut self) {
        self.passing.clear();
        self.kept.clear();
    }

    pub(super) fn check(&self) {
        assert!(self.passing.len() <= NOTICES_MAX);
        assert!(self.kept.len() <= NOTICES_MAX);
        assert!(self.told.len() <= TOLD_MAX);
    }
}

impl PeerSession {
    /// The statement was told to the agent or the person it is for: the broker need not keep it.
    /// Repeating it does no harm.
    pub fn ack_notice(&mut self, id: NoticeId) {
        if let Some(key) = self.notices.told(id) {
            self.ack_delivery(key, None);
        }
    }
}
