//! What the scenarios stand on.

pub(crate) mod bridge;
mod broker;
mod home;
mod lines;
mod mcp;
pub(crate) mod python;
mod raw;
mod small;

pub(crate) use broker::Broker;
pub(crate) use home::{Finished, Home};
pub(crate) use lines::Lines;
pub(crate) use mcp::Mcp;
pub(crate) use peerbus_test_support::PATIENCE;
pub(crate) use raw::Raw;
pub(crate) use small::Small;

use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

/// Asks until there is an answer, or [`PATIENCE`] is over. For conditions that only another
/// process can tell of, by being asked.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::yield_now();
    }
}

/// Stops a process, and waits until it has: a signal reaches each of its threads as that gets its turn.
#[track_caller]
pub(crate) fn freeze(process: Pid) {
    kill_process(process, Signal::STOP).expect("it lives");
    let stat = format!("/proc/{}/stat", process.as_raw_nonzero());
    eventually("it is stopped", || {
        let text = std::fs::read_to_string(&stat).expect("it lives");
        let (_, fields) = text.rsplit_once(") ").expect("a name in parentheses");
        fields.starts_with('T').then_some(())
    });
}
