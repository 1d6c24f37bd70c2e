//! The real store, as a broker's disk.

use std::path::PathBuf;

use peerbus_core::audit::AuditKey;
use peerbus_core::store::{Loaded, Store, StoreError, Txn};
use peerbus_store::{SqliteStore, verify_audit};
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
        if self.load()?.head.is_none_or(|head| head.blocks == 0) {
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

macro_rules! forward {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        impl Txn for SqliteDisk {
            $(fn $name(&mut self, $($arg: $type),*) -> Result<$out> {
                self.store()?.$name($($arg),*)
            })*
        }
    };
}

peerbus_core::txn_methods!(forward);
