//! What the engine asks of its store besides transactions.

use peerbus_core::store::{Store, StoreError};
use peerbus_os::disk::Space;
use peerbus_store::SqliteStore;

/// A store that the engine looks after.
pub(crate) trait Durable {
    /// What reads and writes inside a transaction.
    type Txn: Store;

    /// The store itself.
    fn txn(&mut self) -> &mut Self::Txn;

    /// Makes the open transaction durable.
    fn commit(&mut self) -> Result<(), StoreError> {
        self.txn().commit()
    }

    /// Does a few milliseconds of housekeeping; `true` when there is more to do.
    fn maintain(&mut self) -> Result<bool, StoreError>;

    /// Looks whether the files are still there. Called between transactions.
    fn check(&mut self) -> Result<(), StoreError>;

    /// The room that is left; `None` when nobody knows.
    fn space(&self) -> Option<Space>;

    /// Has the disk keep a reserve while there is room, and gives it back when hardly anything is left.
    fn tend_reserve(&mut self, room: bool);

    /// Lets go of the database.
    fn close(self) -> Result<(), StoreError>;
}

impl Durable for SqliteStore {
    type Txn = Self;

    fn txn(&mut self) -> &mut Self {
        self
    }

    fn maintain(&mut self) -> Result<bool, StoreError> {
        Self::maintain(self)
    }

    fn check(&mut self) -> Result<(), StoreError> {
        Self::check(self)
    }

    fn space(&self) -> Option<Space> {
        Self::space(self)
    }

    fn tend_reserve(&mut self, room: bool) {
        Self::tend_reserve(self, room);
    }

    fn close(self) -> Result<(), StoreError> {
        Self::close(self)
    }
}
