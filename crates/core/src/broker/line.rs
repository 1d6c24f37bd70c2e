//! The mail that waits for a connection, by sender, and whose turn it is.

use std::collections::BTreeMap;

use peerbus_wire::Seq;

use super::flights::Flights;
use crate::Delivered;
use crate::store::PeerId;

/// By sender: the first of its messages that is pending and was not delivered on a connection.
#[derive(Debug)]
pub(super) struct Line {
    heads: BTreeMap<PeerId, Head>,
    /// What waits on disk is known.
    pub(super) loaded: bool,
}

/// The first message of a sender that waits.
#[derive(Debug, Clone, Copy)]
struct Head {
    seq: Seq,
    /// What it counts against the window, once it did not fit; until then the least.
    bytes: usize,
    /// It may be older than what was delivered of its sender.
    inherited: bool,
}

impl Head {
    fn new(seq: Seq) -> Self {
        Self {
            seq,
            bytes: 1,
            inherited: false,
        }
    }
}

/// What is read and delivered next.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) sender: PeerId,
    /// The first message.
    pub(super) from: Seq,
    /// From here on the message of another is older.
    pub(super) until: Seq,
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

impl Line {
    /// With `loaded`, nothing waits.
    pub(super) fn new(loaded: bool) -> Self {
        let heads = BTreeMap::new();
        Self { heads, loaded }
    }

    /// Takes what waits on disk.
    pub(super) fn load(&mut self, heads: Vec<(PeerId, Seq)>) {
        let heads = heads.into_iter();
        self.heads = heads
            .map(|(sender, seq)| (sender, Head::new(seq)))
            .collect();
        self.loaded = true;
    }

    /// A message that was accepted this moment waits.
    pub(super) fn add(&mut self, sender: PeerId, seq: Seq) {
        self.heads.entry(sender).or_insert(Head::new(seq));
    }

    /// An older message has come from a name that ended.
    pub(super) fn inherit(&mut self, sender: PeerId, seq: Seq) {
        let head = self.heads.entry(sender).or_insert(Head::new(seq));
        if seq < head.seq {
            *head = Head::new(seq);
        }
        head.inherited = true;
    }

    /// The first message of `sender` that waits from now on, and what it counts if that is known.
    pub(super) fn set(&mut self, sender: PeerId, next: Option<Seq>, bytes: usize) {
        let Some(seq) = next else {
            self.heads.remove(&sender);
            return;
        };
        if let Some(head) = self.heads.get_mut(&sender) {
            (head.seq, head.bytes) = (seq, bytes);
        }
    }

    pub(super) fn has(&self, sender: PeerId) -> bool {
        self.heads.contains_key(&sender)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// What a connection went past whose highest delivery is `cursor`.
    pub(super) fn passed(&self, cursor: Seq) -> Delivered {
        let heads = self.heads.iter();
        // Where older mail came later, newer of the same sender may have been delivered.
        let before = heads.filter(|(_, head)| head.seq <= cursor && !head.inherited);
        Delivered {
            to: cursor,
            except: before.map(|(sender, head)| (*sender, head.seq)).collect(),
        }
    }

    /// The senders whose share has room for their first message.
    fn ready(&self, flights: &Flights) -> impl Iterator<Item = (PeerId, &Head)> {
        let heads = self.heads.iter().map(|(sender, head)| (*sender, head));
        heads.filter(|(sender, head)| flights.fits_share(*sender, head.bytes))
    }

    /// What is to be read next and has room. As long as half of the window is free, the oldest
    /// message is next; then the sender with the least in flight is.
    pub(super) fn turn(&self, flights: &Flights) -> Option<Turn> {
        let crowded = flights.is_crowded();
        let rank = |(sender, head): &(PeerId, &Head)| {
            let held = if crowded { flights.held_of(*sender) } else { 0 };
            (held, head.seq)
        };
        let (sender, head) = self.ready(flights).min_by_key(rank)?;
        let (messages, bytes) = flights.room(sender, head.bytes)?;
        let others = self.ready(flights).filter(|(other, _)| *other != sender);
        let until = others.map(|(_, head)| head.seq).min();
        Some(Turn {
            sender,
            from: head.seq,
            until: until.filter(|_| !crowded).unwrap_or(Seq(u64::MAX)),
            messages: if crowded && until.is_some() {
                1
            } else {
                messages
            },
            bytes,
        })
    }

    /// Whether a new message of `sender` is next: none of its own waits, and none of others whose
    /// share has room.
    pub(super) fn is_next(&self, sender: PeerId, flights: &Flights) -> bool {
        let passes = || !self.has(sender) && self.ready(flights).next().is_none();
        self.loaded && (self.is_empty() || passes())
    }
}
