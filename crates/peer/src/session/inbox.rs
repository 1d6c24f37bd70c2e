//! Messages from the broker: held until the host is done with them, each shown once.

use std::collections::{BTreeMap, VecDeque};

use peerbus_core::Now;
use peerbus_wire::limits::{EXEMPT_V1_MESSAGES, WINDOW_V1_BYTES, WINDOW_V1_MESSAGES};
use peerbus_wire::{ClientFrame, DeliveryKey, How, MessageId, NameKey, Stage};

use super::mutation::SessionMutation;
use super::types::{Inbound, Key};
use super::{PeerSession, SessionEvent};

/// Most messages that the host was done with that are remembered, to recognise one that comes again.
pub(super) const ENDED_MAX: usize = 65_536;
/// Most of them whose [`End`] is remembered: more than a broker can have in flight.
const ENDS_MAX: usize = HELD_MAX;
/// Nothing more is read while this many messages are held. Only a v1 broker, which knows no
/// window, gets there.
pub(super) const HELD_MAX: usize = (WINDOW_V1_MESSAGES + EXEMPT_V1_MESSAGES) as usize;
/// Nothing more is read while this many bytes are held.
pub(super) const HELD_BYTES_MAX: usize = 2 * WINDOW_V1_BYTES as usize;
/// Most deliveries of one held message that are remembered.
const DELIVERIES_MAX: usize = 8;

#[derive(Debug)]
struct Entry {
    /// What to ack: more than one when its author was accepted with it twice, none when it was
    /// delivered to another name of this process.
    deliveries: Vec<DeliveryKey>,
    print: u64,
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
    /// The host was done with it already: the broker is told so again.
    Ended(End),
    /// Not the message that is held, or was, under this sender and id.
    Reused,
}

/// What the broker is told of a message that the host is done with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// It was consumed, with this evidence.
    Acked(Option<How>),
    /// The host did not want it, for this reason.
    Refused(String),
}

#[derive(Debug, Default)]
pub(super) struct Inbox {
    held: BTreeMap<Key, Entry>,
    pub(super) unread: VecDeque<Key>,
    bytes: usize,
    /// What the host was done with, as long as that is remembered. Without an end it was acked, and
    /// what was claimed of it is not known any more.
    ended: BTreeMap<Key, (u64, Option<Box<End>>)>,
    /// The oldest first.
    order: VecDeque<Key>,
    /// Broken on purpose: what was consumed is not remembered.
    #[cfg(feature = "mutations")]
    pub(super) forgetful: bool,
}

impl Inbox {
    pub(super) fn arrive(
        &mut self,
        delivery: DeliveryKey,
        print: u64,
        inbound: Inbound,
    ) -> Arrival {
        let key = inbound.key;
        if let Some((known, end)) = self.ended.get(&key) {
            let end = || end.as_deref().cloned().unwrap_or(End::Acked(None));
            return match *known == print {
                true => Arrival::Ended(end()),
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
        self.held.get_mut(&key)?.unread.take()
    }

    /// The host is done with a message that it took; gives the deliveries of which the broker is told.
    pub(super) fn end(&mut self, key: Key, end: End) -> Vec<DeliveryKey> {
        let Some(entry) = self.remove_taken(key) else {
            // Evidence may come after the ack: it counts if the ack must be repeated.
            if let End::Acked(Some(How::Seen { .. })) = end
                && let Some((_, Some(kept))) = self.ended.get_mut(&key)
                && let End::Acked(Some(How::Pushed { .. })) = **kept
            {
                **kept = end;
            }
            return Vec::new();
        };
        #[cfg(feature = "mutations")]
        if self.forgetful {
            return entry.deliveries;
        }
        self.ended.insert(key, (entry.print, Some(Box::new(end))));
        self.order.push_back(key);
        if self.order.len() > ENDED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ended.remove(&oldest);
        }
        let old = self.order.len().checked_sub(ENDS_MAX + 1);
        if let Some((_, end)) = old.and_then(|at| self.ended.get_mut(self.order.get(at)?)) {
            *end = None;
        }
        entry.deliveries
    }

    /// Where the broker is told about a message that the host holds.
    pub(super) fn deliveries(&self, key: Key) -> &[DeliveryKey] {
        let held = self.held.get(&key).filter(|entry| entry.unread.is_none());
        held.map_or(&[], |entry| entry.deliveries.as_slice())
    }

    /// The host gives a message back that it took: it is new when it comes again. Gives its deliveries.
    pub(super) fn give_back(&mut self, key: Key) -> Vec<DeliveryKey> {
        let entry = self.remove_taken(key);
        entry.map_or_else(Vec::new, |entry| entry.deliveries)
    }

    /// There is another connection: what is for one member of a group comes again, if it is still this
    /// one's. What was not taken is forgotten; gives what was.
    pub(super) fn doubt_jobs(&mut self) -> impl Iterator<Item = Key> {
        let unread = self.unread.iter().copied();
        let unread: Vec<_> = unread
            .filter(|key| self.held.get(key).is_some_and(|it| it.one))
            .collect();
        for key in unread {
            self.forget(key);
        }
        let jobs = self.held.iter().filter(|(_, entry)| entry.one);
        jobs.map(|(key, _)| *key)
    }

    /// The broker wants a message back. Gives which; if the host did not take it, it is forgotten, and
    /// may (`true`) have been shown before it came here.
    pub(super) fn recall(&mut self, delivery: &DeliveryKey) -> Option<(Key, Option<bool>)> {
        let mut held = self.held.iter();
        let (&key, entry) = held.find(|(_, entry)| entry.deliveries.contains(delivery))?;
        let again = entry.unread.as_ref().map(|inbound| inbound.again);
        if again.is_some() {
            self.forget(key);
        }
        Some((key, again))
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

    fn remove_taken(&mut self, key: Key) -> Option<Entry> {
        let taken = self.held.get(&key)?.unread.is_none();
        taken.then(|| self.forget(key))?
    }

    fn forget(&mut self, key: Key) -> Option<Entry> {
        let entry = self.held.remove(&key)?;
        self.bytes -= entry.bytes;
        if entry.unread.is_some() {
            self.unread.retain(|unread| *unread != key);
        }
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

    pub(super) fn is_unused(&self) -> bool {
        self.held.is_empty() && self.order.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.held.len() >= HELD_MAX || self.bytes >= HELD_BYTES_MAX
    }

    pub(super) fn check(&self) {
        assert!(self.held.len() <= HELD_MAX, "held {}", self.held.len());
        assert!(self.ended.len() <= ENDED_MAX);
        assert_eq!(self.ended.len(), self.order.len());
        let bytes: usize = self.held.values().map(|entry| entry.bytes).sum();
        assert_eq!(bytes, self.bytes, "held bytes");
        let unread = self.held.values().filter(|entry| entry.unread.is_some());
        let unread = unread.count();
        assert_eq!(unread, self.unread.len(), "unread messages");
        let is_unread = |key| {
            self.held
                .get(key)
                .is_some_and(|entry| entry.unread.is_some())
        };
        assert!(self.unread.iter().all(is_unread));
        let ended = |key| self.ended.contains_key(key);
        assert!(!self.held.keys().any(ended), "held and ended");
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

/// Tells messages of one sender and id apart: a digest of the signature.
pub(super) fn print_of(hmac: &str) -> u64 {
    let mut digest = [0; 8];
    blake3::Hasher::new()
        .update(hmac.as_bytes())
        .finalize_xof()
        .fill(&mut digest);
    u64::from_le_bytes(digest)
}

impl PeerSession {
    /// The next event for the host. A message that it took is held until it is acked or refused.
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        if let Some(event) = self.notices.take() {
            if self.mutations.broken(SessionMutation::AckUntold)
                && let SessionEvent::Notice { id: Some(id), .. } = event
            {
                self.ack_notice(id);
            }
            return Some(event);
        }
        self.inbox.take().map(SessionEvent::Message)
    }

    /// A message that the host took is so far.
    ///
    /// - [`Stage::Acked`]: the host is done with it. The broker is told, now or when it delivers the
    ///   message again; a later `seen` upgrades a `pushed` ack if that has to be resent.
    /// - [`Stage::Dead`]: the recipient does not want it. It is not owed any more, and its sender is told
    ///   why. A broker without the extension is told that it was consumed.
    /// - Any other: the sender is told, and the message stays owed. A broker without the extension is not
    ///   told.
    ///
    /// A message ends once: repeating it does no harm.
    pub fn reached(&mut self, now: Now, key: Key, stage: Stage) {
        let end = match stage {
            Stage::Acked(how) => End::Acked(how),
            Stage::Dead { why } => End::Refused(why),
            stage => {
                let delivery = self.inbox.deliveries(key).first().cloned();
                if let Some(key) = delivery.filter(|_| self.speaks_ext()) {
                    self.control.push_back(ClientFrame::Progress { key, stage });
                }
                return;
            }
        };
        let read = self.wants_read();
        for delivery in self.inbox.end(key, end.clone()) {
            self.say_end(delivery, end.clone());
        }
        self.may_read_again(now, read);
    }

    /// The host gives back a message for one member of a group: another one gets it. `again`: it may
    /// have been shown here. To a broker without the extension nothing was given that can go back.
    pub fn give_back(&mut self, now: Now, key: Key, again: bool) {
        let read = self.wants_read();
        for key in self.inbox.give_back(key) {
            if self.speaks_ext() {
                self.control.push_back(ClientFrame::Release { key, again });
            }
        }
        self.may_read_again(now, read);
    }

    /// What was not heard while nothing was read is not silence.
    pub(super) fn may_read_again(&mut self, now: Now, could_read: bool) {
        if !could_read && self.wants_read() {
            self.handle_alive(now);
        }
    }
}
