//! `peerbus names`.

use std::path::PathBuf;

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
    let sockets = match &verb.socket {
        Some(path) => vec![path.clone()],
        None => Paths::find()?.sockets,
    };
    let answer = post(&sockets, &format!("/names/release?name={name}"))?;
    let status = answer.split(' ').nth(1).unwrap_or_default();
    if !status.starts_with('2') {
        return Err(Failure::failed(format!("the broker answered {status}")));
    }
    output::line(&format!(
        "the broker was told to free {name}: if it knows the name, the next token that registers it owns it"
    ))?;
    Ok(())
}

/// One HTTP request over the first socket that answers; gives the status line.
#[cfg(unix)]
fn post(sockets: &[PathBuf], target: &str) -> Result<String, Failure> {
    use std::os::unix::net::UnixStream;

    let mut failures = Vec::new();
    for socket in sockets {
        match UnixStream::connect(socket) {
            Ok(stream) => {
                return exchange(stream, target).map_err(|error| {
                    let socket = socket.display();
                    Failure::failed(format!("the broker at {socket} does not answer: {error}"))
                });
            }
            Err(error) => failures.push(format!("{} ({error})", socket.display())),
        }
    }
    Err(Failure::failed(format!(
        "cannot reach the broker at {}; is `peerbus serve` running here?",
        failures.join(" nor at ")
    )))
}

/// The broker frees names only over its Unix socket.
#[cfg(not(unix))]
fn post(_: &[PathBuf], _: &str) -> Result<String, Failure> {
    Err(Failure::config(
        "names are released over the broker's Unix socket, and this system has none: run this \
         command where the broker has one",
    ))
}

#[cfg(unix)]
fn exchange(mut stream: std::os::unix::net::UnixStream, target: &str) -> std::io::Result<String> {
    use std::io::{Read as _, Write as _};
    use std::time::Duration;

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
