//! Room on a disk.

use std::io::{Error, ErrorKind, Result};
use std::path::Path;

use rustix::fs::FallocateFlags;
use rustix::process::Resource;

use crate::file;

/// A file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// What this user may still write.
    pub free: u64,
    /// All of it.
    pub total: u64,
}

/// The room where `path` lies. A limit of this process' file sizes counts as a disk of that size,
/// of which the file at `path` has what it has.
///
/// # Errors
///
/// When the system does not say, or says that the file system has no size.
pub fn space(path: &Path) -> Result<Space> {
    let found = rustix::fs::statvfs(path)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    let mut space = Space {
        free: bytes(found.f_bavail),
        total: bytes(found.f_blocks),
    };
    if let Some(limit) = rustix::process::getrlimit(Resource::Fsize).current {
        let has = path.metadata()?.len();
        space.free = space.free.min(limit.saturating_sub(has));
        space.total = space.total.min(limit);
    }
    if space.total == 0 {
        return Err(Error::new(ErrorKind::Unsupported, "a disk without a size"));
    }
    Ok(space)
}

/// Makes a file that only its owner can read or write, and has the disk keep so many bytes for it.
///
/// # Errors
///
/// When the file cannot be made, or the disk has not so much, or does not keep any.
pub fn reserve(path: &Path, bytes: u64) -> Result<()> {
    let made = file::open_private(path)?;
    let kept = rustix::fs::fallocate(&made, FallocateFlags::empty(), 0, bytes);
    Ok(kept?)
}
