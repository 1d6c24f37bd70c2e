//! The files of a database: the owner's only.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use peerbus_os::{dir, file};

/// More than a key or a witness has.
const SMALL_BYTES_MAX: u64 = 65_536;

/// The path of a file that belongs to the database at `db`.
pub(crate) fn beside(db: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = db.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// `path` without symbolic links, so that two ways to one database find one lock and one key. The
/// file itself need not exist; its directory must.
pub(crate) fn resolve(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found,
    }
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path names no file",
        ));
    };
    Ok(dir::above(path).canonicalize()?.join(name))
}

/// Fails unless `path` is a file.
pub(crate) fn regular(path: &Path) -> io::Result<()> {
    if path.metadata()?.is_file() {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "it is not a regular file",
    ))
}

/// What a small file beside a database holds.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = file::open_regular(path)?;
    file.take(SMALL_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What lies beside a database, and the database itself (the empty suffix).
pub(crate) const ALL: &[&str] = &["", "-wal", "-shm", ".lock", ".audit-key", ".witness"];

/// Takes others' rights from the files of the database at `db` that are there. Gives the one that
/// cannot be used, and why.
pub(crate) fn make_private(db: &Path) -> Result<(), (PathBuf, io::Error)> {
    for suffix in ALL {
        let path = beside(db, suffix);
        match file::make_private(&path) {
            Ok(None) => {}
            Ok(Some(mode)) => tracing::warn!(
                path = %path.display(),
                mode = format_args!("{mode:04o}"),
                "others had rights to this file; its mode is 0600 from here on"
            ),
            Err(error) => return Err((path, error)),
        }
    }
    Ok(())
}
