//! The other end, for commands: plain blocking I/O.

use std::collections::VecDeque;
use std::io::{self, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use peerbus_os::lines::read_line;
use peerbus_wire::jsonrpc::{RpcError, RpcMessage, UNKNOWN_METHOD, WRONG_PARAMS};
use serde_json::Value;

use crate::protocol::CLOSED;

/// Longest line that is read, in bytes: all mail that waits for a user stands in one.
const LINE_MAX: usize = 16 << 20;
/// A node answers at once; longer than this nobody waits.
const ANSWER: Duration = Duration::from_secs(10);

/// Asks each of these at the same time, so that one that hangs holds up no other. Gives the answers in
/// the same order; `None`: there is no thread to ask.
pub fn each<S: Sync, A: Send>(of: &[S], ask: impl Fn(&S) -> A + Sync) -> Vec<Option<A>> {
    let ask = &ask;
    thread::scope(|scope| {
        let begin = |one| {
            thread::Builder::new()
                .spawn_scoped(scope, move || ask(one))
                .ok()
        };
        let asked: Vec<_> = of.iter().map(begin).collect();
        let end = |asked: Option<thread::ScopedJoinHandle<'_, A>>| asked?.join().ok();
        asked.into_iter().map(end).collect()
    })
}

/// Why a node does not do what it was asked.
#[derive(Debug)]
pub enum NodeRefusal {
    /// Its answer. Untrusted.
    Said(RpcError),
    /// It cannot be asked.
    Lost(io::Error),
}

impl NodeRefusal {
    /// A gate is closed, or it is not for the caller.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self, Self::Said(error) if error.code == CLOSED)
    }

    /// What was asked is not what it should be.
    #[must_use]
    pub const fn is_wrong(&self) -> bool {
        matches!(self, Self::Said(error) if error.code == WRONG_PARAMS)
    }

    /// An older adapter's node, which does not know the method.
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        matches!(self, Self::Said(error) if error.code == UNKNOWN_METHOD)
    }
}

/// Its sentence, or that there is none.
impl From<NodeRefusal> for String {
    fn from(refusal: NodeRefusal) -> Self {
        match refusal {
            NodeRefusal::Said(error) => error.message,
            NodeRefusal::Lost(error) => format!("the session does not answer: {error}"),
        }
    }
}

impl From<io::Error> for NodeRefusal {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// A connection to a node.
#[derive(Debug)]
pub struct NodeClient {
    stream: BufReader<UnixStream>,
    last: u64,
    events: VecDeque<Value>,
    /// How long an event is waited for, and an answer.
    patience: Option<Duration>,
    within: Duration,
}

impl NodeClient {
    /// Connects to a node of this user's.
    ///
    /// # Errors
    ///
    /// When nobody listens there, or another user's process does.
    pub fn connect(socket: &Path) -> io::Result<Self> {
        let stream = peerbus_os::socket::connect(socket)?;
        peerbus_os::socket::check_listener(&stream)?;
        Ok(Self {
            stream: BufReader::new(stream),
            last: 0,
            events: VecDeque::new(),
            patience: None,
            within: ANSWER,
        })
    }

    /// Waits at most so long for each answer from now on, in place of ten seconds.
    #[must_use]
    pub fn within(self, within: Duration) -> Self {
        Self { within, ..self }
    }

    /// Asks, and waits for the answer, at most ten seconds. Events that come meanwhile are kept.
    ///
    /// # Errors
    ///
    /// When it refuses, or is gone.
    pub fn call(&mut self, method: &str, params: &Value) -> Result<Value, NodeRefusal> {
        let stream = self.stream.get_ref();
        stream.set_read_timeout(Some(self.within))?;
        stream.set_write_timeout(Some(self.within))?;
        let answer = self.ask(method, params);
        self.stream.get_ref().set_read_timeout(self.patience)?;
        answer.map_err(|refusal| match refusal {
            NodeRefusal::Lost(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let seconds = self.within.as_secs();
                let why =
                    format!("nothing came within {seconds} s: its adapter is stopped or hangs");
                io::Error::new(io::ErrorKind::TimedOut, why).into()
            }
            refusal => refusal,
        })
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value, NodeRefusal> {
        self.last += 1;
        let id = self.last;
        let call = RpcMessage::request(id, method, params).line();
        self.stream.get_mut().write_all(call.as_bytes())?;
        loop {
            let message = self
                .message()?
                .ok_or(io::Error::from(io::ErrorKind::UnexpectedEof))?;
            self.events.extend(event(&message));
            match message.done() {
                Some(Err(error)) => return Err(NodeRefusal::Said(error)),
                Some(Ok(result)) if message.number() == Some(id) => return Ok(result),
                _ => {}
            }
        }
    }

    /// The next event. `None`: the session has ended.
    ///
    /// # Errors
    ///
    /// When the connection fails.
    pub fn event(&mut self) -> io::Result<Option<Value>> {
        if let Some(event) = self.events.pop_front() {
            return Ok(Some(event));
        }
        loop {
            let Some(message) = self.message()? else {
                return Ok(None);
            };
            if let Some(event) = event(&message) {
                return Ok(Some(event));
            }
        }
    }

    /// From now on an event is waited for that long, and then there is an error of the kind
    /// [`io::ErrorKind::WouldBlock`]; `None`: for ever.
    ///
    /// # Errors
    ///
    /// When the system will not.
    pub fn set_patience(&mut self, patience: Option<Duration>) -> io::Result<()> {
        self.patience = patience;
        self.stream.get_ref().set_read_timeout(patience)
    }

    fn message(&mut self) -> io::Result<Option<RpcMessage>> {
        let wrong = |error: RpcError| io::Error::new(io::ErrorKind::InvalidData, error.message);
        let line = read_line(&mut self.stream, LINE_MAX)?;
        let message = line.map(|line| RpcMessage::read(&line));
        message.transpose().map_err(wrong)
    }
}

fn event(message: &RpcMessage) -> Option<Value> {
    let params = message.params.as_ref();
    let params = params.filter(|_| message.method.as_deref() == Some("session/event"))?;
    serde_json::from_str(params.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_hangs_holds_up_no_other() {
        // Each waits until all of them are asked.
        let all = std::sync::Barrier::new(5);
        let asked = each(&[1, 2, 3, 4, 5], |number| {
            all.wait();
            number * 2
        });
        let answers: Vec<_> = asked.into_iter().flatten().collect();
        assert_eq!(answers, [2, 4, 6, 8, 10]);
    }
}
