//! What is kept for a while and then goes: messages that ended, rejected ones, notices, audit blocks.
//!
//! Works in slices, so that nobody waits behind it.

use peerbus_wire::Seq;

use super::expire::SLICE;
use super::{Broker, CommitNeed, Cx};
use crate::store::{Keep, PeerId, Result, Txn};
use crate::{Now, Stamp};

/// Ends of deliveries that one slice forgets, about.
const FORGET: usize = 1_024;

/// How far the steady clock gets at most before it is written down, in milliseconds: half of what
/// a stop adds to it.
const SEAL_MS: u64 = 43_200_000;

/// The part of what may be kept of mail that ended by which it may be too much until the next sweep.
const OVER_PART: u64 = 64;

/// Time between two slices of a sweep, in milliseconds.
const PAUSE_MS: u64 = 20;

/// The state of expiry and retention.
#[derive(Debug)]
pub(super) struct Sweep {
    /// When the next slice is due (monotonic).
    next_ms: u64,
    /// When the next pass is due, which looks at everything, or its next slice.
    pass_ms: u64,
    /// An audit block is to be written even if there is nothing to say in it: for its time, or for
    /// the anchor.
    pub(super) block_due: bool,
    /// When the last audit block was sealed, steady clock.
    sealed_ms: u64,
    /// Bytes of mail that ended since the last slice.
    ended: u64,
    /// A pass is under way.
    passing: bool,
    /// The last slice of expiry was full.
    expiring: bool,
}

impl Sweep {
    pub(super) fn new(next_ms: u64, sealed: Option<Stamp>) -> Self {
        Self {
            next_ms,
            pass_ms: next_ms,
            block_due: false,
            sealed_ms: sealed.unwrap_or_default().steady_ms,
            ended: 0,
            passing: false,
            expiring: false,
        }
    }

    /// An audit block is sealed.
    pub(super) fn sealed(&mut self, at: Stamp) {
        self.block_due = false;
        self.sealed_ms = at.steady_ms;
    }

    /// When the next slice is due (monotonic).
    pub(super) fn due_ms(&self) -> u64 {
        self.next_ms.min(self.pass_ms)
    }

    /// Has a pass begin, or go on, now.
    pub(super) fn pass_now(&mut self, now: Now) {
        self.pass_ms = now.mono_ms;
    }

    /// Has what is kept looked at soon.
    pub(super) fn forget_soon(&mut self, now: Now) {
        self.next_ms = self.next_ms.min(now.mono_ms + PAUSE_MS);
    }
}

impl Broker {
    /// Does one slice of expiry and retention and says when the next is due.
    pub(super) fn sweep(&mut self, cx: &mut Cx<'_>) -> Result {
        if cx.now.mono_ms >= self.sweep.pass_ms {
            let more = self.pass(cx)?;
            self.sweep.passing = more;
            let pause = if more { PAUSE_MS } else { self.config.sweep_ms };
            self.sweep.pass_ms = cx.now.mono_ms + pause;
        }
        self.sweep.ended = 0;
        self.write_fates(cx.at.steady_ms, cx.txn)?;
        self.sweep.next_ms = match self.forget_ended(cx)? {
            true => cx.now.mono_ms + PAUSE_MS,
            false => u64::MAX,
        };
        Ok(())
    }

    /// Does one slice of a pass. Says whether there is more to do.
    fn pass(&mut self, cx: &mut Cx<'_>) -> Result<bool> {
        self.note_absent(cx)?;
        if cx.at.steady_ms.saturating_sub(self.sweep.sealed_ms) >= SEAL_MS {
            self.write_time();
        }
        // Once a pass, however many slices the pass has.
        let begins = !self.sweep.passing;
        if begins {
            self.end_budgets(cx.now.mono_ms);
        }
        if begins || self.sweep.expiring {
            self.sweep.expiring = self.expire_old(cx)?;
        }
        let mut more = self.sweep.expiring;
        more |= self.expire_passing(cx)?;
        more |= self.settle_ended(cx)?;
        self.forget_left(cx)?;
        more |= self.expire_aliases(cx)?;
        // Whether a message is needed yet is seen in what is written, also of what has just ended.
        self.write_fates(cx.at.steady_ms, cx.txn)?;
        more |= self.drop_old(cx)?;
        Ok(more)
    }

    /// Has the steady clock written down, unless there is nothing yet that could age.
    pub(super) fn write_time(&mut self) {
        if self.head.blocks > 0 {
            self.sweep.block_due = true;
            self.outbox.want(CommitNeed::Soon);
        }
    }

    /// Writes down who was connected when an earlier broker stopped and has not come back in time,
    /// so that the next start does not count it as connected again.
    fn note_absent(&mut self, cx: &mut Cx<'_>) -> Result {
        if self.stopping {
            return Ok(());
        }
        let absent = |(id, peer): (PeerId, &super::registry::Peer)| {
            let gone = peer.conn.is_none() && cx.now.mono_ms >= peer.grace_until;
            (gone && peer.row.online).then_some(id)
        };
        let absent: Vec<_> = self.registry.iter().filter_map(absent).collect();
        for peer in absent {
            if let Some(peer) = self.registry.get_mut(peer) {
                peer.row.online = false;
                cx.txn.put_peer(&peer.row)?;
                self.outbox.want(CommitNeed::Soon);
            }
        }
        Ok(())
    }

    /// Mail of which so many bytes are kept ended. When more may be kept of it than should be, a slice is due.
    pub(super) fn ended(&mut self, now: Now, bytes: u64) {
        self.fates_bytes += bytes;
        self.sweep.ended += bytes;
        if self.sweep.ended > self.config.history_bytes / OVER_PART {
            self.sweep.forget_soon(now);
        }
    }

    /// Forgets the text of what a temporary peer said to another one. Says whether it did.
    pub(super) fn forget_fleeting(
        &self,
        txn: &mut dyn Txn,
        (recipient, sender): (PeerId, PeerId),
        seq: Seq,
    ) -> Result<bool> {
        // Or it was, and has left.
        let temporary = |peer| self.registry.row(peer).is_none_or(|row| row.ephemeral);
        if !temporary(recipient) || !temporary(sender) {
            return Ok(false);
        }
        txn.forget_text(seq)
    }

    /// Forgets one slice of what is kept of mail that ended. Says whether there may be more.
    fn forget_ended(&mut self, cx: &mut Cx<'_>) -> Result<bool> {
        let before = |ms: u64| cx.at.steady_ms.saturating_sub(ms);
        // While new mail has no room, what was read gives way, slice by slice.
        let bytes = if self.full {
            0
        } else {
            self.config.history_bytes
        };
        let keep = Keep {
            from_ms: before(self.config.history_ms),
            bytes,
            ids_from_ms: before(self.config.settled_ms),
        };
        let gone = cx.txn.forget_ended(keep, FORGET)?;
        if gone.rows > 0 {
            self.outbox.want(CommitNeed::Soon);
        }
        Ok(gone.more)
    }

    /// Forgets one slice of what ended before `from_ms`.
    pub(super) fn forget_until(
        &mut self,
        from_ms: u64,
        steady_ms: u64,
        txn: &mut dyn Txn,
    ) -> Result<bool> {
        let keep = Keep {
            from_ms,
            bytes: u64::MAX,
            ids_from_ms: steady_ms.saturating_sub(self.config.settled_ms),
        };
        let gone = txn.forget_ended(keep, FORGET)?;
        self.outbox.want(CommitNeed::Now);
        Ok(gone.more)
    }

    fn drop_old(&mut self, cx: &mut Cx<'_>) -> Result<bool> {
        let before = cx.at.steady_ms.saturating_sub(self.config.retention_ms);
        let dead = cx.txn.delete_dead(before, self.config.dead_bytes, SLICE)?;
        let oldest = self
            .head
            .next_notice
            .saturating_sub(self.config.notices_max);
        let notices = cx.txn.delete_notices(before, oldest, SLICE)?;
        let audit = cx.txn.old_audit(before, SLICE)?;
        if let Some(block) = &audit {
            cx.txn.drop_audit(block.number)?;
            (self.head.anchor, self.head.anchor_hash) = (block.number, block.hash);
            self.sweep.block_due = true;
        }
        if dead.rows + notices > 0 || audit.is_some() {
            self.outbox.want(CommitNeed::Soon);
        }
        Ok(dead.more || notices == SLICE || audit.is_some())
    }
}
