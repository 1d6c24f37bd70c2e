//! The peers that are known.

use std::collections::{BTreeMap, BTreeSet};

use peerbus_wire::{NameKey, PeerName, Seq};

use super::ConnId;
use crate::store::{PeerId, PeerRow};

/// A known peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) row: PeerRow,
    pub(super) key: NameKey,
    /// Its live connection.
    pub(super) conn: Option<ConnId>,
    /// The connection that wants the name from the live one.
    pub(super) contender: Option<ConnId>,
    /// It counts as registered for a broadcast until then (monotonic).
    pub(super) grace_until: u64,
    /// When its connection last changed hands (monotonic).
    pub(super) taken_over_ms: Option<u64>,
    /// The last message owed to it; `None` until it was asked for.
    pub(super) last_debt: Option<Seq>,
    /// How many messages are owed to it; `None` until it was counted.
    pub(super) owed: Option<u64>,
    /// The last message that was delivered on a connection that ended.
    pub(super) delivered: Seq,
}

/// Every known peer, by number and by name.
#[derive(Debug, Default)]
pub(super) struct Registry {
    peers: BTreeMap<PeerId, Peer>,
    names: BTreeMap<NameKey, PeerId>,
    /// Peers that may have room for mail that waits.
    dirty: BTreeSet<PeerId>,
    online: usize,
}

impl Registry {
    /// Takes the rows of a store. Whoever was connected when the broker stopped counts as seen at
    /// `wall_ms`: the row's time is that of its registration.
    pub(super) fn new(rows: Vec<PeerRow>, grace_until: u64, wall_ms: u64) -> Self {
        let mut registry = Self::default();
        for mut row in rows {
            let grace = if row.online { grace_until } else { 0 };
            if row.online {
                row.last_seen_ms = row.last_seen_ms.max(wall_ms);
            }
            registry.insert(row, grace);
        }
        registry
    }

    /// Adds a peer. A row whose name breaks today's rules is left in the store, unreachable.
    pub(super) fn insert(&mut self, row: PeerRow, grace_until: u64) {
        let Ok(name) = PeerName::parse(&row.name) else {
            return;
        };
        let key = name.key();
        self.names.insert(key.clone(), row.id);
        self.peers.insert(
            row.id,
            Peer {
                row,
                key,
                conn: None,
                contender: None,
                grace_until,
                taken_over_ms: None,
                last_debt: None,
                owed: None,
                delivered: Seq(0),
            },
        );
    }

    pub(super) fn remove(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.remove(&id) {
            self.names.remove(&peer.key);
        }
        self.dirty.remove(&id);
    }

    pub(super) fn len(&self) -> usize {
        self.peers.len()
    }

    pub(super) fn find(&self, key: &NameKey) -> Option<PeerId> {
        self.names.get(key).copied()
    }

    pub(super) fn get(&self, id: PeerId) -> Option<&Peer> {
        self.peers.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.peers.get_mut(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PeerId, &Peer)> {
        self.peers.iter().map(|(id, peer)| (*id, peer))
    }

    /// The name to show for a peer; empty for one that was forgotten.
    pub(super) fn name(&self, id: PeerId) -> String {
        self.peers
            .get(&id)
            .map(|p| p.row.name.clone())
            .unwrap_or_default()
    }

    /// The live connection of a peer.
    pub(super) fn conn(&self, id: PeerId) -> Option<ConnId> {
        self.peers.get(&id)?.conn
    }

    /// Ties a peer to its live connection, or to none.
    pub(super) fn set_conn(&mut self, id: PeerId, conn: Option<ConnId>) {
        if let Some(peer) = self.peers.get_mut(&id) {
            self.online -= usize::from(peer.conn.is_some());
            self.online += usize::from(conn.is_some());
            peer.conn = conn;
        }
    }

    pub(super) fn online(&self) -> usize {
        self.online
    }

    pub(super) fn mark_dirty(&mut self, id: PeerId) {
        self.dirty.insert(id);
    }

    pub(super) fn next_dirty(&mut self) -> Option<PeerId> {
        self.dirty.pop_first()
    }

    pub(super) fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }
}
