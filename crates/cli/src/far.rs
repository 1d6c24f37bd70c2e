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
    /// How the user lets that one go on: another dialog has other ways.
    pub(crate) ways: Vec<String>,
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
            ways: Vec::new(),
            trail,
            peers,
        };
        let mut peers = far.peers.iter();
        let peer = peers.find(|peer| Some(&*peer.name) == far.holder());
        // Nobody has what is queued: one that is stopped keeps it there.
        let is_queued = far.stage() == Some(&Stage::Queued);
        let peer = peer.filter(|peer| !is_queued || peer.stopped);
        far.does = peer.map(|peer| about(peer).is);
        let said = match far.does {
            Some(PeerState::Waits) => "",
            Some(PeerState::Stuck) => &far.trail.note,
            _ => return Ok(far),
        };
        far.ways = ways_out(&far.peers, far.holder().into_iter(), said);
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
        let (note, mut more) = (&self.trail.note, self.ways.clone());
        let first = self.receipts.first();
        let begun = first.and_then(|receipt| Some((receipt.id.as_str(), receipt.at_ms?)));
        let waits = self.does == Some(PeerState::Waits);
        let joint = if waits { ": " } else { "; " };
        if let Some(sent) = begun.filter(|_| !waits) {
            more.extend(denied(&self.peers, self.holder().into_iter(), sent));
        }
        match more.is_empty() {
            true => note.clone(),
            false => format!("{note}{joint}{}", more.join("; ")),
        }
    }
}
