//! An accepted socket, TCP or Unix.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};

use super::Acceptor;

/// A socket, shared by the HTTP layer, which reads and writes it, and its connection, which may
/// have to look after it once the WebSocket layer has given up.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Stream,
    /// It has become a WebSocket, whose deadlines are the connection's.
    upgraded: AtomicBool,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Socket {
    pub(super) fn tcp(stream: TcpStream) -> Self {
        // Pipelined small frames would wait for each other's TCP acks.
        let _unsupported = stream.set_nodelay(true);
        Self {
            stream: Stream::Tcp(stream),
            upgraded: AtomicBool::new(false),
        }
    }

    #[cfg(unix)]
    pub(super) fn unix(stream: UnixStream) -> Self {
        Self {
            stream: Stream::Unix(stream),
            upgraded: AtomicBool::new(false),
        }
    }

    /// Ends the deadline for HTTP.
    pub(crate) fn set_upgraded(&self) {
        self.upgraded.store(true, Ordering::Release);
    }

    /// Reads and forgets until the client has closed its side.
    pub(crate) async fn discard(&self) {
        let mut bytes = vec![0; 16 * 1024];
        loop {
            let readable = std::future::poll_fn(|cx| self.poll_read_ready(cx));
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
            #[cfg(unix)]
            Stream::Unix(stream) => stream.poll_read_ready(cx),
        }
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.stream {
            Stream::Tcp(stream) => stream.poll_write_ready(cx),
            #[cfg(unix)]
            Stream::Unix(stream) => stream.poll_write_ready(cx),
        }
    }

    fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match &self.stream {
            Stream::Tcp(stream) => stream.try_read(bytes),
            #[cfg(unix)]
            Stream::Unix(stream) => stream.try_read(bytes),
        }
    }

    fn try_write(&self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match &self.stream {
            Stream::Tcp(stream) => stream.try_write_vectored(slices),
            #[cfg(unix)]
            Stream::Unix(stream) => stream.try_write_vectored(slices),
        }
    }
}

/// The HTTP layer's handle of a [`Socket`]. A socket that has not become a WebSocket in time
/// fails.
#[derive(Debug)]
pub(crate) struct Io {
    socket: Arc<Socket>,
    deadline: Option<Pin<Box<Sleep>>>,
    /// The socket's place among those that may be open.
    _place: OwnedSemaphorePermit,
}

impl Io {
    pub(super) fn new(socket: Socket, http_max: Duration, place: OwnedSemaphorePermit) -> Self {
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
                    return Poll::Ready(Ok(()));
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
        loop {
            ready!(this.socket.poll_write_ready(cx))?;
            match this.socket.try_write(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
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
