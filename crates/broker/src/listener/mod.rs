//! Listening: TCP and Unix sockets behind one acceptor.

mod bind;
mod given;
mod socket;
mod tls;
mod unix;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

pub(crate) use self::bind::{Places, check_loopback, listen_at};
pub(crate) use self::socket::{Socket, Via};
use self::unix::UnixPlace;
use crate::options::BrokerStartError;
use crate::places;
use crate::shared::Shared;

/// Sockets that may be open beyond the connections: for health checks, metrics and refusals.
const SOCKETS_SPARE: usize = 256;
/// Clients that may dial at one moment, when the broker is back for instance. The usual 128 would
/// make the others wait a second for their next attempt.
pub(crate) const BACKLOG: u32 = 4_096;
/// Pause after an accept that failed for want of resources.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Binds a TCP listener. Gives its real address, too.
fn bind_tcp(address: SocketAddr) -> Result<(TcpListener, SocketAddr), BrokerStartError> {
    let bound = listen_tcp(address).and_then(|listener| {
        let actual = listener.local_addr()?;
        Ok((listener, actual))
    });
    bound.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BrokerStartError::PortInUse(address),
        _ => BrokerStartError::Listen { address, source },
    })
}

fn listen_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    // A port that the last broker's connections still linger on is free for this one.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Where requests come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Site {
    /// A TCP listener.
    Tcp(SocketAddr),
    /// The Unix socket: the operator's.
    Unix,
}

#[derive(Debug)]
pub(crate) enum Bound {
    Tcp(TcpListener),
    Unix(UnixPlace),
}

/// Accepts sockets, as many as may be open at once, each with a deadline for its request.
pub(crate) struct Acceptor {
    bound: Bound,
    /// What clients over TCP must speak.
    tls: Option<TlsAcceptor>,
    places: Vec<Arc<Semaphore>>,
    shared: Arc<Shared>,
}

impl Acceptor {
    /// Acceptors for these listeners, which share their places. TCP leaves some to the Unix socket.
    pub(crate) fn all(
        bound: impl IntoIterator<Item = (Bound, Option<TlsAcceptor>)>,
        shared: &Arc<Shared>,
    ) -> impl Iterator<Item = Self> {
        let sockets = shared.places.max + SOCKETS_SPARE;
        let all = Arc::new(Semaphore::new(sockets));
        let tcp = Arc::new(Semaphore::new(sockets - places::Places::of_unix(sockets)));
        bound.into_iter().map(move |(bound, tls)| Self {
            places: match &bound {
                Bound::Tcp(_) => vec![Arc::clone(&tcp), Arc::clone(&all)],
                Bound::Unix(_) => vec![Arc::clone(&all)],
            },
            bound,
            tls,
            shared: Arc::clone(shared),
        })
    }

    async fn accept_one(&mut self) -> io::Result<Socket> {
        match &mut self.bound {
            Bound::Tcp(listener) => {
                let (stream, _) = TcpListener::accept(listener).await?;
                Ok(Socket::tcp(stream, self.tls.as_ref(), &self.shared))
            }
            Bound::Unix(place) => {
                let shared = &self.shared;
                let stream = place.accept(|path| shared.name_socket(path)).await?;
                unix::check_peer(&stream)?;
                Ok(Socket::unix(stream, &self.shared))
            }
        }
    }
}

impl Listener for Acceptor {
    type Io = socket::Io;
    type Addr = ();

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let mut place = Vec::with_capacity(self.places.len());
            for places in &self.places {
                if places.available_permits() == 0 {
                    self.shared.places.close_silent();
                }
                match Arc::clone(places).acquire_owned().await {
                    Ok(one) => place.push(one),
                    // Never closed.
                    Err(_closed) => std::future::pending().await,
                }
            }
            match self.accept_one().await {
                Ok(socket) => return (socket::Io::new(socket, place), ()),
                Err(error) if is_about_one_client(&error) => {
                    tracing::debug!(%error, "connection refused");
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections; trying again in a second");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(())
    }
}

fn is_about_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::PermissionDenied
    )
}

/// Raises the soft limit of open files, which bounds the connections before our own limit does, to the
/// hard one and returns it; `None` where there is no limit.
pub(crate) fn raise_file_limit() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return limit.current;
    }
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_refused) => limit.current,
    }
}
