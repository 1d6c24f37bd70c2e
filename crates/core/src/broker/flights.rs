//! The deliveries that a connection holds, and how much of its window they take.

use std::collections::{BTreeMap, VecDeque};

use peerbus_wire::limits::{ENVELOPE_BYTES_MAX, SHORT_KEY_BYTES};
use peerbus_wire::{DeliveryKey, PeerName, Seq, Window};

use super::shares::Shares;
use crate::Delivered;
use crate::store::{DeliveryHistory, MessageHead, PeerId};
use crate::{Now, TokenHash};

/// What counts of one sender.
#[derive(Debug)]
struct Held {
    messages: usize,
    bytes: usize,
    /// Those in what is kept, and the token for which they count there.
    kept: usize,
    payer: Payer,
}

/// Whose token a message counts for in what is kept: that of its sender's name.
pub(super) type Payer = Option<TokenHash>;

/// Deliveries that a connection holds.
#[derive(Debug)]
pub(super) struct Flights {
    window: Window,
    /// What one sender may hold of the window; `None` for all of it.
    shares: Option<Shares>,
    /// With shares: what counts, by sender.
    senders: BTreeMap<PeerId, Held>,
    /// Messages and bytes in what is kept, by token. Mostly none.
    kept: BTreeMap<Payer, (usize, usize)>,
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
    pub(super) head: MessageHead,
    /// The key, on a v1 connection.
    key: Option<DeliveryKey>,
    /// What it counts, or counted, against the window.
    bytes: usize,
    /// How far it got.
    pub(super) history: DeliveryHistory,
    /// Of a lease, whether it was delivered before.
    again: Option<bool>,
    /// It does not count against the window any more.
    exempt: bool,
    /// It is in what is kept.
    kept: bool,
}

impl Flight {
    /// A message that is delivered under this key, and counts so many bytes against the window.
    pub(super) fn new(
        head: MessageHead,
        key: Option<DeliveryKey>,
        bytes: usize,
        (history, again): (DeliveryHistory, Option<bool>),
    ) -> Self {
        Self {
            head,
            key,
            bytes,
            history,
            again,
            exempt: false,
            kept: false,
        }
    }

    /// Whether it was delivered before, given what earlier connections of its recipient had.
    pub(super) fn was_delivered(&self, earlier: &Delivered) -> bool {
        let earlier = || earlier.covers(self.head.sender, self.head.seq);
        self.again.unwrap_or_else(earlier)
    }
}

impl Flights {
    pub(super) fn new(window: Window, shares: Option<Shares>) -> Self {
        Self {
            window,
            shares,
            senders: BTreeMap::new(),
            kept: BTreeMap::new(),
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

    /// What a frame of `bytes` counts against the window. With shares, one that is larger counts
    /// as a share; one in what is kept counts as a quarter of that at most, and nothing if it is short.
    pub(super) fn weight(&self, bytes: usize, kept: bool) -> usize {
        match self.shares {
            None => bytes,
            Some(shares) if !kept => bytes.min(shares.one.bytes as usize),
            Some(shares) if bytes <= shares.short => 0,
            Some(shares) => bytes.min(shares.kept_calm.bytes as usize),
        }
    }

    /// `kept`: it is in what is kept, and counts for this token there.
    pub(super) fn insert(&mut self, mut flight: Flight, kept: Option<Payer>, now: Now) {
        let (seq, sender, bytes) = (flight.head.seq, flight.head.sender, flight.bytes);
        flight.kept = kept.is_some();
        if let Some(key) = &flight.key {
            self.keys.insert(key.clone(), seq);
        }
        self.held.insert(seq, flight);
        self.order.push_back((seq, now.mono_ms));
        self.counted += 1;
        self.counted_bytes += bytes;
        if self.shares.is_none() {
            return;
        }
        let held = self.senders.entry(sender).or_insert(Held {
            messages: 0,
            bytes: 0,
            kept: 0,
            payer: None,
        });
        held.messages += 1;
        held.bytes += bytes;
        if let Some(payer) = kept {
            if held.kept == 0 {
                held.payer = payer;
            }
            held.kept += 1;
            let (messages, total) = self.kept.entry(held.payer).or_default();
            *messages += 1;
            *total += bytes;
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
        if let Some(held) = self.senders.get_mut(&flight.head.sender) {
            held.messages -= 1;
            held.bytes -= flight.bytes;
            let (payer, is_last) = (held.payer, held.messages == 0);
            if flight.kept {
                held.kept -= 1;
                self.pay_back(payer, flight.bytes);
            }
            if is_last {
                self.senders.remove(&flight.head.sender);
            }
        }
        self.forget_settled();
        Some(flight)
    }

    /// A token has one delivery less in what is kept.
    fn pay_back(&mut self, payer: Payer, bytes: usize) {
        if let Some((messages, total)) = self.kept.get_mut(&payer) {
            *messages -= 1;
            *total -= bytes;
            if *messages == 0 {
                self.kept.remove(&payer);
            }
        }
    }

    /// The key of a delivery that is about to be made on a v1 connection: v1's own, unless another
    /// sender's message has that here, or the frame of a long envelope has no room for it.
    pub(super) fn v1_key(&self, head: &MessageHead, recipient: Option<&PeerName>) -> DeliveryKey {
        let key = DeliveryKey::v1(&head.id, recipient, None);
        let key = match self.keys.contains_key(&key) {
            true => DeliveryKey::v1(&head.id, recipient, Some(head.seq)),
            false => key,
        };
        let room = (ENVELOPE_BYTES_MAX + SHORT_KEY_BYTES) as u64;
        if head.bytes + key.as_str().len() as u64 > room {
            return DeliveryKey::short(head.seq);
        }
        key
    }

    /// The delivery that was given this key on this v1 connection, and has not ended.
    pub(super) fn named(&self, key: &DeliveryKey) -> Option<Seq> {
        self.keys.get(key).copied()
    }

    /// What counts of a sender; of all when there are no shares.
    fn counted_of(&self, sender: PeerId) -> (usize, usize) {
        if self.shares.is_none() {
            return self.counted();
        }
        let held = self.senders.get(&sender);
        held.map_or((0, 0), |held| (held.messages, held.bytes))
    }

    /// How many messages a sender has in flight; 0 when there are no shares.
    pub(super) fn held_of(&self, sender: PeerId) -> usize {
        match self.shares {
            Some(_) => self.counted_of(sender).0,
            None => 0,
        }
    }

    /// Half of the window or more is taken, and there are shares.
    pub(super) fn is_crowded(&self) -> bool {
        self.shares.is_some_and(|shares| {
            self.counted >= shares.one.messages as usize
                || self.counted_bytes >= shares.one.bytes as usize
        })
    }

    /// Whether a sender's share has room for a frame of `bytes`.
    pub(super) fn fits_share(&self, sender: PeerId, bytes: usize) -> bool {
        let Some(Shares { one, .. }) = self.shares else {
            return true;
        };
        let (messages, total) = self.counted_of(sender);
        let bytes = self.weight(bytes, false);
        messages < one.messages as usize && total + bytes <= one.bytes as usize
    }

    /// Messages and bytes in what is kept.
    fn counted_kept(&self) -> (usize, usize) {
        // Mostly none.
        if self.kept.is_empty() {
            return (0, 0);
        }
        let sum = |(all, sum), (messages, bytes): &(usize, usize)| (all + messages, sum + bytes);
        self.kept.values().fold((0, 0), sum)
    }

    /// Whether what is kept has a place.
    pub(super) fn has_kept_room(&self) -> bool {
        let most = self.shares.map_or(0, |shares| shares.kept.messages);
        self.counted_kept().0 < most as usize
    }

    /// Whether a sender's next message may be in what is kept: it is its first here, or `urgent`.
    pub(super) fn may_keep(&self, sender: PeerId, urgent: bool) -> bool {
        let most = self.shares.map_or(0, |shares| shares.kept_urgent);
        let held = self.senders.get(&sender);
        held.is_none_or(|held| urgent && held.kept < most)
    }

    /// Whether what is kept has room for a frame of `bytes`, which is its sender's first here or says that
    /// it is `urgent`.
    pub(super) fn fits_kept(
        &self,
        (sender, payer): (PeerId, Payer),
        bytes: usize,
        urgent: bool,
    ) -> bool {
        let Some(shares) = self.shares else {
            return false;
        };
        if !self.may_keep(sender, urgent) {
            return false;
        }
        let held = self.senders.get(&sender);
        // What it has there counts for the token that it had at the first of it.
        let there = held.filter(|held| held.kept > 0);
        let payer = there.map_or(payer, |held| held.payer);
        let of = self.kept.get(&payer).copied().unwrap_or_default();
        let bytes = self.weight(bytes, true);
        let fits = |limit: Window, (messages, total): (usize, usize)| {
            messages < limit.messages as usize && total + bytes <= limit.bytes as usize
        };
        let own = if urgent {
            shares.kept_one
        } else {
            shares.kept_calm
        };
        fits(shares.kept, self.counted_kept()) && fits(own, of)
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
        let empty = Self::new(self.window, self.shares);
        std::mem::replace(self, empty).held.into_iter()
    }

    /// Messages and bytes of a sender that fit now, if its next one, a frame of `next` bytes,
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
        let (limit, counted) = self.common();
        let (messages, bytes) = left(limit, counted);
        Some(match self.shares {
            Some(shares) => {
                let (own_messages, own_bytes) = left(shares.one, self.counted_of(sender));
                (messages.min(own_messages), bytes.min(own_bytes))
            }
            None => (messages, bytes),
        })
    }

    /// What is for everybody of the window, and what is taken of that.
    fn common(&self) -> (Window, (usize, usize)) {
        let Some(Shares { kept, .. }) = self.shares else {
            return (self.window, self.counted());
        };
        let (messages, bytes) = self.counted_kept();
        let limit = Window {
            messages: self.window.messages - kept.messages,
            bytes: self.window.bytes - kept.bytes,
        };
        (limit, (self.counted - messages, self.counted_bytes - bytes))
    }

    /// Whether a frame of a sender of `bytes` fits its share and the window.
    pub(super) fn fits(&self, sender: PeerId, bytes: usize) -> bool {
        let (limit, (messages, total)) = self.common();
        let fits_window = messages == 0
            || messages < limit.messages as usize
                && total + self.weight(bytes, false) <= limit.bytes as usize;
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
        self.held
            .iter()
            .map(|(seq, flight)| (flight.head.sender, *seq))
    }

    /// Whether no sender holds more than its share, none but first and urgent messages are in what is
    /// kept, and what counts by sender and by token adds up.
    pub(super) fn keeps_shares(&self) -> bool {
        let Some(shares) = self.shares else {
            return self.senders.is_empty() && self.kept.is_empty();
        };
        let within = |limit: Window, messages: usize, bytes: usize| {
            messages <= limit.messages as usize && bytes <= limit.bytes as usize
        };
        // What is urgent may be beyond a share.
        let one = |held: &Held| {
            let most = shares.one.bytes + shares.kept.bytes;
            held.messages <= shares.one.messages as usize + held.kept && held.bytes <= most as usize
        };
        let (messages, bytes) = self.counted_kept();
        let kept = within(shares.kept, messages, bytes);
        let each = |(messages, bytes): &(usize, usize)| within(shares.kept_one, *messages, *bytes);
        let all: (usize, usize) = self.senders.values().fold((0, 0), |(all, sum), held| {
            (all + held.messages, sum + held.bytes)
        });
        let in_kept: usize = self.senders.values().map(|held| held.kept).sum();
        self.senders.values().all(one)
            && kept
            && self.kept.values().all(each)
            && all == self.counted()
            && in_kept == messages
    }
}
