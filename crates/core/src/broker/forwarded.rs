//! The queues of what bridges have forwarded, beside the peers.

use peerbus_wire::{Domain, Mark, PeerName};

use super::registry::Registry;
use crate::store::{PeerId, PeerRow, Result, Txn};

impl Registry {
    /// The domains to which a bridge has come.
    pub(super) fn bridges(&self) -> impl Iterator<Item = Domain> {
        let peers = self.peers.values().filter(|peer| peer.bridges());
        peers.filter_map(|peer| PeerName::parse(&peer.row.name).ok()?.bridged())
    }

    /// What a bridge has forwarded: its `mark` is the epoch of the broker that remembers it.
    pub(super) fn forwarded_by(&self, bridge: PeerId) -> Option<&PeerRow> {
        self.forwarded.get(&self.peers.get(&bridge)?.key)
    }

    /// Whether this is the queue of what some bridge has forwarded.
    pub(super) fn is_forwarded(&self, id: PeerId) -> bool {
        self.forwarded.values().any(|row| row.id == id)
    }

    /// Whether this is what is still owed to a bridge whose name has ended.
    pub(super) fn was_bridge(&self, id: PeerId) -> bool {
        let ended = self.ended.get(&id);
        let name = ended.and_then(|row| PeerName::parse(&row.name).ok());
        name.is_some_and(|name| name.bridged().is_some())
    }

    /// Keeps a bridge's mark, which is to be written.
    pub(super) fn mark(&mut self, bridge: PeerId, mark: Mark) {
        if let Some(known) = self.peers.get_mut(&bridge) {
            known.row.mark = Some(mark);
            self.marked.insert(bridge);
        }
    }

    /// Writes the marks that the transaction has changed: once, however many messages they are of.
    pub(super) fn write_marks(&mut self, txn: &mut dyn Txn) -> Result {
        while let Some(bridge) = self.marked.pop_first() {
            if let Some(known) = self.peers.get(&bridge) {
                txn.put_peer(&known.row)?;
            }
        }
        Ok(())
    }

    /// Takes the row of what a bridge has forwarded.
    pub(super) fn put_forwarded(&mut self, row: PeerRow) {
        if let Ok(bridge) = PeerName::parse(&row.name) {
            self.forwarded.insert(bridge.key(), row);
        }
    }

    /// Gives up the queue of what a bridge has forwarded.
    pub(super) fn take_forwarded(&mut self, bridge: PeerId) -> Option<PeerId> {
        let row = self.forwarded.remove(&self.peers.get(&bridge)?.key);
        row.map(|row| row.id)
    }
}
