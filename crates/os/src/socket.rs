//! Unix sockets: which path can be one's, who listens there, and the file that it is.

use std::fs::symlink_metadata;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketType};

use crate::{file, system, user};

/// Whether a socket can have this path: some 100 bytes are the most.
#[must_use]
pub fn fits(path: &Path) -> bool {
    SocketAddr::from_pathname(path).is_ok()
}

/// Whether the path is there and is a socket's.
///
/// # Errors
///
/// When the path cannot be looked at.
pub fn is_socket(path: &Path) -> Result<bool> {
    Ok(symlink_metadata(path)?.file_type().is_socket())
}

/// Whether somebody listens at a socket. It may be about to: a socket is bound before it listens.
///
/// # Errors
///
/// When the path is not there, is no socket's, or is closed to this user.
pub fn is_listening(path: &Path) -> Result<bool> {
    let socket = net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    // A listener with a full queue would keep us waiting.
    rustix::io::ioctl_fionbio(&socket, true)?;
    match net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) | Err(Errno::AGAIN) => Ok(true),
        Err(Errno::CONNREFUSED) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Connects without waiting: a listener with a full queue, whose process hangs, takes nobody.
///
/// # Errors
///
/// When nobody listens there, or takes the connection.
pub fn connect(path: &Path) -> Result<UnixStream> {
    let socket = net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket.into())
}

/// How a socket that listens for streams is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// As a Unix socket.
    Unix,
    /// Over TCP.
    Tcp,
}

/// How a socket is reached, whoever made it.
///
/// # Errors
///
/// When it does not listen for streams.
pub fn reached(socket: &impl AsFd) -> Result<Reached> {
    let refuse = |why: &str| Err(Error::new(ErrorKind::InvalidInput, why));
    let family = net::getsockname(socket)?.address_family();
    if net::sockopt::socket_type(socket)? != SocketType::STREAM {
        return refuse("it is not for streams");
    }
    if !system::listens(socket)? {
        return refuse("it does not listen");
    }
    match family {
        AddressFamily::UNIX => Ok(Reached::Unix),
        AddressFamily::INET | AddressFamily::INET6 => Ok(Reached::Tcp),
        _ => refuse("it is neither a Unix socket nor for TCP"),
    }
}

/// The process that listens at the other end of a Unix socket, and its user. `None`: the system does not
/// tell.
#[must_use]
pub fn listener(socket: &impl AsFd) -> Option<(u32, u32)> {
    let (pid, user) = system::peer(socket).ok()?;
    Some((pid?, user))
}

/// Fails unless this user's process listens at the other end. Asked before the first byte is
/// written: the socket's file may be ours while another user's process listens on it, where others
/// may rename in its directory.
///
/// # Errors
///
/// When another user's process listens there, or the system does not tell whose it is.
pub fn check_listener(socket: &impl AsFd) -> Result<()> {
    if system::peer(socket)?.1 == user::id() {
        return Ok(());
    }
    let why = "another user's process listens at this socket";
    Err(Error::new(ErrorKind::PermissionDenied, why))
}

/// The file of a socket that was bound here, closed to other users, and removed when dropped if it
/// is still the same one.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: Identity,
    /// Another one's, who gave the socket: it stays.
    given: bool,
}

impl SocketFile {
    /// Takes over the file of a socket that was just bound.
    ///
    /// # Errors
    ///
    /// When its mode cannot be set.
    pub fn private(path: &Path) -> Result<Self> {
        file::set_mode(path, 0o600)?;
        Self::there(path, false)
    }

    /// Remembers the file of a socket that somebody gave to this process, and leaves it to him.
    ///
    /// # Errors
    ///
    /// When it is not there.
    pub fn given(path: &Path) -> Result<Self> {
        Self::there(path, true)
    }

    fn there(path: &Path, given: bool) -> Result<Self> {
        let (path, identity) = (path.to_owned(), identity(path)?);
        Ok(Self {
            path,
            identity,
            given,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path still leads to this socket.
    #[must_use]
    pub fn stands(&self) -> bool {
        identity(&self.path).is_ok_and(|identity| identity == self.identity)
    }
}

/// Device and inode of a file, and when it was made, where the file system knows: numbers are used
/// again.
type Identity = (u64, u64, Option<SystemTime>);

fn identity(path: &Path) -> Result<Identity> {
    let found = symlink_metadata(path)?;
    Ok((found.dev(), found.ino(), found.created().ok()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if !self.given && self.stands() {
            // Its directory may be gone already.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_listener_is_told_from_a_file_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        assert!(is_listening(&path).is_err());
        let listener = UnixListener::bind(&path).unwrap();
        assert!(is_socket(&path).unwrap() && is_listening(&path).unwrap());
        assert_eq!(reached(&listener).unwrap(), Reached::Unix);
        let stream = UnixStream::connect(&path).unwrap();
        assert!(reached(&stream).is_err());
        // A test beside this one may have started a process, whose copy of the listener lives until it
        // executes its program: dropping alone would not end it. On macOS nothing else does.
        let _ended = rustix::net::shutdown(&listener, rustix::net::Shutdown::Both);
        drop(listener);
        assert!(!is_listening(&path).unwrap());
        assert!(fits(&path) && !fits(&dir.path().join("x".repeat(120))));
    }

    #[test]
    fn a_file_goes_with_its_owner_and_a_successors_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let _first = UnixListener::bind(&path).unwrap();
        let ours = SocketFile::private(&path).unwrap();
        assert_eq!(file::exposed_mode(&symlink_metadata(&path).unwrap()), None);
        std::fs::rename(&path, dir.path().join("old.sock")).unwrap();
        let _second = UnixListener::bind(&path).unwrap();
        let theirs = SocketFile::private(&path).unwrap();
        assert!(!ours.stands() && theirs.stands());
        drop(ours);
        drop(SocketFile::given(&path).unwrap());
        assert!(path.exists());
        drop(theirs);
        assert!(!path.exists());
    }

    #[test]
    fn a_listener_is_known_by_its_user() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let stream = UnixStream::connect(&path).unwrap();
        check_listener(&stream).unwrap();
        assert_eq!(listener(&stream), Some((std::process::id(), user::id())));
    }
}
