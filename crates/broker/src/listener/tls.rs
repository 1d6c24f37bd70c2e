//! A TCP socket whose client is to speak TLS.
//!
//! The handshake is part of the first read: it holds up nobody but its own client, within the
//! deadline that a socket has for its HTTP request, and at its place among the open sockets.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use peerbus_os::sync::lock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::{FallibleAccept, TlsStream};

use crate::log_limit::Kind;
use crate::shared::Shared;
use crate::tls::explain;

/// The first byte of a TLS handshake (RFC 8446 §5.1).
pub(super) const HANDSHAKE: u8 = 0x16;

pub(super) struct TlsSocket {
    state: Mutex<State>,
    shared: Arc<Shared>,
}

enum State {
    New(TlsAcceptor, TcpStream),
    Handshake(FallibleAccept<TcpStream>),
    Open(TlsStream<TcpStream>),
    /// The client speaks no TLS. HTTP tells it so.
    Plain(TcpStream),
    /// The handshake failed. What the client still sends is read, because closing before would
    /// take the alert away that says why.
    Failed(TcpStream),
    Over,
}

/// What HTTP reads and writes.
trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

impl TlsSocket {
    pub(super) fn new(acceptor: TlsAcceptor, tcp: TcpStream, shared: Arc<Shared>) -> Self {
        Self {
            state: Mutex::new(State::New(acceptor, tcp)),
            shared,
        }
    }

    pub(super) fn is_plain(&self) -> bool {
        let state = lock(&self.state);
        matches!(*state, State::Plain(_))
    }

    /// The client's address, once the handshake is over.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        match &*lock(&self.state) {
            State::Open(stream) => stream.get_ref().0.peer_addr().ok(),
            _ => None,
        }
    }

    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_with(cx, |stream, cx| {
            let mut buf = ReadBuf::new(bytes);
            ready!(Pin::new(stream).poll_read(cx, &mut buf))?;
            Poll::Ready(Ok(buf.filled().len()))
        })
    }

    pub(super) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_with(cx, |stream, cx| {
            Pin::new(stream).poll_write_vectored(cx, slices)
        })
    }

    pub(super) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_with(cx, |stream, cx| Pin::new(stream).poll_flush(cx))
    }

    /// Says that nothing more comes, so that the client knows that it has everything.
    pub(super) fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_with(cx, |stream, cx| Pin::new(stream).poll_shutdown(cx))
    }

    /// Does something with the stream, after the handshake.
    fn poll_with<T>(
        &self,
        cx: &mut Context<'_>,
        act: impl FnOnce(&mut dyn Stream, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let mut state = lock(&self.state);
        loop {
            let next = match &mut *state {
                State::Open(stream) => return act(stream, cx),
                State::Plain(stream) => return act(stream, cx),
                State::Over => return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
                State::New(_, tcp) => {
                    let first = ready!(poll_first(tcp, cx))?;
                    match std::mem::replace(&mut *state, State::Over) {
                        State::New(acceptor, tcp) if first == HANDSHAKE => {
                            State::Handshake(acceptor.accept(tcp).into_fallible())
                        }
                        State::New(_, tcp) => {
                            let why = "it speaks no TLS, and this port speaks nothing else: use \
                                       wss:// (or https://)";
                            log_refused(&self.shared, &tcp, why);
                            State::Plain(tcp)
                        }
                        state => state,
                    }
                }
                State::Handshake(handshake) => match ready!(Pin::new(handshake).poll(cx)) {
                    Ok(stream) => State::Open(stream),
                    Err((error, mut tcp)) => {
                        if let Some(why) = explain(&error) {
                            log_refused(&self.shared, &tcp, &why);
                        }
                        // It may be gone; then the next read says so.
                        let _sent = Pin::new(&mut tcp).poll_shutdown(cx);
                        State::Failed(tcp)
                    }
                },
                State::Failed(tcp) => {
                    ready!(poll_discard(tcp, cx));
                    State::Over
                }
            };
            *state = next;
        }
    }
}

impl fmt::Debug for TlsSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSocket").finish_non_exhaustive()
    }
}

/// Logs why a client got no further.
pub(super) fn log_refused(shared: &Shared, tcp: &TcpStream, why: &str) {
    shared.metrics.unsecured.inc();
    if shared.log.admit(Kind::Tls, shared.clock.mono_ms()) {
        let client = tcp.peer_addr().map(|address| address.to_string());
        let client = client.unwrap_or_default();
        tracing::info!(client, why, "no connection");
    }
}

fn poll_first(tcp: &TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<u8>> {
    let mut first = [0];
    let mut buf = ReadBuf::new(&mut first);
    match ready!(tcp.poll_peek(cx, &mut buf))? {
        0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
        _ => Poll::Ready(Ok(first[0])),
    }
}

/// Reads until the client has closed its side.
fn poll_discard(tcp: &mut TcpStream, cx: &mut Context<'_>) -> Poll<()> {
    let mut bytes = [0; 1_024];
    loop {
        let mut buf = ReadBuf::new(&mut bytes);
        match ready!(Pin::new(&mut *tcp).poll_read(cx, &mut buf)) {
            Ok(()) if !buf.filled().is_empty() => {}
            _ => return Poll::Ready(()),
        }
    }
}
