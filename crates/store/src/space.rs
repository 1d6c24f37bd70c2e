//! The room that is left for the database, and a part of it that is kept for bad times.
//!
//! What new mail may not take is there for acks, registrations and checkpoints. When others take
//! that, too, the reserve is given back: a file beside the database that holds nothing.

use std::path::{Path, PathBuf};

use peerbus_os::disk::{self, Space};

use crate::{SqliteStore, files};

/// What the reserve takes at most, in bytes,
const RESERVE_BYTES_MAX: u64 = 16 * 1_048_576;
/// and which part of the disk: one in so many bytes.
const RESERVE_PART: u64 = 16;
/// Bytes of a frame in the WAL, about.
const FRAME_BYTES: u64 = 4_096;

/// The reserve of a database.
#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
    kept: bool,
}

impl Reserve {
    /// The reserve of the database at `db`, as it was left. When hardly anything else is free it is
    /// given back, or the database could not be opened.
    pub(crate) fn find(db: &Path) -> Self {
        let path = files::beside(db, ".reserve");
        let kept = path.exists();
        let mut reserve = Self { path, kept };
        if kept && disk::space(db).is_ok_and(|space| space.free < low(&space)) {
            reserve.give_back();
        }
        reserve
    }

    fn give_back(&mut self) {
        match std::fs::remove_file(&self.path) {
            Ok(()) => {
                tracing::warn!(path = %self.path.display(), "the disk is nearly full: the reserve is given back")
            }
            Err(error) => tracing::debug!(%error, "no reserve to give back"),
        }
        self.kept = false;
    }
}

/// Bytes that are hardly anything: half of a reserve.
fn low(space: &Space) -> u64 {
    bytes(space) / 2
}

/// What the reserve takes of such a disk.
fn bytes(space: &Space) -> u64 {
    RESERVE_BYTES_MAX.min(space.total / RESERVE_PART)
}

impl SqliteStore {
    /// The room that is left, without what the WAL is going to take in the database and without the
    /// reserve, whether or not that is kept at present. `None` when the system does not say.
    #[must_use]
    pub fn space(&self) -> Option<Space> {
        let space = disk::space(&self.path).ok()?;
        let reserve = if self.reserve.kept { 0 } else { bytes(&space) };
        let unwritten = self.housekeeping.waiting() * FRAME_BYTES;
        let free = space.free.saturating_sub(reserve + unwritten);
        Some(Space { free, ..space })
    }

    /// Has the disk keep a reserve while there is room for new mail, and gives it back when, without
    /// that, hardly anything is left.
    /// The WAL is kept short meanwhile.
    pub fn tend_reserve(&mut self, room: bool) {
        self.housekeeping.low = !room;
        if room == self.reserve.kept {
            return;
        }
        let Ok(space) = disk::space(&self.path) else {
            return;
        };
        if room {
            // Not every file system keeps any.
            self.reserve.kept = true;
            if let Err(error) = disk::reserve(&self.reserve.path, bytes(&space)) {
                tracing::debug!(%error, "the disk keeps no reserve");
            }
        } else if space.free < low(&space) {
            self.reserve.give_back();
        }
    }
}
