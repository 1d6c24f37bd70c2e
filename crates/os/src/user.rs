//! The user whose process this is.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::system;

/// The effective number of this process's user.
#[must_use]
pub fn id() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether a file or a directory is there and belongs to this user.
#[must_use]
pub fn owns(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.uid() == id())
}

/// Whether this process is in a user namespace of its own, as in a sandbox: it cannot look into those
/// outside.
#[must_use]
pub fn is_in_namespace() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    // The first namespace has all numbers as they are (user_namespaces(7)).
    !map.is_empty() && map.split_whitespace().ne(["0", "0", "4294967295"])
}

/// The number and the home of the user in the system's list, whatever variables say. In a namespace it is
/// the user outside of it.
#[must_use]
pub fn listed() -> Option<(u32, PathBuf)> {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let id = outside(&map, id());
    Some((id, system::user(id)?.1))
}

/// A user's number outside of the namespace of this map, user_namespaces(7).
fn outside(map: &str, id: u32) -> u32 {
    let found = map.lines().find_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let mut next = || numbers.next()?.ok();
        let (inside, outside, count) = (next()?, next()?, next()?);
        let at = id.checked_sub(inside).filter(|at| *at < count)?;
        outside.checked_add(at)
    });
    found.unwrap_or(id)
}

/// The user's name in the system's list.
#[must_use]
pub fn name() -> Option<String> {
    system::user(id()).map(|(name, _)| name)
}

/// The directory that the system keeps for the user. `None` where `HOME` is another one's than the
/// user's own: a program that runs there is meant to be apart, and would meet this user's others.
#[must_use]
pub fn runtime_dir() -> Option<PathBuf> {
    let id = id();
    let dir = system::runtime_dir(id).filter(|dir| is_private(dir, id))?;
    let is_home = Path::new(&std::env::var_os("HOME")?) == system::user(id)?.1;
    is_home.then_some(dir)
}

/// It is this user's, and nobody else may enter it.
fn is_private(dir: &Path, id: u32) -> bool {
    std::fs::symlink_metadata(dir).is_ok_and(|found| {
        found.is_dir() && found.uid() == id && found.permissions().mode() & 0o777 == 0o700
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_number_is_that_outside_of_its_namespace() {
        for (map, expected) in [
            ("         0          0 4294967295\n", 7),
            ("         0       1000          1\n", 7),
            ("7 1000 1\n", 1_000),
            ("0 1000 1\n1 100000 65536\n", 100_006),
            ("", 7),
        ] {
            assert_eq!(outside(map, 7), expected, "{map}");
        }
    }

    #[test]
    fn only_a_directory_of_our_own_that_nobody_else_enters_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let set = |mode| crate::file::set_mode(dir.path(), mode).unwrap();
        set(0o700);
        assert!(is_private(dir.path(), id()));
        assert!(!is_private(dir.path(), id() + 1));
        set(0o755);
        assert!(!is_private(dir.path(), id()));
        assert!(!is_private(&dir.path().join("none"), id()));
    }
}
