//! Reads and writes of the store in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use peerbus_wire::{EnvelopeHash, MessageId, Seq};

use super::memory::{FateRow, MemoryStore, Stored, by_age};
use crate::Stamp;
use crate::audit::{Block, ChainHead};
use crate::store::{
    AliasRow, DEAD_BYTES, FATES_RUN, Fate, Forgotten, Inserted, Keep, LeaseRow, MessageHead,
    Notice, OwedRow, PeerId, PeerKind, PeerRow, Queued, Result, StoreError, Txn,
};

const LAST_SEQ: Seq = Seq(u64::MAX);

/// All deliveries to a peer.
fn of(recipient: PeerId) -> RangeInclusive<(PeerId, PeerId, Seq)> {
    (recipient, PeerId(0), Seq(0))..=(recipient, PeerId(u32::MAX), LAST_SEQ)
}

impl MemoryStore {
    /// Rows of fates that are not to be kept, oldest first.
    fn beyond(&self, keep: &Keep) -> Vec<(u64, FateRow)> {
        let newest = self.tables.fates.values().last();
        let total = newest.map_or(0, |row| row.total);
        let beyond = |row: &FateRow| {
            row.at_ms < keep.from_ms || row.total.saturating_add(keep.bytes) <= total
        };
        let rows = self.tables.fates.iter().map(|(n, row)| (*n, row.clone()));
        rows.take_while(|(_, row)| beyond(row)).collect()
    }

    /// Whether a row behind this one has a fate of the message.
    fn ends_after(&self, number: u64, seq: Seq) -> bool {
        let later = self.tables.fates.range(number + 1..);
        later
            .flat_map(|(_, row)| &row.fates)
            .any(|fate| fate.seq == seq)
    }

    /// Puts its hash in the place of a text, unless that is needed. Says whether it did.
    fn drop_text(&mut self, seq: Seq) -> bool {
        let Some(mut message) = self.tables.messages.get(&seq).cloned() else {
            return false;
        };
        let whole = message.envelope.len() > EnvelopeHash::LETTERS;
        if !whole || self.is_pending(seq) || self.is_dead(seq) {
            return false;
        }
        let hash = EnvelopeHash::of(message.envelope.as_bytes());
        message.envelope = hash.as_str().into();
        message.head.bytes = message.envelope.len() as u64;
        self.set_message(seq, Some(message));
        true
    }

    /// Deletes a message of which nothing else is kept.
    fn forget_message(&mut self, seq: Seq, forgotten: &mut Forgotten) {
        let kept = self.ends_after(0, seq)
            || self.is_pending(seq)
            || self.is_dead(seq)
            || !self.tables.messages.contains_key(&seq);
        if !kept {
            self.set_message(seq, None);
            forgotten.messages.push(seq);
        }
    }

    fn queue(&self, recipient: PeerId) -> Vec<Seq> {
        let queue = self.tables.deliveries.range(of(recipient));
        queue.map(|((_, _, seq), _)| *seq).collect()
    }

    fn read(
        &self,
        recipient: PeerId,
        queue: Vec<Seq>,
        messages: usize,
        bytes: usize,
    ) -> Result<Vec<Queued>> {
        let (mut queued, mut total) = (Vec::new(), 0);
        for seq in queue {
            if queued.len() >= messages || total >= bytes && !queued.is_empty() {
                break;
            }
            let Some(message) = self.tables.messages.get(&seq) else {
                return Err(StoreError(format!(
                    "message {} is owed but not stored",
                    seq.0
                )));
            };
            total += message.envelope.len();
            let Stored { head, envelope } = message.clone();
            let row = self.tables.deliveries.get(&(recipient, head.sender, seq));
            let steady_ms = row.copied().unwrap_or_default();
            queued.push(Queued {
                head,
                envelope,
                steady_ms,
            });
        }
        Ok(queued)
    }
}

impl Txn for MemoryStore {
    fn put_peer(&mut self, row: &PeerRow) -> Result {
        self.is_open()?;
        let same = |other: &&PeerRow| {
            let peers = other.kind == PeerKind::Peer && row.kind == PeerKind::Peer;
            peers && other.id != row.id && other.name.eq_ignore_ascii_case(&row.name)
        };
        if let Some(other) = self.tables.peers.values().find(same) {
            return Err(StoreError(format!(
                "{} is called {} too",
                other.id.0, row.name
            )));
        }
        self.set_peer(row.id, Some(row.clone()));
        Ok(())
    }

    fn delete_peer(&mut self, id: PeerId) -> Result {
        self.is_open()?;
        self.set_peer(id, None);
        Ok(())
    }

    fn put_alias(&mut self, row: &AliasRow) -> Result {
        self.is_open()?;
        self.set_alias(&row.name, Some(row.clone()));
        Ok(())
    }

    fn delete_alias(&mut self, name: &str) -> Result {
        self.is_open()?;
        self.set_alias(name, None);
        Ok(())
    }

    fn put_owed(&mut self, row: &OwedRow) -> Result {
        self.is_open()?;
        self.set_owed(*row);
        Ok(())
    }

    fn put_lease(&mut self, row: &LeaseRow) -> Result {
        self.is_open()?;
        self.set_lease(row.head.seq, Some(row.clone()));
        Ok(())
    }

    fn delete_lease(&mut self, seq: Seq) -> Result {
        self.is_open()?;
        self.set_lease(seq, None);
        Ok(())
    }

    fn insert_message(&mut self, head: &MessageHead, envelope: &str) -> Result<Inserted> {
        self.is_open()?;
        if let Some(seq) = self.ids.get(&(head.sender, head.id.clone())).copied() {
            let known = &self.tables.messages[&seq];
            let hash = EnvelopeHash::of(envelope.as_bytes());
            let same = *known.envelope == *envelope || *known.envelope == *hash.as_str();
            return Ok(Inserted::Known {
                seq,
                same,
                recipients: known.head.recipients,
            });
        }
        if self.tables.messages.contains_key(&head.seq) {
            return Err(StoreError(format!(
                "message number {} is used twice",
                head.seq.0
            )));
        }
        let stored = Stored {
            head: head.clone(),
            envelope: envelope.into(),
        };
        self.set_message(head.seq, Some(stored));
        Ok(Inserted::New)
    }

    fn insert_delivery(&mut self, pair: (PeerId, PeerId), seq: Seq, steady_ms: u64) -> Result {
        self.is_open()?;
        if self.set_delivery(pair, seq, Some(steady_ms)) {
            return Err(StoreError(format!("message {} is owed twice", seq.0)));
        }
        Ok(())
    }

    fn delete_delivery(&mut self, pair: (PeerId, PeerId), seq: Seq) -> Result<bool> {
        self.is_open()?;
        Ok(self.set_delivery(pair, seq, None))
    }

    fn move_queue(&mut self, from: PeerId, to: PeerId) -> Result<Vec<(PeerId, Seq)>> {
        self.is_open()?;
        let mut moved = Vec::new();
        let queue: Vec<_> = self.tables.deliveries.range(of(from)).collect();
        let queue: Vec<_> = queue
            .iter()
            .map(|((_, sender, seq), at)| (*sender, *seq, **at))
            .collect();
        for (sender, seq, steady_ms) in queue {
            if !self.tables.deliveries.contains_key(&(to, sender, seq)) {
                self.set_delivery((from, sender), seq, None);
                self.set_delivery((to, sender), seq, Some(steady_ms));
                moved.push((sender, seq));
            }
        }
        Ok(moved)
    }

    fn read_queue(
        &mut self,
        recipient: PeerId,
        messages: usize,
        bytes: usize,
    ) -> Result<Vec<Queued>> {
        self.is_open()?;
        let queue = self.queue(recipient);
        self.read(recipient, queue, messages, bytes)
    }

    fn read_run(
        &mut self,
        (recipient, sender): (PeerId, PeerId),
        from: Seq,
        until: Seq,
        messages: usize,
        bytes: usize,
    ) -> Result<(Vec<Queued>, Option<Seq>)> {
        self.is_open()?;
        let all = (recipient, sender, from)..=(recipient, sender, LAST_SEQ);
        let all: Vec<_> = self
            .tables
            .deliveries
            .range(all)
            .map(|((_, _, seq), _)| *seq)
            .collect();
        let before = all.iter().copied().filter(|seq| *seq < until).collect();
        let messages = self.read(recipient, before, messages, bytes)?;
        let next = all.get(messages.len()).copied();
        Ok((messages, next))
    }

    fn queue_heads(&mut self, recipient: PeerId) -> Result<Vec<(PeerId, Seq)>> {
        self.is_open()?;
        let mut heads = BTreeMap::new();
        for ((_, sender, seq), _) in self.tables.deliveries.range(of(recipient)) {
            heads.entry(*sender).or_insert(*seq);
        }
        Ok(heads.into_iter().collect())
    }

    fn count_queue(&mut self, recipient: PeerId) -> Result<u64> {
        self.is_open()?;
        Ok(self.queue(recipient).len() as u64)
    }

    fn queue_sums(&mut self, recipient: PeerId) -> Result<Vec<(PeerId, [u64; 2])>> {
        self.is_open()?;
        let mut sums = BTreeMap::<_, [u64; 2]>::new();
        for ((_, sender, seq), _) in self.tables.deliveries.range(of(recipient)) {
            let [messages, bytes] = sums.entry(*sender).or_default();
            *messages += 1;
            let message = self.tables.messages.get(seq);
            *bytes += message.map_or(0, |message| message.envelope.len() as u64);
        }
        Ok(sums.into_iter().collect())
    }

    fn message(&mut self, seq: Seq) -> Result<Option<MessageHead>> {
        self.is_open()?;
        Ok(self
            .tables
            .messages
            .get(&seq)
            .map(|message| message.head.clone()))
    }

    fn find_message(&mut self, sender: PeerId, id: &MessageId) -> Result<Option<MessageHead>> {
        self.is_open()?;
        let seq = self.ids.get(&(sender, id.clone()));
        Ok(seq
            .and_then(|seq| self.tables.messages.get(seq))
            .map(|message| message.head.clone()))
    }

    fn pending_for(&mut self, seq: Seq) -> Result<Vec<PeerId>> {
        self.is_open()?;
        Ok(self
            .owed
            .range((seq, PeerId(0))..=(seq, PeerId(u32::MAX)))
            .map(|(_, p)| *p)
            .collect())
    }

    fn insert_fates(&mut self, fates: &[Fate], mut bytes: u64, steady_ms: u64) -> Result {
        self.is_open()?;
        let runs: BTreeSet<_> = fates.iter().map(|fate| fate.seq.0 / FATES_RUN).collect();
        for run in runs {
            let (last, row) = match self.tables.fates.last_key_value() {
                Some((last, row)) => (*last, (row.at_ms, row.total)),
                None => (0, (0, 0)),
            };
            let of_run = fates.iter().filter(|fate| fate.seq.0 / FATES_RUN == run);
            let row = FateRow {
                at_ms: row.0.max(steady_ms),
                total: row.1 + std::mem::take(&mut bytes),
                fates: of_run.cloned().collect(),
            };
            self.set_fates(last + 1, Some(row));
        }
        Ok(())
    }

    fn fates_of(&mut self, seqs: &[Seq], last: usize) -> Result<BTreeMap<Seq, Vec<Fate>>> {
        self.is_open()?;
        let of = |seq: &Seq| {
            let all = self.tables.fates.values().flat_map(|row| &row.fates);
            let of = all.filter(|fate| fate.seq == *seq && !fate.is_of_nobody());
            let of: Vec<_> = of.cloned().collect();
            (*seq, of[of.len().saturating_sub(last)..].to_vec())
        };
        Ok(seqs.iter().map(of).collect())
    }

    /// Knows no limit.
    fn forget_ended(&mut self, keep: Keep, _limit: usize) -> Result<Forgotten> {
        self.is_open()?;
        let mut forgotten = Forgotten::default();
        for (number, row) in self.beyond(&keep) {
            if row.at_ms >= keep.ids_from_ms {
                for fate in &row.fates {
                    let is_last = !self.ends_after(number, fate.seq);
                    forgotten.rows += usize::from(is_last && self.drop_text(fate.seq));
                }
                continue;
            }
            self.set_fates(number, None);
            forgotten.rows += row.fates.len();
            for fate in &row.fates {
                self.forget_message(fate.seq, &mut forgotten);
            }
        }
        forgotten.messages.sort_unstable();
        Ok(forgotten)
    }

    fn forget_text(&mut self, seq: Seq) -> Result<bool> {
        self.is_open()?;
        Ok(self.drop_text(seq))
    }

    fn old_deliveries(
        &mut self,
        before_ms: u64,
        limit: usize,
    ) -> Result<Vec<(PeerId, MessageHead)>> {
        self.is_open()?;
        let mut old = Vec::new();
        for (seq, peer) in self.owed.iter().take(limit) {
            let Some(message) = self.tables.messages.get(seq) else {
                return Err(StoreError(format!(
                    "message {} is owed but not stored",
                    seq.0
                )));
            };
            let row = (*peer, message.head.sender, *seq);
            if self.tables.deliveries.get(&row) >= Some(&before_ms) {
                break;
            }
            old.push((*peer, message.head.clone()));
        }
        Ok(old)
    }

    fn insert_dead(&mut self, recipient: PeerId, seq: Seq, reason: &str, at: Stamp) -> Result {
        self.is_open()?;
        self.set_dead(seq, recipient, Some((at, reason.to_owned())));
        Ok(())
    }

    fn delete_dead(&mut self, before_ms: u64, bytes_max: u64, limit: usize) -> Result<Forgotten> {
        self.is_open()?;
        let mut old = by_age(&self.tables.dead, |(at, _)| at.steady_ms);
        // How much the later ones take.
        let mut later = 0;
        let mut keep = Vec::new();
        for (_, key) in old.iter().rev() {
            let reason = &self.tables.dead[key].1;
            keep.push(later < bytes_max);
            later += self.message_bytes(key.0) + reason.len() as u64 + DEAD_BYTES;
        }
        let mut keep = keep.into_iter().rev();
        old.truncate(limit);
        old.retain(|(at_ms, _)| !keep.next().unwrap_or(true) || *at_ms < before_ms);
        let mut forgotten = Forgotten {
            more: old.len() == limit,
            ..Forgotten::default()
        };
        for (_, (seq, peer)) in &old {
            self.set_dead(*seq, *peer, None);
            forgotten.rows += 1;
        }
        for (_, (seq, _)) in &old {
            self.forget_message(*seq, &mut forgotten);
        }
        forgotten.messages.sort_unstable();
        Ok(forgotten)
    }

    fn insert_notice(&mut self, notice: &Notice) -> Result {
        self.is_open()?;
        if self.set_notice(notice.sender, notice.number, Some(notice.clone())) {
            return Err(StoreError(format!(
                "notice number {} is used twice",
                notice.number
            )));
        }
        Ok(())
    }

    fn notices(&mut self, sender: PeerId, after: u64, limit: usize) -> Result<Vec<Notice>> {
        self.is_open()?;
        let kept = self
            .tables
            .notices
            .range((sender, after + 1)..=(sender, u64::MAX));
        Ok(kept.take(limit).map(|(_, notice)| notice.clone()).collect())
    }

    fn delete_notice(&mut self, sender: PeerId, number: u64) -> Result<bool> {
        self.is_open()?;
        Ok(self.set_notice(sender, number, None))
    }

    fn delete_notices(&mut self, before_ms: u64, before: u64, limit: usize) -> Result<usize> {
        self.is_open()?;
        let mut old = by_age(&self.tables.notices, |notice| notice.at.steady_ms);
        old.truncate(limit);
        old.retain(|(at_ms, (_, number))| *at_ms < before_ms || *number < before);
        for (_, (sender, number)) in &old {
            self.set_notice(*sender, *number, None);
        }
        Ok(old.len())
    }

    fn append_audit(&mut self, block: &Block, head: &ChainHead) -> Result {
        self.is_open()?;
        self.set_block(block.number, Some(block.clone()));
        self.set_head(head.clone());
        Ok(())
    }

    fn old_audit(&mut self, before_ms: u64, limit: usize) -> Result<Option<Block>> {
        self.is_open()?;
        let mut last = None;
        for block in self.tables.audit.values().take(limit) {
            if block.at.steady_ms >= before_ms {
                return Ok(None);
            }
            last = Some(block);
        }
        Ok(last.cloned())
    }

    fn drop_audit(&mut self, number: u64) -> Result {
        self.is_open()?;
        let gone: Vec<_> = self
            .tables
            .audit
            .range(..=number)
            .map(|(number, _)| *number)
            .collect();
        for number in gone {
            self.set_block(number, None);
        }
        Ok(())
    }
}
