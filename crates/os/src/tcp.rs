//! TCP on this machine: who holds the other end of a connection, and what a request calls us.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use crate::process::descends;
use crate::system;

/// Whether a `Host` header means this machine, for a listener on the loopback address `ip`.
#[must_use]
pub fn names_loopback(host: &str, ip: IpAddr) -> bool {
    let name = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<IpAddr>()
            .is_ok_and(|asked| asked.is_loopback() || asked == ip)
}

/// Whether the system tells who holds the other end of a connection.
pub const TELLS_HOLDER: bool = system::TELLS_TCP;

/// What the system tells of an end of a connection.
pub(crate) struct Entry {
    pub(crate) user: u32,
    pub(crate) inode: u64,
}

/// A process that holds the end `theirs` of the connection to `ours`, and that is `root` or stands
/// somewhere below it. `None`: no such process holds it, as far as the system tells.
#[must_use]
pub fn holder(theirs: SocketAddr, ours: SocketAddr, root: u32) -> Option<u32> {
    let Entry { inode, .. } = system::tcp_entry(theirs, ours)?;
    let mut ids = system::all().into_iter();
    ids.find(|id| {
        let is_below = *id == root || descends(*id, root) == Some(true);
        is_below && system::holds_socket(*id, inode)
    })
}

/// The user whose socket the end `theirs` of the connection to `ours` is, as far as the system tells.
#[must_use]
pub fn user(theirs: SocketAddr, ours: SocketAddr) -> Option<u32> {
    system::tcp_entry(theirs, ours).map(|entry| entry.user)
}

/// Has the system end a connection whose other end has confirmed nothing of what was sent for so long:
/// that of a machine that is gone, of which nothing else is ever heard. No effect where the system cannot.
pub fn end_when_unconfirmed(connection: impl AsFd, after: Duration) {
    system::end_when_unconfirmed(connection, after);
}
