//! How a broker came to be, who needs it, and whether somebody asked for its end.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use peerbus_core::grant::Grant;
use peerbus_core::store::PeerRow;
use peerbus_wire::PeerName;
use tokio::sync::Notify;

use crate::options::Origin;

#[derive(Debug, Default)]
pub(crate) struct Life {
    pub(crate) origin: Origin,
    /// Names that the database had, at the start, of tokens that are not admitted.
    pub(crate) unadmitted: usize,
    /// Sockets that were opened since the start, and those that are open.
    uses: AtomicU64,
    open: AtomicUsize,
    /// It is asked to end.
    pub(crate) asked: Notify,
}

/// How many of these names belong to tokens that are not among those that admit.
pub(crate) fn unadmitted(peers: &[PeerRow], grants: &[Grant]) -> usize {
    let admitted = |owner| grants.iter().any(|grant| grant.token == owner);
    let lasting = peers
        .iter()
        .filter(|row| !row.ephemeral && PeerName::parse(&row.name).is_ok());
    let owners = lasting.filter_map(|row| row.owner);
    owners.filter(|owner| !admitted(*owner)).count()
}

impl Life {
    pub(crate) fn came(&self) {
        self.uses.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn left(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many connected since the start; `None` while anybody is.
    pub(crate) fn unused(&self) -> Option<u64> {
        let nobody = self.open.load(Ordering::Relaxed) == 0;
        nobody.then(|| self.uses.load(Ordering::Relaxed))
    }
}
