//! The real store, as a broker's disk.

use std::path::PathBuf;

use peerbus_core::audit::{AuditKey, Block, Head};
use peerbus_core::store::{
    AliasRow, Inserted, Loaded, MessageHead, NewMessage, Notice, PeerId, PeerRow, Queued, Store,
    StoreError, Txn,
};
use peerbus_store::{SqliteStore, verify_audit};
use peerbus_wire::{MessageId, Seq};
use tempfile::TempDir;

use crate::disk::{Audit, Backend};

type Result<T> = std::result::Result<T, StoreError>;

/// SQLite in a directory of its own. A crash drops the store without a commit or a rollback and
/// opens the files anew.
#[derive(Debug)]
pub struct SqliteDisk {
    store: Option<SqliteStore>,
    path: PathBuf,
    /// Deleted when dropped.
    _dir: TempDir,
}

impl SqliteDisk {
    /// Makes a new database.
    ///
    /// # Errors
    ///
    /// When the directory or the database cannot be made.
    pub fn new() -> Result<Self> {
        let dir = TempDir::new().map_err(|error| StoreError(error.to_string()))?;
        let path = dir.path().join("bus.db");
        let mut disk = Self {
            store: None,
            path,
            _dir: dir,
        };
        disk.open()?;
        Ok(disk)
    }

    fn open(&mut self) -> Result<()> {
        let opened = SqliteStore::open(&self.path);
        self.store = Some(opened.map_err(|error| StoreError(error.to_string()))?);
        Ok(())
    }

    fn store(&mut self) -> Result<&mut SqliteStore> {
        self.store
            .as_mut()
            .ok_or_else(|| StoreError("the database could not be reopened".into()))
    }
}

impl Backend for SqliteDisk {
    fn crash(&mut self) -> Result<()> {
        drop(self.store.take());
        self.open()
    }

    fn audit_key(&self) -> Option<AuditKey> {
        self.store.as_ref().map(|store| store.audit_key().clone())
    }

    fn audit(&mut self) -> Result<Audit> {
        // A database in which nothing was committed yet.
        if self.load()?.head.is_none() {
            return Ok(Audit::Chain(None, Vec::new()));
        }
        let report = verify_audit(&self.path).map_err(|error| StoreError(error.to_string()))?;
        Ok(Audit::Verified { last: report.last })
    }
}

impl Store for SqliteDisk {
    fn load(&mut self) -> Result<Loaded> {
        self.store()?.load()
    }

    fn begin(&mut self) -> Result<()> {
        self.store()?.begin()
    }

    fn commit(&mut self) -> Result<()> {
        let store = self.store()?;
        store.commit()?;
        store.maintain().map(drop)
    }

    fn rollback(&mut self) {
        if let Some(store) = &mut self.store {
            store.rollback();
        }
    }
}

/// Forwards methods to the store.
macro_rules! forward {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        $(fn $name(&mut self, $($arg: $type),*) -> Result<$out> {
            self.store()?.$name($($arg),*)
        })*
    };
}

impl Txn for SqliteDisk {
    forward! {
        put_peer(row: &PeerRow) -> ();
        delete_peer(id: PeerId) -> ();
        put_alias(row: &AliasRow) -> ();
        delete_alias(name: &str) -> ();
        insert_message(message: &NewMessage<'_>) -> Inserted;
        insert_debt(recipient: PeerId, seq: Seq) -> ();
        delete_debt(recipient: PeerId, seq: Seq) -> bool;
        has_debt(recipient: PeerId, seq: Seq) -> bool;
        read_queue(recipient: PeerId, after: Seq, messages: usize, bytes: usize) -> Vec<Queued>;
        count_queue(recipient: PeerId) -> u64;
        last_debt(recipient: PeerId) -> Option<Seq>;
        message(seq: Seq) -> Option<MessageHead>;
        find_message(sender: PeerId, id: &MessageId) -> Option<MessageHead>;
        find_by_id(id: &MessageId) -> Vec<MessageHead>;
        owed_to(seq: Seq) -> Vec<PeerId>;
        settled(after: Seq, limit: usize) -> (Vec<Seq>, Option<Seq>);
        delete_messages(seqs: &[Seq]) -> ();
        old_debts(before_ms: u64, limit: usize) -> Vec<(PeerId, MessageHead)>;
        insert_dead(recipient: PeerId, seq: Seq, reason: &str, at_ms: u64) -> ();
        delete_dead(before_ms: u64, limit: usize) -> usize;
        insert_notice(notice: &Notice) -> ();
        notices(sender: PeerId, after: u64, limit: usize) -> Vec<Notice>;
        delete_notice(sender: PeerId, number: u64) -> bool;
        delete_notices(before_ms: u64, limit: usize) -> usize;
        append_audit(block: &Block, head: &Head) -> ();
        old_audit(before_ms: u64, limit: usize) -> Option<Block>;
        drop_audit(number: u64) -> ();
    }
}
