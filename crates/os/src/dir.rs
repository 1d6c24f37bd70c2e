//! Directories for this user alone.

use std::fs::{DirBuilder, File, Permissions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::user;

/// Creates a directory, and those above it, that only their owner can enter. One that is there
/// stays as it is.
///
/// # Errors
///
/// When it cannot be made.
pub fn create_private(path: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates a directory that only this user can enter, or takes the others' rights from one that is
/// there.
///
/// # Errors
///
/// When it cannot be made, or is another user's.
pub fn ensure_private(path: &Path) -> Result<()> {
    create_private(path)?;
    if !user::owns(path) {
        let why = format!("{} belongs to another user", path.display());
        return Err(Error::new(ErrorKind::PermissionDenied, why));
    }
    if std::fs::metadata(path)?.mode() & 0o077 != 0 {
        std::fs::set_permissions(path, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// The same for a directory that nobody else put a link in the place of.
///
/// # Errors
///
/// As [`ensure_private`], and when it is a symbolic link.
pub fn ensure_private_itself(path: &Path) -> Result<()> {
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        let why = format!(
            "{} is a symbolic link: put the directory itself there",
            path.display()
        );
        return Err(Error::new(ErrorKind::InvalidInput, why));
    }
    ensure_private(path)
}

/// Whether this user can make files in a directory, or make the directory where it is missing. One
/// that is there must be this user's.
#[must_use]
pub fn is_usable(path: &Path) -> bool {
    match std::fs::metadata(path) {
        Ok(found) => found.is_dir() && found.uid() == user::id() && is_writable(path),
        // A link that leads nowhere is in the way.
        Err(error) if error.kind() == ErrorKind::NotFound && path.symlink_metadata().is_err() => {
            let above = path.ancestors().skip(1).find(|dir| dir.exists());
            above.is_some_and(|above| above.is_dir() && is_writable(above))
        }
        Err(_) => false,
    }
}

fn is_writable(dir: &Path) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    let access = Access::WRITE_OK | Access::EXEC_OK;
    accessat(CWD, dir, access, AtFlags::EACCESS).is_ok()
}

/// Whether a directory is this user's, no link, and closed to others, or is not there.
#[must_use]
pub fn is_private_or_missing(path: &Path) -> bool {
    match std::fs::symlink_metadata(path) {
        Ok(found) => found.is_dir() && found.uid() == user::id() && found.mode() & 0o077 == 0,
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// Fails if every user of the machine can make files in a directory.
///
/// # Errors
///
/// When they can, with the remedy; or when it cannot be looked at.
pub fn check_closed(path: &Path) -> Result<()> {
    let mode = std::fs::metadata(path)?.mode() & 0o7777;
    if mode & 0o002 == 0 {
        return Ok(());
    }
    let path = path.display();
    let why = format!(
        "others can write to the directory {path} (mode {mode:04o}): run `chmod o-w {path}`, or \
         choose another one"
    );
    Err(Error::new(ErrorKind::PermissionDenied, why))
}

/// Fails if every user of the machine can replace files in a directory. Where only a file's owner
/// can (the sticky bit, as `/tmp` has it), it passes.
///
/// # Errors
///
/// As [`check_closed`].
pub fn check_replacing(path: &Path) -> Result<()> {
    match std::fs::metadata(path)?.mode() & 0o1000 {
        0 => check_closed(path),
        _ => Ok(()),
    }
}

/// Makes files that were made in this directory survive a power failure.
///
/// # Errors
///
/// When the disk fails.
pub fn sync(path: &Path) -> Result<()> {
    File::open(path)?.sync_all()
}

/// The directory that a path lies in.
#[must_use]
pub fn above(path: &Path) -> &Path {
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// The directories above a file that are not there, the outermost first.
#[must_use]
pub fn missing_above(file: &Path) -> Vec<PathBuf> {
    let above = file.ancestors().skip(1);
    let missing = above.take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists());
    let mut missing: Vec<_> = missing.map(Path::to_owned).collect();
    missing.reverse();
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_others_can_write_to_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        for (mode, closed, replacing) in [
            (0o755, true, true),
            (0o777, false, false),
            (0o1777, false, true),
        ] {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(check_closed(path).is_ok(), closed, "{mode:o}");
            assert_eq!(check_replacing(path).is_ok(), replacing, "{mode:o}");
        }
    }

    #[test]
    fn a_directory_is_usable_where_files_can_be_made_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("file"), "").unwrap();
        std::os::unix::fs::symlink(path("nowhere"), path("link")).unwrap();
        for (name, usable) in [
            ("", true),
            ("new/and/below", true),
            ("file", false),
            ("file/below", false),
            ("link", false),
        ] {
            assert_eq!(is_usable(&path(name)), usable, "{name}");
        }
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
        assert!(is_private_or_missing(dir.path()) && is_private_or_missing(&path("new")));
        assert!(!is_private_or_missing(&path("file")) && !is_private_or_missing(&path("link")));
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o750)).unwrap();
        assert!(!is_private_or_missing(dir.path()));
    }

    #[test]
    fn a_directory_that_others_could_enter_is_closed_to_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        assert_eq!(
            missing_above(&path.join("c")),
            [dir.path().join("a"), path.clone()]
        );
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        ensure_private(&path).unwrap();
        assert_eq!((mode(&path), mode(&dir.path().join("a"))), (0o700, 0o700));
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        ensure_private(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
    }
}
