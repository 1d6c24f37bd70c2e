//! The hook's end: a short-lived process that asks the adapter of its session. Plain blocking I/O,
//! so that one that waits for days costs next to nothing.

use std::io::{self, BufReader, Read, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use peerbus_os::lines::read_line;
use peerbus_wire::jsonrpc::RpcMessage;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::json;

use super::line::{ATTACH, Ask, AskTools, HOOK, OFFER_MAX, Offer, Role, TOOK, TOOLS};
use super::place::{self, Ancestor};
use crate::deadline::Deadline;

/// How long the adapter may take for a line that it owes.
const ANSWER: Duration = Duration::from_millis(900);
/// How long it may take on a busy machine where no turn waits for it, and how long a driver may.
const ANSWER_LATE: Duration = Duration::from_secs(10);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// The processes above this one, the nearest first.
type Above = fn() -> Vec<Ancestor>;

/// A hook's connection to the adapter of its session.
#[derive(Debug)]
pub struct Caller {
    read: BufReader<WatchedStream>,
}

/// Is read until a deadline, and for as long as some processes live.
#[derive(Debug)]
struct WatchedStream {
    stream: UnixStream,
    /// Handles on the processes without which there is nothing to wait for.
    lives: Vec<OwnedFd>,
    deadline: Deadline,
}

impl Caller {
    /// Connects to the adapter of the nearest session above this process. `above` gives the
    /// processes above this one, the nearest first.
    #[must_use]
    pub fn find(dirs: &[PathBuf], above: Above) -> Option<Self> {
        let (stream, client) = place::find(dirs, &above())?;
        Self::over(stream, watch(client, above))
    }

    fn over(stream: UnixStream, lives: Vec<OwnedFd>) -> Option<Self> {
        stream.set_write_timeout(Some(ANSWER)).ok()?;
        let stream = WatchedStream {
            stream,
            lives,
            deadline: Deadline::NEVER,
        };
        Some(Self {
            read: BufReader::new(stream),
        })
    }

    /// Looks for an adapter that may be about to start, as long as nobody above this hook ends.
    #[must_use]
    pub fn await_start(dirs: &[PathBuf], above: Above, patience: Duration) -> Option<Self> {
        let end = Deadline::after(patience);
        let first = above();
        loop {
            if let Some(found) = Self::find(dirs, above) {
                return Some(found);
            }
            if end.left().is_some_and(|left| left.is_zero()) || above() != first {
                return None;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Tells the adapter of the event. Gives the text that is this hook's to show, if there is one.
    /// A hook that waits does so until something is to be shown, or until the client, whoever
    /// started this process, or the adapter is gone.
    #[must_use]
    pub fn ask(mut self, on: impl Serialize, wait: bool, deadline: Deadline) -> Option<String> {
        let until = if wait { Deadline::NEVER } else { deadline };
        let offer: Offer = self.request(1, HOOK, &Ask { wait, on }, until)?;
        let text = offer.text?;
        let until = match wait {
            true => Deadline::after(ANSWER_LATE),
            false => deadline,
        };
        let _shows: IgnoredAny = self.request(2, TOOK, &json!({}), until)?;
        Some(text)
    }

    /// Attaches with this, and hands on what the adapter says then, a line each, until one of the ends is
    /// gone. `None`, always: it is over, or was refused.
    pub fn follow(mut self, attach: &impl Serialize, to: &mut impl io::Write) -> Option<()> {
        let _taken: IgnoredAny = self.request(1, ATTACH, attach, Deadline::after(ANSWER))?;
        self.read.get_mut().deadline = Deadline::NEVER;
        loop {
            let line = read_line(&mut self.read, OFFER_MAX).ok()??;
            to.write_all(&line)
                .and_then(|()| to.write_all(b"\n"))
                .ok()?;
            to.flush().ok()?;
        }
    }

    /// What a request is answered, if it is in time.
    fn request<T: DeserializeOwned>(
        &mut self,
        id: u64,
        method: &str,
        params: &impl Serialize,
        deadline: Deadline,
    ) -> Option<T> {
        let stream = self.read.get_mut();
        stream.deadline = deadline;
        let request = RpcMessage::request(id, method, params).line();
        stream.stream.write_all(request.as_bytes()).ok()?;
        let answer = RpcMessage::read(&read_line(&mut self.read, OFFER_MAX).ok()??).ok()?;
        let answers = answer.number() == Some(id);
        serde_json::from_str(answer.result.filter(|_| answers)?.get()).ok()
    }
}

/// Asks a driver what an adapter below it is to be, and gives the connection, too. `None`: it cannot
/// be asked. A session that has the adapter goes before one that knows it is none's, and that before
/// one that takes it for a peer.
#[must_use]
pub fn ask_driver(driver: u32, ask: &AskTools) -> Option<(Role, UnixStream)> {
    let mut found = None;
    // One that has several sessions drives each by itself.
    for stream in place::connected(&place::directories_of(driver), driver) {
        let mut caller = Caller::over(stream, Vec::new())?;
        let role = caller.request(1, TOOLS, ask, Deadline::after(ANSWER_LATE));
        // It has said no more: it waits for the first line.
        let asked = role.map(|role| (role, caller.read.into_inner().stream));
        match asked {
            Some((Role::Relay, _)) => return asked,
            Some((Role::Nothing, _)) => found = asked,
            Some((Role::Peer, _)) if found.is_none() => found = asked,
            Some((Role::Peer, _)) | None => {}
        }
    }
    found
}

impl Read for WatchedStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let handles = std::iter::once(self.stream.as_fd());
        let handles: Vec<_> = handles
            .chain(self.lives.iter().map(OwnedFd::as_fd))
            .collect();
        if !self.deadline.readable(&handles) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.read(buffer)
    }
}

/// Handles on this process's parent and on an ancestor of it, which become readable when those
/// end. What ended before, or cannot be watched, is left out: the adapter's end is noticed too.
fn watch(ancestor: u32, above: Above) -> Vec<OwnedFd> {
    let mut pids = vec![std::os::unix::process::parent_id(), ancestor];
    pids.dedup();
    let is_above = |pid: u32| above().iter().any(|process| process.pid == pid);
    pids.into_iter()
        .filter_map(|pid| peerbus_os::process::handle(pid, || is_above(pid)))
        .collect()
}
