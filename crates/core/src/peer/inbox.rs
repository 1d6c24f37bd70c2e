//! Messages from the broker: held until the host is done with them, each shown once.

use std::collections::{BTreeMap, VecDeque};

use peerbus_wire::limits::{EXEMPT_V1_MESSAGES, WINDOW_V1_BYTES, WINDOW_V1_MESSAGES};
use peerbus_wire::{DeliveryKey, How, MessageId, NameKey};

use super::types::{Inbound, Key};

/// Most consumed messages that are remembered, to recognise one that comes again.
pub(super) const CONSUMED_MAX: usize = 65_536;
/// Most consumed messages whose `How` is remembered: more than a broker can have in flight.
pub(super) const HOWS_MAX: usize = HELD_MAX;
/// Nothing more is read while this many messages are held. Only a v1 broker, which knows no
/// window, gets there.
pub(super) const HELD_MAX: usize = (WINDOW_V1_MESSAGES + EXEMPT_V1_MESSAGES) as usize;
/// Nothing more is read while this many bytes are held.
pub(super) const HELD_BYTES_MAX: usize = 2 * WINDOW_V1_BYTES as usize;
/// Most deliveries of one held message that are remembered.
const DELIVERIES_MAX: usize = 8;
/// Most messages that the host did not want that are remembered.
const REFUSED_MAX: usize = 1_024;

#[derive(Debug)]
struct Entry {
    /// What to ack: more than one when its author was accepted with it twice, none when it was
    /// delivered to another name of this process.
    deliveries: Vec<DeliveryKey>,
    print: Fingerprint,
    bytes: usize,
    /// It is for one member of a group.
    one: bool,
    /// Until the host takes it.
    unread: Option<Inbound>,
}

/// What a verified delivery turns out to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// New: the host will see it.
    New,
    /// Held already: not acked now, but with the one that is held. `Some`: it is for one member of a
    /// group, still this one's, and may (`true`) have been shown meanwhile.
    Held(Option<(Key, bool)>),
    /// Consumed already: ack it again, with this.
    Consumed(Option<How>),
    /// The host did not want it: reject it again, with this.
    Refused(String),
    /// Not the message that is held or consumed under this sender and id.
    Reused,
}

/// Tells messages of one sender and id apart: a digest of the signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint(u64);

/// The inbox.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    held: BTreeMap<Key, Entry>,
    unread: VecDeque<Key>,
    bytes: usize,
    unread_bytes: usize,
    consumed: Bounded<Fingerprint>,
    hows: BTreeMap<Key, How>,
    refused: Bounded<String>,
    /// Broken on purpose: what was consumed is not remembered.
    #[cfg(feature = "mutations")]
    pub(super) forgetful: bool,
}

impl Inbox {
    pub(super) fn arrive(
        &mut self,
        delivery: DeliveryKey,
        print: Fingerprint,
        inbound: Inbound,
    ) -> Arrival {
        let key = inbound.key;
        if let Some(consumed) = self.consumed.map.get(&key) {
            if *consumed == print
                && let Some(reason) = self.refused.map.get(&key)
            {
                return Arrival::Refused(reason.clone());
            }
            return match *consumed == print {
                true => Arrival::Consumed(self.hows.get(&key).cloned()),
                false => Arrival::Reused,
            };
        }
        if let Some(entry) = self.held.get_mut(&key) {
            if entry.print != print {
                return Arrival::Reused;
            }
            if !entry.deliveries.contains(&delivery) {
                entry.deliveries.truncate(DELIVERIES_MAX - 1);
                entry.deliveries.push(delivery);
            }
            return Arrival::Held(entry.one.then_some((key, inbound.again)));
        }
        let bytes = inbound.body.len();
        self.bytes += bytes;
        self.unread_bytes += bytes;
        let entry = Entry {
            deliveries: vec![delivery],
            print,
            bytes,
            one: inbound.one,
            unread: Some(inbound),
        };
        self.held.insert(key, entry);
        self.unread.push_back(key);
        Arrival::New
    }

    /// Gives the host the oldest message that it has not taken.
    pub(super) fn take(&mut self) -> Option<Inbound> {
        let key = self.unread.pop_front()?;
        let entry = self.held.get_mut(&key)?;
        self.unread_bytes -= entry.bytes;
        entry.unread.take()
    }

    /// The host is done with a message that it took; gives the deliveries to ack.
    pub(super) fn consume(&mut self, key: Key, how: Option<How>) -> Vec<DeliveryKey> {
        let Some(entry) = self.remove_taken(key) else {
            // Evidence may come after the ack: it counts if the ack must be repeated.
            if let Some(better @ How::Seen { .. }) = how
                && let Some(kept @ How::Pushed { .. }) = self.hows.get_mut(&key)
            {
                *kept = better;
            }
            return Vec::new();
        };
        #[cfg(feature = "mutations")]
        if self.forgetful {
            return entry.deliveries;
        }
        if let Some(how) = how {
            self.hows.insert(key, how);
        }
        if let Some(evicted) = self.consumed.insert(key, entry.print, CONSUMED_MAX) {
            self.hows.remove(&evicted);
        }
        let old = self.consumed.order.len().checked_sub(HOWS_MAX + 1);
        if let Some(old) = old.and_then(|at| self.consumed.order.get(at)) {
            self.hows.remove(old);
        }
        entry.deliveries
    }

    /// Where the broker is told about a message that the host holds.
    pub(super) fn deliveries(&self, key: Key) -> &[DeliveryKey] {
        let held = self.held.get(&key).filter(|entry| entry.unread.is_none());
        held.map_or(&[], |entry| entry.deliveries.as_slice())
    }

    /// The host does not want a message that it took; gives its deliveries.
    pub(super) fn refuse(&mut self, key: Key, reason: &str) -> Vec<DeliveryKey> {
        let Some(entry) = self.remove_taken(key) else {
            return Vec::new();
        };
        if let Some(evicted) = self.consumed.insert(key, entry.print, CONSUMED_MAX) {
            self.hows.remove(&evicted);
        }
        self.refused.insert(key, reason.to_owned(), REFUSED_MAX);
        entry.deliveries
    }

    /// The host gives a message back that it took: it is new when it comes again. Gives its deliveries.
    pub(super) fn give_back(&mut self, key: Key) -> Vec<DeliveryKey> {
        let entry = self.remove_taken(key);
        entry.map_or_else(Vec::new, |entry| entry.deliveries)
    }

    /// There is another connection: what is for one member of a group comes again, if it is still this
    /// one's. What was not taken is forgotten; gives what was.
    pub(super) fn doubt_jobs(&mut self) -> impl Iterator<Item = Key> {
        let unread = |entry: &Entry| entry.one && entry.unread.is_some();
        let forgotten = self.held.extract_if(.., |_, entry| unread(entry));
        for (key, entry) in forgotten {
            self.unread.retain(|unread| *unread != key);
            self.bytes -= entry.bytes;
            self.unread_bytes -= entry.bytes;
        }
        let jobs = self.held.iter().filter(|(_, entry)| entry.one);
        jobs.map(|(key, _)| *key)
    }

    /// Drops a message that the host did not take. `None` when there is none; otherwise whether it may
    /// have been shown before it came here.
    pub(super) fn withdraw(&mut self, delivery: &DeliveryKey) -> Option<bool> {
        let (key, entry) = self.delivered_as(delivery)?;
        let again = entry.unread.as_ref()?.again;
        let entry = self.held.remove(&key)?;
        self.unread.retain(|unread| *unread != key);
        self.bytes -= entry.bytes;
        self.unread_bytes -= entry.bytes;
        Some(again)
    }

    /// Messages for one member of a group that the host did not take, and whether each may have been shown
    /// before.
    pub(super) fn unread_jobs(&self) -> impl Iterator<Item = (DeliveryKey, bool)> {
        let unread = self.unread.iter().filter_map(|key| self.held.get(key));
        unread.filter_map(|entry| {
            let again = entry.unread.as_ref()?.again;
            let delivery = entry.deliveries.last().filter(|_| entry.one)?;
            Some((delivery.clone(), again))
        })
    }

    /// The message that the host holds under this delivery.
    pub(super) fn held_as(&self, delivery: &DeliveryKey) -> Option<Key> {
        Some(self.delivered_as(delivery)?.0)
    }

    fn delivered_as(&self, delivery: &DeliveryKey) -> Option<(Key, &Entry)> {
        let mut held = self.held.iter();
        let (key, entry) = held.find(|(_, entry)| entry.deliveries.contains(delivery))?;
        Some((*key, entry))
    }

    fn remove_taken(&mut self, key: Key) -> Option<Entry> {
        if self.held.get(&key)?.unread.is_some() {
            return None;
        }
        let entry = self.held.remove(&key)?;
        self.bytes -= entry.bytes;
        Some(entry)
    }

    /// The process goes by another name now: its deliveries are not the old name's.
    pub(super) fn forget_deliveries(&mut self) {
        for entry in self.held.values_mut() {
            entry.deliveries.clear();
        }
    }

    /// Drops what the host has not taken; gives `None` to every later [`Inbox::take`].
    pub(super) fn close(&mut self) {
        while self.take().is_some() {}
    }

    /// Messages and bytes that the host took and is not done with.
    pub(super) fn taken(&self) -> (usize, usize) {
        (
            self.held.len() - self.unread.len(),
            self.bytes - self.unread_bytes,
        )
    }

    pub(super) fn is_unused(&self) -> bool {
        self.held.is_empty() && self.consumed.order.is_empty()
    }

    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.held.len() >= HELD_MAX || self.bytes >= HELD_BYTES_MAX
    }

    pub(super) fn check(&self) {
        assert!(self.held.len() <= HELD_MAX, "held {}", self.held.len());
        assert!(self.consumed.map.len() <= CONSUMED_MAX && self.hows.len() <= HOWS_MAX);
        assert_eq!(self.consumed.map.len(), self.consumed.order.len());
        assert!(self.refused.map.len() <= REFUSED_MAX);
        let bytes: usize = self.held.values().map(|entry| entry.bytes).sum();
        assert_eq!(bytes, self.bytes, "held bytes");
        let unread = self
            .held
            .values()
            .filter(|entry| entry.unread.is_some())
            .count();
        assert_eq!(unread, self.unread.len(), "unread messages");
        for key in &self.unread {
            assert!(
                self.held
                    .get(key)
                    .is_some_and(|entry| entry.unread.is_some())
            );
        }
        assert!(
            !self
                .held
                .keys()
                .any(|key| self.consumed.map.contains_key(key)),
            "held and consumed"
        );
    }
}

impl Key {
    /// Names the message `id` of the sender `from`, whatever the case of the name.
    #[must_use]
    pub fn of(from: &NameKey, id: &MessageId) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher
            .update(from.as_str().as_bytes())
            .update(b"\0")
            .update(id.as_str().as_bytes());
        let mut digest = [0; 16];
        hasher.finalize_xof().fill(&mut digest);
        Self(u128::from_le_bytes(digest))
    }

    /// Names something that did not come over the bus. `unique`: as random as a digest.
    #[must_use]
    pub const fn local(unique: u128) -> Self {
        Self(unique)
    }
}

impl Fingerprint {
    pub(super) fn of(hmac: &str) -> Self {
        let mut digest = [0; 8];
        blake3::Hasher::new()
            .update(hmac.as_bytes())
            .finalize_xof()
            .fill(&mut digest);
        Self(u64::from_le_bytes(digest))
    }
}

/// A map that forgets its oldest members.
#[derive(Debug)]
struct Bounded<T> {
    map: BTreeMap<Key, T>,
    order: VecDeque<Key>,
}

impl<T> Default for Bounded<T> {
    fn default() -> Self {
        Self {
            map: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<T> Bounded<T> {
    /// Gives the member that had to go.
    fn insert(&mut self, key: Key, value: T, max: usize) -> Option<Key> {
        if self.map.insert(key, value).is_some() {
            return None;
        }
        self.order.push_back(key);
        let evicted = if self.order.len() > max {
            self.order.pop_front()
        } else {
            None
        };
        if let Some(evicted) = &evicted {
            self.map.remove(evicted);
        }
        evicted
    }
}
