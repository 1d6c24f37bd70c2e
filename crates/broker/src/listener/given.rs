//! Sockets that listen already, passed by a service manager.

use std::io;
use std::os::fd::OwnedFd;

use peerbus_os::socket::{Reached, reached};
use tokio::net::{TcpListener, UnixListener};

use super::unix::UnixPlace;
use super::{Bound, Site};

/// Takes over a socket that listens. Its file, if it has one, stays its giver's.
pub(crate) fn take_over(socket: OwnedFd) -> io::Result<(Bound, Site)> {
    if reached(&socket)? == Reached::Unix {
        let listener = std::os::unix::net::UnixListener::from(socket);
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let place = UnixPlace::given(UnixListener::from_std(listener)?, address.as_pathname());
        return Ok((Bound::Unix(place), Site::Unix));
    }
    let listener = std::net::TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let listener = TcpListener::from_std(listener)?;
    Ok((Bound::Tcp(listener), Site::Tcp(address)))
}
