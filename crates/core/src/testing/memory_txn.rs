//! Reads and writes of the store in memory.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use peerbus_wire::{EnvelopeHash, MessageId, Seq};

use super::memory::{MemoryStore, Stored, by_age};
use crate::Stamp;
use crate::audit::{Block, Head};
use crate::store::{
    AliasRow, DEAD_BYTES, Fate, Inserted, MessageHead, NewMessage, Notice, OwedRow, PeerId,
    PeerRow, Queued, Settled, StoreError, Txn,
};

type Result<T> = std::result::Result<T, StoreError>;

const LAST_SEQ: Seq = Seq(u64::MAX);

/// All deliveries to a peer.
fn of(recipient: PeerId) -> RangeInclusive<(PeerId, PeerId, Seq)> {
    (recipient, PeerId(0), Seq(0))..=(recipient, PeerId(u32::MAX), LAST_SEQ)
}

impl MemoryStore {
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
            let sender = message.head.sender;
            let row = self.tables.deliveries.get(&(recipient, sender, seq));
            let steady_ms = row.copied().unwrap_or_default();
            queued.push(Queued {
                seq,
                sender,
                id: message.head.id.clone(),
                envelope: message.envelope.clone(),
                steady_ms,
            });
        }
        Ok(queued)
    }
}

impl Txn for MemoryStore {
    fn put_peer(&mut self, row: &PeerRow) -> Result<()> {
        self.is_open()?;
        let same =
            |other: &&PeerRow| other.id != row.id && other.name.eq_ignore_ascii_case(&row.name);
        if let Some(other) = self.tables.peers.values().find(same) {
            return Err(StoreError(format!(
                "{} is called {} too",
                other.id.0, row.name
            )));
        }
        self.set_peer(row.id, Some(row.clone()));
        Ok(())
    }

    fn delete_peer(&mut self, id: PeerId) -> Result<()> {
        self.is_open()?;
        self.set_peer(id, None);
        Ok(())
    }

    fn put_alias(&mut self, row: &AliasRow) -> Result<()> {
        self.is_open()?;
        self.set_alias(&row.name, Some(row.clone()));
        Ok(())
    }

    fn delete_alias(&mut self, name: &str) -> Result<()> {
        self.is_open()?;
        self.set_alias(name, None);
        Ok(())
    }

    fn put_owed(&mut self, row: &OwedRow) -> Result<()> {
        self.is_open()?;
        self.set_owed(*row);
        Ok(())
    }

    fn insert_message(&mut self, message: &NewMessage<'_>) -> Result<Inserted> {
        self.is_open()?;
        let NewMessage {
            seq,
            sender,
            recipients,
            accepted_ms,
            ..
        } = *message;
        let id = message.id.clone();
        if let Some(seq) = self.ids.get(&(sender, id.clone())).copied() {
            let known = &self.tables.messages[&seq];
            let hash = EnvelopeHash::of(message.envelope.as_bytes());
            let same = *known.envelope == *message.envelope || *known.envelope == *hash.as_str();
            return Ok(Inserted::Known {
                seq,
                same,
                recipients: known.head.recipients,
            });
        }
        if self.tables.messages.contains_key(&seq) {
            return Err(StoreError(format!(
                "message number {} is used twice",
                seq.0
            )));
        }
        let head = MessageHead {
            seq,
            sender,
            id,
            recipients,
            accepted_ms,
            bytes: message.envelope.len() as u64,
        };
        self.set_message(
            seq,
            Some(Stored {
                head,
                envelope: message.envelope.into(),
            }),
        );
        Ok(Inserted::New)
    }

    fn insert_delivery(&mut self, pair: (PeerId, PeerId), seq: Seq, steady_ms: u64) -> Result<()> {
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

    fn has_delivery(&mut self, (recipient, sender): (PeerId, PeerId), seq: Seq) -> Result<bool> {
        self.is_open()?;
        let row = (recipient, sender, seq);
        Ok(self.tables.deliveries.contains_key(&row))
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

    fn find_past(&mut self, sender: PeerId, id: &MessageId) -> Result<Option<MessageHead>> {
        self.is_open()?;
        let same = |head: &&MessageHead| head.sender == sender && head.id == *id;
        Ok(self.tables.past.values().rev().find(same).cloned())
    }

    fn find_by_id(&mut self, id: &MessageId) -> Result<Vec<MessageHead>> {
        self.is_open()?;
        let messages = self.tables.messages.values().map(|message| &message.head);
        let all = self.tables.past.values().chain(messages);
        let mut newest = BTreeMap::<PeerId, &MessageHead>::new();
        for head in all.filter(|head| head.id == *id) {
            let known = newest.entry(head.sender).or_insert(head);
            if known.seq < head.seq {
                *known = head;
            }
        }
        Ok(newest.into_values().cloned().collect())
    }

    fn pending_for(&mut self, seq: Seq) -> Result<Vec<PeerId>> {
        self.is_open()?;
        Ok(self
            .owed
            .range((seq, PeerId(0))..=(seq, PeerId(u32::MAX)))
            .map(|(_, p)| *p)
            .collect())
    }

    fn settled(&mut self, after: Seq, limit: usize) -> Result<Settled> {
        self.is_open()?;
        let looked_at: Vec<_> = self
            .tables
            .messages
            .range(Seq(after.0 + 1)..)
            .take(limit)
            .map(|(seq, _)| *seq)
            .collect();
        let last = looked_at.last().copied();
        let all = PeerId(0)..=PeerId(u32::MAX);
        let settled = |seq: &Seq| {
            let (first, last) = ((*seq, *all.start()), (*seq, *all.end()));
            self.owed.range(first..=last).next().is_none()
                && self.tables.dead.range(first..=last).next().is_none()
        };
        let settled = looked_at.into_iter().filter(settled);
        let settled = settled.map(|seq| (seq, self.text_bytes(seq))).collect();
        Ok((settled, last))
    }

    fn drop_texts(&mut self, seqs: &[Seq], bytes: u64) -> Result<(usize, u64)> {
        self.is_open()?;
        let (mut count, mut freed) = (0, 0);
        for seq in seqs {
            if freed >= bytes {
                break;
            }
            count += 1;
            if !self.pending_for(*seq)?.is_empty() {
                let what = format!("message {} is owed and its text dropped", seq.0);
                return Err(StoreError(what));
            }
            let more = self.text_bytes(*seq);
            if more > 0
                && let Some(mut message) = self.tables.messages.get(seq).cloned()
            {
                let hash = EnvelopeHash::of(message.envelope.as_bytes());
                message.envelope = hash.as_str().into();
                message.head.bytes = message.envelope.len() as u64;
                self.set_message(*seq, Some(message));
            }
            freed += more;
        }
        Ok((count, freed))
    }

    fn delete_messages(&mut self, seqs: &[Seq]) -> Result<u64> {
        self.is_open()?;
        let mut freed = 0;
        for seq in seqs {
            if !self.pending_for(*seq)?.is_empty() {
                return Err(StoreError(format!("message {} is owed and deleted", seq.0)));
            }
            freed += self.text_bytes(*seq);
            if let Some(message) = self.tables.messages.get(seq)
                && self.tables.fates.contains_key(seq)
            {
                let head = MessageHead {
                    bytes: 0,
                    ..message.head.clone()
                };
                self.set_past(head.seq, Some(head));
            }
            self.set_message(*seq, None);
        }
        Ok(freed)
    }

    fn insert_fates(&mut self, fates: &[Fate], steady_ms: u64) -> Result<()> {
        self.is_open()?;
        let newest = self.tables.fates.values().filter_map(|all| all.last());
        let newest = newest.map(|(at_ms, _)| *at_ms).max();
        let at_ms = steady_ms.max(newest.unwrap_or_default());
        for fate in fates {
            let known = self.tables.fates.get(&fate.seq).cloned();
            let mut all = known.unwrap_or_default();
            all.push((at_ms, fate.clone()));
            self.set_fates(fate.seq, all);
        }
        Ok(())
    }

    fn fates(&mut self, seq: Seq) -> Result<Vec<Fate>> {
        self.is_open()?;
        let all = self.tables.fates.get(&seq).into_iter().flatten();
        Ok(all.map(|(_, fate)| fate.clone()).collect())
    }

    /// Knows no size, and no limit.
    fn delete_fates(&mut self, before_ms: u64, _bytes_max: u64, _limit: usize) -> Result<usize> {
        self.is_open()?;
        let old = |all: &&Vec<(u64, Fate)>| all.iter().any(|(at_ms, _)| *at_ms < before_ms);
        let old = self.tables.fates.values().filter(old).cloned();
        let mut gone = 0;
        for mut all in old.collect::<Vec<_>>() {
            let seq = all[0].1.seq;
            gone += all.len();
            all.retain(|(at_ms, _)| *at_ms >= before_ms);
            gone -= all.len();
            if all.is_empty() {
                self.set_past(seq, None);
            }
            self.set_fates(seq, all);
        }
        Ok(gone)
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

    fn insert_dead(&mut self, recipient: PeerId, seq: Seq, reason: &str, at: Stamp) -> Result<()> {
        self.is_open()?;
        self.set_dead(seq, recipient, Some((at, reason.to_owned())));
        Ok(())
    }

    fn delete_dead(&mut self, before_ms: u64, bytes_max: u64, limit: usize) -> Result<usize> {
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
        for (_, (seq, peer)) in &old {
            self.set_dead(*seq, *peer, None);
        }
        Ok(old.len())
    }

    fn insert_notice(&mut self, notice: &Notice) -> Result<()> {
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

    fn append_audit(&mut self, block: &Block, head: &Head) -> Result<()> {
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

    fn drop_audit(&mut self, number: u64) -> Result<()> {
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
