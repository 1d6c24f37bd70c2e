//! The table of connections and their deadlines.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use peerbus_wire::{Instance, MessageId, PeerName, Presence, Register, Seq, Window};

use super::history::DeliveryHistory;
use super::{ConnId, Reason};
use crate::store::PeerId;
use crate::{Now, TokenHash};

/// What a connection is doing.
#[derive(Debug)]
pub(super) enum Conn {
    /// It has not registered.
    Greeting,
    /// It waits for the holder of its name to answer or to be silent.
    Contending(Box<Contender>),
    /// It is registered.
    Live(Box<Session>),
    /// It was told to close.
    Closing,
}

/// A valid registration.
#[derive(Debug)]
pub(super) struct Contender {
    pub(super) name: PeerName,
    pub(super) token: TokenHash,
    pub(super) register: Register,
    /// An answer of the holder ends the contest for the holder; if not, the newcomer only waits.
    pub(super) holder_may_answer: bool,
}

/// A registered connection.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) peer: PeerId,
    /// The name as this connection spelled it.
    pub(super) name: PeerName,
    pub(super) ext: bool,
    pub(super) instance: Option<Instance>,
    pub(super) window: Window,
    pub(super) presence: Option<Presence>,
    /// The handshake ack has left.
    pub(super) greeted: bool,
    /// The last message delivered on this connection.
    pub(super) cursor: Seq,
    /// Up to this message, deliveries were made on earlier connections of the peer.
    pub(super) again: Seq,
    /// Mail that came to the peer after this, from a name that ended, is older than the cursor.
    pub(super) backfill: Option<Seq>,
    /// Up to this message, what came so was delivered under that name.
    pub(super) backfill_again: Seq,
    pub(super) flights: Flights,
    /// The deadline of the next exemption is set.
    pub(super) exemption_set: bool,
    /// The last notice sent on this connection, and how many of them are not acked.
    pub(super) notice_cursor: u64,
    pub(super) notices_out: usize,
}

impl Session {
    /// Mail from `first` on is to be looked for again. What of it was delivered to whom it was owed
    /// before ends at `again`.
    pub(super) fn go_back(&mut self, first: Seq, again: Seq) {
        let before = Seq(first.0 - 1);
        if before < self.cursor {
            let from = self.backfill.unwrap_or(before);
            self.backfill = Some(from.min(before));
        }
        self.backfill_again = self.backfill_again.max(again);
    }

    /// After which message to read on.
    pub(super) fn position(&self) -> Seq {
        self.backfill.unwrap_or(self.cursor)
    }

    /// Goes past a message. What lies beyond the cursor is not older mail.
    pub(super) fn advance(&mut self, seq: Seq) {
        self.backfill = self.backfill.filter(|_| seq < self.cursor).map(|_| seq);
        self.cursor = self.cursor.max(seq);
    }

    /// Whether the message may have been delivered on an earlier connection.
    pub(super) fn was_delivered(&self, seq: Seq) -> bool {
        if self.backfill.is_some() && seq <= self.cursor {
            return seq <= self.backfill_again;
        }
        seq <= self.again || seq <= self.backfill_again
    }
}

/// Deliveries that a connection holds.
#[derive(Debug, Default)]
pub(super) struct Flights {
    held: BTreeMap<Seq, Flight>,
    /// Counted against the window, oldest first, with the time of delivery. May name deliveries
    /// that are settled, but not in front.
    order: VecDeque<(Seq, u64)>,
    counted: usize,
    counted_bytes: usize,
}

/// One delivery that a connection holds.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) sender: PeerId,
    pub(super) id: MessageId,
    pub(super) bytes: usize,
    /// How far it got.
    pub(super) history: DeliveryHistory,
    /// It does not count against the window any more.
    exempt: bool,
}

impl Flights {
    pub(super) fn insert(
        &mut self,
        seq: Seq,
        sender: PeerId,
        id: MessageId,
        bytes: usize,
        now: Now,
    ) {
        self.held.insert(
            seq,
            Flight {
                sender,
                id,
                bytes,
                history: DeliveryHistory::delivered(now.wall_ms),
                exempt: false,
            },
        );
        self.order.push_back((seq, now.mono_ms));
        self.counted += 1;
        self.counted_bytes += bytes;
    }

    pub(super) fn remove(&mut self, seq: Seq) -> Option<Flight> {
        let flight = self.held.remove(&seq)?;
        if !flight.exempt {
            self.counted -= 1;
            self.counted_bytes -= flight.bytes;
        }
        self.forget_settled();
        Some(flight)
    }

    /// Whether `seq` is held here.
    pub(super) fn holds(&self, seq: Seq) -> bool {
        self.held.contains_key(&seq)
    }

    pub(super) fn get(&self, seq: Seq) -> Option<&Flight> {
        self.held.get(&seq)
    }

    pub(super) fn get_mut(&mut self, seq: Seq) -> Option<&mut Flight> {
        self.held.get_mut(&seq)
    }

    /// Takes every delivery out.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Flight> {
        std::mem::take(self).held.into_values()
    }

    /// Messages and bytes that fit the window now; a first message always fits.
    pub(super) fn room(&self, window: Window) -> Option<(usize, usize)> {
        let messages = (window.messages as usize).saturating_sub(self.counted);
        let bytes = (window.bytes as usize).saturating_sub(self.counted_bytes);
        if self.counted == 0 {
            return Some((messages.max(1), bytes.max(1)));
        }
        (messages > 0 && bytes > 0).then_some((messages, bytes))
    }

    /// Whether a message of `bytes` fits.
    pub(super) fn fits(&self, window: Window, bytes: usize) -> bool {
        self.counted == 0
            || self
                .room(window)
                .is_some_and(|(messages, room)| messages > 0 && bytes <= room)
    }

    /// When the oldest counted delivery was made.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.order.front().map(|(_, at)| *at)
    }

    /// Stops counting what was delivered at or before `until_ms`, as long as no more than
    /// `exempt_max` deliveries have exempt.
    pub(super) fn exempt(&mut self, until_ms: u64, exempt_max: usize) -> bool {
        let mut any = false;
        while let Some((seq, at)) = self.order.front().copied() {
            if at > until_ms || self.held.len() - self.counted >= exempt_max {
                break;
            }
            self.order.pop_front();
            if let Some(flight) = self.held.get_mut(&seq) {
                flight.exempt = true;
                self.counted -= 1;
                self.counted_bytes -= flight.bytes;
                any = true;
            }
            self.forget_settled();
        }
        any
    }

    /// Sees to it that the oldest that counts is the first in order.
    fn forget_settled(&mut self) {
        while self
            .order
            .front()
            .is_some_and(|(seq, _)| !self.held.contains_key(seq))
        {
            self.order.pop_front();
        }
        // One delivery that is held for ever must not keep the others in memory.
        if self.order.len() > self.order_max() {
            let held = &self.held;
            self.order.retain(|(seq, _)| held.contains_key(seq));
        }
    }

    fn order_max(&self) -> usize {
        2 * self.held.len() + 64
    }

    /// Whether no more is remembered than what is held accounts for.
    pub(super) fn is_bounded(&self) -> bool {
        self.order.len() <= self.order_max()
    }

    pub(super) fn counted(&self) -> (usize, usize) {
        (self.counted, self.counted_bytes)
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn seqs(&self) -> impl Iterator<Item = Seq> {
        self.held.keys().copied()
    }
}

/// Every open connection, by id, and the deadlines that belong to connections.
#[derive(Debug, Default)]
pub(super) struct Conns {
    table: BTreeMap<ConnId, Conn>,
    timers: BTreeSet<(u64, Reason, ConnId)>,
}

impl Conns {
    pub(super) fn insert(&mut self, id: ConnId, conn: Conn) {
        self.table.insert(id, conn);
    }

    pub(super) fn remove(&mut self, id: ConnId) -> Option<Conn> {
        self.table.remove(&id)
    }

    pub(super) fn get(&self, id: ConnId) -> Option<&Conn> {
        self.table.get(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn ids(&self) -> Vec<ConnId> {
        self.table.keys().copied().collect()
    }

    pub(super) fn session(&self, id: ConnId) -> Option<&Session> {
        match self.table.get(&id) {
            Some(Conn::Live(session)) => Some(session),
            _ => None,
        }
    }

    pub(super) fn session_mut(&mut self, id: ConnId) -> Option<&mut Session> {
        match self.table.get_mut(&id) {
            Some(Conn::Live(session)) => Some(session),
            _ => None,
        }
    }

    pub(super) fn sessions(&self) -> impl Iterator<Item = (ConnId, &Session)> {
        self.table.iter().filter_map(|(id, conn)| match conn {
            Conn::Live(session) => Some((*id, &**session)),
            _ => None,
        })
    }

    pub(super) fn set_timer(&mut self, at_ms: u64, reason: Reason, conn: ConnId) {
        self.timers.insert((at_ms, reason, conn));
    }

    pub(super) fn next_timer(&self) -> Option<(u64, Reason)> {
        self.timers.first().map(|(at, reason, _)| (*at, *reason))
    }

    /// Takes one deadline that has come.
    pub(super) fn due(&mut self, mono_ms: u64) -> Option<(Reason, ConnId)> {
        let (at, reason, conn) = *self.timers.first()?;
        if at > mono_ms {
            return None;
        }
        self.timers.pop_first();
        Some((reason, conn))
    }
}
