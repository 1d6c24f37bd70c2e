//! Mail that nobody acked: expired, with word to its sender.

use super::ack::End;
use super::{Broker, CommitNeed, Cx};
use crate::store::{MessageHead, PeerId, Result};

/// Deliveries looked at in one slice.
pub(super) const SLICE: usize = 256;

/// Bytes of mail that one slice reads.
const SLICE_BYTES: usize = 4 * 1_048_576;

/// Why mail for an ephemeral peer expires.
pub(super) const LEFT: &str = "the recipient was temporary and has left";

impl Broker {
    /// Expires one slice of mail that is too old. Says whether there may be more.
    pub(super) fn expire_old(&mut self, cx: &mut Cx<'_>) -> Result<bool> {
        let before = cx.at.steady_ms.saturating_sub(self.config.expiry_ms);
        let old = cx.txn.old_deliveries(before, SLICE)?;
        let days = self.config.expiry_ms / 86_400_000;
        let reason = format!("not acked within {days} days");
        let full = old.len() == SLICE;
        for (recipient, head) in old {
            self.expire(cx, (recipient, head), &reason)?;
        }
        Ok(full)
    }

    /// Expires one slice of the mail of generated names that have not been here for long, and of
    /// temporary ones whose connection broke and that did not come back soon, and forgets the
    /// names that have none left. Says whether there may be more.
    pub(super) fn expire_passing(&mut self, cx: &mut Cx<'_>) -> Result<bool> {
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
        if !self.expire_queue(cx, id, &reason)? {
            self.forget(cx, id)?;
        }
        Ok(true)
    }

    /// An ephemeral peer has left: its name goes, and its mail slice by slice.
    pub(super) fn forget_ephemeral(&mut self, cx: &mut Cx<'_>, peer: PeerId) -> Result {
        self.leave_requests(cx, peer, LEFT)?;
        if !self.expire_queue(cx, peer, LEFT)? {
            return self.forget(cx, peer);
        }
        if let Some((_, row)) = self.registry.end(peer, cx.at) {
            self.keep_left(cx, &row)?;
            self.outbox.want(CommitNeed::Soon);
            self.sweep.pass_now(cx.now);
        }
        Ok(())
    }

    /// Expires one slice of a queue. Says whether there was anything in it.
    pub(super) fn expire_queue(
        &mut self,
        cx: &mut Cx<'_>,
        peer: PeerId,
        reason: &str,
    ) -> Result<bool> {
        let queued = cx.txn.read_queue(peer, SLICE, SLICE_BYTES)?;
        let any = !queued.is_empty();
        for message in queued {
            self.expire(cx, (peer, message.head), reason)?;
        }
        Ok(any)
    }

    /// Expires one delivery.
    fn expire(
        &mut self,
        cx: &mut Cx<'_>,
        (recipient, head): (PeerId, MessageHead),
        reason: &str,
    ) -> Result {
        let history = self.land(recipient, head.seq);
        self.finish(cx, (recipient, head), history, End::Expired(reason))
    }
}
