use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::dial::Stream;

/// There are no Unix sockets here.
#[expect(clippy::unused_async, reason = "as on Unix")]
pub(crate) async fn dial_unix(_: &Path) -> io::Result<Box<dyn Stream>> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "no Unix sockets on this system",
    ))
}

/// Creates a file; fails when it exists. The user's profile directory is private by default.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Directories cannot be opened here.
#[expect(clippy::unnecessary_wraps, reason = "as on Unix")]
pub(crate) fn sync_dir(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Creates a directory and those above it.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)
}

/// There are no modes here.
pub(crate) fn exposed_mode(_: &Metadata) -> Option<u32> {
    None
}

/// Whoever runs this is named in the environment here.
pub(crate) fn user_name() -> Option<String> {
    None
}

/// There is none here.
pub(crate) fn runtime_dir() -> Option<PathBuf> {
    None
}
