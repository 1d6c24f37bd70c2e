//! Processes that are stopped: they hold what they have, and answer nobody.

use std::os::fd::AsFd;

use peerbus_os::{process, socket};

use crate::tls::Unusable;

/// Fails where no answer will come of what listens at a socket: its process is stopped.
pub(crate) fn check_awake(stream: &impl AsFd) -> Result<(), Unusable> {
    let listener = socket::listener(stream);
    listener
        .and_then(|(pid, _)| stopped(pid))
        .map_or(Ok(()), Err)
}

/// That a process is stopped, if it is, and what helps.
pub(crate) fn stopped(pid: u32) -> Option<Unusable> {
    process::is_stopped(pid).then(|| {
        Unusable::new(
            format!("process {pid} is stopped, as by SIGSTOP or by Ctrl-Z"),
            format!(
                "`kill -CONT {pid}` lets it go on, or `kill -9 {pid}` ends it: everything that was \
                 accepted is on disk"
            ),
        )
    })
}
