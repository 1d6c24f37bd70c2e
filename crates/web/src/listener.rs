//! Listening, with a deadline for whoever connects.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use peerbus_os::tcp;
use peerbus_os::tls::{self, ServerTls};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::other::Ends;
use crate::strangers::{Stranger, Strangers};

const CONNECTIONS_MAX: usize = 512;
/// How long a TLS handshake and a request's head may take.
const HEAD: Duration = Duration::from_secs(10);
/// Largest head of a request, in bytes: of anybody who sends one, so much is held.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// How long a client may take nothing of what is written to it. Without an end, as many as there are
/// places for, that ask and do not read, would keep everybody else out.
const STALLED: Duration = Duration::from_secs(10);
/// How long the other end's machine may confirm nothing: a stream that it left behind keeps its place
/// until then.
const GONE: Duration = Duration::from_secs(30);
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

pub(crate) struct Bound {
    listener: TcpListener,
    /// Where it listens, with its real port.
    pub(crate) address: SocketAddr,
    tls: Option<TlsAcceptor>,
}

impl Bound {
    pub(crate) async fn new(
        address: SocketAddr,
        files: Option<&ServerTls>,
    ) -> Result<Self, String> {
        if files.is_none() && !address.ip().is_loopback() {
            return Err(format!(
                "{address} can be reached from other machines, and what is sent there can be read on \
                 the way: give a certificate (--tls-cert, --tls-key), or listen on 127.0.0.1"
            ));
        }
        let tls = files.map(tls::server).transpose()?;
        let failed = |error: io::Error| {
            format!("cannot listen on {address}: {error}; name another address with --listen")
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener,
            address,
            tls: tls.map(|tls| TlsAcceptor::from(Arc::new(tls))),
        })
    }

    pub(crate) async fn serve(self, router: Router) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let strangers = Arc::new(Strangers::default());
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::debug!(%error, "a connection was not accepted");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            if places.available_permits() == 0 {
                strangers.close_oldest();
            }
            // Never closed.
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            let (tls, router) = (self.tls.clone(), router.clone());
            strangers.spawn(|stranger| async move {
                converse(stream, tls, router, stranger).await;
                drop(place);
            });
        }
    }
}

async fn converse(stream: TcpStream, tls: Option<TlsAcceptor>, router: Router, stranger: Stranger) {
    tcp::end_when_unconfirmed(&stream, GONE);
    let ends = Ends::of(&stream);
    let stream = Patient {
        stream,
        stalled: None,
    };
    let Some(tls) = tls else {
        return serve(stream, router, stranger, ends).await;
    };
    match timeout(HEAD, tls.accept(stream)).await {
        Ok(Ok(stream)) => serve(stream, router, stranger, ends).await,
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_late) => tracing::debug!("a TLS handshake took too long"),
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    router: Router,
    stranger: Stranger,
    ends: Ends,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(stranger.clone());
        request.extensions_mut().insert(ends);
        router.call(request)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection ended");
    }
}

/// A connection that ends when its other end has taken nothing for too long.
struct Patient {
    stream: TcpStream,
    /// Until when it may go on, while it takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    fn within<T>(
        &mut self,
        cx: &mut Context<'_>,
        done: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.stalled = None;
            return done;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(STALLED)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.within(cx, done)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
