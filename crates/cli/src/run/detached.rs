//! `peerbus run --detach`: a driver of its own, away from this terminal.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use peerbus_adapter::demand::begin_log;
use peerbus_adapter::paths::Paths;
use peerbus_adapter::{Failure, wall_ms};
use peerbus_node::index::{self, LiveSession};
use peerbus_wire::escape;

use crate::output;

/// How long it may take until the session takes turns.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// How long it may take from then until the broker has given it a name: it is told by that.
const NAMED_WITHIN: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(50);
const LOGS_KEPT: usize = 32;
/// A log that has grown beyond so many bytes begins anew: an agent may write for ever.
const LOG_BYTES_MAX: u64 = 16 << 20;
const LOG_LOOK: Duration = Duration::from_secs(5);
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
    let mut unnamed_until = None;
    while Instant::now() < deadline {
        let is_told = |session: &LiveSession| {
            let until = *unnamed_until.get_or_insert_with(|| Instant::now() + NAMED_WITHIN);
            session.name.is_some() || Instant::now() >= until
        };
        if let Some(session) = listed(&paths, child.id()).filter(is_told) {
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
    begin_log(log)?;
    // What begins anew is written on from its beginning.
    let file = File::options().append(true).open(log)?;
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
    let log = io::stdout().as_fd().try_clone_to_owned();
    let log = File::from(log.map_err(Failure::failed)?);
    std::thread::spawn(move || {
        while bounded(&log, LOG_BYTES_MAX).is_ok() {
            std::thread::sleep(LOG_LOOK);
        }
    });
    Ok(())
}

/// Begins a log anew that is too long.
fn bounded(log: &File, most: u64) -> io::Result<()> {
    match log.metadata()?.len() > most {
        true => log.set_len(0),
        false => Ok(()),
    }
}

/// The session of a driver with this number, once its client takes turns.
fn listed(paths: &Paths, driver: u32) -> Option<LiveSession> {
    let own = format!("{driver}.{driver}.sock");
    let is_it = |it: &LiveSession| it.socket.ends_with(&own) && it.status.is_some();
    index::all_of(paths, is_it).pop()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_log_that_is_too_long_is_written_on_from_its_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("runs").join("1-1.log");
        let mut file = open(&dir.path().join("runs"), &log).unwrap();
        let read = || std::fs::read_to_string(&log).unwrap();
        for (text, all) in [("one", "one"), ("two", "onetwo"), ("six", "six")] {
            bounded(&file, 5).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            assert_eq!(read(), all);
        }
    }
}
