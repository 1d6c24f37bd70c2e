//! The operator's requests: HTTP over the broker's Unix socket, which only its user can reach.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use peerbus_adapter::demand::{Demand, Tried};
use peerbus_adapter::paths::Paths;
use peerbus_adapter::{Flags, Url};

use crate::client;
use crate::failure::Failure;

/// Largest answer that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// How long it is tried again where somebody else starts or ends a broker, and how often.
const BUSY_MAX: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(15);

/// Largest head of an answer, in bytes.
const HEAD_BYTES_MAX: usize = 65_536;
/// A stream in which nothing comes for so long is taken for broken: each 15 s there is a comment.
const STREAM_SILENCE: Duration = Duration::from_secs(60);

/// What the broker answered.
pub(crate) struct Answer {
    /// The HTTP status.
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Answer {
    /// The body of a good answer.
    pub(crate) fn ok(self) -> Result<String, Failure> {
        if (200..300).contains(&self.status) {
            return Ok(self.body);
        }
        Err(Failure::failed(match self.body.trim() {
            "" => format!("the broker answered {}", self.status),
            why => why.to_owned(),
        }))
    }
}

/// One request to the broker at `socket`, or else at the one that `PEERBUS_URL` names, or else at
/// the first of the usual sockets that answers, where one is started if need be.
pub(crate) fn request(
    socket: Option<&PathBuf>,
    method: &str,
    target: &str,
) -> Result<Answer, Failure> {
    reach(socket, &sockets(socket)?, |sockets| {
        over(sockets, method, target)
    })
}

/// Whether this process starts a broker; known from its first request on, because a stop that comes
/// later is meant for it.
static DEMAND: OnceLock<Demand> = OnceLock::new();

/// Tries it, and once more with a broker that is started, where none answers and one may be.
fn reach<T>(
    given: Option<&PathBuf>,
    sockets: &[PathBuf],
    attempt: impl Fn(&[PathBuf]) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let usual = given.is_none() && sockets == Paths::find()?.sockets;
    let demand = match (usual, DEMAND.get()) {
        (false, _) => &Demand::None,
        (true, Some(demand)) => demand,
        (true, None) => {
            let found = client::demand(&Flags::default())?;
            DEMAND.get_or_init(|| found)
        }
    };
    let failed = match attempt(sockets) {
        Err(failed) => failed,
        done => return done,
    };
    let starter = match demand {
        Demand::Start(starter) => starter,
        Demand::Never(never) => return Err(Failure::failed(format!("{failed} ({never})"))),
        Demand::None => return Err(failed),
    };
    if let Some(why) = starter.waits() {
        return Err(Failure::failed(why));
    }
    let deadline = Instant::now() + BUSY_MAX;
    loop {
        if let Tried::Failed(why) = starter.start() {
            return Err(Failure::failed(why));
        }
        match attempt(sockets) {
            Err(_) if Instant::now() < deadline => std::thread::sleep(AGAIN),
            done => return done,
        }
    }
}

/// Why there is no stream of events.
pub(crate) enum Streamless {
    /// What followed the cursor is not kept any more.
    Gone,
    /// The broker says no.
    Refused(Failure),
    /// There is no broker.
    Away(Failure),
}

/// A stream of events, behind a cursor if there is one.
pub(crate) fn stream(
    socket: Option<&PathBuf>,
    target: &str,
    cursor: Option<&str>,
) -> Result<BufReader<UnixStream>, Streamless> {
    let sockets = sockets(socket).map_err(Streamless::Refused)?;
    let stream = reach(socket, &sockets, connect).map_err(Streamless::Away)?;
    let gone = |error: std::io::Error| Streamless::Away(Failure::failed(error));
    let cursor = cursor.map(|cursor| format!("Last-Event-ID: {cursor}\r\n"));
    let cursor = cursor.unwrap_or_default();
    // 1.0: what comes is not cut into chunks.
    write!(
        &stream,
        "GET {target} HTTP/1.0\r\nHost: localhost\r\n{cursor}\r\n"
    )
    .map_err(gone)?;
    stream
        .set_read_timeout(Some(STREAM_SILENCE))
        .map_err(gone)?;
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if head.len() > HEAD_BYTES_MAX || stream.read_line(&mut head).map_err(gone)? == 0 {
            let why = "the broker's answer is not understood";
            return Err(Streamless::Away(Failure::failed(why)));
        }
    }
    match head.split(' ').nth(1) {
        Some("200") => Ok(stream),
        Some("410") => Err(Streamless::Gone),
        status => {
            let status = status.and_then(|status| status.parse().ok());
            let mut body = String::new();
            // What it says of the reason, if it says so.
            let _read = stream.take(ANSWER_BYTES_MAX).read_to_string(&mut body);
            let answer = Answer {
                status: status.unwrap_or_default(),
                body,
            };
            let why = answer.ok().err();
            let why = why.unwrap_or_else(|| Failure::failed("the broker gives no stream"));
            Err(match status {
                Some(503) => Streamless::Away(why),
                _ => Streamless::Refused(why),
            })
        }
    }
}

/// The socket that is given, or else that of `PEERBUS_URL`, or else the usual ones.
pub(crate) fn sockets(given: Option<&PathBuf>) -> Result<Vec<PathBuf>, Failure> {
    if let Some(path) = given {
        return Ok(vec![path.clone()]);
    }
    match named()? {
        Some(Url::Unix(path)) => Ok(vec![path]),
        Some(url) if !url.is_local() => Err(Failure::config(format!(
            "PEERBUS_URL names a broker elsewhere ({url}), and this is asked over the Unix socket \
             of a broker here: run it on that broker's machine, or name the socket of the one that \
             is meant: --socket PATH"
        ))),
        _ => Ok(Paths::find()?.sockets),
    }
}

/// A path as the value of a query.
pub(crate) fn encode(path: &Path) -> String {
    encode_bytes(path.as_os_str().as_encoded_bytes())
}

/// A text as the value of a query.
pub(crate) fn encode_text(text: &str) -> String {
    encode_bytes(text.as_bytes())
}

fn encode_bytes(bytes: &[u8]) -> String {
    let mut text = String::new();
    for &byte in bytes {
        match byte {
            b'/' | b'-' | b'.' | b'_' => text.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => text.push(char::from(byte)),
            _ => text += &format!("%{byte:02X}"),
        }
    }
    text
}

/// The broker that `PEERBUS_URL` names.
fn named() -> Result<Option<Url>, Failure> {
    let url = std::env::var("PEERBUS_URL").unwrap_or_default();
    let set = !url.is_empty();
    Ok(set.then(|| Url::parse(&url)).transpose()?)
}

/// One request to the first of these sockets that answers.
pub(crate) fn over(sockets: &[PathBuf], method: &str, target: &str) -> Result<Answer, Failure> {
    exchange(connect(sockets)?, method, target)
        .map_err(|error| Failure::failed(format!("the broker does not answer: {error}")))
}

fn connect(sockets: &[PathBuf]) -> Result<UnixStream, Failure> {
    let mut failures = Vec::new();
    for socket in sockets {
        match UnixStream::connect(socket) {
            Ok(stream) => return Ok(stream),
            Err(error) => failures.push(format!("{} ({error})", socket.display())),
        }
    }
    Err(Failure::failed(format!(
        "cannot reach the broker at {}; is `peerbus serve` running here? If it was started with \
         another XDG_RUNTIME_DIR or socket, name the path: --socket PATH, or \
         PEERBUS_URL=unix:PATH",
        failures.join(" nor at ")
    )))
}

fn exchange(mut stream: UnixStream, method: &str, target: &str) -> std::io::Result<Answer> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    write!(
        stream,
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )?;
    let mut bytes = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok(Answer {
        status: status.unwrap_or_default(),
        body: body.to_owned(),
    })
}
