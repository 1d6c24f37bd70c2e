//! A store in memory that forgets, when it crashes, what was not committed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use peerbus_core::audit::{AuditKey, Block, Head};
use peerbus_core::store::{
    AliasRow, Loaded, MessageHead, Notice, PeerId, PeerRow, Store, StoreError,
};
use peerbus_wire::{MessageId, Seq};

use crate::disk::{Audit, Backend};

/// A stored message.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) head: MessageHead,
    pub(crate) envelope: Arc<str>,
}

/// Tables in memory, and how to undo what the open transaction did to them.
#[derive(Debug, Default)]
pub struct MemoryStore {
    pub(crate) peers: BTreeMap<PeerId, PeerRow>,
    /// By lower-case name.
    pub(crate) aliases: BTreeMap<String, AliasRow>,
    pub(crate) messages: BTreeMap<Seq, Stored>,
    pub(crate) ids: BTreeMap<(PeerId, MessageId), Seq>,
    pub(crate) debts: BTreeSet<(PeerId, Seq)>,
    pub(crate) owed: BTreeSet<(Seq, PeerId)>,
    pub(crate) dead: BTreeMap<(Seq, PeerId), u64>,
    pub(crate) notices: BTreeMap<(PeerId, u64), Notice>,
    pub(crate) audit: BTreeMap<u64, Block>,
    pub(crate) head: Option<Head>,
    pub(crate) undo: Vec<Undo>,
    open: bool,
}

/// What stood in a table before a write.
#[derive(Debug)]
pub(crate) enum Undo {
    Peer(PeerId, Option<PeerRow>),
    Alias(String, Option<AliasRow>),
    Message(Seq, Option<Stored>),
    Debt(PeerId, Seq, bool),
    Dead(Seq, PeerId, Option<u64>),
    Notice(PeerId, u64, Option<Notice>),
    Block(u64, Option<Block>),
    Head(Option<Head>),
}

/// Puts `old` back under `key`.
fn restore<K: Ord, V>(table: &mut BTreeMap<K, V>, key: K, old: Option<V>) {
    match old {
        Some(old) => table.insert(key, old),
        None => table.remove(&key),
    };
}

impl MemoryStore {
    pub(crate) fn set_peer(&mut self, id: PeerId, row: Option<PeerRow>) {
        let old = self.peers.get(&id).cloned();
        self.undo.push(Undo::Peer(id, old));
        restore(&mut self.peers, id, row);
    }

    pub(crate) fn set_alias(&mut self, name: &str, row: Option<AliasRow>) {
        let key = name.to_ascii_lowercase();
        let old = self.aliases.get(&key).cloned();
        self.undo.push(Undo::Alias(key.clone(), old));
        restore(&mut self.aliases, key, row);
    }

    pub(crate) fn set_message(&mut self, seq: Seq, message: Option<Stored>) {
        let old = self.swap_message(seq, message);
        self.undo.push(Undo::Message(seq, old));
    }

    fn swap_message(&mut self, seq: Seq, message: Option<Stored>) -> Option<Stored> {
        let old = self.messages.remove(&seq);
        if let Some(old) = &old {
            self.ids.remove(&(old.head.sender, old.head.id.clone()));
        }
        if let Some(message) = message {
            let id = (message.head.sender, message.head.id.clone());
            self.ids.insert(id, seq);
            self.messages.insert(seq, message);
        }
        old
    }

    /// Says whether the debt was there.
    pub(crate) fn set_debt(&mut self, peer: PeerId, seq: Seq, owed: bool) -> bool {
        let was = self.swap_debt(peer, seq, owed);
        self.undo.push(Undo::Debt(peer, seq, was));
        was
    }

    fn swap_debt(&mut self, peer: PeerId, seq: Seq, owed: bool) -> bool {
        if owed {
            self.owed.insert((seq, peer));
            !self.debts.insert((peer, seq))
        } else {
            self.owed.remove(&(seq, peer));
            self.debts.remove(&(peer, seq))
        }
    }

    pub(crate) fn set_dead(&mut self, seq: Seq, peer: PeerId, at_ms: Option<u64>) {
        let old = self.dead.get(&(seq, peer)).copied();
        self.undo.push(Undo::Dead(seq, peer, old));
        restore(&mut self.dead, (seq, peer), at_ms);
    }

    /// Says whether there was one.
    pub(crate) fn set_notice(
        &mut self,
        sender: PeerId,
        number: u64,
        notice: Option<Notice>,
    ) -> bool {
        let old = self.notices.get(&(sender, number)).cloned();
        let was = old.is_some();
        self.undo.push(Undo::Notice(sender, number, old));
        restore(&mut self.notices, (sender, number), notice);
        was
    }

    pub(crate) fn set_block(&mut self, number: u64, block: Option<Block>) {
        let old = self.audit.get(&number).cloned();
        self.undo.push(Undo::Block(number, old));
        restore(&mut self.audit, number, block);
    }

    pub(crate) fn set_head(&mut self, head: Head) {
        self.undo.push(Undo::Head(self.head.replace(head)));
    }

    /// Whether a transaction is open; every method of `Txn` needs one.
    pub(crate) fn is_open(&self) -> Result<(), StoreError> {
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
            peers: self.peers.values().cloned().collect(),
            aliases: self.aliases.values().cloned().collect(),
            head: self.head.clone(),
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
                Undo::Peer(id, old) => restore(&mut self.peers, id, old),
                Undo::Alias(key, old) => restore(&mut self.aliases, key, old),
                Undo::Message(seq, old) => {
                    self.swap_message(seq, old);
                }
                Undo::Debt(peer, seq, was) => {
                    self.swap_debt(peer, seq, was);
                }
                Undo::Dead(seq, peer, old) => restore(&mut self.dead, (seq, peer), old),
                Undo::Notice(sender, number, old) => {
                    restore(&mut self.notices, (sender, number), old);
                }
                Undo::Block(number, old) => restore(&mut self.audit, number, old),
                Undo::Head(old) => self.head = old,
            }
        }
    }
}

impl Backend for MemoryStore {
    fn crash(&mut self) -> Result<(), StoreError> {
        self.rollback();
        Ok(())
    }

    fn audit_key(&self) -> Option<AuditKey> {
        None
    }

    fn audit(&mut self) -> Result<Audit, StoreError> {
        Ok(Audit::Chain(
            self.head.clone(),
            self.audit.values().cloned().collect(),
        ))
    }
}
