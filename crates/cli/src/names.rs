//! `peerbus names`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use peerbus_adapter::paths::Paths;
use peerbus_wire::PeerName;

use crate::args::{Names, NamesRelease};
use crate::failure::Failure;
use crate::output;

/// Runs a `names` verb.
pub(crate) fn run(verb: Names) -> Result<(), Failure> {
    match verb {
        Names::Release(verb) => release(&verb),
    }
}

fn release(verb: &NamesRelease) -> Result<(), Failure> {
    let name = PeerName::parse(&verb.name).map_err(Failure::config)?;
    let socket = match &verb.socket {
        Some(path) => path.clone(),
        None => Paths::find()?.socket,
    };
    let answer = post(&socket, &format!("/names/release?name={name}")).map_err(|error| {
        Failure::failed(format!(
            "cannot reach the broker at {}: {error}; is `peerbus serve` running here?",
            socket.display()
        ))
    })?;
    let status = answer.split(' ').nth(1).unwrap_or_default();
    if !status.starts_with('2') {
        return Err(Failure::failed(format!("the broker answered {status}")));
    }
    output::line(&format!(
        "the broker was told to free {name}: if it knows the name, the next token that registers it owns it"
    ))?;
    Ok(())
}

/// One HTTP request over the broker's socket; gives the status line.
fn post(socket: &Path, target: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    write!(
        stream,
        "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.take(65_536).read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
