//! Standard input and output without threads, where they are pipes or sockets.

use tokio::io::{AsyncRead, AsyncWrite};

/// What a client is read from.
pub type Input = Box<dyn AsyncRead + Unpin + Send>;
/// What a client is written to.
pub type Output = Box<dyn AsyncWrite + Unpin + Send>;

/// This process's standard input and output.
///
/// Pipes and Unix sockets (Node starts its children on the latter) are read by the runtime
/// itself. Anything else costs a thread that blocks in `read`: the process must then be ended by
/// `exit`, not by returning from the runtime.
#[must_use]
pub fn open() -> (Input, Output) {
    if let Some(pair) = sockets() {
        return pair;
    }
    let (input, output) = rmcp::transport::stdio_pipes();
    (Box::new(input), Box::new(output))
}

fn sockets() -> Option<(Input, Output)> {
    use std::os::fd::AsFd;
    let (input, input_id) = socket(std::io::stdin().as_fd())?;
    let (output, output_id) = socket(std::io::stdout().as_fd())?;
    // Non-blocking is a property of the socket, not of the descriptor: logs written to the same
    // one would be lost.
    if let Some((_, log_id)) = socket(std::io::stderr().as_fd())
        && (log_id == input_id || log_id == output_id)
    {
        return None;
    }
    Some((Box::new(stream(input)?), Box::new(stream(output)?)))
}

/// A socket, and what tells it from others.
fn socket(fd: std::os::fd::BorrowedFd<'_>) -> Option<(std::os::fd::OwnedFd, (u64, u64))> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let file = std::fs::File::from(fd.try_clone_to_owned().ok()?);
    let about = file.metadata().ok()?;
    let id = (about.dev(), about.ino());
    about.file_type().is_socket().then(|| (file.into(), id))
}

fn stream(fd: std::os::fd::OwnedFd) -> Option<tokio::net::UnixStream> {
    let stream = std::os::unix::net::UnixStream::from(fd);
    // Fails for sockets that are not Unix ones.
    stream.local_addr().ok()?;
    stream.set_nonblocking(true).ok()?;
    tokio::net::UnixStream::from_std(stream).ok()
}
