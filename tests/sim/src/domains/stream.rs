//! The stream of one direction between two domains, and the consumer at its end.

use std::collections::BTreeMap;

use peerbus_peer::bridge::StreamId;

/// What was taken from the stream and not acked comes again after so long.
const ACK_WAIT_MS: u64 = 10_000;
/// What was given back comes again after so long.
const LATER_MS: u64 = 1_000;

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) head: String,
    pub(super) payload: Vec<u8>,
    /// It can be taken from then on.
    ready_ms: u64,
}

/// The messages of one subject, oldest first.
#[derive(Debug, Default)]
pub(super) struct Stream {
    entries: BTreeMap<u64, Entry>,
}

impl Stream {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn put(&mut self, number: u64, now_ms: u64, head: String, payload: Vec<u8>) {
        let ready_ms = now_ms;
        let entry = Entry {
            head,
            payload,
            ready_ms,
        };
        self.entries.insert(number, entry);
    }

    /// The next message that the consumer is given.
    pub(super) fn pull(&mut self, now_ms: u64) -> Option<(StreamId, Entry)> {
        let (number, entry) = self
            .entries
            .iter_mut()
            .find(|(_, entry)| entry.ready_ms <= now_ms)?;
        entry.ready_ms = now_ms + ACK_WAIT_MS;
        Some((StreamId(*number), entry.clone()))
    }

    pub(super) fn ack(&mut self, stream: StreamId) -> Option<Entry> {
        self.entries.remove(&stream.0)
    }

    pub(super) fn later(&mut self, now_ms: u64, stream: StreamId) {
        if let Some(entry) = self.entries.get_mut(&stream.0) {
            entry.ready_ms = now_ms + LATER_MS;
        }
    }

    /// It is deleted, and made anew.
    pub(super) fn forget(&mut self) {
        self.entries.clear();
    }
}
