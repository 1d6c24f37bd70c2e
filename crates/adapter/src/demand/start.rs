//! Starting a broker, one at a time for each user.

use std::io::{self, PipeReader, Read as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use peerbus_os::socket;
use peerbus_os::sync::lock;
pub use peerbus_peer::session::NOT_STARTED;
use peerbus_wire::escape;

use super::lock::{known_holder, named, try_turn, turn_file, unwritable, with_named};
use super::log::open_log;
use super::{is_handed_on, mark};
use crate::deadline::Deadline;
use crate::paths::{DATABASE, Paths};
use crate::stopped::stopped;

/// What a broker that was started writes to its standard output, once: that it serves. A line after
/// it is for whoever needed the broker.
pub const READY: &str = "ready";
/// That another process has the database or the socket, and how the sentence begins about it.
pub const HELD: &str = "held ";
/// How the sentence begins about what it failed at.
pub const BEGINS: &str = "failed ";

/// How long a broker may take until it serves.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// A failure is not tried to be repeated for so long.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Longest word of a broker, in bytes; and as it is repeated, in characters.
const WORD_BYTES_MAX: usize = 4_096;
const WORD_CHARS: usize = 1_000;

/// Starts a broker at this user's usual place.
#[derive(Debug)]
pub struct Starter {
    /// Who may start it, for people.
    who: String,
    state_dir: PathBuf,
    sockets: Vec<PathBuf>,
    log: PathBuf,
    /// The mark of `peerbus stop` that was there when this was made.
    mark: Option<String>,
    failed: Mutex<Option<(Instant, String)>>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tried {
    /// One serves.
    Ready,
    /// Somebody else starts or ends one: why there is none yet.
    Busy(String),
    /// None can be started: a sentence, with the place of the log.
    Failed(String),
}

impl Starter {
    pub(super) fn new(who: &str, paths: &Paths) -> Self {
        Self {
            who: format!("{who}, process {}", std::process::id()),
            sockets: paths.sockets.clone(),
            log: paths.log(),
            mark: mark::read(&paths.state_dir),
            state_dir: paths.state_dir.clone(),
            failed: Mutex::default(),
        }
    }

    /// Why nothing is to be started or looked for: `peerbus stop` ended the broker after this was
    /// made.
    #[must_use]
    pub fn waits(&self) -> Option<&'static str> {
        let mark = mark::read(&self.state_dir)?;
        (self.mark.as_ref() != Some(&mark)).then_some(
            "the broker was stopped with `peerbus stop`: any other command, such as `peerbus \
             peers`, and any new session starts one again",
        )
    }

    /// Starts one, unless there is one or somebody else is just starting it. Waits for it, but for
    /// 10 s at most.
    #[must_use]
    pub fn start(&self) -> Tried {
        let failed = lock(&self.failed);
        if let Some((at, why)) = &*failed
            && at.elapsed() < AGAIN_AFTER
        {
            return Tried::Failed(why.clone());
        }
        drop(failed);
        let tried = self.try_start();
        let why = match tried {
            Ok(Tried::Failed(why)) => why,
            Ok(tried) => return tried,
            Err(error) => error.to_string(),
        };
        let log = match self.log.exists() {
            true => format!(" (its log is {})", self.log.display()),
            false => String::new(),
        };
        let why = format!("{NOT_STARTED}{why}{log}");
        let mut failed = lock(&self.failed);
        *failed = Some((Instant::now(), why.clone()));
        Tried::Failed(why)
    }

    fn try_start(&self) -> io::Result<Tried> {
        let Some(_turn) = try_turn(&self.state_dir)? else {
            let lock = turn_file(&self.state_dir);
            return Ok(Tried::Busy(format!(
                "another process is starting one: it has locked {}",
                lock.display()
            )));
        };
        let mut sockets = with_named(&self.sockets).into_iter();
        if sockets.any(|path| socket::is_listening(&path).unwrap_or(false)) {
            return Ok(Tried::Ready);
        }
        // It has the database, and another one would wait for that.
        let holder = known_holder(&self.state_dir.join(DATABASE));
        if let Some(why) = holder.and_then(stopped) {
            return Ok(Tried::Failed(why.to_string()));
        }
        if self.mark.is_some() && self.waits().is_none() {
            mark::take_mark_away(&self.state_dir)?;
        }
        let log = open_log(&self.log).map_err(|error| unwritable(&self.log, error))?;
        let (reader, writer) = io::pipe()?;
        let handed_on = std::env::vars_os().filter(|(name, _)| is_handed_on(name));
        let program = program()?;
        let mut child = Command::new(&program)
            .arg("serve")
            .arg(format!("--on-demand={}", self.who))
            .env_clear()
            .envs(handed_on)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(log)
            .spawn()
            .map_err(|error| named(&program, error))?;
        let word = word(reader);
        // It has started the broker and ended: the broker is nobody's child.
        child.wait()?;
        let word = word?;
        if let Some(warning) = word.lines().nth(1) {
            tracing::warn!("{}", escape(warning, WORD_CHARS));
        }
        Ok(read(&word))
    }
}

/// This program; or what was put in its place since it was started.
fn program() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    if !program.exists()
        && let Some(path) = program
            .to_str()
            .and_then(|path| path.strip_suffix(" (deleted)"))
    {
        return Ok(path.into());
    }
    Ok(program)
}

/// The first line that comes, with what was written along with it; or what came before the end.
fn word(mut from: PipeReader) -> io::Result<String> {
    let deadline = Deadline::after(READY_WITHIN);
    let mut bytes = Vec::new();
    while !bytes.contains(&b'\n') && bytes.len() < WORD_BYTES_MAX {
        if !deadline.readable(&[from.as_fd()]) {
            let seconds = READY_WITHIN.as_secs();
            let why = format!("it does not serve after {seconds} s");
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        let mut some = [0; WORD_BYTES_MAX];
        match from.read(&mut some)? {
            0 => break,
            read => bytes.extend_from_slice(&some[..read]),
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn read(word: &str) -> Tried {
    let line = word.lines().next().unwrap_or_default();
    let said = |text: &str| escape(text, WORD_CHARS);
    if line == READY {
        Tried::Ready
    } else if let Some(why) = line.strip_prefix(HELD) {
        Tried::Busy(said(why))
    } else if let Some(why) = line.strip_prefix(BEGINS) {
        Tried::Failed(said(why))
    } else {
        Tried::Failed("it ended without a word".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brokers_word_is_one_of_three_or_a_failure() {
        assert_eq!(read("ready\n"), Tried::Ready);
        assert_eq!(read("held by 7\nmore"), Tried::Busy("by 7".into()));
        assert_eq!(read("failed at it\n"), Tried::Failed("at it".into()));
        for nothing in ["", "something else"] {
            let failed = Tried::Failed("it ended without a word".into());
            assert_eq!(read(nothing), failed, "{nothing}");
        }
    }

    #[test]
    fn who_was_there_before_a_stop_waits_and_who_comes_after_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::under(dir.path().into(), dir.path().into(), &[]);
        let starter = || Starter::new("a test", &paths);
        let before = starter();
        assert_eq!(before.waits(), None);
        mark::leave_mark(&paths.state_dir).unwrap();
        let after = starter();
        assert!(before.waits().is_some() && after.waits().is_none());
        mark::leave_mark(&paths.state_dir).unwrap();
        assert!(after.waits().is_some(), "it was stopped again");
        mark::take_mark_away(&paths.state_dir).unwrap();
        assert!(before.waits().is_none() && after.waits().is_none());
    }
}
