//! The Unix socket: for this user only.

use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixSocket, UnixStream};

use super::BACKLOG;
use crate::options::StartError;

/// The socket's file, removed when dropped if it is still ours.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

/// Binds a Unix socket with mode 0600, in a directory that is made with mode 0700 if it is
/// missing. A file that a dead broker left there is replaced.
pub(crate) async fn bind(path: &Path) -> Result<(UnixListener, SocketFile), StartError> {
    let failed = |source| StartError::Socket {
        path: path.to_owned(),
        source,
    };
    if let Some(parent) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)
            .map_err(failed)?;
    }
    remove_stale(path).await?;
    let listener = listen(path).map_err(|source| match source.kind() {
        io::ErrorKind::InvalidInput => StartError::SocketPathLong {
            path: path.to_owned(),
        },
        _ => failed(source),
    })?;
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path, mode).map_err(failed)?;
    let identity = identity(path).map_err(failed)?;
    Ok((
        listener,
        SocketFile {
            path: path.to_owned(),
            identity,
        },
    ))
}

/// Removes the socket file of a broker that does not answer any more.
async fn remove_stale(path: &Path) -> Result<(), StartError> {
    let failed = |source| StartError::Socket {
        path: path.to_owned(),
        source,
    };
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !found.file_type().is_socket() {
        return Err(StartError::NotASocket {
            path: path.to_owned(),
        });
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(failed)
        }
        Ok(_) => Err(StartError::SocketInUse {
            path: path.to_owned(),
        }),
        Err(error) => Err(failed(error)),
    }
}

/// Checks that the client runs as our user, or as root.
pub(super) fn check_peer(stream: &UnixStream) -> io::Result<()> {
    let uid = stream.peer_cred()?.uid();
    if uid == 0 || uid == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let text = format!("the Unix socket is for the broker's own user, not for uid {uid}");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = std::fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            let _gone = std::fs::remove_file(&self.path);
        }
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn the_socket_and_a_new_directory_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/peerbus/broker.sock");
        let (_listener, file) = bind(&path).await.unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        drop(file);
        assert!(!path.exists(), "the file goes with its broker");
    }

    #[tokio::test]
    async fn a_dead_brokers_file_is_replaced_and_a_live_ones_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("broker.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "left behind");
        let (_listener, _file) = bind(&path).await.unwrap();
        let error = bind(&path).await.unwrap_err();
        assert!(matches!(error, StartError::SocketInUse { .. }), "{error}");
        assert!(error.to_string().contains("broker.sock"), "{error}");
    }

    #[tokio::test]
    async fn a_path_that_is_too_long_is_said_in_one_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x".repeat(120));
        let error = bind(&path).await.unwrap_err().to_string();
        assert!(error.contains("must be shorter than 108"), "{error}");
        assert!(!error.contains("SUN_LEN"), "{error}");
    }

    #[tokio::test]
    async fn another_kind_of_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("broker.sock");
        std::fs::write(&path, "precious").unwrap();
        let error = bind(&path).await.unwrap_err();
        assert!(matches!(error, StartError::NotASocket { .. }), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }
}
