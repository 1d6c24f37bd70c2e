//! Whether the files that are written are still the ones that the next start will find.
//!
//! SQLite keeps its files open and goes on writing to them when they have lost their names or their
//! contents.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use peerbus_core::store::{Result, StoreError};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, Result as SqlResult};

use crate::lock::Lock;
use crate::{SqliteStore, files, maintain};

/// Bytes before the first frame of a WAL, and before the page in each.
const WAL_HEAD: u64 = 32;
const FRAME_HEAD: u64 = 24;

/// Looks before a file is taken for one that has lost its end.
const LOOKS: usize = 5;

/// The files as they were at the last look.
#[derive(Debug)]
pub(crate) struct Watch {
    database: File,
    wal: File,
    lock: File,
    /// What is left must not be written to any more.
    pub(crate) damaged: bool,
}

#[derive(Debug)]
struct File {
    path: PathBuf,
    id: (u64, u64),
    len: u64,
}

impl File {
    fn new(path: PathBuf) -> io::Result<Self> {
        let found = path.metadata()?;
        Ok(Self {
            path,
            id: id(&found),
            len: found.len(),
        })
    }

    /// How long the file is, if it is the same one; else what happened to it.
    fn look(&self) -> Result<u64, String> {
        match self.path.metadata() {
            Ok(found) if id(&found) != self.id => Err("was replaced by another file".into()),
            Ok(found) if found.nlink() > 1 => Err(
                "has got a second name (a hard link), by which another broker could open it".into(),
            ),
            Ok(found) => Ok(found.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err("was removed or moved away".into())
            }
            Err(error) => Err(format!("cannot be reached any more ({error})")),
        }
    }
}

fn id(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

impl Watch {
    /// Remembers the files of the database at `path`, which is open.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        Ok(Self {
            database: File::new(path.to_owned())?,
            wal: File::new(files::beside(path, "-wal"))?,
            lock: File::new(Lock::path(path))?,
            damaged: false,
        })
    }

    /// Whether the WAL is shorter than it was.
    pub(crate) fn wal_shrank(&self) -> bool {
        self.wal.look().is_ok_and(|len| len < self.wal.len)
    }

    fn gone(&mut self, wal: bool, what: &str) -> StoreError {
        let (name, file) = match wal {
            false => ("the database", &self.database),
            true => ("the database's WAL", &self.wal),
        };
        StoreError(format!(
            "{name} {} {what} while the broker ran; what it held may be lost, put it back or restore a backup",
            file.path.display()
        ))
    }
}

impl SqliteStore {
    /// Looks whether the files are still there, the same, and whole. To be called between
    /// transactions; costs three system calls.
    ///
    /// # Errors
    ///
    /// When they are not: the sentence says which one, and what happened to it. What is left is not
    /// written to any more.
    pub fn check(&mut self) -> Result {
        let (database, wal) = (self.watch.database.look(), self.watch.wal.look());
        // Only then is it left alone: a database with another name or in another place is written
        // back to in the end, and is whole there.
        self.watch.damaged |= wal.is_err();
        let database = database.map_err(|what| self.watch.gone(false, &what))?;
        let wal = wal.map_err(|what| self.watch.gone(true, &what))?;
        self.watch.lock.look().map_err(|what| {
            let lock = self.watch.lock.path.display();
            StoreError(format!(
                "the lock file {lock} {what} while the broker ran, so another broker could open the \
                 database; nothing is lost, start it again"
            ))
        })?;
        if database < self.watch.database.len && self.lacks(&self.watch.database, has_bytes) {
            return Err(self.truncated(false));
        }
        if wal < self.watch.wal.len && self.lacks(&self.watch.wal, wal_needs) {
            return Err(self.truncated(true));
        }
        (self.watch.database.len, self.watch.wal.len) = (database, wal);
        Ok(())
    }

    /// Whether a file is shorter than it must be. Others may write between two looks, by the rules;
    /// what is lost is lost at each.
    fn lacks(&self, file: &File, needs: fn(&Connection) -> SqlResult<u64>) -> bool {
        (0..LOOKS).all(|_| {
            let needs = needs(&self.db);
            file.look()
                .is_ok_and(|has| needs.map_or(true, |needs| needs > has))
        })
    }

    /// What a WAL or a database is called that has lost its end.
    pub(crate) fn truncated(&mut self, wal: bool) -> StoreError {
        self.watch.damaged = true;
        self.watch.gone(wal, "was truncated")
    }

    /// The database was written back to, which may have made it shorter.
    pub(crate) fn written_back(&mut self) {
        if let Ok(len) = self.watch.database.look() {
            self.watch.database.len = len;
        }
    }

    /// Leaves the files as they are when the connection ends, if they are not to be written to.
    pub(crate) fn spare(&self) -> Result {
        let spare = self.watch.damaged;
        let option = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        self.run("closing", |db| db.set_db_config(option, spare))
            .map(drop)
    }
}

/// Bytes that the WAL must have.
fn wal_needs(db: &Connection) -> SqlResult<u64> {
    let (frames, _) = maintain::waiting(db)?;
    let page: u64 = db
        .pragma_query_value(None, "page_size", |row| row.get::<_, u32>(0))?
        .into();
    Ok(match u64::try_from(frames) {
        Ok(0) | Err(_) => 0,
        Ok(frames) => WAL_HEAD + frames * (FRAME_HEAD + page),
    })
}

/// Bytes that the database has once all is written back.
fn has_bytes(db: &Connection) -> SqlResult<u64> {
    let size = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
    db.query_row(size, [], |row| row.get(0))
}
