//! One request to a broker at its Unix socket, and what an answer says.

use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use std::time::Duration;

use peerbus_os::process;
use peerbus_view::span;
use peerbus_wire::escape;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(3);
const ANSWER_BYTES_MAX: u64 = 65_536;
/// Longest text about the broker's start, in characters.
const STARTED_CHARS: usize = 300;
/// Within so many milliseconds peers find a new broker, as a rule.
const BACK_WITHIN_MS: u64 = 10_000;

/// Asks. Gives the status of the answer and its body.
///
/// # Errors
///
/// When there is no answer within 3 s.
pub async fn ask(socket: &Path, method: &str, target: &str) -> Result<(u16, String)> {
    let asked = async {
        let stream = UnixStream::connect(socket).await?;
        peerbus_os::socket::check_listener(&stream)?;
        ask_over(stream, "localhost", method, target).await
    };
    timeout(PATIENCE, asked).await?
}

/// Asks over a stream that serves for nothing else, of a host as a URL names it. What came before an
/// end without a word counts.
///
/// # Errors
///
/// When the stream breaks before there is an answer, or that is no HTTP.
pub async fn ask_over(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    method: &str,
    target: &str,
) -> Result<(u16, String)> {
    stream.write_all(&request(host, method, target)).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    let read = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await;
    match (status_and_body(&answer), read) {
        (Some(answer), _) => Ok(answer),
        (None, Err(error)) => Err(error),
        (None, Ok(_)) => Err(Error::new(ErrorKind::InvalidData, "it speaks no HTTP")),
    }
}

pub(crate) fn request(host: &str, method: &str, target: &str) -> Vec<u8> {
    format!(
        "{method} {target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    .into_bytes()
}

/// What a whole answer says. `None`: it is no HTTP.
pub(crate) fn status_and_body(answer: &[u8]) -> Option<(u16, String)> {
    let text = String::from_utf8_lossy(answer);
    let status = text.split(' ').nth(1)?.parse().ok()?;
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Some((status, body.to_owned()))
}

/// What a broker found of names that nobody can use, from what it answers to `GET /broker`.
#[must_use]
pub fn unadmitted(about: &str) -> Option<String> {
    let about: Value = serde_json::from_str(about).ok()?;
    let names = about["unadmitted"].as_u64().filter(|names| *names > 0)?;
    let names = if names == 1 {
        "1 name".into()
    } else {
        format!("{names} names")
    };
    Some(format!(
        "the database had {names} of other tokens than the broker admitted when it started: nobody \
         could use them, or read the mail for them"
    ))
}

/// The starter of a broker, without its process where that has ended: a command is gone at once.
fn living(started: &str) -> &str {
    let told = started.rsplit_once(", process ");
    let told = told.and_then(|(who, pid)| Some((who, pid.parse().ok()?)));
    match told {
        Some((who, pid)) if !process::exists(pid) => who,
        _ => started,
    }
}

/// Whether a broker began so short a time ago that peers of the one before it may not be back, from what it
/// answers to `GET /broker`.
#[must_use]
pub fn has_just_begun(about: &str) -> bool {
    let about: Value = serde_json::from_str(about).unwrap_or_default();
    let ago_ms = about["started_ms_ago"].as_u64();
    ago_ms.is_some_and(|ago_ms| ago_ms < BACK_WITHIN_MS)
}

/// How a broker came to be, and when, from what it answers to `GET /broker`.
#[must_use]
pub fn came_to_be(about: &str) -> Option<String> {
    let about: Value = serde_json::from_str(about).ok()?;
    let started = escape(living(about["started"].as_str()?), STARTED_CHARS);
    let version = escape(about["version"].as_str()?, STARTED_CHARS);
    let ago = span(about["started_ms_ago"].as_u64()? / 1_000);
    Some(format!("version {version}, started {started}, {ago} ago"))
}
