//! The queues of what bridges have forwarded, beside the peers.

use peerbus_wire::{Domain, Mark, PeerName};

use super::registry::{Ended, Registry};
use crate::store::{Ending, PeerId, PeerRow, StoreError, Txn};

impl Registry {
    /// The domains to which a bridge has come.
    pub(super) fn bridges(&self) -> impl Iterator<Item = Domain> {
        let peers = self.peers.values().filter(|peer| peer.bridges());
        peers.filter_map(|peer| PeerName::parse(&peer.row.name).ok()?.bridged())
    }

    /// The queue of what a bridge has forwarded, and to which epoch.
    pub(super) fn forwarded_by(&self, bridge: PeerId) -> Option<(PeerId, &Mark)> {
        let key = &self.peers.get(&bridge)?.key;
        let (row, epoch) = self.forwarded.get(key)?;
        Some((row.id, epoch))
    }

    /// Whether this is the queue of what some bridge has forwarded, now or before its broker's epoch
    /// ended.
    pub(super) fn is_forwarded(&self, id: PeerId) -> bool {
        let ended = || {
            self.ended
                .get(&id)
                .is_some_and(|it| it.row.forwarded_by().is_some())
        };
        self.forwarded.values().any(|(row, _)| row.id == id) || ended()
    }

    /// Keeps a bridge's mark, which is to be written.
    pub(super) fn mark(&mut self, bridge: PeerId, mark: Mark) {
        if let Some(known) = self.peers.get_mut(&bridge) {
            known.row.mark = Some(mark);
            self.marked.insert(bridge);
        }
    }

    /// Writes the marks that the transaction has changed: once, however many messages they are of.
    pub(super) fn write_marks(&mut self, txn: &mut dyn Txn) -> Result<(), StoreError> {
        while let Some(bridge) = self.marked.pop_first() {
            if let Some(known) = self.peers.get(&bridge) {
                txn.put_peer(&known.row)?;
            }
        }
        Ok(())
    }

    /// Takes the row of what a bridge has forwarded.
    pub(super) fn put_forwarded(&mut self, row: PeerRow) {
        if let Some((bridge, epoch)) = row.forwarded_by()
            && let Ok(bridge) = PeerName::parse(bridge)
        {
            self.forwarded.insert(bridge.key(), (row, epoch));
        }
    }

    /// Ends what a bridge has forwarded; gives the row, which is to be written.
    pub(super) fn end_forwarded(&mut self, bridge: PeerId, ending: Ending) -> Option<PeerRow> {
        let key = &self.peers.get(&bridge)?.key;
        let (mut row, _) = self.forwarded.remove(key)?;
        row.ending = Some(ending);
        let ended = Ended {
            row: row.clone(),
            ending,
        };
        self.ended.insert(row.id, ended);
        Some(row)
    }
}
