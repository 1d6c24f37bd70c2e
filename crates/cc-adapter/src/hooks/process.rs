//! Who started whom.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// How far up a hook looks for its session.
const UP_MAX: usize = 6;

/// The processes above this one, the nearest first.
pub(super) fn ancestors() -> Vec<u32> {
    let mut above = Vec::with_capacity(UP_MAX);
    let mut next = Some(std::os::unix::process::parent_id());
    while let Some(pid) = next.filter(|pid| *pid != 0 && above.len() < UP_MAX) {
        above.push(pid);
        next = parent_of(pid);
    }
    above
}

/// The parent of a process. `None` as well where there is no way to know.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in parentheses, which may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// There is a process of this number.
pub(super) fn exists(pid: u32) -> bool {
    i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .is_some_and(|pid| {
            !matches!(
                rustix::process::test_kill_process(pid),
                Err(rustix::io::Errno::SRCH)
            )
        })
}

/// Handles on this process's parent and on an ancestor of it, which become readable when those
/// end. What ended before, or cannot be watched, is left out: the adapter's end is noticed too.
#[cfg(target_os = "linux")]
pub(super) fn watch(ancestor: u32) -> Vec<OwnedFd> {
    let parent = std::os::unix::process::parent_id();
    let mut pids = vec![parent, ancestor];
    pids.dedup();
    pids.into_iter()
        .filter_map(|pid| peerbus_mcp::process_handle(pid, || ancestors().contains(&pid)))
        .collect()
}

/// Processes cannot be watched here: the adapter's end has to do.
#[cfg(not(target_os = "linux"))]
pub(super) fn watch(_: u32) -> Vec<OwnedFd> {
    Vec::new()
}

/// The process is a Claude Code session: it keeps a file of that number (CLAUDE_CODE.md: seen from
/// 2.1.114 on).
pub(super) fn is_session(pid: u32) -> bool {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".claude"));
    std::env::var_os("CLAUDE_CONFIG_DIR")
        .filter(|dir| !dir.is_empty())
        .map(PathBuf::from)
        .or_else(home)
        .is_some_and(|dir| dir.join(format!("sessions/{pid}.json")).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_ancestor_is_the_parent() {
        let above = ancestors();
        assert_eq!(above.first(), Some(&std::os::unix::process::parent_id()));
        assert!(above.len() <= UP_MAX && above.iter().all(|pid| exists(*pid)));
        assert!(!exists(0) && !exists(u32::MAX));
    }
}
