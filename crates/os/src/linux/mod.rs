//! What Linux tells and does: `/proc`, handles on processes, watches on directories.

use std::fs;
use std::fs::{File, read_dir, read_link};
use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use rustix::time::ClockId;

use crate::file::{self, UNTOLD_BYTES};
use crate::process::Stat;
use crate::tcp::Entry;

mod watch;

pub(crate) use watch::Watch;

/// The one that goes on while the machine sleeps.
pub(crate) const CLOCK: ClockId = ClockId::Boottime;
/// More than `/proc/PID/stat` has.
const STAT_BYTES_MAX: u64 = 8_192;
/// More than `/proc/PID/status` has.
const STATUS_BYTES_MAX: u64 = 65_536;
/// More than `/proc/net/tcp` has: a line has 150 bytes.
const TABLE_BYTES_MAX: u64 = 16 << 20;

/// The system's list of users, passwd(5); more than it has.
const USERS: &str = "/etc/passwd";
const USERS_BYTES_MAX: u64 = 1024 * 1024;

/// Fields 3, 4 and 22 of `/proc/PID/stat` (`proc_pid_stat(5)`). The second field is a name in parentheses
/// that can hold anything.
pub(crate) fn stat(id: u32) -> Option<Stat> {
    let text = file::read_small(Path::new(&format!("/proc/{id}/stat")), STAT_BYTES_MAX)?;
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    Some(Stat {
        is_stopped: matches!(fields.next()?, "T" | "t"),
        parent: fields.next()?.parse().ok()?,
        started: fields.nth(17)?.to_owned(),
    })
}

/// Whether a process above another one may be hidden from a person, too: `hidepid` hides all of other users'
/// (proc(5)).
pub(crate) const HIDES_OTHERS: bool = true;

/// The numbers of all processes, with those that ended and that nobody has waited for.
pub(crate) fn all() -> Vec<u32> {
    let entries = read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.collect()
}

pub(crate) fn environment(id: u32) -> io::Result<Vec<u8>> {
    read(id, "environ")
}

/// The bytes that the system tells of a process.
fn read(id: u32, what: &str) -> io::Result<Vec<u8>> {
    let mut all = Vec::with_capacity(UNTOLD_BYTES);
    File::open(format!("/proc/{id}/{what}"))?.read_to_end(&mut all)?;
    Ok(all)
}

/// The pipe or socket that a process reads its input from. `None`: it reads something else, such as a
/// terminal, which is everybody's who stands there.
pub(crate) fn input_pipe(id: u32) -> Option<PathBuf> {
    let input = read_link(format!("/proc/{id}/fd/0")).ok()?;
    let text = input.to_str()?;
    let is_pipe = text.starts_with("pipe:") || text.starts_with("socket:");
    is_pipe.then_some(input)
}

/// The program that a process runs, or the one that stood in its place when it began.
pub(crate) fn program(id: u32) -> Option<Vec<u8>> {
    let path = read_link(format!("/proc/{id}/exe")).ok()?;
    let path = path.into_os_string().into_encoded_bytes();
    Some(path.strip_suffix(b" (deleted)").unwrap_or(&path).to_vec())
}

/// The words of its command line, a 0 behind each.
pub(crate) fn command_line(id: u32) -> Vec<u8> {
    read(id, "cmdline").unwrap_or_default()
}

pub(crate) fn has_open(id: u32, file: &Path) -> bool {
    let Ok(wanted) = file.metadata() else {
        return false;
    };
    let open = read_dir(format!("/proc/{id}/fd"));
    open.into_iter().flatten().flatten().any(|entry| {
        let found = fs::metadata(entry.path());
        found.is_ok_and(|found| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()))
    })
}

pub(crate) fn handle(id: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(id).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

pub(crate) fn ignores(signal: Signal) -> bool {
    let status = file::read_small(Path::new("/proc/self/status"), STATUS_BYTES_MAX);
    let mask = status.as_deref().and_then(|status| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    });
    mask.is_some_and(|mask| mask & (1 << (signal.as_raw() - 1)) != 0)
}

pub(crate) fn adopt_orphans() -> io::Result<bool> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(true)
}

pub(crate) fn end_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(
        Signal::KILL,
    ))?)
}

/// Number and user of the process at the other end. A process that has no number here says nothing: rustix
/// then gives an error without a number.
pub(crate) fn peer(socket: &impl AsFd) -> io::Result<(Option<u32>, u32)> {
    let found = rustix::net::sockopt::socket_peercred(socket);
    let found = found.map_err(|_| {
        let why = "the process that listens at this socket cannot be seen from here: it runs outside \
                   of this container or sandbox";
        io::Error::new(io::ErrorKind::PermissionDenied, why)
    })?;
    let pid = found.pid.as_raw_pid().try_into().ok();
    Ok((pid, found.uid.as_raw()))
}

/// Whether a socket listens.
pub(crate) fn listens(socket: &impl AsFd) -> io::Result<bool> {
    Ok(rustix::net::sockopt::socket_acceptconn(socket)?)
}

pub(crate) fn end_when_unconfirmed(connection: impl AsFd, after: Duration) {
    let millis = u32::try_from(after.as_millis()).unwrap_or(u32::MAX);
    // Without it such a connection ends later.
    let _ = rustix::net::sockopt::set_tcp_user_timeout(connection, millis);
}

/// Whether it is told who has a TCP socket.
pub(crate) const TELLS_TCP: bool = true;

/// The socket that is bound to `local` and connected to `remote`: fields 2, 3, 8 and 10 of a line
/// of `/proc/net/tcp` (`proc_pid_net(5)`). One for IPv6 may be connected by IPv4.
pub(crate) fn tcp_entry(local: SocketAddr, remote: SocketAddr) -> Option<Entry> {
    let both = [local, remote].map(|end| SocketAddr::new(end.ip().to_canonical(), end.port()));
    let mapped = both.map(|end| match end.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), end.port()),
        IpAddr::V6(_) => end,
    });
    entry_in("/proc/net/tcp", both).or_else(|| entry_in("/proc/net/tcp6", mapped))
}

fn entry_in(table: &str, ends: [SocketAddr; 2]) -> Option<Entry> {
    let table = file::read_small(Path::new(table), TABLE_BYTES_MAX)?;
    let [local, remote] = ends.map(hexadecimal);
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

/// An address as the kernel writes it: words of four bytes, each in the machine's order.
fn hexadecimal(address: SocketAddr) -> String {
    let octets = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let (words, _) = octets.as_chunks::<4>();
    let words = words.iter().map(|word| u32::from_ne_bytes(*word));
    let ip: String = words.map(|word| format!("{word:08X}")).collect();
    format!("{ip}:{:04X}", address.port())
}

/// Whether it does not tell this user which files it has open.
pub(crate) fn hides_files(id: u32) -> bool {
    let files = read_dir(format!("/proc/{id}/fd"));
    files.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

pub(crate) fn holds_socket(id: u32, inode: u64) -> bool {
    let link = format!("socket:[{inode}]");
    let files = read_dir(format!("/proc/{id}/fd")).into_iter().flatten();
    files
        .flatten()
        .any(|file| read_link(file.path()).is_ok_and(|target| target.as_os_str() == link.as_str()))
}

/// Name and home of a user in passwd(5).
pub(crate) fn user(id: u32) -> Option<(String, PathBuf)> {
    listed(&file::read_small(Path::new(USERS), USERS_BYTES_MAX)?, id)
}

fn listed(users: &str, id: u32) -> Option<(String, PathBuf)> {
    users.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, number, _, _, home, ..] = fields[..] else {
            return None;
        };
        (number.parse() == Ok(id)).then(|| (name.to_owned(), home.into()))
    })
}

/// The directory that systemd keeps for a user.
pub(crate) fn runtime_dir(user: u32) -> Option<PathBuf> {
    Some(PathBuf::from(format!("/run/user/{user}")))
}

/// What opens a file in the user's browser, where there is a display.
pub(crate) fn browser() -> Option<&'static str> {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    (is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")).then_some("xdg-open")
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::process::parent_id;
    use std::process::id;

    use super::*;
    use crate::process::starters;
    use crate::tcp::{holder, user as user_of};

    #[test]
    fn a_user_is_found_by_its_number() {
        let users =
            "root:x:0:0:root:/root:/bin/bash\nodd\nann:x:1000:1000:Ann,,,:/home/ann:/bin/sh\n";
        let ann = ("ann".to_owned(), PathBuf::from("/home/ann"));
        assert_eq!(listed(users, 1_000), Some(ann));
        assert_eq!(listed(users, 100), None);
    }

    #[test]
    fn an_ignored_signal_is_told_from_others() {
        // Rust's runtime ignores it.
        assert!(ignores(Signal::PIPE));
        assert!(!ignores(Signal::TERM));
    }

    #[test]
    fn who_started_a_process_is_told_through_shells() {
        use std::io::{BufRead as _, BufReader};
        use std::process::{Command, Stdio};

        use rustix::process::kill_process;

        let started = |script: &str, input: Stdio| {
            let mut shell = Command::new("sh")
                .args(["-c", script])
                .stdin(input)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut said = String::new();
            let mut stdout = BufReader::new(shell.stdout.take().unwrap());
            stdout.read_line(&mut said).unwrap();
            let below = said.trim().parse().unwrap();
            let found = starters(u32::try_from(below).unwrap());
            let wrapper = shell.id();
            drop(shell.stdin.take());
            // The one that has no end of its own.
            let _ = kill_process(Pid::from_raw(below).unwrap(), Signal::KILL);
            shell.wait().unwrap();
            (found, wrapper)
        };
        let (found, wrapper) = started("sh -c 'echo $$; read x; :'; :", Stdio::piped());
        assert_eq!(found, [wrapper, id()]);
        let (found, _) = started("echo $$; read x; :", Stdio::piped());
        assert_eq!(found, [id()]);
        // Not everybody who has no input either.
        let (found, wrapper) = started("sh -c 'echo $$; exec sleep 60'; :", Stdio::null());
        assert_eq!(found, [wrapper]);
    }

    #[test]
    fn the_process_at_the_other_end_is_found_below_its_ancestors_only() {
        for (listens, asked) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("127.0.0.1:0", "::ffff:127.0.0.1"),
            ("[::1]:0", "::1"),
        ] {
            let Ok(listener) = TcpListener::bind(listens) else {
                println!("skipped: no {listens} here");
                continue;
            };
            let asked: IpAddr = asked.parse().unwrap();
            let stream =
                TcpStream::connect((asked, listener.local_addr().unwrap().port())).unwrap();
            let (_, theirs) = listener.accept().unwrap();
            let ours = listener.local_addr().unwrap();
            assert_eq!(holder(theirs, ours, id()), Some(id()), "{asked}");
            assert_eq!(user_of(theirs, ours), Some(crate::user::id()));
            drop(stream);
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let theirs = stream.local_addr().unwrap();
        let ours = stream.peer_addr().unwrap();
        assert_eq!(holder(theirs, ours, id()), Some(id()));
        assert_eq!(holder(theirs, ours, parent_id()), Some(id()));
        assert_eq!(user_of(theirs, ours), Some(crate::user::id()));
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
