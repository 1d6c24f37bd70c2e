//! The key of a database's audit chain, in a file of its own beside it.

use std::io;
use std::path::{Path, PathBuf};

use peerbus_core::audit::AuditKey;
use peerbus_os::{dir, file};
use peerbus_wire::hex;
use rand::TryRng as _;
use rand::rngs::SysRng;

use crate::files;

/// Why there is no audit key. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The database has an audit chain, but its key file is gone.
    #[error(
        "{} is missing, and without it the audit chain of {} can be neither verified nor \
         continued; put the key file back from a copy, or move the database away to start a new one",
        .1.display(),
        .0.display()
    )]
    Missing(PathBuf, PathBuf),
    /// The key file holds something else: what, and never its content.
    #[error(
        "{} must hold 64 hex digits, found {}; put the key file back from a copy, or, if the \
         database is new, delete it",
        .0.display(),
        .1
    )]
    Malformed(PathBuf, String),
    /// The key file cannot be read or written.
    #[error("cannot use the audit key file {}: {}", .0.display(), .1)]
    File(PathBuf, #[source] io::Error),
}

/// The key file of the database at `db`.
pub(crate) fn path(db: &Path) -> PathBuf {
    files::beside(db, ".audit-key")
}

/// Reads the key of the database at `db`.
pub(crate) fn read(db: &Path) -> Result<AuditKey, KeyError> {
    let key = path(db);
    let bytes = match files::read(&key) {
        Ok(bytes) => bytes,
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            return Err(KeyError::Missing(db.to_owned(), key));
        }
        Err(source) => return Err(KeyError::File(key, source)),
    };
    let text = std::str::from_utf8(bytes.trim_ascii()).ok();
    match text.and_then(hex::decode) {
        Some(bytes) => Ok(AuditKey(bytes)),
        None => Err(KeyError::Malformed(
            key,
            format!("{} other bytes", bytes.len()),
        )),
    }
}

/// Reads the key of a database that has no audit chain yet; makes one if there is none.
pub(crate) fn read_or_create(db: &Path) -> Result<AuditKey, KeyError> {
    match read(db) {
        Err(KeyError::Missing(_, key)) => {
            create(&key).map_err(|source| KeyError::File(key, source))
        }
        found => found,
    }
}

/// Whole or not at all, also after a power cut: written aside, synced, then renamed.
fn create(path: &Path) -> io::Result<AuditKey> {
    let mut key = AuditKey([0; 32]);
    SysRng
        .try_fill_bytes(&mut key.0)
        .map_err(io::Error::other)?;
    let text = hex::encode(&key.0) + "\n";
    file::replace_private(path, text.as_bytes())?;
    dir::sync(dir::above(path))?;
    Ok(key)
}
