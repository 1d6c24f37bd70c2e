//! What macOS tells and does. What it does not tell is `None`, and whoever needs it is refused.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use libproc::libproc::proc_pid::kproc_info_raw;
use nix::sys::event::{EvFlags, EventFilter, FilterFlag, KEvent, Kqueue};
use nix::sys::socket::{getsockopt, sockopt};
use rustix::process::Signal;
use rustix::time::ClockId;
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System, UpdateKind};

use crate::process::Stat;
use crate::tcp::Entry;

/// It goes on while the machine sleeps (clock_gettime(3)).
pub(crate) const CLOCK: ClockId = ClockId::Monotonic;

/// One process, with what is asked for.
fn process<T>(
    id: u32,
    what: ProcessRefreshKind,
    read: impl FnOnce(&sysinfo::Process) -> T,
) -> Option<T> {
    let pid = Pid::from_u32(id);
    let mut system = System::new().ok()?;
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, what);
    system.process(pid).map(read)
}

/// A stopped process, as `p_stat` says it (sys/proc.h).
const STOPPED: i8 = 4;

/// By sysctl(3) with `KERN_PROC_PID`, which tells of every user's processes: the shell of a terminal is below a
/// `login` of root's. The first process has no parent.
pub(crate) fn stat(id: u32) -> Option<Stat> {
    let found = kproc_info_raw(id.try_into().ok()?).ok()?;
    let (process, began) = (found.kp_proc, found.kp_proc.p_un);
    let parent = u32::try_from(found.kp_eproc.e_ppid).ok()?;
    let is_told = u32::try_from(process.p_pid) == Ok(id) && began.tv_sec > 0;
    (is_told && (id == 1 || parent != 0)).then(|| Stat {
        parent,
        started: (began.tv_sec * 1_000_000 + i64::from(began.tv_usec)).to_string(),
        is_stopped: process.p_stat == STOPPED,
    })
}

/// Whether a process above another one may be hidden from a person, too: a chain of parents that
/// breaks off says nothing of whom it leads to.
pub(crate) const HIDES_OTHERS: bool = false;

/// The numbers of all processes.
pub(crate) fn all() -> Vec<u32> {
    let Ok(mut system) = System::new() else {
        return Vec::new();
    };
    let what = ProcessRefreshKind::nothing();
    system.refresh_processes_specifics(ProcessesToUpdate::All, true, what);
    system.processes().keys().map(|pid| pid.as_u32()).collect()
}

pub(crate) fn environment(id: u32) -> io::Result<Vec<u8>> {
    let what = ProcessRefreshKind::nothing().with_environ(UpdateKind::Always);
    let found = process(id, what, |found| joined(found.environ()));
    // Every process has some: what is empty was not told.
    found
        .filter(|all| !all.is_empty())
        .ok_or_else(|| io::ErrorKind::PermissionDenied.into())
}

/// Each with a 0 behind it.
fn joined(words: &[OsString]) -> Vec<u8> {
    let ended = words.iter().map(|word| [word.as_bytes(), b"\0"].concat());
    ended.collect::<Vec<_>>().concat()
}

/// Which pipe a process reads from is not told.
pub(crate) fn input_pipe(_: u32) -> Option<PathBuf> {
    None
}

pub(crate) fn program(id: u32) -> Option<Vec<u8>> {
    let what = ProcessRefreshKind::nothing().with_exe(UpdateKind::Always);
    let path = process(id, what, |found| found.exe().map(Path::to_owned))?;
    path.map(|path| path.as_os_str().as_bytes().to_vec())
}

/// The words of its command line, a 0 behind each.
pub(crate) fn command_line(id: u32) -> Vec<u8> {
    let what = ProcessRefreshKind::nothing().with_cmd(UpdateKind::Always);
    process(id, what, |found| joined(found.cmd())).unwrap_or_default()
}

/// Which files a process has open is not told.
pub(crate) fn has_open(_: u32, _: &Path) -> bool {
    false
}

/// A queue that becomes readable when the process ends.
pub(crate) fn handle(id: u32) -> Option<OwnedFd> {
    let queue = Kqueue::new().ok()?;
    let ident = usize::try_from(id).ok()?;
    let ends = FilterFlag::NOTE_EXIT;
    let change = KEvent::new(ident, EventFilter::EVFILT_PROC, EvFlags::EV_ADD, ends, 0, 0);
    queue.kevent(&[change], &mut [], None).ok()?;
    Some(queue.into())
}

/// Which signals are ignored is not told.
pub(crate) fn ignores(_: Signal) -> bool {
    false
}

/// Orphans become children of the first process, whoever stood above them.
pub(crate) fn adopt_orphans() -> io::Result<bool> {
    Ok(false)
}

/// Nothing ends a process with its parent.
pub(crate) fn end_with_parent() -> io::Result<()> {
    Ok(())
}

/// Number and user of the process at the other end.
pub(crate) fn peer(socket: &impl AsFd) -> io::Result<(Option<u32>, u32)> {
    let user = getsockopt(socket, sockopt::LocalPeerCred)?.uid();
    let pid = getsockopt(socket, sockopt::LocalPeerPid).ok();
    Ok((pid.and_then(|pid| pid.try_into().ok()), user))
}

/// Whether a socket listens is not told: whoever gave it says so.
pub(crate) fn listens(_: &impl AsFd) -> io::Result<bool> {
    Ok(true)
}

/// The system ends such a connection when it likes.
pub(crate) fn end_when_unconfirmed(_: impl AsFd, _: Duration) {}

/// Who has a TCP socket is not told.
pub(crate) const TELLS_TCP: bool = false;

pub(crate) fn tcp_entry(_: SocketAddr, _: SocketAddr) -> Option<Entry> {
    None
}

pub(crate) fn hides_files(_: u32) -> bool {
    false
}

pub(crate) fn holds_socket(_: u32, _: u64) -> bool {
    false
}

/// Name and home of a user, as the directory service has them.
pub(crate) fn user(id: u32) -> Option<(String, PathBuf)> {
    let found = nix::unistd::User::from_uid(id.into()).ok()??;
    Some((found.name, found.dir))
}

/// There is none that no variable can move: sockets are with the state.
pub(crate) fn runtime_dir(_: u32) -> Option<PathBuf> {
    None
}

pub(crate) fn browser() -> Option<&'static str> {
    Some("open")
}

/// Watches no directory: whoever asks looks from time to time.
#[derive(Debug, Default)]
pub(crate) struct Watch;

impl Watch {
    pub(crate) fn open(&mut self, _: &Path) -> bool {
        false
    }

    pub(crate) async fn changed(&mut self, _: impl Fn(&str) -> bool) {
        std::future::pending().await
    }
}
