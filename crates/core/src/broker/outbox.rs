//! Outputs on their way out: some may leave at once, some wait for the commit.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use peerbus_wire::{BrokerFrame, Receipt, Seq};

use super::{Broker, BrokerOutput, BusEvent, CommitNeed, ConnId};
use crate::store::PeerId;

/// The outputs of the transaction under way and of those before it.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    ready: VecDeque<BrokerOutput>,
    waiting: VecDeque<BrokerOutput>,
    receipts: BTreeMap<ConnId, Receipts>,
    greeting: Vec<ConnId>,
    /// Connections that ended in this transaction: what waits for them is dropped.
    gone: BTreeSet<ConnId>,
    /// Bytes of the answers to questions so far, about.
    answered: usize,
    need: CommitNeed,
    #[cfg(feature = "mutations")]
    pub(super) release_early: bool,
}

/// What one connection is to be told with the next commit.
#[derive(Debug, Default)]
struct Receipts {
    /// Fates of envelopes that it sent, in order.
    answers: Vec<Receipt>,
    /// Later states of its messages; a newer state of the same delivery replaces an older one.
    later: BTreeMap<(Seq, PeerId), Receipt>,
}

impl Broker {
    /// Bytes of the answers that were made so far, about. They take memory until they are taken out.
    #[must_use]
    pub fn answered(&self) -> usize {
        self.outbox.answered
    }
}

impl Outbox {
    /// Adds an output that may leave before the commit.
    pub(super) fn now(&mut self, output: BrokerOutput) {
        self.ready.push_back(output);
    }

    /// Says what happened.
    pub(super) fn event(&mut self, event: BusEvent) {
        self.now(BrokerOutput::Event(event));
    }

    /// Adds an output that leaves after the commit.
    pub(super) fn waiting(&mut self, output: BrokerOutput, need: CommitNeed) {
        self.waiting.push_back(output);
        self.want(need);
        #[cfg(feature = "mutations")]
        if self.release_early {
            self.ready.append(&mut self.waiting);
        }
    }

    /// Adds a handshake ack; the connection counts as greeted once it has left.
    pub(super) fn greet(&mut self, conn: ConnId, frame: BrokerFrame) {
        self.greeting.push(conn);
        self.waiting(BrokerOutput::Send(conn, frame), CommitNeed::Now);
    }

    /// Adds an answer to something that must see every earlier frame committed.
    pub(super) fn barrier(&mut self, conn: ConnId, frame: BrokerFrame) {
        self.answered += frame.weight();
        let output = BrokerOutput::Send(conn, frame);
        if self.need() == CommitNeed::None {
            self.now(output);
        } else {
            self.waiting(output, CommitNeed::Now);
        }
    }

    /// Adds the fate of an envelope.
    pub(super) fn answer(&mut self, conn: ConnId, receipt: Receipt) {
        #[cfg(feature = "mutations")]
        if self.release_early {
            return self.now(BrokerOutput::Send(
                conn,
                BrokerFrame::Receipts(vec![receipt]),
            ));
        }
        self.receipts.entry(conn).or_default().answers.push(receipt);
        self.want(CommitNeed::Now);
    }

    /// Adds a later state of a delivery.
    pub(super) fn later(&mut self, conn: ConnId, delivery: (Seq, PeerId), receipt: Receipt) {
        let receipts = self.receipts.entry(conn).or_default();
        receipts.later.insert(delivery, receipt);
        self.want(CommitNeed::Soon);
    }

    /// Says that something was written.
    pub(super) fn want(&mut self, need: CommitNeed) {
        self.need = self.need.max(need);
    }

    pub(super) fn need(&self) -> CommitNeed {
        self.need
    }

    /// Drops what is queued for a connection that is gone.
    pub(super) fn forget(&mut self, conn: ConnId) {
        self.receipts.remove(&conn);
        if !self.waiting.is_empty() {
            self.gone.insert(conn);
        }
    }

    /// Releases what waited, and names the connections whose handshake ack is among it.
    pub(super) fn committed(&mut self) -> Vec<ConnId> {
        let (closes, sends): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|output| matches!(output, BrokerOutput::Close(..)));
        let gone = std::mem::take(&mut self.gone);
        let is_here = |output: &BrokerOutput| !matches!(output, BrokerOutput::Send(conn, _) if gone.contains(conn));
        self.ready.extend(sends.into_iter().filter(is_here));
        for (conn, receipts) in std::mem::take(&mut self.receipts) {
            let all = receipts
                .answers
                .into_iter()
                .chain(receipts.later.into_values())
                .collect();
            for frame in BrokerFrame::receipts(all) {
                self.ready.push_back(BrokerOutput::Send(conn, frame));
            }
        }
        self.ready.extend(closes);
        self.need = CommitNeed::None;
        std::mem::take(&mut self.greeting)
    }

    pub(super) fn poll(&mut self) -> Option<BrokerOutput> {
        self.ready.pop_front()
    }

    /// Whether an output that was ready is still there.
    pub(super) fn is_drained(&self) -> bool {
        self.ready.is_empty()
    }
}
