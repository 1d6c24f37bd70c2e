//! `peerbus run --detach`: a driver of its own, away from this terminal.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use peerbus_adapter::demand::begin_log;
use peerbus_adapter::hooks::directories;
use peerbus_adapter::paths::Paths;
use peerbus_adapter::{Failure, wall_ms};
use peerbus_node::index::{self, LiveSession};
use peerbus_wire::escape;

use crate::output;

/// How long it may take until the session takes turns.
const READY_WITHIN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(50);
const LOGS_KEPT: usize = 32;
/// Longest line and name that are repeated, in characters.
const LINE_CHARS: usize = 500;
const NAME_CHARS: usize = 64;

/// Starts this program again with the same arguments but the one, in a session of its own.
pub(super) fn start() -> Result<(), Failure> {
    let paths = Paths::find()?;
    let dir = paths.state_dir.join("runs");
    let log = dir.join(format!("{}-{}.log", wall_ms(), std::process::id()));
    let file = open(&dir, &log).map_err(|error| {
        let shown = escape(&log.display().to_string(), usize::MAX);
        Failure::failed(format!("its output cannot go to {shown}: {error}"))
    })?;
    let mut child = spawn(file).map_err(Failure::failed)?;
    let deadline = Instant::now() + READY_WITHIN;
    let shown = escape(&log.display().to_string(), usize::MAX);
    while Instant::now() < deadline {
        if let Some(session) = listed(&paths, child.id()) {
            let name = session.name.as_ref().unwrap_or(&session.id);
            let name = escape(name, NAME_CHARS);
            output::line(&format!("{name} runs; its output goes to {shown}"))?;
            output::complain(&format!("`peerbus session stop {name}` ends it"));
            return Ok(());
        }
        if let Ok(Some(status)) = child.try_wait() {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let why = text.lines().next_back().unwrap_or("it said nothing");
            let why = escape(why, LINE_CHARS);
            return Err(Failure::failed(format!(
                "it ended at once ({status}): {why}"
            )));
        }
        std::thread::sleep(LOOK);
    }
    Err(Failure::failed(format!(
        "it takes no turns after {} s; it goes on, as process {}, and its output goes to {shown}",
        READY_WITHIN.as_secs(),
        child.id()
    )))
}

/// Begins a log that its user alone can read, and removes the oldest.
fn open(dir: &Path, log: &Path) -> io::Result<File> {
    let file = begin_log(log)?;
    let entries = std::fs::read_dir(dir)?.flatten();
    let mut old: Vec<_> = entries.map(|entry| entry.path()).collect();
    // Their names begin with the time.
    old.sort();
    for path in old.iter().rev().skip(LOGS_KEPT) {
        // One that cannot be removed stays.
        let _ = std::fs::remove_file(path);
    }
    Ok(file)
}

fn spawn(log: File) -> io::Result<Child> {
    let own = std::env::current_exe()?;
    let mut own_arguments = true;
    let arguments = std::env::args_os().skip(1).map(|argument| {
        own_arguments &= argument != "--";
        match own_arguments && argument == "--detach" {
            true => "--detached".into(),
            false => argument,
        }
    });
    Command::new(own)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
}

pub(super) fn leave() -> Result<(), Failure> {
    // It fails for the first process of a group, which this one is not.
    rustix::process::setsid().map_err(Failure::failed)?;
    Ok(())
}

/// The session of a driver with this number, once its client takes turns.
fn listed(paths: &Paths, driver: u32) -> Option<LiveSession> {
    let own = format!("{driver}.{driver}.sock");
    let mut found = directories(paths)
        .into_iter()
        .flat_map(|dir| index::live(&dir));
    found.find(|session| session.socket.ends_with(&own) && session.status.is_some())
}
