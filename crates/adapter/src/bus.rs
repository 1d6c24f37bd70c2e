//! The handle.

use std::time::Duration;

use peerbus_core::peer::{Counters, Event, Held, Key};
use peerbus_wire::{How, PeerEntry, Receipt};
use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::error::{BusError, SendError};
use crate::link::LinkState;

/// A handle to the bus. Clones share one session; its [`Link`](crate::Link) ends when the last
/// one is dropped.
#[derive(Debug, Clone)]
pub struct Bus {}

/// A message that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// Its id.
    pub id: String,
    /// How far it got.
    pub status: SentStatus,
}

/// How far a sent message is known to have got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentStatus {
    /// The broker has it on disk.
    Accepted {
        /// Number of recipients it is owed to.
        recipients: u32,
        /// How many of those are connected now.
        online: u32,
        /// It was accepted before, and is not queued twice.
        duplicate: bool,
    },
    /// A v1 broker's socket took it; nothing more is known, ever.
    Written,
}

/// The peers that the broker told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peers {
    /// This peer's own name.
    pub me: String,
    /// Every peer, this one included. A v1 broker tells only names, of connected peers.
    pub entries: Vec<PeerEntry>,
    /// So many more were left out.
    pub omitted: u32,
    /// The broker told more than names.
    pub ext: bool,
}

impl Bus {
    /// The name in use: `PEERBUS_NAME` verbatim, or a generated one (which may still change while
    /// it was not registered yet).
    #[must_use]
    pub fn name(&self) -> String {
        unimplemented!()
    }

    /// Sends `body` (JSON text) to the peer `to` and waits until it is accepted or refused, or,
    /// with a v1 broker, written. While the broker is away the message waits, at most `deadline`.
    ///
    /// Once this is called the message is on its way, even if the future is dropped.
    ///
    /// # Errors
    ///
    /// A sentence that an agent can act on; [`SendError::TimedOut`] says whether the message may
    /// still be accepted.
    pub async fn send(&self, to: &str, body: &str, deadline: Duration) -> Result<Sent, SendError> {
        unimplemented!("{to}{body}{deadline:?}")
    }

    /// Sends `body` to every other peer that is registered now. As [`Bus::send`] otherwise.
    ///
    /// # Errors
    ///
    /// As for [`Bus::send`].
    pub async fn broadcast(&self, body: &str, deadline: Duration) -> Result<Sent, SendError> {
        unimplemented!("{body}{deadline:?}")
    }

    /// Asks the broker who is there.
    ///
    /// # Errors
    ///
    /// When there is no answer within `deadline`, with what the link is doing.
    pub async fn peers(&self, deadline: Duration) -> Result<Peers, BusError> {
        unimplemented!("{deadline:?}")
    }

    /// Asks the broker what became of messages that this name sent.
    ///
    /// # Errors
    ///
    /// As for [`Bus::peers`]; [`BusError::NotSupported`] behind a v1 broker;
    /// [`BusError::InvalidIds`] when an id breaks the rule or there are too many.
    pub async fn statuses(
        &self,
        ids: &[String],
        deadline: Duration,
    ) -> Result<Vec<Receipt>, BusError> {
        unimplemented!("{ids:?}{deadline:?}")
    }

    /// The next event; `None` once the bus is closed. For one consumer; dropping the future loses
    /// nothing. What is not taken here holds the window: nothing piles up.
    pub async fn next(&self) -> Option<Event> {
        unimplemented!()
    }

    /// The next event if there is one now.
    #[must_use]
    pub fn try_next(&self) -> Option<Event> {
        unimplemented!()
    }

    /// Notes that the message is consumed and acks it. Never blocks; repeating it does no harm.
    pub fn ack(&self, key: &Key, how: How) {
        unimplemented!("{key:?}{how:?}")
    }

    /// Hands the message back to the broker, to be delivered again. Does nothing on a v1 broker,
    /// where the message stays held.
    pub fn release(&self, key: &Key) {
        unimplemented!("{key:?}")
    }

    /// What was taken from [`Bus::next`] and is not acked.
    #[must_use]
    pub fn held(&self) -> Held {
        unimplemented!()
    }

    /// Where the connection stands, now and as it changes.
    #[must_use]
    pub fn link(&self) -> watch::Receiver<LinkState> {
        unimplemented!()
    }

    /// Replaces how this peer describes itself to others. At most 1,024 bytes of JSON text; a
    /// larger description is not sent, and `false`.
    pub fn set_presence(&self, presence: &Map<String, Value>) -> bool {
        unimplemented!("{presence:?}")
    }

    /// What was counted since [`connect`](crate::connect).
    #[must_use]
    pub fn counters(&self) -> Counters {
        unimplemented!()
    }

    /// Says goodbye: acks are flushed, the connection is closed. Takes at most 50 ms; sends that
    /// are under way are answered as they stand. [`Bus::next`] gives `None` from now on.
    pub async fn close(&self) {
        unimplemented!()
    }
}
