use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use crate::dial::Stream;

/// The system's list of users, passwd(5); more than it has.
const USERS: &str = "/etc/passwd";
const USERS_BYTES_MAX: u64 = 1024 * 1024;

/// Connects to a Unix socket.
pub(crate) async fn dial_unix(path: &Path) -> io::Result<Box<dyn Stream>> {
    Ok(Box::new(tokio::net::UnixStream::connect(path).await?))
}

/// Creates a file that only its owner can read or write; fails when it exists.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Makes a file that was made in this directory survive a power failure.
pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Creates a directory, and those above it, that only their owner can enter.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The mode of a file that others than its owner can read or write.
pub(crate) fn exposed_mode(metadata: &Metadata) -> Option<u32> {
    let mode = metadata.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}

/// The name of this process's user in the system's list.
pub(crate) fn user_name() -> Option<String> {
    Some(user_in(&users()?, uid())?.0.to_owned())
}

/// The directory that systemd keeps for this process's user. Not where `HOME` is another one's than
/// the user's own: what runs there is meant to be apart, and would meet this user's broker.
pub(crate) fn runtime_dir() -> Option<PathBuf> {
    let uid = uid();
    let dir = PathBuf::from(format!("/run/user/{uid}"));
    let own = is_own(&dir, uid) && is_home(&users()?, uid, &std::env::var_os("HOME")?);
    own.then_some(dir)
}

fn uid() -> u32 {
    rustix::process::getuid().as_raw()
}

fn users() -> Option<String> {
    let mut text = String::new();
    let file = File::open(USERS).ok()?;
    file.take(USERS_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Name and home of a user.
fn user_in(users: &str, uid: u32) -> Option<(&str, &str)> {
    users.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, number, _, _, home, ..] = fields[..] else {
            return None;
        };
        (number.parse() == Ok(uid)).then_some((name, home))
    })
}

fn is_home(users: &str, uid: u32, home: &std::ffi::OsStr) -> bool {
    user_in(users, uid).is_some_and(|(_, listed)| Path::new(listed) == Path::new(home))
}

/// It is this user's, and nobody else may enter it.
fn is_own(dir: &Path, uid: u32) -> bool {
    std::fs::symlink_metadata(dir).is_ok_and(|found| {
        found.is_dir() && found.uid() == uid && found.permissions().mode() & 0o777 == 0o700
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_number() {
        let users =
            "root:x:0:0:root:/root:/bin/bash\nodd\nann:x:1000:1000:Ann,,,:/home/ann:/bin/sh\n";
        assert_eq!(user_in(users, 1_000), Some(("ann", "/home/ann")));
        assert_eq!(user_in(users, 100), None);
        assert!(is_home(users, 1_000, "/home/ann/".as_ref()));
        assert!(!is_home(users, 1_000, "/tmp/pb".as_ref()));
        assert!(!is_home(users, 7, "/tmp/pb".as_ref()));
    }

    #[test]
    fn only_a_directory_of_our_own_that_nobody_else_enters_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let set = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(dir.path(), mode).unwrap();
        };
        set(0o700);
        assert!(is_own(dir.path(), uid()));
        assert!(!is_own(dir.path(), uid() + 1));
        set(0o755);
        assert!(!is_own(dir.path(), uid()));
        assert!(!is_own(&dir.path().join("none"), uid()));
    }
}
