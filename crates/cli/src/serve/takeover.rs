//! A broker that somebody wants in sight takes the place of one that was started on demand.

use std::fs::File;
use std::time::{Duration, Instant};

use peerbus_adapter::demand::{holder, turn};
use peerbus_adapter::paths::Paths;

use crate::operator;

/// How long the other one may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

/// Ends a broker that was started on demand at this place, and keeps others from being started
/// until the result is dropped. What hinders it, the start of the broker will say.
pub(super) fn begin(paths: &Paths) -> Option<File> {
    let deadline = Instant::now() + ENDS_WITHIN;
    let turn = turn(&paths.state_dir, deadline).ok();
    let asked = operator::over(&paths.sockets, "POST", "/stop?takeover=1");
    if asked.is_ok_and(|answer| answer.status == 200) {
        while holder(&paths.database).is_some() && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
    }
    turn
}
