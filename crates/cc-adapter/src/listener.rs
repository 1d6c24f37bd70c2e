//! Who is at the other end of a local socket. Its file can be ours and its listener not: whoever may
//! rename in its directory can put another socket's file there.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsFd;

/// Fails unless this user's process listens there. Asked before the first byte is written.
pub(crate) fn check(socket: &impl AsFd) -> Result<()> {
    if is_of(socket, rustix::process::geteuid())? {
        Ok(())
    } else {
        let why = "another user's process listens at this socket";
        Err(Error::new(ErrorKind::PermissionDenied, why))
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_of(socket: &impl AsFd, user: rustix::process::Uid) -> Result<bool> {
    Ok(rustix::net::sockopt::socket_peercred(socket)?.uid == user)
}

/// The system does not tell: the file's owner has to do.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn is_of(_: &impl AsFd, _: rustix::process::Uid) -> Result<bool> {
    Ok(true)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_listener_is_known_by_its_user() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let stream = UnixStream::connect(&path).unwrap();
        check(&stream).unwrap();
        let own = rustix::process::geteuid().as_raw();
        let other = rustix::process::Uid::from_raw(own + 1);
        assert!(!is_of(&stream, other).unwrap());
    }
}
