//! The Unix socket: for this user only.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use peerbus_os::socket::{self, SocketFile};
use tokio::net::{UnixListener, UnixSocket, UnixStream};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::BACKLOG;
use crate::options::BrokerStartError;

/// Between two looks at the socket's file, as often as at those of the database.
const LOOK: Duration = Duration::from_secs(1);

/// The Unix socket, which is bound anew where its file is gone.
#[derive(Debug)]
pub(crate) struct UnixPlace {
    listener: UnixListener,
    /// `None`: it has no name in the file system.
    file: Option<SocketFile>,
    /// Where to listen, best first.
    places: Vec<PathBuf>,
    look: Interval,
    told: bool,
}

impl UnixPlace {
    pub(super) fn bind(places: Vec<PathBuf>) -> Result<Self, BrokerStartError> {
        let (listener, file) = bind_first(&places)?;
        Ok(Self::new(listener, Some(file), places))
    }

    pub(super) fn given(listener: UnixListener, path: Option<&Path>) -> Self {
        let file = path.and_then(|path| SocketFile::given(path).ok());
        let places = path.map(Path::to_owned).into_iter().collect();
        Self::new(listener, file, places)
    }

    fn new(listener: UnixListener, file: Option<SocketFile>, places: Vec<PathBuf>) -> Self {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            listener,
            file,
            places,
            look,
            told: false,
        }
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        let given = self.places.first().map(PathBuf::as_path);
        self.file.as_ref().map(SocketFile::path).or(given)
    }

    /// Accepts a connection; says to `moved` where it listens anew.
    pub(super) async fn accept(&mut self, moved: impl Fn(&Path)) -> io::Result<UnixStream> {
        loop {
            tokio::select! {
                accepted = self.listener.accept() => return Ok(accepted?.0),
                _ = self.look.tick() => self.look(&moved),
            }
        }
    }

    /// Binds the socket anew, if its file is gone or is another one.
    fn look(&mut self, moved: &impl Fn(&Path)) {
        let Some(file) = self.file.as_ref().filter(|file| !file.stands()) else {
            return;
        };
        let was = file.path().display().to_string();
        match bind_first(&self.places) {
            Ok((listener, file)) => {
                let now = file.path().display().to_string();
                tracing::warn!("the socket {was} was gone; clients are served at {now} now");
                moved(file.path());
                (self.listener, self.file, self.told) = (listener, Some(file), false);
            }
            Err(error) if !self.told => {
                tracing::error!(%error, "the socket {was} is gone; it is bound anew once that can be");
                self.told = true;
            }
            Err(_) => {}
        }
    }
}

/// Binds at the first of these places that can be used; fails as the first one does.
fn bind_first(places: &[PathBuf]) -> Result<(UnixListener, SocketFile), BrokerStartError> {
    let mut first = None;
    for place in places {
        match bind(place) {
            Err(
                error @ (BrokerStartError::Socket { .. } | BrokerStartError::SocketPathLong { .. }),
            ) => {
                first.get_or_insert(error);
            }
            bound => return bound,
        }
    }
    Err(first.unwrap_or(BrokerStartError::NoAddress))
}

/// Binds a Unix socket with mode 0600, in a directory that is made with mode 0700 if it is
/// missing. A file that a dead broker left there is replaced.
fn bind(path: &Path) -> Result<(UnixListener, SocketFile), BrokerStartError> {
    let failed = |source| BrokerStartError::Socket(path.to_owned(), source);
    if let Some(parent) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        peerbus_os::dir::create_private(parent).map_err(failed)?;
        peerbus_os::dir::check_replacing(parent).map_err(failed)?;
    }
    let path_of = || path.to_owned();
    match socket::is_socket(path) {
        Ok(false) => return Err(BrokerStartError::NotASocket(path_of())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
        Ok(true) => match socket::is_listening(path).map_err(failed)? {
            false => std::fs::remove_file(path).map_err(failed)?,
            true => return Err(BrokerStartError::SocketInUse(path_of())),
        },
    }
    let listener = listen(path).map_err(|source| match source.kind() {
        io::ErrorKind::InvalidInput => BrokerStartError::SocketPathLong(path_of()),
        _ => failed(source),
    })?;
    let file = SocketFile::private(path).map_err(failed)?;
    Ok((listener, file))
}

/// Checks that the client runs as our user, or as root.
pub(super) fn check_peer(stream: &UnixStream) -> io::Result<()> {
    let uid = stream.peer_cred()?.uid();
    if uid == 0 || uid == peerbus_os::user::id() {
        return Ok(());
    }
    let text = format!("the Unix socket is for the broker's own user, not for uid {uid}");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use peerbus_test_support::socket::end;

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn the_socket_and_a_new_directory_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/peerbus/broker.sock");
        let (_listener, file) = bind(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        drop(file);
        assert!(!path.exists(), "the file goes with its broker");
    }

    #[tokio::test]
    async fn a_dead_brokers_file_is_replaced_and_a_live_ones_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("broker.sock");
        end(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "left behind");
        let (_listener, _file) = bind(&path).unwrap();
        let error = bind(&path).unwrap_err();
        assert!(
            matches!(error, BrokerStartError::SocketInUse { .. }),
            "{error}"
        );
        assert!(error.to_string().contains("broker.sock"), "{error}");
    }

    #[tokio::test]
    async fn a_path_that_is_too_long_is_said_in_one_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x".repeat(120));
        let error = bind(&path).unwrap_err().to_string();
        assert!(error.contains("must be shorter than 108"), "{error}");
        assert!(!error.contains("SUN_LEN"), "{error}");
    }

    #[tokio::test]
    async fn a_directory_whose_files_others_can_replace_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("broker.sock");
        peerbus_os::file::set_mode(dir.path(), 0o777).unwrap();
        let error = bind(&path).unwrap_err().to_string();
        assert!(error.contains("(mode 0777): run `chmod o-w "), "{error}");
        peerbus_os::file::set_mode(dir.path(), 0o1777).unwrap();
        bind(&path).unwrap();
    }

    #[tokio::test]
    async fn another_kind_of_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("broker.sock");
        std::fs::write(&path, "precious").unwrap();
        let error = bind(&path).unwrap_err();
        assert!(
            matches!(error, BrokerStartError::NotASocket { .. }),
            "{error}"
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }
}
