//! Mail that nobody acked: expired, with word to its sender.

use peerbus_wire::{MessageId, Seq};

use super::ack::{Delivery, End};
use super::history::DeliveryHistory;
use super::{Broker, Cx};
use crate::store::{PeerId, StoreError};

/// Deliveries looked at in one slice.
pub(super) const SLICE: usize = 256;

/// Why mail for an ephemeral peer expires.
const LEFT: &str = "the recipient was temporary and has left";

impl Broker {
    /// Expires one slice of mail that is too old. Says whether there may be more.
    pub(super) fn expire_old(&mut self, cx: &mut Cx<'_>) -> Result<bool, StoreError> {
        let before = cx.at.steady_ms.saturating_sub(self.config.expiry_ms);
        let old = cx.txn.old_deliveries(before, SLICE)?;
        let days = self.config.expiry_ms / 86_400_000;
        let reason = format!("not acked within {days} days");
        let full = old.len() == SLICE;
        for (recipient, head) in old {
            self.expire(cx, (recipient, head.seq), head.sender, head.id, &reason)?;
        }
        Ok(full)
    }

    /// Expires one slice of the mail of generated names that have not been here for long, and of
    /// temporary ones whose connection broke and that did not come back soon, and forgets the
    /// names that have none left. Says whether there may be more.
    pub(super) fn expire_passing(&mut self, cx: &mut Cx<'_>) -> Result<bool, StoreError> {
        let gone = self.registry.iter().find(|(_, peer)| {
            let last_ms = peer.row.last_seen.steady_ms;
            let away_ms = cx.at.steady_ms.saturating_sub(last_ms);
            let passing = if peer.row.ephemeral {
                away_ms > self.config.grace_ms
            } else {
                peer.row.generated && away_ms > self.config.expiry_generated_ms
            };
            passing && peer.conn.is_none()
        });
        let Some((id, peer)) = gone else {
            return Ok(false);
        };
        let days = self.config.expiry_generated_ms / 86_400_000;
        let reason = if peer.row.ephemeral {
            LEFT.to_owned()
        } else {
            format!("its generated name was not here for {days} days")
        };
        self.expire_queue(cx, id, &reason)?;
        Ok(true)
    }

    /// An ephemeral peer has left: its mail and its name go.
    pub(super) fn forget_ephemeral(
        &mut self,
        cx: &mut Cx<'_>,
        peer: PeerId,
    ) -> Result<(), StoreError> {
        while self.registry.get(peer).is_some() {
            self.expire_queue(cx, peer, LEFT)?;
        }
        Ok(())
    }

    /// Expires one slice of a peer's queue; forgets the peer when that was all.
    fn expire_queue(
        &mut self,
        cx: &mut Cx<'_>,
        peer: PeerId,
        reason: &str,
    ) -> Result<(), StoreError> {
        let queued = cx.txn.read_queue(peer, SLICE, usize::MAX)?;
        let last = queued.len() < SLICE;
        for message in queued {
            let delivery = (peer, message.seq);
            self.expire(cx, delivery, message.sender, message.id, reason)?;
        }
        if last {
            self.forget(cx, peer)?;
        }
        Ok(())
    }

    /// Expires one delivery.
    pub(super) fn expire(
        &mut self,
        cx: &mut Cx<'_>,
        (recipient, seq): (PeerId, Seq),
        sender: PeerId,
        id: MessageId,
        reason: &str,
    ) -> Result<(), StoreError> {
        let mut history = DeliveryHistory::default();
        if let Some(conn) = self.registry.conn(recipient)
            && let Some(session) = self.conns.session_mut(conn)
            && let Some(flight) = session.flights.remove(seq)
        {
            history = flight.history;
            self.registry.mark_dirty(recipient);
        }
        let delivery = Delivery {
            seq,
            recipient,
            sender,
            id,
            history,
        };
        self.finish(cx, delivery, End::Expired(reason))
    }
}
