//! Opening a database for writing.

use std::io;
use std::path::{Path, PathBuf};

use peerbus_core::audit::ChainHead;
use peerbus_os::{dir, file};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::contents::Progress;
use crate::lock::Lock;
use crate::maintain::Housekeeping;
use crate::schema::{self, STEPS, SchemaError, Step};
use crate::space::Reserve;
use crate::watch::Watch;
use crate::witness::Keeper;
use crate::{KeyError, SqliteStore, files, key, read, sqlite, txn};

/// Statements that stay prepared: all of this crate's.
const STATEMENTS_MAX: usize = 64;
/// SQLite's page cache, in KiB.
const CACHE_KIB: i64 = 8_192;
/// Frames in the WAL at which a commit checkpoints by itself, should nobody call `maintain`.
const AUTOCHECKPOINT_FRAMES: i64 = 8_000;
/// What a reset WAL file is cut to, in bytes.
const WAL_BYTES_KEPT: i64 = 16 * 1_048_576;

/// Why a database was not opened. An existing one was not changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// What was tried, as a verb, with the directory or a file, which cannot be made or reached.
    #[error("cannot {} {}: {}", .0, .1.display(), .2)]
    File(&'static str, PathBuf, #[source] io::Error),
    /// Another broker has the database: the lock file, and the process that holds it, if that says so.
    #[error(
        "{} is in use by another broker, {} (it holds {}); stop that one (`peerbus stop`), or give this one \
         another database",
        .0.display(),
        .2.map_or_else(|| "process unknown".to_owned(), |pid| format!("process {pid}")),
        .1.display()
    )]
    Locked(PathBuf, PathBuf, Option<u32>),
    /// The file is not ours, or of a newer peerbus.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The audit key is missing or unusable.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The head record of the database and its key file do not belong together.
    #[error(
        "the head record of {} is not authentic under {}: one of them was altered or belongs to \
         another database; restore both from one copy, or move both away to start a new database",
        .0.display(),
        .1.display()
    )]
    Head(PathBuf, PathBuf),
    /// The file system cannot do what WAL needs: the journal mode that the database has.
    #[error(
        "{} cannot be switched to WAL (journal mode stays {}); put the database on a local \
         file system",
        .0.display(),
        .1
    )]
    NoWal(PathBuf, String),
    /// SQLite failed.
    #[error("cannot open {}: {}", .0.display(), .1)]
    Sqlite(PathBuf, #[source] rusqlite::Error),
}

impl SqliteStore {
    /// Opens the database at `path` for this process alone; makes it (0600), its directory (0700)
    /// and its audit key (0600) where they do not exist, and migrates an older schema.
    ///
    /// # Errors
    ///
    /// When another broker has it, when it is not a database of ours or of a newer version, when
    /// its audit key is missing, or when the system fails.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        open_with(path, STEPS)
    }
}

/// Resolves the path of a database, which need not be there, and takes its lock.
pub(crate) fn claim(path: &Path) -> Result<(PathBuf, Lock), OpenError> {
    let directory = dir::above(path);
    dir::create_private(directory).map_err(failed("create the directory", directory))?;
    let path = files::resolve(path).map_err(failed(USE, path))?;
    dir::check_closed(dir::above(&path)).map_err(failed(USE, &path))?;
    files::make_private(&path).map_err(|(path, error)| failed(USE, &path)(error))?;
    let file = Lock::path(&path);
    let taken = Lock::take(&file).map_err(failed("lock", &file))?;
    let lock = taken.map_err(|pid| OpenError::Locked(path.clone(), file, pid))?;
    Ok((path, lock))
}

/// What is tried with the files of a database.
const USE: &str = "use the database file";

/// What is said when the system fails at a file.
fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| OpenError::File(doing, path, source)
}

pub(crate) fn open_with(path: &Path, steps: &[Step]) -> Result<SqliteStore, OpenError> {
    schema::check_header(path)?;
    let (path, lock) = claim(path)?;
    create_file(&path).map_err(failed(USE, &path))?;

    let reserve = Reserve::find(&path);
    let broken = |source| OpenError::Sqlite(path.clone(), source);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = Connection::open_with_flags(&path, flags).map_err(broken)?;
    sqlite::wait_for_locks(&mut db, &path, sqlite::LOCK_WAIT).map_err(broken)?;
    // Before anything is written: a foreign file stays as it is.
    schema::version(&db, &path, u32::try_from(steps.len()).unwrap_or(u32::MAX))?;
    let journal = configure(&db).map_err(broken)?;
    if journal != "wal" {
        return Err(OpenError::NoWal(path, journal));
    }
    schema::migrate(&db, &path, steps)?;

    let (key, head) = match read::head(&db).map_err(broken)? {
        None => {
            let key = key::read_or_create(&path)?;
            let head = ChainHead::new(&key);
            txn::write_head(&db, &head).map_err(broken)?;
            (key, head)
        }
        Some(head) => {
            let key = key::read(&path)?;
            if head.mac != head.expected_mac(&key) {
                return Err(OpenError::Head(path.clone(), key::path(&path)));
            }
            (key, head)
        }
    };
    let witness = Keeper::start(&db, &path, &key, &head).map_err(broken)?;
    // Only tests open older schemas.
    let contents = match steps.len() == STEPS.len() {
        true => Progress::of(&db).map_err(broken)?,
        false => Progress::default(),
    };
    let watch = Watch::new(&path).map_err(failed(USE, &path))?;
    Ok(SqliteStore {
        db,
        witness,
        appended: None,
        path,
        key,
        lock,
        housekeeping: Housekeeping::default(),
        texts_gone: 0,
        contents,
        watch,
        reserve,
    })
}

/// Makes an empty file unless there is one. SQLite would make it readable for others, and does
/// not sync the directory that it appears in.
fn create_file(path: &Path) -> io::Result<()> {
    match file::create_private(path) {
        Ok(_) => dir::sync(dir::above(path)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => files::regular(path),
        Err(error) => Err(error),
    }
}

/// Sets the connection up and gives the journal mode that it got.
fn configure(db: &Connection) -> rusqlite::Result<String> {
    db.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Otherwise what has a `LIMIT ?` is planned anew with each value, which costs more than it does.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // Takes effect in a new database only, and there only before the first page is written.
    db.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    let journal =
        db.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
    db.pragma_update(None, "synchronous", "FULL")?;
    // macOS: sync means the disk, not its cache. Elsewhere without effect.
    db.pragma_update(None, "fullfsync", true)?;
    db.pragma_update(None, "cache_size", -CACHE_KIB)?;
    db.pragma_update(None, "temp_store", "MEMORY")?;
    db.pragma_update(None, "trusted_schema", false)?;
    // These two answer with a row.
    db.pragma_update_and_check(
        None,
        "wal_autocheckpoint",
        AUTOCHECKPOINT_FRAMES,
        |_| Ok(()),
    )?;
    db.pragma_update_and_check(None, "journal_size_limit", WAL_BYTES_KEPT, |_| Ok(()))?;
    Ok(journal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_committed_is_on_the_disk_before_anybody_hears_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bus.db");
        for opened in ["made", "found"] {
            let store = SqliteStore::open(&path).unwrap();
            let number = |name: &str| -> i64 {
                store
                    .db
                    .pragma_query_value(None, name, |row| row.get(0))
                    .unwrap()
            };
            // FULL: in WAL mode each commit syncs the WAL; NORMAL would only at checkpoints.
            assert_eq!(number("synchronous"), 2, "{opened}");
            assert_eq!(number("fullfsync"), 1, "{opened}");
            let mode = store
                .db
                .pragma_query_value(None, "journal_mode", |row| row.get(0));
            assert_eq!(mode, Ok("wal".to_owned()), "{opened}");
            store.close().unwrap();
        }
    }
}
