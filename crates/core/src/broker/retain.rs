//! What is kept for a while and then goes: settled messages, rejected ones, notices, audit blocks.
//!
//! Works in slices, so that nobody waits behind it.

use std::collections::BTreeMap;

use peerbus_wire::Seq;

use super::expire::{SLICE, SLICE_BYTES};
use super::{Broker, Cx, Need};
use crate::store::{PeerId, StoreError};
use crate::{Now, Stamp};

/// Messages looked at in one slice.
const SCAN: usize = 2_048;

/// Runs of settled messages that are remembered; more wait for a later pass, without their texts.
const RUNS_MAX: usize = 65_536;

/// How far the steady clock gets at most before it is written down, in milliseconds: half of what
/// a stop adds to it.
const SEAL_MS: u64 = 43_200_000;

/// When texts of settled messages are dropped, so many that this part of the bound is free: each pass
/// looks at all messages.
const ROOM_PART: u64 = 4;

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
    rescan: bool,
    /// Bytes of texts of settled messages that are remembered.
    texts: u64,
    /// Bytes of mail that ended since the last pass began.
    ended: u64,
    /// Texts are being dropped.
    dropping: bool,
    /// The last slice of expiry was full.
    expiring: bool,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    last: Seq,
    seen_ms: u64,
    /// The first message that may have its text.
    whole: Seq,
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
            texts: 0,
            ended: 0,
            dropping: false,
            expiring: false,
        }
    }

    /// An audit block is sealed.
    pub(super) fn sealed(&mut self, at: Stamp) {
        self.block_due = false;
        self.sealed_ms = at.steady_ms;
    }

    /// Adds a settled message, unless it is known. Says whether there was room to remember it.
    fn add(&mut self, (seq, text): (Seq, u64), now_ms: u64) -> bool {
        let before = self.runs.range_mut(..=seq).next_back();
        if let Some((_, run)) = before {
            if run.last >= seq {
                return true;
            }
            if run.last.0 + 1 == seq.0 && run.seen_ms == now_ms {
                run.last = seq;
                self.texts += text;
                return true;
            }
        }
        if self.runs.len() >= RUNS_MAX {
            return false;
        }
        self.texts += text;
        self.runs.insert(
            seq,
            Run {
                last: seq,
                seen_ms: now_ms,
                whole: seq,
            },
        );
        true
    }

    /// The first settled messages that may have their texts, when too much is kept of them.
    fn texts_to_drop(&mut self, max: u64) -> Vec<Seq> {
        let room = if self.dropping { max / ROOM_PART } else { 0 };
        let over = self.texts > max - room;
        let whole = self.runs.values().find(|run| run.whole <= run.last);
        let Some(run) = whole.filter(|_| over) else {
            self.dropping = false;
            return Vec::new();
        };
        self.dropping = true;
        let first = run.whole.0;
        (first..=run.last.0).take(SLICE).map(Seq).collect()
    }

    /// The texts up to this message's are gone.
    fn texts_dropped(&mut self, last: Seq, bytes: u64) {
        if let Some((_, run)) = self.runs.range_mut(..=last).next_back() {
            run.whole = Seq(last.0 + 1);
        }
        self.texts = self.texts.saturating_sub(bytes);
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
                let first = Seq(end + 1);
                let whole = run.whole.max(first);
                self.runs.insert(first, Run { whole, ..run });
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
        if begins {
            self.end_budgets(cx.now.mono_ms);
        }
        if begins || self.sweep.expiring {
            self.sweep.expiring = self.expire_old(cx)?;
        }
        let mut more = self.sweep.expiring;
        more |= self.expire_passing(cx)?;
        more |= self.settle_ended(cx)?;
        more |= self.expire_aliases(cx)?;
        more |= self.scan_settled(cx)?;
        more |= self.drop_texts(cx)?;
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
        if begins && !self.sweep.rescan {
            return Ok(false);
        }
        if begins {
            (self.sweep.rescan, self.sweep.ended) = (false, 0);
        }
        let (settled, last) = cx.txn.settled(self.sweep.cursor, SCAN)?;
        self.sweep.cursor = last.unwrap_or_default();
        let now_ms = cx.now.mono_ms;
        let forgotten = settled.into_iter();
        let forgotten = forgotten.filter(|message| !self.sweep.add(*message, now_ms));
        let forgotten: Vec<_> = forgotten.map(|(seq, _)| seq).collect();
        if !forgotten.is_empty() {
            self.sweep.rescan = true;
            let (count, freed) = cx.txn.drop_texts(&forgotten, SLICE_BYTES as u64)?;
            if let Some(next) = forgotten.get(count) {
                self.sweep.cursor = Seq(next.0 - 1);
            }
            if freed > 0 {
                self.outbox.want(Need::Soon);
            }
        }
        Ok(last.is_some())
    }

    /// Mail of so many bytes ended. When more may be kept of it than should be, a sweep is due.
    pub(super) fn ended(&mut self, now: Now, bytes: u64) {
        let sweep = &mut self.sweep;
        sweep.rescan = true;
        sweep.ended += bytes;
        if sweep.texts + sweep.ended > self.config.ended_bytes {
            sweep.next_ms = sweep.next_ms.min(now.mono_ms + PAUSE_MS);
        }
    }

    /// Drops one slice of the texts of settled messages when there is too much of them.
    fn drop_texts(&mut self, cx: &mut Cx<'_>) -> Result<bool, StoreError> {
        let seqs = self.sweep.texts_to_drop(self.config.ended_bytes);
        let (count, freed) = cx.txn.drop_texts(&seqs, SLICE_BYTES as u64)?;
        if let Some(last) = seqs.get(count.saturating_sub(1)) {
            self.sweep.texts_dropped(*last, freed);
            self.outbox.want(Need::Soon);
        }
        Ok(self.sweep.dropping)
    }

    fn drop_settled(&mut self, cx: &mut Cx<'_>) -> Result<bool, StoreError> {
        let gone = self
            .sweep
            .take(cx.now.mono_ms, self.config.settled_ms, SCAN);
        if !gone.is_empty() {
            let texts = cx.txn.delete_messages(&gone)?;
            self.sweep.texts = self.sweep.texts.saturating_sub(texts);
            self.outbox.want(Need::Soon);
        }
        Ok(gone.len() == SCAN)
    }

    fn drop_old(&mut self, cx: &mut Cx<'_>) -> Result<bool, StoreError> {
        let before = cx.at.steady_ms.saturating_sub(self.config.retention_ms);
        let dead = cx.txn.delete_dead(before, self.config.dead_bytes, SLICE)?;
        self.sweep.rescan |= dead > 0;
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
