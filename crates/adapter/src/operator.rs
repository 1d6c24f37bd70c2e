//! What a program of the user's asks the broker of this machine: HTTP over its Unix socket, which
//! only that user can reach. Plain blocking I/O.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use peerbus_os::socket;
use peerbus_view::MessagePage;
use peerbus_wire::{PeerEntry, Received};

use crate::demand::{request, status_and_body, with_named};
use crate::dial::{UNUSABLE, check_user, plain};
use crate::stopped::check_awake;

const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: u64 = 8 * 1024 * 1024;
const HEAD_BYTES_MAX: usize = 65_536;
/// Longest line of an event that is read: an envelope and some.
const LINE_BYTES_MAX: u64 = 8 * 1_048_576;
/// A stream in which nothing comes for so long is taken for broken: each 15 s there is a comment.
const STREAM_SILENCE: Duration = Duration::from_secs(60);

/// What the broker answered.
#[derive(Debug)]
pub struct OperatorAnswer {
    /// The HTTP status.
    pub status: u16,
    /// Its body.
    pub body: String,
}

impl OperatorAnswer {
    /// The body of a good answer.
    ///
    /// # Errors
    ///
    /// Why it is none, in the broker's words if there are any.
    pub fn ok(self) -> Result<String, String> {
        if (200..300).contains(&self.status) {
            return Ok(self.body);
        }
        Err(match self.body.trim() {
            "" => format!("the broker answered {}", self.status),
            why => why.to_owned(),
        })
    }
}

/// Said of a connection that ended first.
const UNANSWERED: &str = "the broker ended the connection without an answer: ask again";

/// What is said of an answer that this program does not understand.
const OTHER_VERSION: &str = "the broker that runs is of another version than this program, and its answer is \
    not understood: end it with `peerbus stop`, and start it again if no command is to do that";

/// That what a broker said is not understood.
#[must_use]
pub fn other_version(error: &serde_json::Error) -> String {
    format!("{OTHER_VERSION} ({error})")
}

/// The messages of an answer to `GET /v1/messages`.
///
/// # Errors
///
/// Why there are none, in the broker's words if there are any; or that the broker is of another
/// version.
pub fn messages(answer: OperatorAnswer) -> Result<MessagePage, String> {
    match answer.status {
        // It has no such request.
        404 => Err(OTHER_VERSION.into()),
        _ => serde_json::from_str(&answer.ok()?).map_err(|error| other_version(&error)),
    }
}

/// Everybody in an answer to `GET /v1/peers`, and how many are left out.
///
/// # Errors
///
/// As [`messages`].
pub fn peers(answer: OperatorAnswer) -> Result<(Vec<PeerEntry>, u32), String> {
    match Received::parse(answer.ok()?.as_bytes()) {
        Received::Peers(frame) => Ok((frame.peers.unwrap_or_default(), frame.omitted)),
        _ => Err(OTHER_VERSION.into()),
    }
}

/// One request to the first of these sockets that answers.
///
/// # Errors
///
/// When none answers, with a sentence.
pub fn over(sockets: &[PathBuf], method: &str, target: &str) -> Result<OperatorAnswer, String> {
    let mut stream = connect(sockets)?;
    let listener = socket::listener(&stream);
    let mut bytes = Vec::new();
    let mut exchange = || {
        stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
        stream.set_write_timeout(Some(ANSWERS_WITHIN))?;
        stream.write_all(&request("localhost", method, target))?;
        (&stream).take(ANSWER_BYTES_MAX).read_to_end(&mut bytes)
    };
    let read = exchange().map_err(|error| silent(&error, listener))?;
    if read as u64 == ANSWER_BYTES_MAX {
        let why =
            "the broker's answer is longer than 8 MiB, and no more is read: ask for less (--limit)";
        return Err(why.to_owned());
    }
    let (status, body) = status_and_body(&bytes).ok_or(UNANSWERED)?;
    Ok(OperatorAnswer { status, body })
}

/// A broker took a connection, and does not answer.
fn silent(error: &io::Error, listener: Option<(u32, u32)>) -> String {
    let late = matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    );
    let (seconds, why) = (ANSWERS_WITHIN.as_secs(), plain(error));
    match listener {
        Some((pid, _)) if late => format!(
            "the broker does not answer: process {pid} listens there and said nothing for \
             {seconds} s; `kill -9 {pid}` ends it: everything that was accepted is on disk"
        ),
        None if late => format!("the broker does not answer within {seconds} s"),
        _ => format!("the broker does not answer: {why}"),
    }
}

/// Connects to the first of these sockets that answers; none means a broker elsewhere.
///
/// # Errors
///
/// When none does: a sentence that names them.
pub fn connect(sockets: &[PathBuf]) -> Result<UnixStream, String> {
    if sockets.is_empty() {
        return Err("the broker is elsewhere, and shows this on its own machine only".into());
    }
    let mut failures = Vec::new();
    for socket in &with_named(sockets) {
        let connected = UnixStream::connect(socket);
        let connected = connected.and_then(|stream| check_user(&stream).map(|()| stream));
        match connected {
            Ok(stream) => {
                let unusable = |why| format!("{UNUSABLE}{}: {why}", socket.display());
                return match check_awake(&stream) {
                    Ok(()) => Ok(stream),
                    Err(why) => Err(unusable(why)),
                };
            }
            Err(error) => failures.push(format!("{} ({})", socket.display(), plain(&error))),
        }
    }
    Err(format!(
        "cannot reach the broker at {}; is `peerbus serve` running here? If it has another \
         database and another socket, name the path: --socket PATH, or PEERBUS_URL=unix:PATH",
        failures.join(" nor at ")
    ))
}

/// Why there is no stream of events.
#[derive(Debug)]
pub enum Streamless {
    /// What followed the cursor is not kept any more.
    Gone,
    /// The broker says no, and why.
    Refused(String),
    /// There is no broker, and what was tried.
    Away(String),
}

/// What happens at a broker, as it tells it.
#[derive(Debug)]
pub struct Events {
    stream: BufReader<UnixStream>,
    kind: String,
    cursor: Option<String>,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorEvent {
    /// Its kind.
    pub kind: String,
    /// JSON.
    pub data: String,
}

impl Events {
    /// Asks for what happens from now on, or behind `cursor`, on a connection to the broker.
    ///
    /// # Errors
    ///
    /// Why there is no such stream.
    pub fn on(stream: UnixStream, cursor: Option<&str>) -> Result<Self, Streamless> {
        let listener = socket::listener(&stream);
        let gone = |error: io::Error| Streamless::Away(silent(&error, listener));
        let sent = cursor.map(|cursor| format!("Last-Event-ID: {cursor}\r\n"));
        let sent = sent.unwrap_or_default();
        // 1.0: what comes is not cut into chunks.
        write!(
            &stream,
            "GET /v1/events HTTP/1.0\r\nHost: localhost\r\n{sent}\r\n"
        )
        .map_err(gone)?;
        stream
            .set_read_timeout(Some(ANSWERS_WITHIN))
            .map_err(gone)?;
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if head.len() > HEAD_BYTES_MAX || stream.read_line(&mut head).map_err(gone)? == 0 {
                let why = "the broker's answer is not understood";
                return Err(Streamless::Away(why.into()));
            }
        }
        let silence = stream.get_ref().set_read_timeout(Some(STREAM_SILENCE));
        silence.map_err(gone)?;
        let (status, _) = status_and_body(head.as_bytes()).unwrap_or_default();
        match status {
            200 => Ok(Self {
                stream,
                kind: String::new(),
                cursor: cursor.map(str::to_owned),
            }),
            410 => Err(Streamless::Gone),
            status => {
                let mut body = String::new();
                // What it says of the reason, if it says so.
                let _read = stream.take(ANSWER_BYTES_MAX).read_to_string(&mut body);
                let why = OperatorAnswer { status, body }.ok().err();
                let why = why.unwrap_or_else(|| "the broker gives no stream".into());
                Err(match status {
                    503 => Streamless::Away(why),
                    _ => Streamless::Refused(why),
                })
            }
        }
    }

    /// Where to go on after what was read; `None`: from whatever is then.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// Waits for the next line. `None`: it was no event, or not the end of one.
    ///
    /// # Errors
    ///
    /// When the stream ended, in whatever way.
    pub fn read(&mut self) -> io::Result<Option<OperatorEvent>> {
        let mut line = String::new();
        let mut bounded = io::Read::take(&mut self.stream, LINE_BYTES_MAX);
        if bounded.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some((field, value)) = line.trim_end_matches('\n').split_once(": ") else {
            return Ok(None);
        };
        match field {
            "id" => self.cursor = Some(value.to_owned()),
            "event" => value.clone_into(&mut self.kind),
            "data" => {
                if self.kind == "gone" {
                    self.cursor = None;
                }
                return Ok(Some(OperatorEvent {
                    kind: self.kind.clone(),
                    data: value.to_owned(),
                }));
            }
            _ => {}
        }
        Ok(None)
    }
}

/// A path as the value of a query.
#[must_use]
pub fn encode(path: &Path) -> String {
    peerbus_os::uri::encode(path.as_os_str().as_encoded_bytes())
}

/// A text as the value of a query.
#[must_use]
pub fn encode_text(text: &str) -> String {
    peerbus_os::uri::encode(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// The error that an answer of these bytes gives.
    fn answered(answer: Vec<u8>) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("broker.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let broker = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _asked = stream.read(&mut [0; 4_096]).unwrap();
            // Nobody may read the end of it.
            let _closed = stream.write_all(&answer);
        });
        let why = over(&[path], "GET", "/v1/messages").unwrap_err();
        broker.join().unwrap();
        why
    }

    #[test]
    fn a_connection_that_ends_first_is_no_answer() {
        for answer in [&b""[..], b"HTTP/1.1 "] {
            assert_eq!(answered(answer.to_vec()), UNANSWERED);
        }
    }

    #[test]
    fn an_answer_that_is_too_long_is_not_taken_for_that_of_another_version() {
        let mut answer = b"HTTP/1.1 200 OK\r\n\r\n{".to_vec();
        answer.resize(answer.len() + ANSWER_BYTES_MAX as usize, b' ');
        let why = answered(answer);
        assert!(why.contains("longer than 8 MiB"), "{why}");
    }
}
