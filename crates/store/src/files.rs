//! The files beside a database, and how they are made: owner only, and on the disk when we say so.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

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
    Ok(directory(path).canonicalize()?.join(name))
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

/// The directory that `path` lies in.
pub(crate) fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Makes the directory and those above it, for the owner only; what exists is left as it is.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Options that read and write, and create files for the owner only.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Makes the entries of the directory that `path` lies in durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(directory(path))?.sync_all()
    } else {
        Ok(())
    }
}
