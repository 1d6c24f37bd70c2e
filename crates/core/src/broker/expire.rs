//! Mail that nobody acked: expired, with word to its sender.

use peerbus_wire::{Seq, Stage};

use super::ack::Told;
use super::ladder::{End, Way};
use super::{Broker, Count, Need, Output};
use crate::Now;
use crate::audit::Event;
use crate::store::{MessageHead, PeerId, StoreError, Txn};

/// Debts looked at in one slice.
pub(super) const SLICE: usize = 256;

/// Why mail for an ephemeral peer expires.
const LEFT: &str = "the recipient was temporary and has left";

impl Broker {
    /// Expires one slice of mail that is too old. Says whether there may be more.
    pub(super) fn expire_old<T: Txn + ?Sized>(
        &mut self,
        now: Now,
        txn: &mut T,
    ) -> Result<bool, StoreError> {
        let before = now.wall_ms.saturating_sub(self.config.expiry_ms);
        let old = txn.old_debts(before, SLICE)?;
        let days = self.config.expiry_ms / 86_400_000;
        let reason = format!("not acked within {days} days");
        for (recipient, message) in &old {
            self.expire(now, *recipient, message, &reason, txn)?;
        }
        Ok(old.len() == SLICE)
    }

    /// Expires one slice of the mail of generated names that have not been here for long, and of
    /// temporary ones whose connection broke and that did not come back soon, and forgets the
    /// names that have none left. Says whether there may be more.
    pub(super) fn expire_passing<T: Txn + ?Sized>(
        &mut self,
        now: Now,
        txn: &mut T,
    ) -> Result<bool, StoreError> {
        let gone = self.registry.iter().find(|(_, peer)| {
            let away_ms = now.wall_ms.saturating_sub(peer.row.last_seen_ms);
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
        self.expire_queue(now, id, &reason, txn)?;
        Ok(true)
    }

    /// An ephemeral peer has left: its mail and its name go.
    pub(super) fn forget_ephemeral<T: Txn + ?Sized>(
        &mut self,
        now: Now,
        peer: PeerId,
        txn: &mut T,
    ) -> Result<(), StoreError> {
        while self.registry.get(peer).is_some() {
            self.expire_queue(now, peer, LEFT, txn)?;
        }
        Ok(())
    }

    /// Expires one slice of a peer's queue; forgets the peer when that was all.
    fn expire_queue<T: Txn + ?Sized>(
        &mut self,
        now: Now,
        peer: PeerId,
        reason: &str,
        txn: &mut T,
    ) -> Result<(), StoreError> {
        let queued = txn.read_queue(peer, Seq(0), SLICE, usize::MAX)?;
        for message in &queued {
            let head = MessageHead {
                seq: message.seq,
                sender: message.sender,
                id: message.id.clone(),
                recipients: 1,
                accepted_ms: message.accepted_ms,
            };
            self.expire(now, peer, &head, reason, txn)?;
        }
        if queued.len() < SLICE {
            self.forget(peer, txn)?;
        }
        Ok(())
    }

    pub(super) fn expire<T: Txn + ?Sized>(
        &mut self,
        now: Now,
        recipient: PeerId,
        message: &MessageHead,
        reason: &str,
        txn: &mut T,
    ) -> Result<(), StoreError> {
        if !txn.delete_debt(recipient, message.seq)? {
            return Ok(());
        }
        self.expiring = true;
        self.settled(recipient);
        let mut way = Way::default();
        if let Some(conn) = self.registry.conn(recipient)
            && let Some(session) = self.conns.session_mut(conn)
            && let Some(flight) = session.flights.remove(message.seq)
        {
            way = flight.way;
            self.registry.mark_dirty(recipient);
        }
        self.log.push(&Event::Expire {
            seq: message.seq,
            recipient,
        });
        self.outbox.now(Output::Count(Count::Expired));
        self.outbox.want(Need::Soon);
        let to = self.registry.name(recipient);
        let end = Some(End {
            to: to.clone(),
            stage: Stage::Expired { why: reason.into() },
            at_ms: now.wall_ms,
        });
        let of = (message.sender, &message.id);
        self.recent.record(of, recipient, way, end);
        let (sender, id) = (message.sender, message.id.clone());
        let told = Told {
            sender,
            id,
            to,
            dead: false,
            reason,
        };
        self.notify(now, (message.seq, recipient), told, txn)
    }
}
