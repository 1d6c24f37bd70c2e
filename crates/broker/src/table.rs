//! The connection table: from a connection's number to its outbound queue.
//!
//! The engine's thread puts frames in, each connection's writer takes them out. Nothing here
//! decides anything about messages; what it bounds is the memory of a connection that does not
//! read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use peerbus_core::broker::ConnId;
use peerbus_wire::limits::{EXEMPT_V1_MESSAGES, FRAMES_UNANSWERED_MAX, WINDOW_MESSAGES_MAX};
use peerbus_wire::{BrokerFrame, CloseReason, Receipt, Stage};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::link::Link;
use crate::places::StrangersPlace;

/// Frames that may wait for one connection. Deliveries alone cannot fill it: windows bound them.
pub(crate) const OUTBOUND_FRAMES_MAX: usize = 9_216;

const _: () = assert!(
    OUTBOUND_FRAMES_MAX
        >= (WINDOW_MESSAGES_MAX + EXEMPT_V1_MESSAGES) as usize + 4 * FRAMES_UNANSWERED_MAX
);

/// A frame on its way to a connection's writer.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// An encoded deliver frame, shared by its recipients.
    Deliver(Arc<str>),
    /// Any other frame, encoded by the writer.
    Frame(Box<BrokerFrame>),
    /// No frame: what stands before this answers so many frames of the client.
    Done(usize),
}

/// Connections that are gone and whose clients are remembered, as they were stopped.
const STOPPED_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: DashMap<ConnId, Entry>,
    /// Those that are gone, and whose clients were stopped then.
    stopped: DashMap<ConnId, Arc<Link>>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    outbound: Sender<Outgoing>,
    link: Arc<Link>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    Queued,
    /// The connection is gone or going.
    Gone,
    /// The queue is full and the frame can be spared: later receipts can be asked for.
    Spared,
    /// The queue is full, so the connection was closed.
    Overflow,
}

impl Table {
    /// Enters a new connection and gives its side of it.
    pub(crate) fn open(
        &self,
        now_ms: u64,
        stranger: StrangersPlace,
    ) -> (Arc<Link>, Receiver<Outgoing>) {
        let conn = ConnId(self.next.fetch_add(1, Ordering::Relaxed));
        let (outbound, queue) = channel(OUTBOUND_FRAMES_MAX);
        let link = Arc::new(Link::new(conn, now_ms, stranger));
        let entry = Entry {
            outbound,
            link: Arc::clone(&link),
        };
        self.entries.insert(conn, entry);
        (link, queue)
    }

    pub(crate) fn send(&self, conn: ConnId, frame: BrokerFrame, drain: Duration) -> Sent {
        let spare = is_spare(&frame);
        let Some(entry) = self.entries.get(&conn) else {
            return Sent::Gone;
        };
        // Nothing is sent to a client before it has registered.
        entry.link.set_registered();
        if matches!(&frame, BrokerFrame::Peers(peers) if peers.ext.is_some_and(|ext| ext > 0)) {
            entry.link.set_ext();
        }
        let weight = frame.weight();
        let outgoing = match frame {
            BrokerFrame::Deliver(deliver) => Outgoing::Deliver(Arc::clone(deliver.text())),
            other => Outgoing::Frame(Box::new(other)),
        };
        let fits = entry.link.queue(weight);
        if fits && entry.outbound.try_send(outgoing).is_ok() {
            return Sent::Queued;
        }
        if fits {
            entry.link.unqueue(weight);
        }
        // The guard must go before the map changes.
        drop(entry);
        if spare {
            return Sent::Spared;
        }
        self.close(conn, CloseReason::TooSlow, drain);
        Sent::Overflow
    }

    /// Gives back the permits of frames whose answers were queued before, once these are written;
    /// at once when nothing more is written or the queue is full, which bounds the rest.
    pub(crate) fn done(&self, link: &Link, frames: usize) {
        let entry = self.entries.get(&link.conn());
        let queued = entry.is_some_and(|entry| {
            let done = Outgoing::Done(frames);
            entry.outbound.try_send(done).is_ok()
        });
        if !queued {
            link.read_more(frames);
        }
    }

    /// Asks the connection's writer for a ping whose pong is reported.
    pub(crate) fn ping(&self, conn: ConnId) {
        if let Some(entry) = self.entries.get(&conn) {
            entry.link.want_ping(crate::link::Ping::Core);
        }
    }

    /// Whether the client of a connection is stopped, which the broker may have given up for that.
    pub(crate) fn is_stopped(&self, conn: ConnId) -> bool {
        let link = self.entries.get(&conn).map(|it| Arc::clone(&it.link));
        let link = link.or_else(|| self.stopped.get(&conn).map(|it| Arc::clone(&it)));
        link.is_some_and(|link| link.is_stopped())
    }

    /// Closes a connection: its writer sends what is queued, for at most `drain`, then the reason.
    pub(crate) fn close(&self, conn: ConnId, reason: CloseReason, drain: Duration) {
        if let Some((_, entry)) = self.entries.remove(&conn) {
            entry.link.close(reason, drain);
        }
    }

    pub(crate) fn close_all(&self, reason: &CloseReason, drain: Duration) {
        self.entries.retain(|_, entry| {
            entry.link.close(reason.clone(), drain);
            false
        });
    }

    /// A connection is gone.
    pub(crate) fn remove(&self, link: &Arc<Link>) {
        self.entries.remove(&link.conn());
        if link.is_stopped() {
            self.stopped.retain(|_, link| link.is_stopped());
            if self.stopped.len() < STOPPED_MAX {
                self.stopped.insert(link.conn(), Arc::clone(link));
            }
        }
    }
}

impl Outgoing {
    /// Bytes by which the frame counts while it is queued.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Deliver(text) => text.len(),
            Self::Frame(frame) => frame.weight(),
            Self::Done(_) => 0,
        }
    }

    /// How many frames of the client this one answers with a receipt.
    pub(crate) fn answers(&self) -> usize {
        let Self::Frame(frame) = self else { return 0 };
        let answers = |it: &&Receipt| matches!(it.stage, Stage::Accepted(_) | Stage::Refused(_));
        match &**frame {
            BrokerFrame::Receipts(receipts) => receipts.iter().filter(answers).count(),
            _ => 0,
        }
    }

    /// How many frames of the client are answered before this.
    pub(crate) fn done(&self) -> usize {
        match self {
            Self::Done(frames) => *frames,
            Self::Deliver(_) | Self::Frame(_) => 0,
        }
    }

    pub(crate) fn text(&self) -> Option<Arc<str>> {
        match self {
            Self::Deliver(text) => Some(Arc::clone(text)),
            Self::Frame(frame) => Some(frame.encode()),
            Self::Done(_) => None,
        }
    }
}

/// Whether the frame says only how far messages got since they were accepted.
fn is_spare(frame: &BrokerFrame) -> bool {
    let later = |receipt: &Receipt| {
        let stage = &receipt.stage;
        stage.is_progress()
            || matches!(
                stage,
                Stage::Forwarded | Stage::Delivered | Stage::Recalled { .. } | Stage::Acked(_)
            )
    };
    matches!(frame, BrokerFrame::Receipts(receipts) if receipts.iter().all(later))
}

#[cfg(test)]
mod tests {
    use peerbus_wire::{Accepted, DeliverFrame, MessageId, Seq};

    use super::*;
    use crate::link::OUTBOUND_BYTES_MAX;

    const DRAIN: Duration = Duration::from_secs(1);

    fn receipt(stage: Stage) -> BrokerFrame {
        let id = MessageId::parse("m1").unwrap();
        BrokerFrame::Receipts(vec![Receipt::new(id, stage)])
    }

    #[test]
    fn a_connection_that_does_not_read_is_closed_before_it_costs_much() {
        let table = Table::default();
        let (link, queue) = table.open(0, StrangersPlace::default());
        let mebibyte = "x".repeat(1_048_576);
        let frame = BrokerFrame::Deliver(DeliverFrame::new(Seq(1), &mebibyte));
        let mut queued = 0;
        let last = loop {
            match table.send(link.conn(), frame.clone(), DRAIN) {
                Sent::Queued => queued += 1,
                other => break other,
            }
            assert!(queued <= 64, "the queue has no bound");
        };
        assert_eq!(last, Sent::Overflow);
        assert_eq!(
            queued,
            OUTBOUND_BYTES_MAX / (1_048_576 + 74),
            "as many as fit"
        );
        assert_eq!(
            link.closing().map(|c| c.reason.clone()),
            Some(CloseReason::TooSlow)
        );
        assert_eq!(table.send(link.conn(), frame, DRAIN), Sent::Gone);
        assert_eq!(
            queue.len(),
            queued,
            "what was queued is still there to be sent"
        );
    }

    #[test]
    fn receipts_count_with_the_words_in_them() {
        let table = Table::default();
        let (link, _queue) = table.open(0, StrangersPlace::default());
        let id = MessageId::parse("m1").unwrap();
        let held = Receipt::new(
            id,
            Stage::Held {
                why: "x".repeat(512),
            },
        );
        let frame = BrokerFrame::Receipts(vec![held; 1_000]);
        let mut queued = 0;
        while table.send(link.conn(), frame.clone(), DRAIN) == Sent::Queued {
            queued += frame.encode().len();
        }
        assert!(queued < OUTBOUND_BYTES_MAX, "{queued} bytes wait");
    }

    #[test]
    fn later_receipts_are_spared_when_the_queue_is_full_and_answers_are_not() {
        let table = Table::default();
        let (link, _queue) = table.open(0, StrangersPlace::default());
        let delivered = receipt(Stage::Delivered);
        for _ in 0..OUTBOUND_FRAMES_MAX {
            assert_eq!(
                table.send(link.conn(), delivered.clone(), DRAIN),
                Sent::Queued
            );
        }
        assert_eq!(table.send(link.conn(), delivered, DRAIN), Sent::Spared);
        assert!(link.closing().is_none());
        let accepted = receipt(Stage::Accepted(Accepted {
            recipients: 1,
            online: 1,
            duplicate: false,
        }));
        assert_eq!(table.send(link.conn(), accepted, DRAIN), Sent::Overflow);
    }
}
