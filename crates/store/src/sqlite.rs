//! The store itself: one connection, one transaction at a time.

use std::path::{Path, PathBuf};

use peerbus_core::audit::AuditKey;
use peerbus_core::store::{Loaded, Store, StoreError};
use rusqlite::Connection;

use crate::lock::Lock;
use crate::maintain::Housekeeping;
use crate::read;

/// A database that this process has open for writing. No other process can open it so.
#[derive(Debug)]
pub struct SqliteStore {
    pub(crate) db: Connection,
    pub(crate) path: PathBuf,
    pub(crate) key: AuditKey,
    // Dropped after the connection: fields go in this order.
    pub(crate) lock: Lock,
    pub(crate) housekeeping: Housekeeping,
}

impl SqliteStore {
    /// The key of this database's audit chain.
    #[must_use]
    pub fn audit_key(&self) -> &AuditKey {
        &self.key
    }

    /// The database file, without symbolic links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the whole WAL back, empties it, and lets go of the database.
    ///
    /// # Errors
    ///
    /// When that fails. Nothing that was committed is lost: the next `open` recovers it.
    pub fn close(self) -> Result<(), StoreError> {
        // The lock goes last, when this function returns.
        let Self {
            db,
            path,
            lock: _lock,
            ..
        } = self;
        let checkpoint = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        let closed = checkpoint.and_then(|()| db.close().map_err(|(_, error)| error));
        closed.map_err(|error| failed(&path, "closing", &error))
    }

    /// Runs `operation` and says, should it fail, where and at what.
    pub(crate) fn run<T>(
        &self,
        doing: &str,
        operation: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        operation(&self.db).map_err(|error| failed(&self.path, doing, &error))
    }
}

fn failed(path: &Path, doing: &str, error: &rusqlite::Error) -> StoreError {
    StoreError(format!("{doing}, in {}: {error}", path.display()))
}

impl Store for SqliteStore {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        self.run("reading the peers and the head", |db| {
            Ok(Loaded {
                peers: read::peers(db)?,
                aliases: read::aliases(db)?,
                head: read::head(db)?,
            })
        })
    }

    fn begin(&mut self) -> Result<(), StoreError> {
        self.run("opening a transaction", |db| {
            db.prepare_cached("BEGIN IMMEDIATE")?.execute([])
        })?;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        self.run("committing", |db| db.prepare_cached("COMMIT")?.execute([]))?;
        Ok(())
    }

    fn rollback(&mut self) {
        if self.db.is_autocommit() {
            return;
        }
        // What cannot be rolled back now is rolled back by the recovery of the next open.
        if let Err(error) = self.run("rolling back", |db| db.execute_batch("ROLLBACK")) {
            tracing::warn!(%error, "rollback failed");
        }
    }
}
