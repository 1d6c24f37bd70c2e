//! The operator's requests: HTTP over the broker's Unix socket, which only its user can reach.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use peerbus_adapter::Url;
use peerbus_adapter::paths::Paths;

use crate::failure::Failure;

/// Largest answer that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 8 * 1024 * 1024;

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
/// the first of the usual sockets that answers.
pub(crate) fn request(
    socket: Option<&PathBuf>,
    method: &str,
    target: &str,
) -> Result<Answer, Failure> {
    let sockets = match socket {
        Some(path) => vec![path.clone()],
        None => match named()? {
            Some(Url::Unix(path)) => vec![path],
            Some(url) if !url.is_local() => {
                return Err(Failure::config(format!(
                    "PEERBUS_URL names a broker elsewhere ({url}), and this is asked over the \
                     Unix socket of a broker here: run it on that broker's machine, or name the \
                     socket of the one that is meant: --socket PATH"
                )));
            }
            _ => Paths::find()?.sockets,
        },
    };
    over(&sockets, method, target)
}

/// A path as the value of a query.
pub(crate) fn encode(path: &Path) -> String {
    let mut text = String::new();
    for &byte in path.as_os_str().as_encoded_bytes() {
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

fn over(sockets: &[PathBuf], method: &str, target: &str) -> Result<Answer, Failure> {
    let mut failures = Vec::new();
    for socket in sockets {
        match UnixStream::connect(socket) {
            Ok(stream) => {
                return exchange(stream, method, target).map_err(|error| {
                    let socket = socket.display();
                    Failure::failed(format!("the broker at {socket} does not answer: {error}"))
                });
            }
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
