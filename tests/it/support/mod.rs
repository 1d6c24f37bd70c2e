//! What the scenarios stand on.

mod broker;
mod home;
mod lines;
mod mcp;
pub mod python;

pub use broker::Broker;
pub use home::Home;
pub use lines::Lines;
pub use mcp::Mcp;

use std::time::{Duration, Instant};

/// How long anything may take before a test gives up on it. Far above what it does take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Asks until there is an answer, or [`PATIENCE`] is over. For conditions that only another
/// process can tell of, by being asked.
#[track_caller]
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::yield_now();
    }
}
