//! Sockets that listen already, passed by a service manager.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use peerbus_os::socket::{Reached, reached};
use tokio::net::{TcpListener, UnixListener};

use super::Bound;
use super::unix::UnixPlace;
use crate::options::BrokerStartError;

/// Where a given socket listens.
pub(crate) enum Given {
    Tcp(SocketAddr),
    /// `None`: at a name that is no file's.
    Unix(Option<PathBuf>),
}

/// Takes over a socket that listens. Its file, if it has one, stays its giver's.
pub(crate) fn take_over(socket: OwnedFd) -> Result<(Bound, Given), BrokerStartError> {
    adopt(socket).map_err(|error| BrokerStartError::Given {
        reason: error.to_string(),
    })
}

fn adopt(socket: OwnedFd) -> io::Result<(Bound, Given)> {
    if reached(&socket)? == Reached::Unix {
        let listener = std::os::unix::net::UnixListener::from(socket);
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let path = address.as_pathname().map(PathBuf::from);
        let place = UnixPlace::given(UnixListener::from_std(listener)?, path.as_deref());
        return Ok((Bound::Unix(place), Given::Unix(path)));
    }
    let listener = std::net::TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let listener = TcpListener::from_std(listener)?;
    Ok((Bound::Tcp(listener), Given::Tcp(address)))
}
