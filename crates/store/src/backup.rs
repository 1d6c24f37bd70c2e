//! A backup in one file, with what it takes to go on from it, and the way back.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use peerbus_core::audit::AuditKey;
use peerbus_core::store::StoreError;
use peerbus_core::witness::Witness;
use peerbus_os::{dir, file};
use peerbus_wire::hex;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use crate::open::{self, OpenError};
use crate::verify::{self, AuditReport, ChainError};
use crate::{KeyError, SqliteStore, files, key, verify_audit, witness};

/// Why there is no backup, or nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file lies where the backup is to lie.
    #[error("{} is there already; give the path of a file that does not exist yet", .0.display())]
    Exists(PathBuf),
    /// A file cannot be read or written.
    #[error("cannot use {}: {}", .0.display(), .1)]
    File(PathBuf, #[source] io::Error),
    /// The file to restore from cannot be read.
    #[error("cannot read {}: {}; give a file that `peerbus backup` made", .0.display(), .1)]
    Unreadable(PathBuf, #[source] io::Error),
    /// The file was not made by [`backup`]: what was found in its place.
    #[error("{} is no backup ({}); give a file that `peerbus backup` made", .0.display(), .1)]
    NoBackup(PathBuf, String),
    /// SQLite failed.
    #[error("cannot copy {}: {}", .0.display(), .1)]
    Sqlite(PathBuf, #[source] rusqlite::Error),
    /// The audit key is missing or unusable.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The database is in use, or cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// What was copied does not verify.
    #[error(transparent)]
    Verify(#[from] ChainError),
    /// The restored database could not be closed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The outcome of a restore.
#[derive(Debug)]
pub struct Restored {
    /// The database, without symbolic links.
    pub path: PathBuf,
    /// Where the files lie that were there before; `None`: there were none.
    pub aside: Option<PathBuf>,
    /// What the restored chain holds; `None`: nothing yet.
    pub report: Option<AuditReport>,
}

/// Copies the database at `db`, with its key and how many losses its witness knows, into one new
/// private file, and verifies the copy. It is as of one commit. A broker may run on the database; it is not
/// held up, but its WAL grows until the copy is made.
///
/// # Errors
///
/// When something lies at `to`, or a file cannot be read or written; then there is none.
pub fn backup(db: &Path, to: &Path) -> Result<AuditReport, BackupError> {
    let db = db.canonicalize().map_err(failed(db))?;
    let directory = dir::above(to);
    dir::check_replacing(directory).map_err(failed(directory))?;
    if fs::symlink_metadata(to).is_ok() {
        return Err(BackupError::Exists(to.to_owned()));
    }
    let fresh = files::beside(to, ".partial");
    drop(file::create_private(&fresh).map_err(failed(&fresh))?);
    let made = copy(&db, &fresh).and_then(|report| {
        File::open(&fresh)
            .and_then(|file| file.sync_all())
            .map_err(failed(&fresh))?;
        // Unlike a rename it replaces nothing.
        fs::hard_link(&fresh, to).map_err(failed(to))?;
        Ok(report)
    });
    fs::remove_file(&fresh).map_err(failed(&fresh))?;
    let report = made?;
    dir::sync(directory).map_err(failed(directory))?;
    Ok(report)
}

/// What is said when the system fails at a file.
fn failed(path: &Path) -> impl Fn(io::Error) -> BackupError {
    let path = path.to_owned();
    move |source| BackupError::File(path.clone(), source)
}

fn copy(db: &Path, fresh: &Path) -> Result<AuditReport, BackupError> {
    let broken = |source| BackupError::Sqlite(db.to_owned(), source);
    let key = key::read(db)?;
    let seen = witness::decode(&key, &witness::text(db)).ok().flatten();
    let epoch = seen.map_or(0, |witness| witness.epoch);
    let source = verify::connect(db, verify::Access::Live).map_err(broken)?;
    verify::check_schema(&source, db)?;
    let odd = || io::Error::new(io::ErrorKind::InvalidInput, "the path is not UTF-8");
    let target = fresh.to_str().ok_or_else(|| failed(fresh)(odd()))?;
    // Leaves out what was deleted.
    source.execute("VACUUM INTO ?1", [target]).map_err(broken)?;
    let copy = open_existing(fresh).map_err(broken)?;
    copy.execute_batch("CREATE TABLE backup(key BLOB NOT NULL, epoch INTEGER NOT NULL) STRICT;")
        .and_then(|()| {
            copy.execute(
                "INSERT INTO backup(key, epoch) VALUES(?1, ?2)",
                (key.0, epoch),
            )
        })
        .map_err(broken)?;
    let report = verify::follow(&copy, fresh, &key, &mut |_| ())?;
    copy.close().map_err(|(_, source)| broken(source))?;
    Ok(report)
}

fn open_existing(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)
}

/// Puts a backup in the place of the database at `db`, which no broker may have open. What lies
/// there is kept in a directory beside it. The restored database counts as complete: what its
/// witness saw since is acknowledged.
///
/// # Errors
///
/// When a broker runs, or `from` is no whole backup; then nothing has changed. When a file cannot
/// be moved, what was there is in that directory.
pub fn restore(from: &Path, db: &Path) -> Result<Restored, BackupError> {
    drop(
        file::open_regular(from)
            .map_err(|source| BackupError::Unreadable(from.to_owned(), source))?,
    );
    let (db, _lock) = open::claim(db)?;
    let staging = files::beside(&db, ".restoring");
    // Of a restore that was killed: nobody else has the lock.
    match fs::remove_dir_all(&staging) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed(&staging)(error));
        }
        _ => {}
    }
    dir::create_private(&staging).map_err(failed(&staging))?;
    let staged = staging.join("peerbus.db");
    let restored = stage(from, &staged, &db).and_then(|report| {
        let aside = set_aside(&db).map_err(failed(&db))?;
        // The database last: until it is there, a broker that starts finds its witness, and says
        // that everything is missing.
        for suffix in [".audit-key", ".witness", ""] {
            let (from, to) = (files::beside(&staged, suffix), files::beside(&db, suffix));
            fs::rename(from, &to).map_err(failed(&to))?;
        }
        let directory = dir::above(&db);
        dir::sync(directory).map_err(failed(directory))?;
        Ok((aside, report))
    });
    fs::remove_dir_all(&staging).map_err(failed(&staging))?;
    let (aside, mut report) = restored?;
    // What was verified before it was there lies there now.
    if let Some(report) = &mut report {
        report.path.clone_from(&db);
    }
    Ok(Restored {
        path: db,
        aside,
        report,
    })
}

/// Makes a whole database of a backup, with its key and witness, brought to the newest schema, and
/// verifies it.
fn stage(from: &Path, staged: &Path, db: &Path) -> Result<Option<AuditReport>, BackupError> {
    let failed = failed(staged);
    let mut file = file::create_private(staged).map_err(&failed)?;
    file::open_regular(from)
        .and_then(|mut from| io::copy(&mut from, &mut file))
        .and_then(|_| file.sync_all())
        .map_err(&failed)?;
    drop(file);
    let (key, epoch) = unpack(from, staged)?;
    let text = hex::encode(&key.0) + "\n";
    file::replace_private(&key::path(staged), text.as_bytes()).map_err(&failed)?;
    SqliteStore::open(staged)?.close()?;
    if files::beside(staged, "-wal").exists() {
        return Err(failed(io::Error::other(
            "its log could not be written back",
        )));
    }
    let report = match verify_audit(staged) {
        Err(ChainError::Nothing { .. }) => None,
        report => Some(report?),
    };
    let seen = witness::decode(&key, &witness::text(staged)).ok().flatten();
    if let Some(fresh) = seen {
        let theirs = key::read(db).ok();
        let before = theirs.and_then(|key| witness::decode(&key, &witness::text(db)).ok()?);
        let before = before.map_or(0, |witness| witness.epoch);
        let epoch = before.max(epoch) + 1;
        let text = Witness { epoch, ..fresh }.encode(&key);
        file::replace_private(&witness::path(staged), text.as_bytes()).map_err(failed)?;
    }
    Ok(report)
}

/// Takes out of a copy of a backup what a database has not.
fn unpack(from: &Path, staged: &Path) -> Result<(AuditKey, u64), BackupError> {
    let no_backup =
        |error: rusqlite::Error| BackupError::NoBackup(from.to_owned(), error.to_string());
    let copy = open_existing(staged).map_err(no_backup)?;
    let row = copy
        .query_row("SELECT key, epoch FROM backup", [], |row| {
            Ok((AuditKey(row.get(0)?), row.get(1)?))
        })
        .optional()
        .map_err(no_backup)?
        .ok_or_else(|| no_backup(rusqlite::Error::QueryReturnedNoRows))?;
    copy.execute_batch("PRAGMA secure_delete = ON; DROP TABLE backup")
        .map_err(no_backup)?;
    copy.close().map_err(|(_, error)| no_backup(error))?;
    Ok(row)
}

/// Moves the files of a database into a new directory beside it, unless there are none.
fn set_aside(db: &Path) -> io::Result<Option<PathBuf>> {
    let files: Vec<_> = files::ALL
        .iter()
        .filter(|suffix| **suffix != ".lock")
        .map(|suffix| files::beside(db, suffix))
        .filter(|path| path.exists())
        .collect();
    if files.is_empty() {
        return Ok(None);
    }
    let mut number = 1;
    let aside = loop {
        let aside = files::beside(db, &format!(".before-restore-{number}"));
        if fs::symlink_metadata(&aside).is_err() {
            break aside;
        }
        number += 1;
    };
    dir::create_private(&aside)?;
    // The database last, as it comes back.
    for file in files.iter().rev() {
        fs::rename(file, aside.join(file.file_name().unwrap_or_default()))?;
    }
    dir::sync(&aside)?;
    Ok(Some(aside))
}
