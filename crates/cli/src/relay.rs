//! `peerbus relay`: the broker's end of a connection over ssh. The login that runs it may do more than that.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};

use peerbus_adapter::Failure;

use crate::operator;

/// Bytes that are carried at a time.
const BUFFER: usize = 64 * 1_024;

pub(crate) fn run() -> Result<(), Failure> {
    let mut broker = operator::connection()?;
    // Both without a buffer of their own.
    let (input, out) = (io::stdin(), io::stdout());
    let own = |fd: io::Result<OwnedFd>| fd.map(File::from).map_err(Failure::failed);
    let mut input = own(input.as_fd().try_clone_to_owned())?;
    let mut out = own(out.as_fd().try_clone_to_owned())?;
    let mut to_broker = broker.try_clone().map_err(Failure::failed)?;
    let thread = std::thread::Builder::new().name("peerbus-relay".into());
    let reads = move || {
        let _ended = carry(&mut input, &mut to_broker);
        // The broker ends the connection then, and the other half with it.
        let _gone = to_broker.shutdown(Shutdown::Write);
    };
    thread.spawn(reads).map_err(Failure::failed)?;
    match carry(&mut broker, &mut out) {
        Ok(()) => Ok(()),
        // Nobody is there to be told.
        Err(_) => Err(Failure::OutputClosed),
    }
}

/// Not `io::copy`: that splices a pipe's own pages into the socket, and the broker was seen to read other bytes there.
fn carry(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut bytes = vec![0; BUFFER];
    loop {
        match from.read(&mut bytes)? {
            0 => return Ok(()),
            read => to.write_all(bytes.get(..read).unwrap_or_default())?,
        }
    }
}
