//! Connections that carry encoded bytes, late and in order, until something happens to them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use peerbus_core::broker::ConnId;

use crate::oracle::ProcId;

/// What a client puts on a connection.
#[derive(Debug, Clone)]
pub(crate) enum Up {
    /// A text message.
    Text(String),
    /// A binary message.
    Binary,
    /// A ping, answered by the broker's shell.
    Ping,
    /// The answer to the broker's ping.
    Pong,
    /// A close frame.
    Goodbye,
    /// The connection broke.
    Cut,
}

/// What a broker puts on a connection.
#[derive(Debug, Clone)]
pub(crate) enum Down {
    /// A text message.
    Text(Arc<str>),
    /// A ping, answered by the client's transport.
    Ping,
    /// The answer to the client's ping.
    Pong,
    /// A close frame.
    Close(u16, String),
    /// The connection broke.
    Cut,
}

/// One direction: what is under way, and when it arrives.
#[derive(Debug)]
pub(crate) struct Pipe<T> {
    items: VecDeque<(u64, T)>,
    last_ms: u64,
    /// What is put in vanishes.
    pub(crate) hole: bool,
    /// The end that reads is gone.
    pub(crate) shut: bool,
}

impl<T> Default for Pipe<T> {
    fn default() -> Self {
        Self {
            items: VecDeque::new(),
            last_ms: 0,
            hole: false,
            shut: false,
        }
    }
}

impl<T> Pipe<T> {
    /// Puts an item in. Gives the time at which it arrives, not before what went in earlier.
    pub(crate) fn push(&mut self, at_ms: u64, item: T) -> Option<u64> {
        if self.hole || self.shut {
            return None;
        }
        self.last_ms = self.last_ms.max(at_ms);
        self.items.push_back((self.last_ms, item));
        Some(self.last_ms)
    }

    /// Takes the next item that has arrived.
    pub(crate) fn pop(&mut self, now_ms: u64) -> Option<T> {
        if self.shut || self.items.front().is_none_or(|(at, _)| *at > now_ms) {
            return None;
        }
        self.items.pop_front().map(|(_, item)| item)
    }

    /// Loses what is under way, but for the first `keep` items.
    pub(crate) fn truncate(&mut self, keep: usize) {
        self.items.truncate(keep);
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Link {
    /// Whose.
    pub(crate) proc: ProcId,
    /// To the broker.
    pub(crate) up: Pipe<Up>,
    /// To the client.
    pub(crate) down: Pipe<Down>,
}

/// Every connection that at least one end believes in.
#[derive(Debug, Default)]
pub(crate) struct Net {
    links: BTreeMap<ConnId, Link>,
    next: u64,
}

impl Net {
    /// Opens a connection.
    pub(crate) fn open(&mut self, proc: ProcId) -> ConnId {
        let conn = ConnId(self.next);
        self.next += 1;
        self.links.insert(
            conn,
            Link {
                proc,
                up: Pipe::default(),
                down: Pipe::default(),
            },
        );
        conn
    }

    /// A connection.
    pub(crate) fn get(&mut self, conn: ConnId) -> Option<&mut Link> {
        self.links.get_mut(&conn)
    }

    /// Forgets connections that both ends have left.
    pub(crate) fn sweep(&mut self) {
        self.links
            .retain(|_, link| !(link.up.shut && link.down.shut));
    }

    /// Connections whose broker's end is open.
    #[must_use]
    pub(crate) fn at_broker(&self) -> Vec<ConnId> {
        self.links
            .iter()
            .filter(|(_, link)| !link.up.shut)
            .map(|(conn, _)| *conn)
            .collect()
    }
}
