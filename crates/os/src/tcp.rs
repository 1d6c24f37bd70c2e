//! TCP on this machine: who holds the other end of a connection, and what a request calls us.

use std::fmt::Write as _;
use std::fs::{read_dir, read_link};
use std::net::{IpAddr, SocketAddrV4};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use crate::file;
use crate::process::descends;

/// More than `/proc/net/tcp` has: a line has 150 bytes.
const TABLE_BYTES_MAX: u64 = 16 << 20;

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

/// A process that holds the end `theirs` of the connection to `ours`, and that is `root` or stands
/// somewhere below it. `None`: no such process holds it, as far as `/proc` tells.
#[must_use]
pub fn holder(theirs: SocketAddrV4, ours: SocketAddrV4, root: u32) -> Option<u32> {
    let Entry { inode, .. } = entry(theirs, ours)?;
    let link = format!("socket:[{inode}]");
    let holds = |id: &u32| {
        let files = read_dir(format!("/proc/{id}/fd")).into_iter().flatten();
        files.flatten().any(|file| {
            read_link(file.path()).is_ok_and(|target| target.as_os_str() == link.as_str())
        })
    };
    let processes = read_dir("/proc").ok()?.flatten();
    let mut ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.find(|id| (*id == root || descends(*id, root) == Some(true)) && holds(id))
}

/// The user whose socket the end `theirs` of the connection to `ours` is, as far as `/proc` tells.
#[must_use]
pub fn user(theirs: SocketAddrV4, ours: SocketAddrV4) -> Option<u32> {
    entry(theirs, ours).map(|entry| entry.user)
}

/// Has the system end a connection whose other end has confirmed nothing of what was sent for so long:
/// that of a machine that is gone, of which nothing else is ever heard. Linux only, elsewhere no effect.
pub fn end_when_unconfirmed(connection: impl AsFd, after: Duration) {
    #[cfg(target_os = "linux")]
    {
        let millis = u32::try_from(after.as_millis()).unwrap_or(u32::MAX);
        // Without it such a connection ends later.
        let _ = rustix::net::sockopt::set_tcp_user_timeout(connection, millis);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (connection, after);
}

struct Entry {
    user: u32,
    inode: u64,
}

/// The socket that is bound to `local` and connected to `remote`: fields 2, 3, 8 and 10 of a line
/// of `/proc/net/tcp` (`proc_pid_net(5)`).
fn entry(local: SocketAddrV4, remote: SocketAddrV4) -> Option<Entry> {
    let table = file::read_small(Path::new("/proc/net/tcp"), TABLE_BYTES_MAX)?;
    let (local, remote) = (hexadecimal(local), hexadecimal(remote));
    table.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let both = fields.next()? == local && fields.next()? == remote;
        both.then_some(())?;
        Some(Entry {
            user: fields.nth(4)?.parse().ok()?,
            inode: fields.nth(1)?.parse().ok()?,
        })
    })
}

/// An address as the kernel writes it: the bytes in the machine's order.
fn hexadecimal(address: SocketAddrV4) -> String {
    let mut text = String::new();
    let bytes = u32::from_ne_bytes(address.ip().octets());
    // A text takes everything.
    let _ = write!(text, "{bytes:08X}:{:04X}", address.port());
    text
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::unix::process::parent_id;
    use std::process::id;

    use super::*;

    #[test]
    fn the_process_at_the_other_end_is_found_below_its_ancestors_only() {
        let v4 = |address: SocketAddr| match address {
            SocketAddr::V4(address) => address,
            SocketAddr::V6(_) => panic!("{address}"),
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let theirs = v4(stream.local_addr().unwrap());
        let ours = v4(stream.peer_addr().unwrap());
        assert_eq!(holder(theirs, ours, id()), Some(id()));
        assert_eq!(holder(theirs, ours, parent_id()), Some(id()));
        assert_eq!(user(theirs, ours), Some(crate::user::id()));
        let mut other = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        assert_eq!(holder(theirs, ours, other.id()), None);
        drop(other.stdin.take());
        other.wait().unwrap();
        drop(stream);
        assert_eq!(holder(ours, theirs, parent_id()), None);
    }
}
