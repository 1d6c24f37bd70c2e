//! An accepted socket, TCP or Unix.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};

use super::Acceptor;

/// Most bytes that are read of a client at one go before its first frame is whole: a request's head,
/// or a `register` and what else came with it.
const STRANGER_BYTES_MAX: usize = 16 * 1024;

/// A socket, shared by the HTTP layer, which reads and writes it, and its connection, which may
/// have to look after it once the WebSocket layer has given up.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Stream,
    /// It has become a WebSocket, whose deadlines are the connection's.
    upgraded: AtomicBool,
    /// It has sent a whole first frame.
    introduced: AtomicBool,
    /// Bytes read since something was last written, until then.
    unanswered: AtomicUsize,
    /// A frame is being written past the WebSocket layer, which must not write meanwhile.
    bypassed: AtomicBool,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub(super) fn tcp(stream: TcpStream) -> Self {
        // Pipelined small frames would wait for each other's TCP acks.
        let _unsupported = stream.set_nodelay(true);
        Self::new(Stream::Tcp(stream))
    }

    pub(super) fn unix(stream: UnixStream) -> Self {
        Self::new(Stream::Unix(stream))
    }

    fn new(stream: Stream) -> Self {
        Self {
            stream,
            upgraded: AtomicBool::new(false),
            introduced: AtomicBool::new(false),
            unanswered: AtomicUsize::new(0),
            bypassed: AtomicBool::new(false),
        }
    }

    /// Writes a text frame without a copy of its text. The WebSocket layer must have flushed
    /// before and must flush after; what it wants to write in between waits for that. A frame that
    /// is given up half-way leaves the socket good for nothing but closing.
    pub(crate) async fn write_text(&self, text: &str) -> io::Result<()> {
        self.bypassed.store(true, Ordering::Release);
        let head = text_frame_head(text.len());
        let (mut head, mut text) = (head.as_slice(), text.as_bytes());
        while !head.is_empty() || !text.is_empty() {
            poll_fn(|cx| self.poll_write_ready(cx)).await?;
            match self.try_write(&[io::IoSlice::new(head), io::IoSlice::new(text)]) {
                Ok(written) => {
                    let of_head = written.min(head.len());
                    head = &head[of_head..];
                    text = &text[written - of_head..];
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        self.bypassed.store(false, Ordering::Release);
        Ok(())
    }

    /// Whether a frame was given up half-way, or is being written.
    pub(crate) fn is_amid_frame(&self) -> bool {
        self.bypassed.load(Ordering::Acquire)
    }

    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self.stream, Stream::Tcp(_))
    }

    /// The first frame is there, whole: the limits of the WebSocket layer are enough from here on.
    pub(crate) fn set_introduced(&self) {
        self.introduced.store(true, Ordering::Release);
    }

    /// Counts what a stranger sends.
    fn count_read(&self, bytes: usize) -> io::Result<()> {
        if self.introduced.load(Ordering::Acquire) {
            return Ok(());
        }
        let before = self.unanswered.fetch_add(bytes, Ordering::AcqRel);
        if before + bytes > STRANGER_BYTES_MAX {
            let why = "more was sent than a request or a register frame may have";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        Ok(())
    }

    /// Ends the deadline for HTTP.
    pub(crate) fn set_upgraded(&self) {
        self.upgraded.store(true, Ordering::Release);
    }

    /// Reads and forgets until the client has closed its side.
    pub(crate) async fn discard(&self) {
        let mut bytes = vec![0; 16 * 1024];
        loop {
            let readable = poll_fn(|cx| self.poll_read_ready(cx));
            if readable.await.is_err() {
                return;
            }
            match self.try_read(&mut bytes) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.stream {
            Stream::Tcp(stream) => stream.poll_read_ready(cx),
            Stream::Unix(stream) => stream.poll_read_ready(cx),
        }
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.stream {
            Stream::Tcp(stream) => stream.poll_write_ready(cx),
            Stream::Unix(stream) => stream.poll_write_ready(cx),
        }
    }

    fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match &self.stream {
            Stream::Tcp(stream) => stream.try_read(bytes),
            Stream::Unix(stream) => stream.try_read(bytes),
        }
    }

    fn try_write(&self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match &self.stream {
            Stream::Tcp(stream) => stream.try_write_vectored(slices),
            Stream::Unix(stream) => stream.try_write_vectored(slices),
        }
    }
}

/// The head of an unmasked, unfragmented text frame (RFC 6455 §5.2).
fn text_frame_head(bytes: usize) -> Vec<u8> {
    const FINAL_TEXT: u8 = 0x81;
    let mut head = vec![FINAL_TEXT];
    match (u8::try_from(bytes), u16::try_from(bytes)) {
        (Ok(short @ ..=125), _) => head.push(short),
        (_, Ok(medium)) => {
            head.push(126);
            head.extend(medium.to_be_bytes());
        }
        (_, Err(_)) => {
            head.push(127);
            head.extend((bytes as u64).to_be_bytes());
        }
    }
    head
}

/// The HTTP layer's handle of a [`Socket`]. A socket that has not become a WebSocket in time
/// fails.
#[derive(Debug)]
pub(crate) struct Io {
    socket: Arc<Socket>,
    deadline: Option<Pin<Box<Sleep>>>,
    /// The socket's place among those that may be open.
    _place: Vec<OwnedSemaphorePermit>,
}

impl Io {
    pub(super) fn new(
        socket: Socket,
        http_max: Duration,
        place: Vec<OwnedSemaphorePermit>,
    ) -> Self {
        let deadline = Some(Box::pin(sleep(http_max)));
        Self {
            socket: Arc::new(socket),
            deadline,
            _place: place,
        }
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.socket.upgraded.load(Ordering::Acquire) {
            self.deadline = None;
        }
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "no HTTP request in time",
            ));
        }
        Ok(())
    }
}

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.poll_deadline(cx)?;
        loop {
            ready!(this.socket.poll_read_ready(cx))?;
            match this.socket.try_read(buf.initialize_unfilled()) {
                Ok(read) => {
                    buf.advance(read);
                    return Poll::Ready(this.socket.count_read(read));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.poll_deadline(cx)?;
        if this.socket.is_amid_frame() {
            // No waker is needed: whoever bypasses flushes afterwards.
            return Poll::Pending;
        }
        loop {
            ready!(this.socket.poll_write_ready(cx))?;
            match this.socket.try_write(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => {
                    this.socket.unanswered.store(0, Ordering::Release);
                    return Poll::Ready(done);
                }
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The socket is closed when its last handle goes, right after.
        Poll::Ready(Ok(()))
    }
}

/// Which socket a request came on.
#[derive(Debug, Clone)]
pub(crate) struct Via(pub(crate) Arc<Socket>);

impl Connected<IncomingStream<'_, Acceptor>> for Via {
    fn connect_info(stream: IncomingStream<'_, Acceptor>) -> Self {
        Self(Arc::clone(&stream.io().socket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_frames_use_the_shortest_length() {
        assert_eq!(text_frame_head(0), [0x81, 0]);
        assert_eq!(text_frame_head(125), [0x81, 125]);
        assert_eq!(text_frame_head(126), [0x81, 126, 0, 126]);
        assert_eq!(text_frame_head(65_535), [0x81, 126, 0xff, 0xff]);
        assert_eq!(text_frame_head(65_536), [0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
    }
}
