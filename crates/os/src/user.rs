//! The user whose process this is.

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::file;

/// The system's list of users, passwd(5); more than it has.
const USERS: &str = "/etc/passwd";
const USERS_BYTES_MAX: u64 = 1024 * 1024;

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

/// The user's name in the system's list.
#[must_use]
pub fn name() -> Option<String> {
    let users = file::read_small(Path::new(USERS), USERS_BYTES_MAX)?;
    Some(find(&users, id())?.0.to_owned())
}

/// The directory that systemd keeps for the user. `None` where `HOME` is another one's than the
/// user's own: a program that runs there is meant to be apart, and would meet this user's others.
#[must_use]
pub fn runtime_dir() -> Option<PathBuf> {
    let id = id();
    let dir = PathBuf::from(format!("/run/user/{id}"));
    let users = file::read_small(Path::new(USERS), USERS_BYTES_MAX)?;
    let own = is_private(&dir, id) && is_home(&users, id, &std::env::var_os("HOME")?);
    own.then_some(dir)
}

fn find(users: &str, id: u32) -> Option<(&str, &str)> {
    users.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, number, _, _, home, ..] = fields[..] else {
            return None;
        };
        (number.parse() == Ok(id)).then_some((name, home))
    })
}

fn is_home(users: &str, id: u32, home: &OsStr) -> bool {
    find(users, id).is_some_and(|(_, listed)| Path::new(listed) == Path::new(home))
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
    fn a_user_is_found_by_its_number() {
        let users =
            "root:x:0:0:root:/root:/bin/bash\nodd\nann:x:1000:1000:Ann,,,:/home/ann:/bin/sh\n";
        assert_eq!(find(users, 1_000), Some(("ann", "/home/ann")));
        assert_eq!(find(users, 100), None);
        assert!(is_home(users, 1_000, "/home/ann/".as_ref()));
        assert!(!is_home(users, 1_000, "/tmp/pb".as_ref()));
        assert!(!is_home(users, 7, "/tmp/pb".as_ref()));
    }

    #[test]
    fn only_a_directory_of_our_own_that_nobody_else_enters_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let set = |mode| file::set_mode(dir.path(), mode).unwrap();
        set(0o700);
        assert!(is_private(dir.path(), id()));
        assert!(!is_private(dir.path(), id() + 1));
        set(0o755);
        assert!(!is_private(dir.path(), id()));
        assert!(!is_private(&dir.path().join("none"), id()));
    }
}
