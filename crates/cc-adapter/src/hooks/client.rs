//! The hook's end: a short-lived process that asks the adapter of its session. Plain blocking I/O,
//! so that one that waits for days costs next to nothing.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use peerbus_adapter::paths::Paths;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::line::{self, Ask, Event, Go, Occasion, Tell, Took};
use super::place::{self, Found};
use super::process;

/// How long a hook that answers may take, all in all.
const ANSWER: Duration = Duration::from_millis(900);
/// How long a hook that waits looks for an adapter that starts at the same time as it does.
const START: Duration = Duration::from_secs(10);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// The most that is read of standard input: a tool's result can be large.
const INPUT_MAX: u64 = 256 * 1024 * 1024;

/// What a hook says to its client. Anything that goes wrong is [`Said::Nothing`]: no turn fails
/// because of the bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// Nothing, exit code 0.
    Nothing,
    /// This on standard output, exit code 0.
    Output(String),
    /// This on standard error, exit code 2: the client starts a turn with it.
    Rewake(String),
}

/// Answers an event with what is unseen. Takes less than a second.
#[must_use]
pub fn context() -> Said {
    let deadline = Deadline::after(ANSWER);
    let asked = || {
        let on = occasion(deadline)?;
        let event = on.event();
        let text = Session::find(&directories()?)?.ask(on, false, deadline)?;
        Some(output(event, &text))
    };
    asked().map_or(Said::Nothing, Said::Output)
}

/// Waits in an interactive session until there is something to show, or until the session, its
/// adapter or whoever started this hook is gone, or another hook waits in its place.
#[must_use]
pub fn wait() -> Said {
    let waited = || {
        let on = occasion(Deadline::after(ANSWER))?;
        interactive().then_some(())?;
        let patience = match on.event() {
            Event::Start => START,
            _ => Duration::ZERO,
        };
        let dirs = directories()?;
        let session = Session::await_start(&dirs, patience)?;
        let text = session.ask(on, true, Deadline::after(ANSWER));
        if text.is_none() {
            // An adapter that was killed has left its socket behind.
            dirs.iter().for_each(|dir| place::sweep(dir));
        }
        text
    };
    waited().map_or(Said::Nothing, Said::Rewake)
}

/// There is a user who does not wait for this hook to end. Everywhere else (`claude -p`, agents
/// built on the client) no hook runs in the background: a session would stand still with this one.
/// Seen with 2.1.114 and 2.1.330, which say `sdk-cli` there, whatever is around them.
fn interactive() -> bool {
    std::env::var_os("CLAUDE_CODE_ENTRYPOINT").is_some_and(|name| name == "cli")
}

/// Lets an event pass.
#[must_use]
pub fn ignore() -> Said {
    let _ = occasion(Deadline::after(ANSWER));
    Said::Nothing
}

/// What the client expects of a hook that has something to say.
fn output(event: Event, text: &str) -> String {
    let output = match event {
        Event::Stop => json!({ "decision": "block", "reason": text }),
        _ => json!({ "hookSpecificOutput": {
            "hookEventName": event.name(), "additionalContext": text,
        } }),
    };
    output.to_string()
}

fn directories() -> Option<Vec<PathBuf>> {
    Some(place::directories(&Paths::find().ok()?))
}

/// What standard input tells of the event. All of it is read: to its writer a pipe that closes
/// early is a hook that failed.
fn occasion(deadline: Deadline) -> Option<Occasion> {
    let mut input = BufReader::new(Timed { deadline }.take(INPUT_MAX));
    let on = serde_json::from_reader(&mut input).ok();
    // What cannot be read to its end in time is left.
    let _ = std::io::copy(&mut input, &mut std::io::sink());
    on
}

/// Standard input, until the deadline.
struct Timed {
    deadline: Deadline,
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let stdin = std::io::stdin();
        if !self.deadline.readable(&[stdin.as_fd()]) {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        Ok(rustix::io::read(stdin.as_fd(), buffer)?)
    }
}

/// A point in time, or never.
#[derive(Debug, Clone, Copy)]
struct Deadline(Option<Instant>);

impl Deadline {
    const NEVER: Self = Self(None);

    fn after(time: Duration) -> Self {
        Self(Instant::now().checked_add(time))
    }

    /// What is left; `None`: there is no end.
    fn left(self) -> Option<Duration> {
        self.0
            .map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Waits until the first of these has something to read or has ended. False when one of the
    /// others does first, and at the deadline.
    fn readable(self, handles: &[BorrowedFd<'_>]) -> bool {
        loop {
            let mut polled: Vec<_> = handles
                .iter()
                .map(|handle| PollFd::new(handle, PollFlags::IN))
                .collect();
            let left = self.left().map(|left| Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            });
            match poll(&mut polled, left.as_ref()) {
                Err(rustix::io::Errno::INTR) => {}
                Err(_) | Ok(0) => return false,
                Ok(_) => {
                    let ready = |one: &PollFd<'_>| !one.revents().is_empty();
                    return !polled.iter().skip(1).any(ready) && polled.first().is_some_and(ready);
                }
            }
        }
    }
}

/// The adapter of the session that runs this hook.
struct Session {
    stream: BufReader<UnixStream>,
    /// Handles on the processes without which there is nothing to wait for.
    lives: Vec<OwnedFd>,
}

impl Session {
    fn find(dirs: &[PathBuf]) -> Option<Self> {
        let Found { stream, client } = place::find(dirs)?;
        stream.set_write_timeout(Some(ANSWER)).ok()?;
        Some(Self {
            stream: BufReader::new(stream),
            lives: process::watch(client),
        })
    }

    /// Looks for an adapter that may be about to start, as long as nobody above this hook ends.
    fn await_start(dirs: &[PathBuf], patience: Duration) -> Option<Self> {
        let end = Deadline::after(patience);
        let above = || process::ancestors().into_iter().map(|process| process.pid);
        let first: Vec<u32> = above().collect();
        loop {
            if let Some(found) = Self::find(dirs) {
                return Some(found);
            }
            if end.left().is_some_and(|left| left.is_zero()) || !above().eq(first.iter().copied()) {
                return None;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Tells the adapter of the event. Gives the text that is this hook's to show, if there is one.
    fn ask(mut self, on: Occasion, wait: bool, deadline: Deadline) -> Option<String> {
        let v = line::VERSION;
        self.say(&Ask { v, wait, on })?;
        let until = if wait { Deadline::NEVER } else { deadline };
        let tell: Tell = self.hear(until)?;
        let text = tell.text.filter(|_| tell.v == v)?;
        self.say(&Took { took: true })?;
        let until = if wait {
            Deadline::after(ANSWER)
        } else {
            deadline
        };
        self.hear::<Go>(until)?.go.then_some(text)
    }

    fn say(&mut self, what: &impl serde::Serialize) -> Option<()> {
        self.stream.get_mut().write_all(&line::write(what)?).ok()
    }

    /// The next line, if it comes in time.
    fn hear<T: DeserializeOwned>(&mut self, deadline: Deadline) -> Option<T> {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            if self.stream.buffer().is_empty() {
                let handles = std::iter::once(self.stream.get_ref().as_fd());
                let handles: Vec<_> = handles
                    .chain(self.lives.iter().map(OwnedFd::as_fd))
                    .collect();
                if !deadline.readable(&handles) {
                    return None;
                }
            }
            let got = self.stream.fill_buf().ok()?;
            let part = got
                .iter()
                .position(|byte| *byte == b'\n')
                .map_or(got.len(), |at| at + 1);
            if part == 0 || line.len() + part > line::TELL_MAX {
                return None;
            }
            line.extend_from_slice(&got[..part]);
            self.stream.consume(part);
        }
        serde_json::from_slice(&line).ok()
    }
}
