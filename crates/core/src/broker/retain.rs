//! What is kept for a while and then goes: settled messages, rejected ones, notices, audit blocks.
//!
//! Works in slices, so that nobody waits behind it.

use std::collections::BTreeMap;

use peerbus_wire::Seq;

use super::expire::SLICE;
use super::{Broker, Cx, Need};
use crate::Stamp;
use crate::store::{PeerId, StoreError};

/// Messages looked at in one slice.
const SCAN: usize = 2_048;

/// Runs of settled messages that are remembered; more wait for the next pass.
const RUNS_MAX: usize = 65_536;

/// How far the steady clock gets at most before it is written down, in milliseconds: half of what
/// a stop adds to it.
const SEAL_MS: u64 = 43_200_000;

/// Time between two slices of a sweep, in milliseconds.
const PAUSE_MS: u64 = 20;

/// The state of expiry and retention.
#[derive(Debug)]
pub(super) struct Sweep {
    /// When the next slice is due (monotonic).
    pub(super) next_ms: u64,
    /// An audit block is to be written even if there is nothing to say in it: for its time, or for
    /// the anchor.
    pub(super) block_due: bool,
    /// When the last audit block was sealed, steady clock.
    sealed_ms: u64,
    /// The last message that the present pass looked at.
    cursor: Seq,
    /// Messages that are owed to nobody: runs of neighbours that were first seen so at the same
    /// time, by their first number.
    runs: BTreeMap<Seq, Run>,
    /// Something may have become settled since the last pass began.
    pub(super) rescan: bool,
    /// The last slice of expiry was full.
    expiring: bool,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    last: Seq,
    seen_ms: u64,
}

impl Sweep {
    pub(super) fn new(next_ms: u64, sealed: Option<Stamp>) -> Self {
        Self {
            next_ms,
            block_due: false,
            sealed_ms: sealed.unwrap_or_default().steady_ms,
            cursor: Seq(0),
            runs: BTreeMap::new(),
            rescan: true,
            expiring: false,
        }
    }

    /// An audit block is sealed.
    pub(super) fn sealed(&mut self, at: Stamp) {
        self.block_due = false;
        self.sealed_ms = at.steady_ms;
    }

    /// Adds a settled message, unless it is known.
    fn add(&mut self, seq: Seq, now_ms: u64) {
        let before = self.runs.range_mut(..=seq).next_back();
        if let Some((_, run)) = before {
            if run.last >= seq {
                return;
            }
            if run.last.0 + 1 == seq.0 && run.seen_ms == now_ms {
                run.last = seq;
                return;
            }
        }
        self.runs.insert(
            seq,
            Run {
                last: seq,
                seen_ms: now_ms,
            },
        );
    }

    /// Takes settled messages whose time is over, at most `limit`.
    fn take(&mut self, now_ms: u64, keep_ms: u64, limit: usize) -> Vec<Seq> {
        let mut out = Vec::new();
        let over: Vec<_> = self
            .runs
            .iter()
            .filter(|(_, run)| now_ms.saturating_sub(run.seen_ms) >= keep_ms)
            .map(|(first, run)| (*first, *run))
            .take(limit)
            .collect();
        for (first, run) in over {
            self.runs.remove(&first);
            let end = run.last.0.min(first.0 + (limit - out.len()) as u64 - 1);
            out.extend((first.0..=end).map(Seq));
            if end < run.last.0 {
                self.runs.insert(Seq(end + 1), run);
            }
            if out.len() == limit {
                break;
            }
        }
        out
    }
}

impl Broker {
    /// Does one slice of expiry and retention and says when the next is due.
    pub(super) fn sweep(&mut self, cx: &mut Cx<'_>) -> Result<(), StoreError> {
        self.note_absent(cx)?;
        if cx.at.steady_ms.saturating_sub(self.sweep.sealed_ms) >= SEAL_MS {
            self.write_time();
        }
        // Once a pass, however many slices the pass has.
        let begins = self.sweep.cursor == Seq(0);
        if begins || self.sweep.expiring {
            self.sweep.expiring = self.expire_old(cx)?;
        }
        let mut more = self.sweep.expiring;
        more |= self.expire_passing(cx)?;
        more |= self.settle_ended(cx)?;
        more |= self.expire_aliases(cx)?;
        more |= self.scan_settled(cx)?;
        more |= self.drop_settled(cx)?;
        more |= self.drop_old(cx)?;
        let pause = if more { PAUSE_MS } else { self.config.sweep_ms };
        self.sweep.next_ms = cx.now.mono_ms + pause;
        Ok(())
    }

    /// Has the steady clock written down, unless there is nothing yet that could age.
    pub(super) fn write_time(&mut self) {
        if self.head.blocks > 0 {
            self.sweep.block_due = true;
            self.outbox.want(Need::Soon);
        }
    }

    /// Writes down who was connected when an earlier broker stopped and has not come back in time,
    /// so that the next start does not count it as connected again.
    fn note_absent(&mut self, cx: &mut Cx<'_>) -> Result<(), StoreError> {
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
                self.outbox.want(Need::Soon);
            }
        }
        Ok(())
    }

    fn scan_settled(&mut self, cx: &mut Cx<'_>) -> Result<bool, StoreError> {
        let begins = self.sweep.cursor == Seq(0);
        if self.sweep.runs.len() >= RUNS_MAX || begins && !self.sweep.rescan {
            return Ok(false);
        }
        if begins {
            self.sweep.rescan = false;
        }
        let (settled, last) = cx.txn.settled(self.sweep.cursor, SCAN)?;
        for seq in settled {
            self.sweep.add(seq, cx.now.mono_ms);
        }
        self.sweep.cursor = last.unwrap_or_default();
        Ok(last.is_some())
    }

    fn drop_settled(&mut self, cx: &mut Cx<'_>) -> Result<bool, StoreError> {
        let gone = self
            .sweep
            .take(cx.now.mono_ms, self.config.settled_ms, SCAN);
        if !gone.is_empty() {
            cx.txn.delete_messages(&gone)?;
            self.outbox.want(Need::Soon);
        }
        Ok(gone.len() == SCAN)
    }

    fn drop_old(&mut self, cx: &mut Cx<'_>) -> Result<bool, StoreError> {
        let before = cx.at.steady_ms.saturating_sub(self.config.retention_ms);
        let dead = cx.txn.delete_dead(before, SLICE)?;
        self.sweep.rescan |= dead > 0;
        let notices = cx.txn.delete_notices(before, SLICE)?;
        let audit = cx.txn.old_audit(before, SLICE)?;
        if let Some(block) = &audit {
            cx.txn.drop_audit(block.number)?;
            (self.head.anchor, self.head.anchor_hash) = (block.number, block.hash);
            self.sweep.block_due = true;
        }
        let before = cx.at.steady_ms.saturating_sub(self.config.history_ms);
        let fates = cx
            .txn
            .delete_fates(before, self.config.history_bytes, SCAN)?;
        if dead + notices + fates > 0 || audit.is_some() {
            self.outbox.want(Need::Soon);
        }
        Ok(dead == SLICE || notices == SLICE || audit.is_some() || fates >= SCAN)
    }
}
