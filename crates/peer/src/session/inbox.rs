//! Messages from the broker: held until the host is done with them, each shown once.

use std::collections::{BTreeMap, VecDeque};

use peerbus_core::Now;
use peerbus_wire::limits::{EXEMPT_V1_MESSAGES, WINDOW_V1_BYTES, WINDOW_V1_MESSAGES};
use peerbus_wire::{
    Address, ClientFrame, Conversation, DeliveryKey, How, MessageId, NameKey, Stage,
};

use super::mutation::SessionMutation;
use super::types::{Draft, Inbound, Key};
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
/// Most requests that are remembered after their ack: the broker lets nobody owe more.
pub(super) const OWED_MAX: usize = 80;

#[derive(Debug)]
struct Entry {
    /// What to ack: more than one when its author was accepted with it twice, none when it was
    /// delivered to another name of this process.
    deliveries: Vec<DeliveryKey>,
    print: u64,
    bytes: usize,
    /// It is for one member of a group.
    one: bool,
    is_request: bool,
    /// How far it is, as the host last said, and when.
    said: Option<(Stage, u64)>,
    /// Until the host takes it.
    unread: Option<Inbound>,
}

/// What a verified delivery turns out to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// New: the host will see it. It may have shown it before it lapsed.
    New(Option<(Stage, u64)>),
    /// Held already: not acked now, but with the one that is held. The broker may have lost how far it is,
    /// as the host said. `Some` message: the host took it, and its lease begins anew.
    Held(Option<(Stage, u64)>, Option<Box<Inbound>>),
    /// The host was done with it already, at that time if it is known: the broker is told so again.
    Ended(End, Option<u64>),
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

/// An end, and when it came.
type Ended = (End, u64);

/// A request that was acked and has not ended, as far as is known.
#[derive(Debug)]
struct Owed {
    key: Key,
    delivery: DeliveryKey,
    /// The host declined it, for this reason, and when. The broker is told so once more on the next connection.
    declined: Option<(String, u64)>,
}

#[derive(Debug, Default)]
pub(super) struct Inbox {
    held: BTreeMap<Key, Entry>,
    pub(super) unread: VecDeque<Key>,
    bytes: usize,
    /// What the host was done with, as long as that is remembered. Without an end it was acked, and
    /// what was claimed of it is not known any more.
    ended: BTreeMap<Key, (u64, Option<Box<Ended>>)>,
    /// The oldest first.
    order: VecDeque<Key>,
    /// The oldest first.
    owed: VecDeque<Owed>,
    /// How far was shown what lapsed and may come again, with its print, the oldest first.
    shown: VecDeque<((Key, u64), (Stage, u64))>,
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
            if *known != print {
                return Arrival::Reused;
            }
            let (end, at_ms) = match end.as_deref() {
                Some((end, at_ms)) => (end.clone(), Some(*at_ms)),
                None => (End::Acked(None), None),
            };
            if inbound.within_ms > 0 && matches!(end, End::Acked(_)) {
                self.owe(key, delivery);
            }
            return Arrival::Ended(end, at_ms);
        }
        if let Some(entry) = self.held.get_mut(&key) {
            if entry.print != print {
                return Arrival::Reused;
            }
            if !entry.deliveries.contains(&delivery) {
                entry.deliveries.truncate(DELIVERIES_MAX - 1);
                entry.deliveries.push(delivery);
            }
            let leased = entry.one && entry.unread.is_none();
            let leased = leased.then(|| Box::new(inbound));
            return Arrival::Held(entry.said.clone(), leased);
        }
        let before = self
            .shown
            .iter()
            .position(|(shown, _)| *shown == (key, print));
        let before = before.and_then(|at| Some(self.shown.remove(at)?.1));
        let bytes = inbound.body.len();
        self.bytes += bytes;
        let entry = Entry {
            deliveries: vec![delivery],
            print,
            bytes,
            one: inbound.one,
            is_request: inbound.within_ms > 0,
            said: before.clone(),
            unread: Some(inbound),
        };
        self.held.insert(key, entry);
        self.unread.push_back(key);
        Arrival::New(before)
    }

    /// Gives the host the oldest message that it has not taken.
    pub(super) fn take(&mut self) -> Option<Inbound> {
        let key = self.unread.pop_front()?;
        self.held.get_mut(&key)?.unread.take()
    }

    /// The host is done with a message that it took; gives the deliveries of which the broker is told.
    pub(super) fn end(&mut self, at_ms: u64, key: Key, end: End) -> Vec<DeliveryKey> {
        let Some(entry) = self.remove_taken(key) else {
            // Evidence may come after the ack: it counts if the ack must be repeated.
            if let End::Acked(Some(How::Seen { .. })) = end
                && let Some((_, Some(kept))) = self.ended.get_mut(&key)
                && let End::Acked(Some(How::Pushed { .. })) = kept.0
            {
                **kept = (end, at_ms);
            }
            return Vec::new();
        };
        #[cfg(feature = "mutations")]
        if self.forgetful {
            return entry.deliveries;
        }
        if let (End::Acked(_), true, Some(delivery)) =
            (&end, entry.is_request, entry.deliveries.last())
        {
            self.owe(key, delivery.clone());
        }
        self.ended
            .insert(key, (entry.print, Some(Box::new((end, at_ms)))));
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

    /// The host says how far a message is; gives the delivery of which the broker is told.
    fn said(&mut self, at_ms: u64, key: Key, stage: &Stage) -> Option<&DeliveryKey> {
        // Who works at what is on the broker's disk.
        if !matches!(stage, Stage::Working { .. })
            && let Some(held) = self.held.get_mut(&key)
            && held.said.as_ref().is_none_or(|(last, _)| last != stage)
        {
            held.said = Some((stage.clone(), at_ms));
        }
        self.delivery(key)
    }

    /// Where the broker is told about a message that the host holds, or about a request that it owes.
    fn delivery(&self, key: Key) -> Option<&DeliveryKey> {
        let owed = || self.owed.iter().find(|owed| owed.key == key);
        match self.held.get(&key) {
            Some(held) if held.unread.is_none() => held.deliveries.first(),
            Some(_) => None,
            None => owed().map(|owed| &owed.delivery),
        }
    }

    /// The host gives a message back that it took: it is new when it comes again. Gives its deliveries.
    pub(super) fn give_back(&mut self, key: Key) -> Vec<DeliveryKey> {
        let entry = self.remove_taken(key);
        entry.map_or_else(Vec::new, |entry| entry.deliveries)
    }

    /// There is another connection: what is for one member of a group is forgotten, and comes again if
    /// it is still this one's. Gives what the host took of it, which stays where that has shown it.
    pub(super) fn lapse(&mut self) -> Vec<Key> {
        let leased = self.held.iter().filter(|(_, entry)| entry.one);
        let leased: Vec<_> = leased.map(|(key, _)| *key).collect();
        let mut taken = Vec::new();
        for key in leased {
            let Some(entry) = self.forget(key) else {
                continue;
            };
            let was_shown = |(stage, _): &(Stage, u64)| !matches!(stage, Stage::Held { .. });
            self.shown.extend(
                entry
                    .said
                    .filter(was_shown)
                    .map(|said| ((key, entry.print), said)),
            );
            if entry.unread.is_none() {
                taken.push(key);
            }
        }
        self.shown
            .drain(..self.shown.len().saturating_sub(OWED_MAX));
        taken
    }

    /// A delivery is not this peer's any more, acked or not: it is forgotten, as new if it comes again.
    /// Gives which, if the host took it.
    pub(super) fn recall(&mut self, delivery: &DeliveryKey) -> Option<Key> {
        let is_it = |(_, entry): &(&Key, &Entry)| entry.deliveries.contains(delivery);
        if let Some(key) = self.held.iter().find(is_it).map(|(key, _)| *key) {
            let taken = self.forget(key)?.unread.is_none();
            return taken.then_some(key);
        }
        let at = self.owed.iter().position(|it| it.delivery == *delivery)?;
        let key = self.owed.remove(at)?.key;
        self.ended.remove(&key);
        self.order.retain(|ended| *ended != key);
        Some(key)
    }

    /// Messages for one member of a group that the host did not take.
    pub(super) fn unread_leases(&self) -> impl Iterator<Item = DeliveryKey> {
        let unread = self.unread.iter().filter_map(|key| self.held.get(key));
        let leased = unread.filter(|entry| entry.one);
        leased.filter_map(|entry| entry.deliveries.last().cloned())
    }

    fn owe(&mut self, key: Key, delivery: DeliveryKey) {
        self.owed.retain(|owed| owed.key != key);
        if self.owed.len() >= OWED_MAX {
            self.owed.pop_front();
        }
        let declined = None;
        self.owed.push_back(Owed {
            key,
            delivery,
            declined,
        });
    }

    /// The broker has this message: if it answers a request, that is owed no more.
    pub(super) fn answered(&mut self, draft: &Draft) {
        let request = Conversation::of(&draft.body).reply_to;
        let (Address::Peer(to), Some(request)) = (&draft.to, request) else {
            return;
        };
        let key = Key::of(&to.key(), &request);
        self.owed.retain(|owed| owed.key != key);
        if let Some(held) = self.held.get_mut(&key) {
            held.is_request = false;
        }
    }

    /// The host declines a request that it acked: its delivery.
    fn decline(&mut self, at_ms: u64, key: Key, why: &str) -> Option<DeliveryKey> {
        let owed = self.owed.iter_mut().find(|owed| owed.key == key)?;
        owed.declined = Some((why.to_owned(), at_ms));
        Some(owed.delivery.clone())
    }

    /// There is another connection: requests that were declined, which the broker may not have heard.
    pub(super) fn declined(
        &mut self,
    ) -> impl Iterator<Item = (DeliveryKey, (String, u64))> + use<> {
        let owed = std::mem::take(&mut self.owed).into_iter();
        let (declined, owed): (Vec<_>, Vec<_>) = owed.partition(|it| it.declined.is_some());
        self.owed = VecDeque::from(owed);
        let declined = declined.into_iter();
        declined.filter_map(|it| Some((it.delivery, it.declined?)))
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
        self.owed.clear();
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
        assert!(self.owed.len() <= OWED_MAX, "owed {}", self.owed.len());
    }
}

/// Another member of the group gets it.
pub(super) fn release(key: DeliveryKey) -> ClientFrame {
    ClientFrame::Release { key, again: true }
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
    /// - [`Stage::Dead`], [`Stage::Declined`]: the recipient does not want it, or does not do it. It is not
    ///   owed any more, and its sender is told why. A broker without the extension is told that it was
    ///   consumed. A request may be declined after its ack as well.
    /// - Any other: the sender is told, and the message stays owed, as does a request that was acked. A
    ///   broker without the extension is not told.
    ///
    /// A message ends once: repeating it does no harm.
    pub fn reached(&mut self, now: Now, key: Key, stage: Stage) {
        let end = match stage {
            Stage::Acked(how) => End::Acked(how),
            Stage::Declined { why } if !self.inbox.held.contains_key(&key) => {
                let delivery = self.inbox.decline(now.boot_ms, key, &why);
                if let Some(key) = delivery.filter(|_| self.speaks_ext()) {
                    let reason = why;
                    self.control.push_back(ClientFrame::reject(key, reason));
                }
                return;
            }
            Stage::Dead { why } | Stage::Declined { why } => End::Refused(why),
            stage => {
                let delivery = self.inbox.said(now.boot_ms, key, &stage).cloned();
                if let Some(key) = delivery.filter(|_| self.speaks_ext()) {
                    self.control.push_back(ClientFrame::progress(key, stage));
                }
                return;
            }
        };
        let read = self.wants_read();
        for delivery in self.inbox.end(now.boot_ms, key, end.clone()) {
            self.say_end(delivery, end.clone(), 0);
        }
        self.may_read_again(now, read);
    }

    /// The host gives back a message for one member of a group: another one gets it, as one that may have
    /// been shown. To a broker without the extension nothing was given that can go back.
    pub fn give_back(&mut self, now: Now, key: Key) {
        let read = self.wants_read();
        for key in self.inbox.give_back(key) {
            if self.speaks_ext() {
                self.control.push_back(release(key));
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
