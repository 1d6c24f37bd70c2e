//! The processes around a hook.

use std::os::fd::OwnedFd;

use crate::session::{self, SessionFile};

/// The processes above this one, the nearest first.
pub(super) fn ancestors() -> Vec<Ancestor> {
    let sessions = peerbus_agents::claude_code::config_dir().map(|dir| dir.join("sessions"));
    let above = session::ancestors(std::process::id()).into_iter();
    let mut found: Vec<_> = above
        .map(|process| Ancestor {
            pid: process.id,
            session: sessions
                .as_ref()
                .is_some_and(|dir| SessionFile::read(dir, &process).is_some()),
        })
        .collect();
    if found.is_empty() {
        // There is no /proc here.
        let pid = std::os::unix::process::parent_id();
        found.push(Ancestor {
            pid,
            session: false,
        });
    }
    found
}

/// A process above this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ancestor {
    pub(super) pid: u32,
    /// The client keeps a file about it: it is a session.
    pub(super) session: bool,
}

/// Handles on this process's parent and on an ancestor of it, which become readable when those
/// end. What ended before, or cannot be watched, is left out: the adapter's end is noticed too.
#[cfg(target_os = "linux")]
pub(super) fn watch(ancestor: u32) -> Vec<OwnedFd> {
    let mut pids = vec![std::os::unix::process::parent_id(), ancestor];
    pids.dedup();
    let above = |pid: u32| ancestors().iter().any(|process| process.pid == pid);
    pids.into_iter()
        .filter_map(|pid| peerbus_mcp::process_handle(pid, || above(pid)))
        .collect()
}

/// Processes cannot be watched here: the adapter's end has to do.
#[cfg(not(target_os = "linux"))]
pub(super) fn watch(_: u32) -> Vec<OwnedFd> {
    Vec::new()
}
