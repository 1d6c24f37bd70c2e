//! The broker's disk: a store whose writes are noted for the oracle, and which fails on command.

mod outside;

use std::collections::BTreeMap;
use std::sync::Arc;

use peerbus_core::Stamp;
use peerbus_core::audit::{AuditKey, Block, ChainHead};
use peerbus_core::store::{
    AliasRow, Fate, Forgotten, Inserted, Keep, LeaseRow, Loaded, MessageHead, Notice, OwedRow,
    PeerId, PeerRow, Queued, Result, Store, StoreError, Txn,
};
use peerbus_core::testing::MemoryStore;
use peerbus_wire::{MessageId, Seq};

pub use self::outside::OutsideMutation;

/// A store that can lose power.
pub trait Backend: Store {
    /// The process dies: what is not committed is gone, the store is as it is when opened anew.
    ///
    /// # Errors
    ///
    /// When it cannot be opened anew.
    fn crash(&mut self) -> Result;

    /// The key that the store has for its audit chain, if it has one of its own.
    fn audit_key(&self) -> Option<AuditKey>;

    /// The audit chain as it is on disk.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or does not verify.
    fn audit(&mut self) -> Result<Audit>;
}

impl Backend for MemoryStore {
    fn crash(&mut self) -> Result {
        self.rollback();
        Ok(())
    }

    fn audit_key(&self) -> Option<AuditKey> {
        None
    }

    fn audit(&mut self) -> Result<Audit> {
        let tables = self.tables();
        Ok(Audit::Chain(
            tables.head.clone(),
            tables.audit.values().cloned().collect(),
        ))
    }
}

/// The audit chain on disk.
#[derive(Debug)]
pub enum Audit {
    /// Its head and its blocks.
    Chain(Option<ChainHead>, Vec<Block>),
    /// The store has verified it up to this block.
    Verified {
        /// The last block.
        last: u64,
    },
}

/// A write of the open transaction.
#[derive(Debug, Clone)]
pub enum Write {
    /// A peer's row.
    Peer(PeerRow),
    /// A peer was forgotten.
    PeerGone(PeerId),
    /// An old name.
    Alias(AliasRow),
    /// An old name was forgotten.
    AliasGone(String),
    /// Who has a message for one member of a group.
    Lease(LeaseRow),
    /// That one is not owed any more.
    LeaseGone(Seq),
    /// A new message.
    Message {
        /// What is kept of it.
        head: MessageHead,
        /// The carried text.
        envelope: Arc<str>,
    },
    /// A hash took the place of a text.
    TextGone(Seq),
    /// Messages were deleted.
    MessagesGone(Vec<Seq>),
    /// A debt, and since when.
    Owed(PeerId, Seq, u64),
    /// A debt that was there is settled.
    Settled(PeerId, Seq),
    /// A rejected message is kept.
    Dead(PeerId, Seq),
    /// How a delivery ended is kept.
    Fate(Fate),
    /// A statement is kept for a sender.
    Notice(Notice),
    /// It was dropped.
    NoticeGone(PeerId, u64),
    /// Old statements were dropped: by time, and by number.
    NoticesAged(u64, u64),
    /// An audit block.
    Audit(Block),
    /// Audit blocks up to this one were dropped.
    AuditGone(u64),
}

/// How a disk fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFault {
    /// The commit fails and nothing of it is kept.
    CommitLost,
    /// The commit is kept, but the broker is told that it failed.
    CommitKept,
    /// A statement fails after so many others.
    Statement(u32),
}

/// A store under observation.
pub struct Disk {
    inner: Box<dyn Backend>,
    writes: Vec<Write>,
    /// How the disk is going to fail.
    pub fault: Option<DiskFault>,
    /// A promise of the broker that is broken.
    broken: Option<OutsideMutation>,
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk")
            .field("writes", &self.writes)
            .finish_non_exhaustive()
    }
}

impl Disk {
    /// Observes `inner`, and breaks a promise of the broker on it.
    #[must_use]
    pub fn new(inner: Box<dyn Backend>, broken: Option<OutsideMutation>) -> Self {
        Self {
            inner,
            writes: Vec::new(),
            fault: None,
            broken,
        }
    }

    /// Takes the writes since the last call.
    pub fn take_writes(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.writes)
    }

    /// See [`Backend::crash`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn crash(&mut self) -> Result {
        self.writes.clear();
        self.fault = None;
        self.inner.crash()
    }

    /// See [`Backend::audit`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn audit(&mut self) -> Result<Audit> {
        self.inner.audit()
    }

    fn write(&mut self, write: Write) {
        self.writes.push(write);
    }

    fn gone(&mut self, gone: &Forgotten) {
        if gone.rows > 0 {
            self.write(Write::MessagesGone(gone.messages.clone()));
        }
    }

    fn statement(&mut self) -> Result {
        match &mut self.fault {
            Some(DiskFault::Statement(0)) => Err(StoreError("the disk fails a statement".into())),
            Some(DiskFault::Statement(left)) => {
                *left -= 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Store for Disk {
    fn load(&mut self) -> Result<Loaded> {
        self.inner.load()
    }

    fn begin(&mut self) -> Result {
        self.inner.begin()
    }

    fn commit(&mut self) -> Result {
        match self.fault {
            Some(DiskFault::CommitLost) => {
                self.inner.rollback();
                Err(StoreError("the disk fails a commit".into()))
            }
            Some(DiskFault::CommitKept) => {
                self.inner.commit()?;
                Err(StoreError("the disk fails a commit that it keeps".into()))
            }
            _ => self.inner.commit(),
        }
    }

    fn rollback(&mut self) {
        self.inner.rollback();
    }
}

impl Txn for Disk {
    fn put_peer(&mut self, row: &PeerRow) -> Result {
        self.statement()?;
        let row = match self.broken {
            Some(_) => self.bend(row)?,
            None => row.clone(),
        };
        self.inner.put_peer(&row)?;
        self.write(Write::Peer(row));
        Ok(())
    }

    fn delete_peer(&mut self, id: PeerId) -> Result {
        self.statement()?;
        self.inner.delete_peer(id)?;
        self.write(Write::PeerGone(id));
        Ok(())
    }

    fn put_alias(&mut self, row: &AliasRow) -> Result {
        self.statement()?;
        self.inner.put_alias(row)?;
        self.write(Write::Alias(row.clone()));
        Ok(())
    }

    fn delete_alias(&mut self, name: &str) -> Result {
        self.statement()?;
        self.inner.delete_alias(name)?;
        self.write(Write::AliasGone(name.to_owned()));
        Ok(())
    }

    fn put_owed(&mut self, row: &OwedRow) -> Result {
        self.statement()?;
        self.inner.put_owed(row)
    }

    fn put_lease(&mut self, row: &LeaseRow) -> Result {
        self.statement()?;
        self.inner.put_lease(row)?;
        self.write(Write::Lease(row.clone()));
        Ok(())
    }

    fn delete_lease(&mut self, seq: Seq) -> Result {
        self.statement()?;
        self.inner.delete_lease(seq)?;
        self.write(Write::LeaseGone(seq));
        Ok(())
    }

    fn insert_message(&mut self, head: &MessageHead, envelope: &str) -> Result<Inserted> {
        self.statement()?;
        let inserted = self.inner.insert_message(head, envelope)?;
        if inserted == Inserted::New {
            self.write(Write::Message {
                head: head.clone(),
                envelope: envelope.into(),
            });
        }
        Ok(inserted)
    }

    fn insert_delivery(&mut self, pair: (PeerId, PeerId), seq: Seq, steady_ms: u64) -> Result {
        self.statement()?;
        self.inner.insert_delivery(pair, seq, steady_ms)?;
        self.write(Write::Owed(pair.0, seq, steady_ms));
        Ok(())
    }

    fn delete_delivery(&mut self, pair: (PeerId, PeerId), seq: Seq) -> Result<bool> {
        self.statement()?;
        let was = self.inner.delete_delivery(pair, seq)?;
        if was {
            self.write(Write::Settled(pair.0, seq));
        }
        Ok(was)
    }

    fn move_queue(&mut self, from: PeerId, to: PeerId) -> Result<Vec<(PeerId, Seq)>> {
        self.statement()?;
        let queue = self.inner.read_queue(from, usize::MAX, usize::MAX)?;
        let moved = self.inner.move_queue(from, to)?;
        for Queued {
            head, steady_ms, ..
        } in queue
        {
            if moved.contains(&(head.sender, head.seq)) {
                self.write(Write::Settled(from, head.seq));
                self.write(Write::Owed(to, head.seq, steady_ms));
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
        self.statement()?;
        self.inner.read_queue(recipient, messages, bytes)
    }

    fn read_run(
        &mut self,
        pair: (PeerId, PeerId),
        from: Seq,
        until: Seq,
        messages: usize,
        bytes: usize,
    ) -> Result<(Vec<Queued>, Option<Seq>)> {
        self.statement()?;
        self.inner.read_run(pair, from, until, messages, bytes)
    }

    fn queue_heads(&mut self, recipient: PeerId) -> Result<Vec<(PeerId, Seq)>> {
        self.statement()?;
        self.inner.queue_heads(recipient)
    }

    fn count_queue(&mut self, recipient: PeerId) -> Result<u64> {
        self.inner.count_queue(recipient)
    }

    fn queue_sums(&mut self, recipient: PeerId) -> Result<Vec<(PeerId, [u64; 2])>> {
        self.inner.queue_sums(recipient)
    }

    fn message(&mut self, seq: Seq) -> Result<Option<MessageHead>> {
        self.inner.message(seq)
    }

    fn find_message(&mut self, sender: PeerId, id: &MessageId) -> Result<Option<MessageHead>> {
        self.inner.find_message(sender, id)
    }

    fn insert_fates(&mut self, fates: &[Fate], bytes: u64, steady_ms: u64) -> Result {
        self.statement()?;
        if self.breaks(OutsideMutation::ForgetFate) {
            return Ok(());
        }
        self.inner.insert_fates(fates, bytes, steady_ms)?;
        for fate in fates.iter().filter(|fate| !fate.is_of_nobody()) {
            self.write(Write::Fate(fate.clone()));
        }
        Ok(())
    }

    fn fates_of(&mut self, seqs: &[Seq], last: usize) -> Result<BTreeMap<Seq, Vec<Fate>>> {
        self.inner.fates_of(seqs, last)
    }

    fn forget_ended(&mut self, mut keep: Keep, limit: usize) -> Result<Forgotten> {
        self.statement()?;
        if self.breaks(OutsideMutation::ForgetTexts) {
            keep.from_ms = u64::MAX;
        }
        let gone = self.inner.forget_ended(keep, limit)?;
        self.gone(&gone);
        Ok(gone)
    }

    fn forget_text(&mut self, seq: Seq) -> Result<bool> {
        self.statement()?;
        let gone = !self.breaks(OutsideMutation::KeepFleeting) && self.inner.forget_text(seq)?;
        if gone {
            self.write(Write::TextGone(seq));
        }
        Ok(gone)
    }

    fn pending_for(&mut self, seq: Seq) -> Result<Vec<PeerId>> {
        self.inner.pending_for(seq)
    }

    fn old_deliveries(
        &mut self,
        before_ms: u64,
        limit: usize,
    ) -> Result<Vec<(PeerId, MessageHead)>> {
        self.inner.old_deliveries(before_ms, limit)
    }

    fn insert_dead(&mut self, recipient: PeerId, seq: Seq, reason: &str, at: Stamp) -> Result {
        self.statement()?;
        self.inner.insert_dead(recipient, seq, reason, at)?;
        self.write(Write::Dead(recipient, seq));
        Ok(())
    }

    fn delete_dead(&mut self, before_ms: u64, bytes_max: u64, limit: usize) -> Result<Forgotten> {
        let gone = self.inner.delete_dead(before_ms, bytes_max, limit)?;
        self.gone(&gone);
        Ok(gone)
    }

    fn insert_notice(&mut self, notice: &Notice) -> Result {
        self.statement()?;
        if self.drops(notice) {
            return Ok(());
        }
        self.inner.insert_notice(notice)?;
        self.write(Write::Notice(notice.clone()));
        Ok(())
    }

    fn notices(&mut self, sender: PeerId, after: u64, limit: usize) -> Result<Vec<Notice>> {
        self.inner.notices(sender, after, limit)
    }

    fn delete_notice(&mut self, sender: PeerId, number: u64) -> Result<bool> {
        self.statement()?;
        let was = self.inner.delete_notice(sender, number)?;
        if was {
            self.write(Write::NoticeGone(sender, number));
        }
        Ok(was)
    }

    fn delete_notices(&mut self, before_ms: u64, before: u64, limit: usize) -> Result<usize> {
        let gone = self.inner.delete_notices(before_ms, before, limit)?;
        if gone > 0 {
            self.write(Write::NoticesAged(before_ms, before));
        }
        Ok(gone)
    }

    fn append_audit(&mut self, block: &Block, head: &ChainHead) -> Result {
        self.statement()?;
        self.inner.append_audit(block, head)?;
        self.write(Write::Audit(block.clone()));
        Ok(())
    }

    fn old_audit(&mut self, before_ms: u64, limit: usize) -> Result<Option<Block>> {
        self.inner.old_audit(before_ms, limit)
    }

    fn drop_audit(&mut self, number: u64) -> Result {
        self.statement()?;
        self.inner.drop_audit(number)?;
        self.write(Write::AuditGone(number));
        Ok(())
    }
}
