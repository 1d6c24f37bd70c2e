//! What the broker says of itself over HTTP.

use std::io::{Read, Result, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use peerbus_adapter::Url;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(3);
/// More than any answer has.
const ANSWER_BYTES_MAX: u64 = 65_536;

/// The members of `GET /healthz`.
pub(super) fn ask(url: &Url) -> Option<Value> {
    let answer = match url {
        Url::Tcp { host, port, .. } => {
            let address = (host.as_str(), *port).to_socket_addrs().ok()?.next()?;
            let stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
            stream.set_read_timeout(Some(PATIENCE)).ok()?;
            exchange(stream, &address.to_string())
        }
        Url::Unix(path) => unix(path),
    };
    let answer = answer.ok()?;
    let body = answer.split_once("\r\n\r\n")?.1;
    let (from, to) = (body.find('{')?, body.rfind('}')?);
    serde_json::from_str(body.get(from..=to)?).ok()
}

fn unix(path: &std::path::Path) -> Result<String> {
    let stream = std::os::unix::net::UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    exchange(stream, "localhost")
}

fn exchange(mut stream: impl Read + Write, host: &str) -> Result<String> {
    write!(
        stream,
        "GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
