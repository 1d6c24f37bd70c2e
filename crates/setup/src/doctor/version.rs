//! The version of another program of ours.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(5);
/// More than a version has.
const ANSWER_BYTES_MAX: u64 = 200;

/// What `FILE --version` prints; `None` when it does not end well, or not in time.
pub(super) fn ask(file: &Path) -> Option<String> {
    let mut command = Command::new(file);
    command.arg("--version").stdin(Stdio::null());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let started = Instant::now();
    let ended = loop {
        match child.try_wait() {
            Ok(None) if started.elapsed() < PATIENCE => std::thread::sleep(LOOK),
            Ok(Some(status)) => break status.success(),
            _ => break false,
        }
    };
    if !ended {
        // It may have ended by itself meanwhile.
        let _ = child.kill();
        let _ = child.wait();
        return None;
    }
    let mut said = String::new();
    let out = child.stdout.take()?;
    out.take(ANSWER_BYTES_MAX).read_to_string(&mut said).ok()?;
    Some(said)
}
