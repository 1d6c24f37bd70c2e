//! The store itself: one connection, one transaction at a time.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use peerbus_core::audit::{AuditKey, Hash};
use peerbus_core::store::{Loaded, Result, Store, StoreError};
use rusqlite::{Connection, ErrorCode, Params};

use crate::contents::Progress;
use crate::lock::Lock;
use crate::maintain::Housekeeping;
use crate::read;
use crate::space::Reserve;
use crate::watch::Watch;
use crate::witness::{Keeper, WitnessFile};

/// How long a lock is waited for that another program holds on the database.
pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(30);
/// How long it is waited for without a word.
const LOCK_WAIT_SILENT: Duration = Duration::from_secs(1);
/// Time between two looks at it.
const LOCK_LOOK: Duration = Duration::from_millis(10);
/// How long the last checkpoint waits for those who read the database.
const READERS_WAIT: Duration = Duration::from_secs(5);

/// A database that this process has open for writing. No other process can open it so.
#[derive(Debug)]
pub struct SqliteStore {
    pub(crate) db: Connection,
    pub(crate) path: PathBuf,
    pub(crate) key: AuditKey,
    /// The last block of the open transaction: its number and hash.
    pub(crate) appended: Option<(u64, Hash)>,
    /// Dropped before the lock is.
    pub(crate) witness: Keeper,
    // Dropped after the connection: fields go in this order.
    pub(crate) lock: Lock,
    pub(crate) housekeeping: Housekeeping,
    /// The texts of what ended up to this row of `fates` are gone, as far as they may go.
    pub(crate) texts_gone: i64,
    pub(crate) contents: Progress,
    pub(crate) watch: Watch,
    pub(crate) reserve: Reserve,
}

/// Transactions that are begun anew at most, since the WAL became shorter meanwhile.
const BEGINS_MAX: usize = 100;

impl SqliteStore {
    /// The key of this database's audit chain.
    #[must_use]
    pub fn audit_key(&self) -> &AuditKey {
        &self.key
    }

    /// What is known of the chain apart from it.
    #[must_use]
    pub fn witness(&self) -> &WitnessFile {
        &self.witness.file
    }

    /// The database file, without symbolic links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the whole WAL back, empties it, and lets go of the database. What cannot be written
    /// back stays in the WAL, for the next `open`.
    ///
    /// # Errors
    ///
    /// When the database cannot be let go of. Nothing that was committed is lost.
    pub fn close(self) -> Result {
        self.spare()?;
        // The lock goes last, when this function returns.
        let Self {
            db,
            path,
            lock: _lock,
            witness,
            watch,
            ..
        } = self;
        if !watch.damaged {
            let waits = db.busy_timeout(READERS_WAIT);
            let checkpoint = || db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            if let Err(error) = waits.and_then(|()| checkpoint()) {
                let path = path.display();
                tracing::warn!(%path, %error, "the WAL was not written back; it is kept");
            }
        }
        drop(witness);
        let closed = db.close().map_err(|(_, error)| error);
        closed.map_err(|error| failed(&path, "closing", &error))
    }

    /// Runs a statement; gives how many rows it changed.
    pub(crate) fn change(&self, doing: &str, sql: &str, values: impl Params) -> Result<usize> {
        self.run(doing, |db| db.prepare_cached(sql)?.execute(values))
    }

    /// Runs `operation` and says, should it fail, where and at what.
    pub(crate) fn run<T>(
        &self,
        doing: &str,
        operation: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        operation(&self.db).map_err(|error| failed(&self.path, doing, &error))
    }
}

pub(crate) fn failed(path: &Path, doing: &str, error: &rusqlite::Error) -> StoreError {
    let why = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy) => format!(
            "another program has held its lock for {} s; end that program and start the broker again",
            LOCK_WAIT.as_secs()
        ),
        _ => error.to_string(),
    };
    let path = path.display();
    StoreError(format!(
        "{doing}, in {path}: {why}; what was accepted is on disk"
    ))
}

/// Has the connection wait for locks of others, at most `longest` each, and say so.
pub(crate) fn wait_for_locks(
    db: &mut Connection,
    path: &Path,
    longest: Duration,
) -> rusqlite::Result<()> {
    let path = path.to_owned();
    let (mut since, mut told) = (Instant::now(), false);
    db.busy_handler(Some(move |looks: i32| {
        if looks == 0 {
            (since, told) = (Instant::now(), false);
        }
        let waited = since.elapsed();
        if waited >= LOCK_WAIT_SILENT.min(longest) && !told {
            told = true;
            tracing::warn!(
                path = %path.display(),
                longest_s = longest.as_secs(),
                "another program holds the database's lock; everybody waits for it"
            );
        }
        std::thread::sleep(LOCK_LOOK);
        waited < longest
    }))
}

impl Store for SqliteStore {
    fn load(&mut self) -> Result<Loaded> {
        self.run("reading the peers and the head", |db| {
            Ok(Loaded {
                peers: read::peers(db)?,
                aliases: read::aliases(db)?,
                head: read::head(db)?,
                owed: read::owed(db)?,
                leases: crate::leases::all(db)?,
                sealed: read::sealed(db)?,
            })
        })
    }

    fn begin(&mut self) -> Result {
        for _ in 0..BEGINS_MAX {
            if self.watch.wal_shrank() {
                self.check()?;
            }
            self.run("opening a transaction", |db| {
                db.prepare_cached("BEGIN IMMEDIATE")?.execute([])
            })?;
            if !self.watch.wal_shrank() {
                break;
            }
            // Somebody emptied it, by the rules or not, before this transaction had the lock.
            self.run("rolling back", |db| db.execute_batch("ROLLBACK"))?;
        }
        match self.db.is_autocommit() {
            true => Err(self.truncated(true)),
            false => Ok(()),
        }
    }

    fn commit(&mut self) -> Result {
        // Nobody else may empty it now. Once something is appended it is as long as before.
        if self.watch.wal_shrank() {
            return Err(self.truncated(true));
        }
        self.run("committing", |db| db.prepare_cached("COMMIT")?.execute([]))?;
        self.check()?;
        if let Some((blocks, hash)) = self.appended.take() {
            self.witness.note(blocks, hash);
        }
        Ok(())
    }

    fn rollback(&mut self) {
        self.appended = None;
        self.texts_gone = 0;
        if self.db.is_autocommit() {
            return;
        }
        // What cannot be rolled back now is rolled back by the recovery of the next open.
        if let Err(error) = self.run("rolling back", |db| db.execute_batch("ROLLBACK")) {
            tracing::warn!(%error, "rollback failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use peerbus_core::store::Store as _;

    use super::*;

    #[test]
    fn a_lock_that_is_never_given_back_is_named_in_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = SqliteStore::open(&directory.path().join("bus.db")).unwrap();
        let path = store.path.clone();
        wait_for_locks(&mut store.db, &path, Duration::from_millis(50)).unwrap();
        let other = Connection::open(&path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let error = store.begin().unwrap_err().to_string();
        assert!(
            error.contains("another program has held its lock for 30 s"),
            "{error}"
        );
        other.execute_batch("ROLLBACK").unwrap();
        store.begin().unwrap();
    }
}
