//! An accepted socket: TCP, with TLS or without, or Unix.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};
use tokio_rustls::TlsAcceptor;

use super::Acceptor;
use super::tls::{HANDSHAKE, TlsSocket, log_refused};
use crate::places::Silent;
use crate::shared::Shared;

/// Most bytes that are read of a client at one go before its first frame is whole: a request's head,
/// or a `register` and what else came with it.
const STRANGER_BYTES_MAX: usize = 16 * 1024;

/// A socket, shared by the HTTP layer, which reads and writes it, and its connection, which may
/// have to look after it once the WebSocket layer has given up.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Stream,
    shared: Arc<Shared>,
    /// It has become a WebSocket, whose deadlines are the connection's.
    upgraded: AtomicBool,
    /// It has sent a whole first frame.
    introduced: AtomicBool,
    /// Bytes read since something was last written, until then.
    unanswered: AtomicUsize,
    /// A frame is being written past the WebSocket layer, which must not write meanwhile.
    bypassed: AtomicBool,
    /// Over TCP: it may be closed until then.
    silent: Option<Arc<Silent>>,
}

/// What TLS needs stands apart: the others are not to grow by it.
#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsSocket>),
}

impl Socket {
    pub(super) fn tcp(stream: TcpStream, tls: Option<&TlsAcceptor>, shared: &Arc<Shared>) -> Self {
        // Pipelined small frames would wait for each other's TCP acks.
        let _unsupported = stream.set_nodelay(true);
        let stream = match tls {
            None => Stream::Tcp(stream),
            Some(tls) => {
                let tls = TlsSocket::new(tls.clone(), stream, Arc::clone(shared));
                Stream::Tls(Box::new(tls))
            }
        };
        Self {
            silent: Some(shared.places.arrive()),
            ..Self::new(stream, shared)
        }
    }

    pub(super) fn unix(stream: UnixStream, shared: &Arc<Shared>) -> Self {
        Self::new(Stream::Unix(stream), shared)
    }

    fn new(stream: Stream, shared: &Arc<Shared>) -> Self {
        Self {
            stream,
            shared: Arc::clone(shared),
            upgraded: AtomicBool::new(false),
            introduced: AtomicBool::new(false),
            unanswered: AtomicUsize::new(0),
            bypassed: AtomicBool::new(false),
            silent: None,
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
            let slices = [io::IoSlice::new(head), io::IoSlice::new(text)];
            let written = poll_fn(|cx| self.poll_write(cx, &slices)).await?;
            let of_head = written.min(head.len());
            head = &head[of_head..];
            text = &text[written - of_head..];
        }
        self.bypassed.store(false, Ordering::Release);
        Ok(())
    }

    /// Whether a frame was given up half-way, or is being written.
    pub(crate) fn is_amid_frame(&self) -> bool {
        self.bypassed.load(Ordering::Acquire)
    }

    pub(crate) fn is_tcp(&self) -> bool {
        !matches!(self.stream, Stream::Unix(_))
    }

    /// The process at the other end of a Unix socket.
    pub(crate) fn process(&self) -> Option<u32> {
        let Stream::Unix(stream) = &self.stream else {
            return None;
        };
        u32::try_from(stream.peer_cred().ok()?.pid()?).ok()
    }

    /// Whether the client speaks no TLS at a port that wants it.
    pub(crate) fn lacks_tls(&self) -> bool {
        matches!(&self.stream, Stream::Tls(tls) if tls.is_plain())
    }

    /// From where a machine may ask to be let in: with TLS its address, over the Unix socket, to which its
    /// user's own ssh brings it, no more than that.
    pub(crate) fn joins_from(&self) -> Option<String> {
        match &self.stream {
            Stream::Tls(tls) => Some(tls.peer()?.ip().to_canonical().to_string()),
            Stream::Unix(_) => Some("unix".to_owned()),
            Stream::Tcp(_) => None,
        }
    }

    /// The first frame is there, whole: the limits of the WebSocket layer are enough from here on.
    pub(crate) fn set_introduced(&self) {
        self.introduced.store(true, Ordering::Release);
        if let Some(silent) = &self.silent {
            silent.over();
        }
    }

    /// Counts what a stranger sends.
    fn count_read(&self, bytes: &[u8]) -> io::Result<()> {
        if self.introduced.load(Ordering::Acquire) {
            return Ok(());
        }
        let before = self.unanswered.fetch_add(bytes.len(), Ordering::AcqRel);
        if before == 0
            && bytes.first() == Some(&HANDSHAKE)
            && let Stream::Tcp(tcp) = &self.stream
        {
            let why = "it speaks TLS, and this port does not: use ws:// (or http://), or give the \
                       broker a certificate (--tls-cert, --tls-key)";
            log_refused(&self.shared, tcp, why);
        }
        if before + bytes.len() > STRANGER_BYTES_MAX {
            let why = "more was sent than a request or a register frame may have";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        Ok(())
    }

    /// Ends the deadline for HTTP.
    pub(crate) fn set_upgraded(&self) {
        self.upgraded.store(true, Ordering::Release);
        if let Some(silent) = &self.silent {
            silent.upgraded();
        }
    }

    /// Reads and forgets until the client has closed its side.
    pub(crate) async fn discard(&self) {
        let mut bytes = vec![0; 16 * 1024];
        while let Ok(1..) = poll_fn(|cx| self.poll_read(cx, &mut bytes)).await {}
    }

    fn poll_read(&self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            let read = match &self.stream {
                Stream::Tcp(stream) => {
                    ready!(stream.poll_read_ready(cx))?;
                    stream.try_read(bytes)
                }
                Stream::Unix(stream) => {
                    ready!(stream.poll_read_ready(cx))?;
                    stream.try_read(bytes)
                }
                Stream::Tls(tls) => return tls.poll_read(cx, bytes),
            };
            if !would_block(&read) {
                return Poll::Ready(read);
            }
        }
    }

    fn poll_write(
        &self,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            let written = match &self.stream {
                Stream::Tcp(stream) => {
                    ready!(stream.poll_write_ready(cx))?;
                    stream.try_write_vectored(slices)
                }
                Stream::Unix(stream) => {
                    ready!(stream.poll_write_ready(cx))?;
                    stream.try_write_vectored(slices)
                }
                Stream::Tls(tls) => return tls.poll_write(cx, slices),
            };
            if !would_block(&written) {
                return Poll::Ready(written);
            }
        }
    }
}

fn would_block(done: &io::Result<usize>) -> bool {
    matches!(done, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
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
    pub(super) fn new(socket: Socket, place: Vec<OwnedSemaphorePermit>) -> Self {
        let deadline = Some(Box::pin(sleep(socket.shared.times.http_max)));
        socket.shared.life.came();
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

impl Drop for Io {
    fn drop(&mut self) {
        self.socket.shared.life.left();
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
        if let Some(silent) = &this.socket.silent
            && !this.socket.introduced.load(Ordering::Acquire)
        {
            silent.poll_closed(cx)?;
        }
        let bytes = buf.initialize_unfilled();
        let read = ready!(this.socket.poll_read(cx, bytes))?;
        let counted = this.socket.count_read(&bytes[..read]);
        buf.advance(read);
        Poll::Ready(counted)
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
        let written = ready!(this.socket.poll_write(cx, slices));
        this.socket.unanswered.store(0, Ordering::Release);
        Poll::Ready(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.socket.stream {
            Stream::Tls(tls) => tls.poll_flush(cx),
            Stream::Tcp(_) | Stream::Unix(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.socket.stream {
            Stream::Tls(tls) => tls.poll_shutdown(cx),
            // The socket is closed when its last handle goes, right after.
            Stream::Tcp(_) | Stream::Unix(_) => Poll::Ready(Ok(())),
        }
    }
}

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
