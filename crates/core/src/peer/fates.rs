//! What became of our own messages, kept until the host takes it.

use std::collections::VecDeque;

use peerbus_wire::{DeliveryKey, MessageId, Receipt};

use super::types::Event;

/// Most statements that are kept for the host. Those that can be asked for again make room for
/// newer ones; those that the broker keeps are then left to the broker.
pub(super) const FATES_MAX: usize = 1_024;
/// Most statements that are remembered as told, to recognise one that comes again.
const TOLD_MAX: usize = 4_096;

type Notice = (DeliveryKey, MessageId);

/// Statements for the host.
#[derive(Debug, Default)]
pub(super) struct Fates {
    /// Those that the broker told once.
    passing: VecDeque<Event>,
    /// Those that the broker repeats until they are acked.
    kept: VecDeque<(Notice, Receipt)>,
    told: VecDeque<Notice>,
}

impl Fates {
    /// A statement that the broker does not keep.
    pub(super) fn push(&mut self, event: Event) {
        if self.passing.len() >= FATES_MAX {
            self.passing.pop_front();
        }
        self.passing.push_back(event);
    }

    /// A statement that the broker keeps under `key`. `true` when the host has seen it: ack it.
    pub(super) fn arrive(&mut self, key: DeliveryKey, receipt: Receipt) -> bool {
        let notice = (key, receipt.id.clone());
        if self.told.contains(&notice) {
            return true;
        }
        let known = self.kept.iter().any(|(kept, _)| *kept == notice);
        if !known && self.kept.len() < FATES_MAX {
            self.kept.push_back((notice, receipt));
        }
        false
    }

    /// The next statement, and what to ack now that the host has it.
    pub(super) fn take(&mut self) -> Option<(Event, Option<DeliveryKey>)> {
        if let Some(event) = self.passing.pop_front() {
            return Some((event, None));
        }
        let (notice, receipt) = self.kept.pop_front()?;
        if self.told.len() >= TOLD_MAX {
            self.told.pop_front();
        }
        let key = notice.0.clone();
        self.told.push_back(notice);
        Some((Event::Fate(receipt), Some(key)))
    }

    pub(super) fn has_event(&self) -> bool {
        !self.passing.is_empty() || !self.kept.is_empty()
    }

    pub(super) fn close(&mut self) {
        self.passing.clear();
        self.kept.clear();
    }

    pub(super) fn check(&self) {
        assert!(self.passing.len() <= FATES_MAX && self.kept.len() <= FATES_MAX);
        assert!(self.told.len() <= TOLD_MAX);
    }
}
