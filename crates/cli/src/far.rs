//! How far a message is, for who waits for it.

use std::time::Duration;

use peerbus_adapter::{Bus, BusError, PeerEntry, Receipt, Stage};
use peerbus_view::{PeerState, Trail, reached};

use crate::here::{about, around, denied, peers_of, ways_out};

/// How far a message is.
pub(crate) struct Far {
    pub(crate) receipts: Vec<Receipt>,
    /// What the one does that has it now.
    pub(crate) does: Option<PeerState>,
    pub(crate) trail: Trail,
    /// The list of peers, where that says more.
    peers: Vec<PeerEntry>,
}

impl Far {
    /// Asks the broker about the message `id`.
    pub(crate) async fn ask(bus: &Bus, id: &str, within: Duration) -> Result<Self, BusError> {
        let receipts = bus.statuses(&[id.to_owned()], within).await?;
        let peers = peers_of(bus, id, &receipts).await;
        let trail = Trail::among(id, &receipts, around(&peers));
        let mut far = Self {
            receipts,
            does: None,
            trail,
            peers,
        };
        let mut peers = far.peers.iter();
        let peer = peers.find(|peer| Some(&*peer.name) == far.holder());
        far.does = peer.map(|peer| about(peer).is);
        Ok(far)
    }

    /// At whom it is now, where one has it.
    pub(crate) fn holder(&self) -> Option<&str> {
        self.last()?.to.as_deref()
    }

    /// The stage there.
    pub(crate) fn stage(&self) -> Option<&Stage> {
        self.last().map(|receipt| &receipt.stage)
    }

    fn last(&self) -> Option<&Receipt> {
        let mut each = reached(self.receipts.iter()).into_values();
        each.find(|receipt| !matches!(receipt.stage, Stage::Recalled { .. }))
    }

    /// The sentence, with the way out where who has it waits for the user or is stopped, and what it was denied
    /// since it was sent.
    pub(crate) fn note(&self) -> String {
        let (note, peers) = (&self.trail.note, &self.peers);
        let holder = self.holder().into_iter();
        let first = self.receipts.first();
        let begun = first.and_then(|receipt| Some((receipt.id.as_str(), receipt.at_ms?)));
        let (joint, mut more) = match self.does {
            Some(PeerState::Waits) => (": ", ways_out(peers, holder.clone(), "")),
            Some(PeerState::Stuck) => ("; ", ways_out(peers, holder.clone(), note)),
            _ => ("; ", Vec::new()),
        };
        if let Some(sent) = begun.filter(|_| self.does != Some(PeerState::Waits)) {
            more.extend(denied(peers, holder, sent));
        }
        match more.is_empty() {
            true => note.clone(),
            false => format!("{note}{joint}{}", more.join("; ")),
        }
    }
}
