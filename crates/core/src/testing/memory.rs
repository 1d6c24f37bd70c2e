//! A store in memory that forgets, when it crashes, what was not committed.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use peerbus_wire::{MessageId, Seq};

use crate::Stamp;
use crate::audit::{Block, ChainHead};
use crate::store::{
    AliasRow, Fate, LeaseRow, Loaded, MessageHead, Notice, OwedRow, PeerId, PeerRow, Store,
    StoreError,
};

/// A stored message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// All but its text.
    pub head: MessageHead,
    /// The carried envelope text.
    pub envelope: Arc<str>,
}

/// How deliveries ended in one commit, of one run of messages; with ends of nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FateRow {
    /// When that was kept, steady clock.
    pub at_ms: u64,
    /// Bytes that this row and all before it count for.
    pub total: u64,
    /// The ends, in order.
    pub fates: Vec<Fate>,
}

/// Everything that a store holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tables {
    /// The peers.
    pub peers: BTreeMap<PeerId, PeerRow>,
    /// The old names, by lower-case name.
    pub aliases: BTreeMap<String, AliasRow>,
    /// The messages for one member of a group.
    pub leases: BTreeMap<Seq, LeaseRow>,
    /// How much mail waits.
    pub owed: BTreeMap<PeerId, OwedRow>,
    /// The messages.
    pub messages: BTreeMap<Seq, Stored>,
    /// What is pending: recipient, sender, number; and since when, steady clock.
    pub deliveries: BTreeMap<(PeerId, PeerId, Seq), u64>,
    /// The rejected messages: when, and why.
    pub dead: BTreeMap<(Seq, PeerId), (Stamp, String)>,
    /// How deliveries ended, by number of the row.
    pub fates: BTreeMap<u64, FateRow>,
    /// The statements, by sender and number.
    pub notices: BTreeMap<(PeerId, u64), Notice>,
    /// The audit blocks, by number.
    pub audit: BTreeMap<u64, Block>,
    /// The audit chain's head.
    pub head: Option<ChainHead>,
}

/// A [`Store`] in memory, and how to undo what its open transaction did.
#[derive(Debug, Default)]
pub struct MemoryStore {
    pub(super) tables: Tables,
    pub(super) ids: BTreeMap<(PeerId, MessageId), Seq>,
    pub(super) owed: BTreeSet<(Seq, PeerId)>,
    /// How often it was asked for anything.
    pub asked: Cell<usize>,
    undo: Vec<Undo>,
    open: bool,
}

/// What stood in a table before a write.
#[derive(Debug)]
enum Undo {
    Peer(PeerId, Option<PeerRow>),
    Alias(String, Option<AliasRow>),
    Owed(PeerId, Option<OwedRow>),
    Lease(Seq, Option<LeaseRow>),
    Message(Seq, Option<Stored>),
    Delivery((PeerId, PeerId), Seq, Option<u64>),
    Dead(Seq, PeerId, Option<(Stamp, String)>),
    Fates(u64, Option<FateRow>),
    Notice(PeerId, u64, Option<Notice>),
    Block(u64, Option<Block>),
    Head(Option<ChainHead>),
}

/// The keys of the rows with their times, oldest first.
pub(super) fn by_age<K: Ord + Copy, V>(
    rows: &BTreeMap<K, V>,
    at_ms: impl Fn(&V) -> u64,
) -> Vec<(u64, K)> {
    let mut rows: Vec<_> = rows.iter().map(|(key, row)| (at_ms(row), *key)).collect();
    rows.sort();
    rows
}

/// Puts `old` back under `key`.
fn restore<K: Ord, V>(table: &mut BTreeMap<K, V>, key: K, old: Option<V>) {
    match old {
        Some(old) => table.insert(key, old),
        None => table.remove(&key),
    };
}

impl MemoryStore {
    /// A store that holds this, such as one that was brought back from a backup.
    #[must_use]
    pub fn of(tables: Tables) -> Self {
        let messages = tables.messages.iter();
        let ids = messages.map(|(seq, it)| ((it.head.sender, it.head.id.clone()), *seq));
        let owed = tables.deliveries.keys();
        Self {
            ids: ids.collect(),
            owed: owed.map(|(peer, _, seq)| (*seq, *peer)).collect(),
            tables,
            ..Self::default()
        }
    }

    /// What it holds, with the writes of the open transaction.
    #[must_use]
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    pub(super) fn set_peer(&mut self, id: PeerId, row: Option<PeerRow>) {
        let old = self.tables.peers.get(&id).cloned();
        self.undo.push(Undo::Peer(id, old));
        restore(&mut self.tables.peers, id, row);
    }

    pub(super) fn set_alias(&mut self, name: &str, row: Option<AliasRow>) {
        let key = name.to_ascii_lowercase();
        let old = self.tables.aliases.get(&key).cloned();
        self.undo.push(Undo::Alias(key.clone(), old));
        restore(&mut self.tables.aliases, key, row);
    }

    pub(super) fn set_owed(&mut self, row: OwedRow) {
        let old = self.tables.owed.get(&row.peer).copied();
        self.undo.push(Undo::Owed(row.peer, old));
        let new = (row != OwedRow::none(row.peer)).then_some(row);
        restore(&mut self.tables.owed, row.peer, new);
    }

    pub(super) fn set_lease(&mut self, seq: Seq, row: Option<LeaseRow>) {
        let old = self.tables.leases.get(&seq).cloned();
        self.undo.push(Undo::Lease(seq, old));
        restore(&mut self.tables.leases, seq, row);
    }

    pub(super) fn set_message(&mut self, seq: Seq, message: Option<Stored>) {
        let old = self.swap_message(seq, message);
        self.undo.push(Undo::Message(seq, old));
    }

    fn swap_message(&mut self, seq: Seq, message: Option<Stored>) -> Option<Stored> {
        let old = self.tables.messages.remove(&seq);
        if let Some(old) = &old {
            self.ids.remove(&(old.head.sender, old.head.id.clone()));
        }
        if let Some(message) = message {
            let id = (message.head.sender, message.head.id.clone());
            self.ids.insert(id, seq);
            self.tables.messages.insert(seq, message);
        }
        old
    }

    /// Owes the message since `owed`, or settles it; says whether the delivery was there.
    pub(super) fn set_delivery(
        &mut self,
        pair: (PeerId, PeerId),
        seq: Seq,
        owed: Option<u64>,
    ) -> bool {
        let old = self.swap_delivery(pair, seq, owed);
        self.undo.push(Undo::Delivery(pair, seq, old));
        old.is_some()
    }

    fn swap_delivery(
        &mut self,
        (peer, sender): (PeerId, PeerId),
        seq: Seq,
        owed: Option<u64>,
    ) -> Option<u64> {
        let row = (peer, sender, seq);
        if let Some(steady_ms) = owed {
            self.owed.insert((seq, peer));
            return self.tables.deliveries.insert(row, steady_ms);
        }
        let old = self.tables.deliveries.remove(&row);
        // Not when the message is another sender's.
        if old.is_some() {
            self.owed.remove(&(seq, peer));
        }
        old
    }

    pub(super) fn set_dead(&mut self, seq: Seq, peer: PeerId, dead: Option<(Stamp, String)>) {
        let old = self.tables.dead.get(&(seq, peer)).cloned();
        self.undo.push(Undo::Dead(seq, peer, old));
        restore(&mut self.tables.dead, (seq, peer), dead);
    }

    pub(super) fn set_fates(&mut self, number: u64, row: Option<FateRow>) {
        let old = self.tables.fates.get(&number).cloned();
        self.undo.push(Undo::Fates(number, old));
        restore(&mut self.tables.fates, number, row);
    }

    /// Says whether there was one.
    pub(super) fn set_notice(
        &mut self,
        sender: PeerId,
        number: u64,
        notice: Option<Notice>,
    ) -> bool {
        let old = self.tables.notices.get(&(sender, number)).cloned();
        let was = old.is_some();
        self.undo.push(Undo::Notice(sender, number, old));
        restore(&mut self.tables.notices, (sender, number), notice);
        was
    }

    pub(super) fn set_block(&mut self, number: u64, block: Option<Block>) {
        let old = self.tables.audit.get(&number).cloned();
        self.undo.push(Undo::Block(number, old));
        restore(&mut self.tables.audit, number, block);
    }

    pub(super) fn set_head(&mut self, head: ChainHead) {
        self.undo.push(Undo::Head(self.tables.head.replace(head)));
    }

    pub(super) fn is_pending(&self, seq: Seq) -> bool {
        let all = (seq, PeerId(0))..=(seq, PeerId(u32::MAX));
        self.owed.range(all).next().is_some()
    }

    pub(super) fn is_dead(&self, seq: Seq) -> bool {
        let all = (seq, PeerId(0))..=(seq, PeerId(u32::MAX));
        self.tables.dead.range(all).next().is_some()
    }

    pub(super) fn message_bytes(&self, seq: Seq) -> u64 {
        self.tables
            .messages
            .get(&seq)
            .map_or(0, |message| message.head.bytes)
    }

    /// Whether a transaction is open; every method of `Txn` needs one.
    pub(super) fn is_open(&self) -> Result<(), StoreError> {
        self.asked.set(self.asked.get() + 1);
        if self.open {
            Ok(())
        } else {
            Err(StoreError("no transaction is open".into()))
        }
    }
}

impl Store for MemoryStore {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        Ok(Loaded {
            peers: self.tables.peers.values().cloned().collect(),
            aliases: self.tables.aliases.values().cloned().collect(),
            head: self.tables.head.clone(),
            owed: self.tables.owed.values().copied().collect(),
            leases: self.tables.leases.values().cloned().collect(),
            sealed: self.tables.audit.values().last().map(|block| block.at),
        })
    }

    fn begin(&mut self) -> Result<(), StoreError> {
        if self.open {
            return Err(StoreError("a transaction is open already".into()));
        }
        self.open = true;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        self.is_open()?;
        self.open = false;
        self.undo.clear();
        Ok(())
    }

    fn rollback(&mut self) {
        self.open = false;
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::Peer(id, old) => restore(&mut self.tables.peers, id, old),
                Undo::Alias(key, old) => restore(&mut self.tables.aliases, key, old),
                Undo::Owed(peer, old) => restore(&mut self.tables.owed, peer, old),
                Undo::Lease(seq, old) => restore(&mut self.tables.leases, seq, old),
                Undo::Message(seq, old) => {
                    self.swap_message(seq, old);
                }
                Undo::Delivery(pair, seq, was) => {
                    self.swap_delivery(pair, seq, was);
                }
                Undo::Dead(seq, peer, old) => restore(&mut self.tables.dead, (seq, peer), old),
                Undo::Fates(number, old) => restore(&mut self.tables.fates, number, old),
                Undo::Notice(sender, number, old) => {
                    restore(&mut self.tables.notices, (sender, number), old);
                }
                Undo::Block(number, old) => restore(&mut self.tables.audit, number, old),
                Undo::Head(old) => self.tables.head = old,
            }
        }
    }
}
