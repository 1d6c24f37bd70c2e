//! Housekeeping between transactions, in slices of a few milliseconds.

use std::time::{Duration, Instant};

use peerbus_core::store::{Result, StoreError};
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, MAIN_DB, Transaction, TransactionBehavior};

use crate::SqliteStore;

/// Frames (pages of 4 KiB) that wait in the WAL before a checkpoint is worth its two syncs: few,
/// because a message that comes meanwhile waits. A caller under load calls less often instead.
const CHECKPOINT_FRAMES: i32 = 256;
/// The same while the disk is nearly full: what is written back is used again without more room.
const CHECKPOINT_FRAMES_LOW: i32 = 16;
/// Frames of 4 KiB in a mebibyte, about.
const FRAMES_PER_MEBIBYTE: i32 = 256;
/// Frames that wait in the WAL when the log says so: 64 MiB.
const LONG_FRAMES: i32 = 64 * FRAMES_PER_MEBIBYTE;
/// Free pages below which the file is left as it is: the next messages will use them.
const FREE_PAGES_MIN: i64 = 64;
/// The part of the file (one in so many pages) that must be free before it is shrunk.
const FREE_PART: i64 = 8;
/// How long one slice gives pages back. A page costs more the more free ones there are, so a
/// count would not bound the time.
const SHRINK_SLICE: Duration = Duration::from_millis(2);
/// How many pages one slice gives back at most, to bound what its commit writes.
const SHRINK_PAGES: usize = 128;

/// What is known about the work that waits.
#[derive(Debug, Default)]
pub(crate) struct Housekeeping {
    /// Free pages were counted since the database was opened, and since rows were last deleted.
    counted: bool,
    /// Pages were given back since the last checkpoint, which is what cuts the file.
    shrunk: bool,
    /// How many frames the last checkpoint did not write back: a reader kept it from that, or the
    /// disk did.
    blocked_at: i32,
    /// Frames that waited in the WAL at the last look.
    waiting: i32,
    /// The disk is nearly full.
    pub(crate) low: bool,
    /// Slices fail at present, and the log says so.
    failing: bool,
    /// The WAL is long, and the log says so.
    long: bool,
}

impl Housekeeping {
    /// Frames that were not written back at the last look.
    pub(crate) fn waiting(&self) -> u64 {
        u64::try_from(self.waiting).unwrap_or(0)
    }

    /// Rows that take pages of their own are being deleted.
    pub(crate) fn note_deletion(&mut self) {
        self.counted = false;
    }
}

impl SqliteStore {
    /// Does one slice of what waits: a checkpoint of the WAL, or giving free pages back to the
    /// file system. To be called between transactions, after each commit and while idle; costs a
    /// few microseconds when there is nothing to do. Gives `true` while more is to be done.
    ///
    /// A slice that fails is a warning: what was committed stays in the WAL, and a later slice tries
    /// again.
    ///
    /// # Errors
    ///
    /// When the WAL cannot be measured, when [`SqliteStore::check`] fails, or when a transaction is open.
    pub fn maintain(&mut self) -> Result<bool> {
        if !self.db.is_autocommit() {
            return Err(StoreError(
                "maintain was called inside a transaction".into(),
            ));
        }
        self.check()?;
        let (frames, waiting) = self.run("measuring the WAL", waiting)?;
        self.housekeeping.waiting = waiting;
        self.note_length(frames, waiting);
        if waiting < self.housekeeping.blocked_at {
            self.housekeeping.blocked_at = 0;
        }
        match self.slice(waiting) {
            Ok(more) => {
                self.housekeeping.failing = false;
                Ok(more)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.housekeeping.failing, true) {
                    tracing::warn!(%error, "housekeeping failed; everything is kept in the WAL");
                }
                self.housekeeping.blocked_at = waiting;
                (self.housekeeping.counted, self.housekeeping.shrunk) = (true, false);
                Ok(false)
            }
        }
    }

    fn slice(&mut self, waiting: i32) -> Result<bool> {
        // While a reader blocks, trying again is of no use before as many more have come.
        let worth = match self.housekeeping.low {
            true => CHECKPOINT_FRAMES_LOW,
            false => CHECKPOINT_FRAMES,
        };
        if waiting >= self.housekeeping.blocked_at + worth {
            self.checkpoint()?;
            return Ok(!self.housekeeping.counted || self.housekeeping.shrunk);
        }
        if self.contents.is_due() {
            let mut contents = std::mem::take(&mut self.contents);
            let stepped = self.run("writing contents", |db| contents.step(db));
            self.contents = contents;
            stepped?;
            return Ok(true);
        }
        if !self.housekeeping.counted {
            if self.run("shrinking the file", shrink)? {
                self.housekeeping.shrunk = true;
                return Ok(true);
            }
            self.housekeeping.counted = true;
        }
        if self.housekeeping.shrunk {
            self.checkpoint()?;
            self.housekeeping.shrunk = false;
        }
        Ok(false)
    }

    fn checkpoint(&mut self) -> Result {
        let left = self.run("checkpointing", |db| {
            db.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::PASSIVE)
                .map(|(frames, done)| (frames - done).max(0))
        })?;
        self.housekeeping.blocked_at = left;
        self.housekeeping.waiting = left;
        self.written_back();
        Ok(())
    }

    /// Warns once of a WAL that cannot be used from its start again.
    fn note_length(&mut self, frames: i32, waiting: i32) {
        if frames < LONG_FRAMES / 2 {
            self.housekeeping.long = false;
        } else if waiting >= LONG_FRAMES && !std::mem::replace(&mut self.housekeeping.long, true) {
            tracing::warn!(
                path = %self.path.display(),
                mebibytes = waiting / FRAMES_PER_MEBIBYTE,
                "the WAL grows: another program reads the database and does not stop, or the disk is full"
            );
        }
    }
}

/// Frames in the WAL, and how many of them are not in the database file yet.
pub(crate) fn waiting(db: &Connection) -> rusqlite::Result<(i32, i32)> {
    let (frames, done) = db.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::NOOP)?;
    Ok((frames, frames - done))
}

/// Gives a slice of free pages back; `false` when too few are free to bother.
fn shrink(db: &Connection) -> rusqlite::Result<bool> {
    let count = |pragma| {
        db.prepare_cached(pragma)?
            .query_row([], |row| row.get::<_, i64>(0))
    };
    let free = count("PRAGMA freelist_count")?;
    if free < FREE_PAGES_MIN || free < count("PRAGMA page_count")? / FREE_PART {
        return Ok(false);
    }
    let deadline = Instant::now() + SHRINK_SLICE;
    let transaction = Transaction::new_unchecked(db, TransactionBehavior::Immediate)?;
    {
        // One page a step.
        let mut statement = transaction.prepare_cached("PRAGMA incremental_vacuum")?;
        let mut steps = statement.query([])?;
        for _ in 0..SHRINK_PAGES {
            if steps.next()?.is_none() || Instant::now() >= deadline {
                break;
            }
        }
    }
    let left = count("PRAGMA freelist_count")?;
    transaction.commit()?;
    Ok(left < free)
}
