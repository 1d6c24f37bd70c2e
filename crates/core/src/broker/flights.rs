//! The deliveries that a connection holds, and how much of its window they take.

use std::collections::{BTreeMap, VecDeque};

use peerbus_wire::limits::{ENVELOPE_BYTES_MAX, SHORT_KEY_BYTES};
use peerbus_wire::{DeliveryKey, MessageId, PeerName, Seq, Window};

use crate::Now;
use crate::store::{DeliveryHistory, PeerId};

/// Half of a window, which is what one sender may have in flight.
pub(super) fn share(window: Window) -> Window {
    Window {
        messages: window.messages.div_ceil(2),
        bytes: window.bytes.div_ceil(2),
    }
}

/// Deliveries that a connection holds.
#[derive(Debug)]
pub(super) struct Flights {
    window: Window,
    /// What one sender may hold of the window; `None` for all of it.
    share: Option<Window>,
    /// With a share: messages and bytes that count, by sender. Mostly few.
    senders: Vec<(PeerId, usize, usize)>,
    held: BTreeMap<Seq, Flight>,
    /// On a v1 connection: under which keys.
    keys: BTreeMap<DeliveryKey, Seq>,
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
    /// Bytes of its envelope.
    pub(super) envelope_bytes: u64,
    /// How many recipients the message has.
    pub(super) recipients: u32,
    /// The key, on a v1 connection.
    key: Option<DeliveryKey>,
    /// What it counts, or counted, against the window.
    bytes: usize,
    /// How far it got.
    pub(super) history: DeliveryHistory,
    /// It does not count against the window any more.
    exempt: bool,
}

impl Flight {
    /// A message of a sender's to so many that is delivered now, under this key: of so many bytes,
    /// which count as so many against the window.
    pub(super) fn new(
        (sender, recipients): (PeerId, u32),
        (id, key): (MessageId, Option<DeliveryKey>),
        (envelope_bytes, bytes): (usize, usize),
        now: Now,
    ) -> Self {
        Self {
            sender,
            id,
            envelope_bytes: envelope_bytes as u64,
            recipients,
            key,
            bytes,
            history: DeliveryHistory::delivered(now.wall_ms),
            exempt: false,
        }
    }
}

impl Flights {
    pub(super) fn new(window: Window, share: Option<Window>) -> Self {
        Self {
            window,
            share,
            senders: Vec::new(),
            held: BTreeMap::new(),
            keys: BTreeMap::new(),
            order: VecDeque::new(),
            counted: 0,
            counted_bytes: 0,
        }
    }

    /// Messages that the window has room for.
    pub(super) fn most(&self) -> usize {
        self.window.messages as usize
    }

    /// What a frame of `bytes` counts against the window. With a share, one that is larger counts
    /// as the share, so that the next of any other sender has room beside it.
    pub(super) fn weight(&self, bytes: usize) -> usize {
        self.share
            .map_or(bytes, |share| bytes.min(share.bytes as usize))
    }

    pub(super) fn insert(&mut self, seq: Seq, flight: Flight, now: Now) {
        let (sender, bytes) = (flight.sender, flight.bytes);
        if let Some(key) = &flight.key {
            self.keys.insert(key.clone(), seq);
        }
        self.held.insert(seq, flight);
        self.order.push_back((seq, now.mono_ms));
        self.counted += 1;
        self.counted_bytes += bytes;
        if self.share.is_some() {
            match self.senders.iter_mut().find(|(known, ..)| *known == sender) {
                Some((_, messages, total)) => {
                    *messages += 1;
                    *total += bytes;
                }
                None => self.senders.push((sender, 1, bytes)),
            }
        }
    }

    pub(super) fn remove(&mut self, seq: Seq) -> Option<Flight> {
        let flight = self.held.remove(&seq)?;
        if let Some(key) = &flight.key {
            self.keys.remove(key);
        }
        if !flight.exempt {
            self.counted -= 1;
            self.counted_bytes -= flight.bytes;
        }
        let of = |(known, ..): &(PeerId, usize, usize)| *known == flight.sender;
        if let Some(at) = self.senders.iter().position(of) {
            let (_, messages, bytes) = &mut self.senders[at];
            *messages -= 1;
            *bytes -= flight.bytes;
            if *messages == 0 {
                self.senders.swap_remove(at);
            }
        }
        self.forget_settled();
        Some(flight)
    }

    /// The key of a delivery that is about to be made on a v1 connection: v1's own, unless another
    /// sender's message has that here, or the frame of a long envelope has no room for it.
    pub(super) fn v1_key(
        &self,
        seq: Seq,
        id: &MessageId,
        recipient: Option<&PeerName>,
        envelope_bytes: usize,
    ) -> DeliveryKey {
        let key = DeliveryKey::v1(id, recipient, None);
        let key = match self.keys.contains_key(&key) {
            true => DeliveryKey::v1(id, recipient, Some(seq)),
            false => key,
        };
        if envelope_bytes + key.as_str().len() > ENVELOPE_BYTES_MAX + SHORT_KEY_BYTES {
            return DeliveryKey::short(seq);
        }
        key
    }

    /// The delivery that was given this key on this v1 connection, and has not ended.
    pub(super) fn named(&self, key: &DeliveryKey) -> Option<Seq> {
        self.keys.get(key).copied()
    }

    /// What counts of a sender; of all when there are no shares.
    fn counted_of(&self, sender: PeerId) -> (usize, usize) {
        if self.share.is_none() {
            return self.counted();
        }
        let held = self.senders.iter().find(|(known, ..)| *known == sender);
        held.map_or((0, 0), |(_, messages, bytes)| (*messages, *bytes))
    }

    /// How many messages a sender has in flight; 0 when there are no shares.
    pub(super) fn held_of(&self, sender: PeerId) -> usize {
        match self.share {
            Some(_) => self.counted_of(sender).0,
            None => 0,
        }
    }

    /// Half of the window or more is taken, and there are shares.
    pub(super) fn is_crowded(&self) -> bool {
        self.share.is_some_and(|share| {
            self.counted >= share.messages as usize || self.counted_bytes >= share.bytes as usize
        })
    }

    /// Whether a sender's share has room for a message that counts `bytes`.
    pub(super) fn fits_share(&self, sender: PeerId, bytes: usize) -> bool {
        let Some(share) = self.share else {
            return true;
        };
        let (messages, total) = self.counted_of(sender);
        messages < share.messages as usize && total + bytes <= share.bytes as usize
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
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (Seq, Flight)> {
        let empty = Self::new(self.window, self.share);
        std::mem::replace(self, empty).held.into_iter()
    }

    /// Messages and bytes of a sender that fit now, if its next one, which counts `next` bytes,
    /// does. A first message always fits.
    pub(super) fn room(&self, sender: PeerId, next: usize) -> Option<(usize, usize)> {
        if !self.fits(sender, next) {
            return None;
        }
        let left = |limit: Window, (messages, bytes): (usize, usize)| {
            let messages = (limit.messages as usize).saturating_sub(messages);
            let bytes = (limit.bytes as usize).saturating_sub(bytes);
            (messages.max(1), bytes.max(1))
        };
        let (messages, bytes) = left(self.window, self.counted());
        Some(match self.share {
            Some(share) => {
                let (own_messages, own_bytes) = left(share, self.counted_of(sender));
                (messages.min(own_messages), bytes.min(own_bytes))
            }
            None => (messages, bytes),
        })
    }

    /// Whether a message of a sender that counts `bytes` fits its share and the window.
    pub(super) fn fits(&self, sender: PeerId, bytes: usize) -> bool {
        let fits_window = self.counted == 0
            || self.counted < self.window.messages as usize
                && self.counted_bytes + bytes <= self.window.bytes as usize;
        fits_window && self.fits_share(sender, bytes)
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
        self.order.len() <= self.order_max() && self.keys.len() <= self.held.len()
    }

    pub(super) fn counted(&self) -> (usize, usize) {
        (self.counted, self.counted_bytes)
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Sender and number of each delivery.
    pub(super) fn iter(&self) -> impl Iterator<Item = (PeerId, Seq)> {
        self.held.iter().map(|(seq, flight)| (flight.sender, *seq))
    }

    /// Whether no sender holds more than its share, and what counts by sender adds up.
    pub(super) fn keeps_shares(&self) -> bool {
        let Some(share) = self.share else {
            return self.senders.is_empty();
        };
        let fits = |(_, messages, bytes): &(PeerId, usize, usize)| {
            *messages <= share.messages as usize && *bytes <= share.bytes as usize
        };
        let messages: usize = self.senders.iter().map(|(_, messages, _)| messages).sum();
        let bytes: usize = self.senders.iter().map(|(_, _, bytes)| bytes).sum();
        self.senders.iter().all(fits) && (messages, bytes) == self.counted()
    }
}
