//! From a URL to an open WebSocket.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use peerbus_os::{socket, user};
pub use peerbus_peer::session::UNUSABLE;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::http::StatusCode;
use tokio_tungstenite::tungstenite::http::header::SERVER;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config, tungstenite};

use crate::credentials::CredentialsError;
use crate::demand::{Demand, with_named};
use crate::ssh;
use crate::stopped::check_awake;
use crate::tls::{TlsFiles, Unusable};
use crate::url::{DEFAULT_URL, Url};

/// Time to reach one address and to finish its WebSocket handshake.
const CONNECT: Duration = Duration::from_secs(5);
/// Largest message that is read. A v1 broker may send more than a frame may have, because what it
/// carries grows up to six times by escaping; that message is then rejected, not the connection.
const MESSAGE_BYTES_MAX: usize = 8 * peerbus_wire::limits::FRAME_BYTES_MAX;
/// Bytes read at once. Small, because most connections are idle.
const READ_BUFFER: usize = 16 * 1_024;

/// A byte stream to a broker.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// An open WebSocket.
pub type Socket = WebSocketStream<Box<dyn Stream>>;

/// Where a broker may be, in the order in which to try. Any program can listen on a TCP port, so a
/// token from the file goes only to sockets, which belong to this user; one from the environment
/// (`as_v1`) goes to v1's default address too, as in v1.
pub(crate) fn candidates(url: Option<&Url>, sockets: &[PathBuf], as_v1: bool) -> Vec<Url> {
    if let Some(url) = url {
        return vec![url.clone()];
    }
    let sockets = with_named(sockets).into_iter();
    let there = sockets.filter(|path| path.exists());
    there
        .map(Url::Unix)
        .chain(Url::parse(DEFAULT_URL).ok().filter(|_| as_v1))
        .collect()
}

pub(crate) struct Dialed<'u> {
    pub(crate) socket: Socket,
    pub(crate) url: &'u Url,
    /// Its version, if it says so.
    pub(crate) version: Option<String>,
}

/// Why there is no connection to a broker.
#[derive(Debug)]
pub(crate) enum Unreached {
    NoCredentials(CredentialsError),
    NoBroker {
        /// It would be on this machine.
        local: bool,
        why: String,
        /// Nothing answers there, and it is this user's usual place.
        absent: bool,
    },
}

/// Connects to the first of `urls` that answers. `sockets` is where one was looked for.
pub(crate) async fn dial<'u>(
    urls: &'u [Url],
    sockets: &[PathBuf],
    tls: &TlsFiles,
    demand: &Demand,
) -> Result<Dialed<'u>, Unreached> {
    let local = urls.iter().all(Url::is_local);
    let unreached = |why, absent| Err(Unreached::NoBroker { local, why, absent });
    if urls.is_empty() {
        return unreached(nowhere(sockets, demand), true);
    }
    let mut failures = Vec::new();
    for url in urls {
        match timeout(patience(url), open(url, tls)).await {
            Ok(Ok((socket, version))) => {
                return Ok(Dialed {
                    socket,
                    url,
                    version,
                });
            }
            Ok(Err(Failure::Unusable(why))) => {
                return unreached(format!("{UNUSABLE}{url}: {why}"), false);
            }
            Ok(Err(Failure::Absent(why))) => failures.push(format!("{url} ({why})")),
            Err(_) => failures.push(format!("{url} ({})", silent(url))),
        }
    }
    let places = failures.join(" nor at ");
    let hint = match urls {
        // Its machine has said why.
        [Url::Ssh(_)] => String::new(),
        _ => format!(": is `peerbus serve` running?{}", never(demand)),
    };
    let why = format!("no broker at {places}{hint}");
    unreached(why, true)
}

/// How long a broker there may take to answer.
fn patience(url: &Url) -> Duration {
    match url {
        Url::Ssh(_) => ssh::LOGS_IN,
        _ => CONNECT,
    }
}

/// What is there that took a connection and does not answer.
fn silent(url: &Url) -> String {
    let silent = format!("no answer within {} s", patience(url).as_secs());
    let Url::Unix(path) = url else {
        return silent;
    };
    let stream = socket::connect(path).ok();
    match stream.and_then(|stream| socket::listener(&stream)) {
        Some((pid, _)) => format!("{silent} of process {pid}, which listens there"),
        None => silent,
    }
}

/// Fails where another user listens at a socket; root may, for a service manager.
pub(crate) fn check_user(stream: &impl AsFd) -> io::Result<()> {
    match socket::listener(stream) {
        Some((_, 0)) => Ok(()),
        _ if user::id() == 0 => Ok(()),
        _ => socket::check_listener(stream),
    }
}

/// Why none is started, if somebody may wonder.
pub(crate) fn never(demand: &Demand) -> String {
    match demand {
        Demand::Never(never) => format!(" ({never})"),
        _ => String::new(),
    }
}

/// What to say when no socket is there.
fn nowhere(sockets: &[PathBuf], demand: &Demand) -> String {
    let looked: Vec<_> = sockets
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let looked = match looked.as_slice() {
        [] => String::new(),
        looked => format!(" (no socket at {})", looked.join(" nor at ")),
    };
    format!(
        "no broker is running here{looked}: start one with `peerbus serve`{}. If one runs with \
         another database and another socket, set PEERBUS_URL=unix:PATH to that socket's path",
        never(demand)
    )
}

/// Why there is no connection.
enum Failure {
    /// There is no broker, as far as can be seen.
    Absent(String),
    /// What is there cannot be used like this.
    Unusable(Unusable),
}

impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Absent(why) => why,
            Failure::Unusable(why) => why.to_string(),
        }
    }
}

impl From<Unusable> for Failure {
    fn from(why: Unusable) -> Self {
        Self::Unusable(why)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Absent(plain(&error))
    }
}

/// Connects to what is at `url`, with TLS if it says so. Waits without a bound.
///
/// # Errors
///
/// A sentence that says why that failed.
pub async fn reach(url: &Url, tls: &TlsFiles) -> Result<Box<dyn Stream>, String> {
    Ok(connect(url, tls).await?)
}

/// Opens a WebSocket to what is at `url`. Waits without a bound.
///
/// # Errors
///
/// A sentence that says why that failed.
pub async fn open_socket(url: &Url, tls: &TlsFiles) -> Result<Socket, String> {
    Ok(open(url, tls).await?.0)
}

async fn connect(url: &Url, tls: &TlsFiles) -> Result<Box<dyn Stream>, Failure> {
    Ok(match url {
        Url::Unix(path) => {
            let stream = UnixStream::connect(path).await?;
            check_user(&stream)?;
            check_awake(&stream)?;
            Box::new(stream)
        }
        Url::Tcp {
            tls: true,
            host,
            port,
            pin,
            ..
        } => {
            // Files that are of no use are named whether or not somebody answers.
            let connector = tls.connector(*pin)?;
            let tcp = dial_tcp(host, *port).await?;
            // Its state is large, and most adapters have none.
            Box::new(Box::pin(tls.connect(connector, host, tcp)).await?)
        }
        Url::Tcp { host, port, .. } => Box::new(dial_tcp(host, *port).await?),
        Url::Ssh(to) => Box::new(ssh_to(to).await?.0),
    })
}

/// Gives the version that the broker says, too.
async fn open(url: &Url, tls: &TlsFiles) -> Result<(Socket, Option<String>), Failure> {
    let Url::Ssh(to) = url else {
        return shake(url, tls, connect(url, tls).await?).await;
    };
    let (stream, login) = ssh_to(to).await?;
    match shake(url, tls, Box::new(stream)).await {
        Err(odd) => Err(login.ended().await.map_or_else(Failure::Absent, |()| odd)),
        open => open,
    }
}

async fn ssh_to(to: &str) -> Result<(UnixStream, ssh::Login<'_>), Failure> {
    ssh::start(to, ssh::RELAY).await.map_err(Failure::Absent)
}

/// Shakes hands over a stream.
async fn shake(
    url: &Url,
    tls: &TlsFiles,
    stream: Box<dyn Stream>,
) -> Result<(Socket, Option<String>), Failure> {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    match client_async_with_config(url.request(), stream, Some(config)).await {
        Ok((socket, response)) => {
            let said = response
                .headers()
                .get(SERVER)
                .and_then(|said| said.to_str().ok());
            let version = said.and_then(|said| said.strip_prefix("peerbus/"));
            Ok((socket, version.map(str::to_owned)))
        }
        Err(tungstenite::Error::Http(response)) => match response.status() {
            StatusCode::UPGRADE_REQUIRED => {
                let remedy = "use wss:// instead of ws://";
                Err(Unusable::new("it speaks TLS", remedy).into())
            }
            status => Err(Failure::Absent(format!(
                "it answered HTTP {} instead of a WebSocket",
                status.as_u16()
            ))),
        },
        Err(tungstenite::Error::Io(error)) => match tls.explain(&error) {
            Some(why) => Err(why.into()),
            None => Err(error.into()),
        },
        Err(_) => Err(Failure::Absent(
            "what listens there does not speak WebSocket".into(),
        )),
    }
}

async fn dial_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = None;
    for address in tokio::net::lookup_host((host, port)).await? {
        match TcpStream::connect(address).await {
            Ok(stream) if leads_back(stream.local_addr(), stream.peer_addr()) => {
                last = Some(io::Error::other(
                    "nothing listens there: it connected to itself",
                ));
            }
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other("the host has no address")))
}

/// A socket that dials a free port of its own ephemeral range can meet itself.
fn leads_back(local: io::Result<SocketAddr>, peer: io::Result<SocketAddr>) -> bool {
    matches!((local, peer), (Ok(local), Ok(peer)) if local == peer)
}

/// What people call an error.
pub(crate) fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".into(),
        io::ErrorKind::NotFound => "no such socket".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => {
            "it closed the connection".into()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::Never;

    #[test]
    fn a_known_url_is_the_only_candidate_and_the_default_is_the_last_and_not_for_everyone() {
        let url = Url::parse("ws://h:1").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().join("there.sock");
        std::fs::write(&there, "").unwrap();
        let sockets = [dir.path().join("not-there.sock"), there.clone()];
        assert_eq!(candidates(Some(&url), &sockets, true), [url]);
        let default = Url::parse(DEFAULT_URL).unwrap();
        let there = Url::Unix(there);
        let of_v1 = candidates(None, &sockets, true);
        assert_eq!(of_v1, [there.clone(), default.clone()]);
        let of_file = candidates(None, &sockets, false);
        assert_eq!(of_file, [there], "a port may be anybody's");
        assert_eq!(candidates(None, &sockets[..1], false), []);
    }

    #[tokio::test]
    async fn without_an_address_the_remedies_are_named() {
        let looked = ["/r/peerbus.sock", "/s/peerbus.sock"].map(PathBuf::from);
        let never = Demand::Never(Never::Ci);
        let dialed = dial(&[], &looked, &TlsFiles::default(), &never).await;
        let Err(Unreached::NoBroker {
            why, absent: true, ..
        }) = dialed
        else {
            panic!("connected to nothing");
        };
        assert!(
            why.contains("unless PEERBUS_AUTOSTART=on asks for it"),
            "{why}"
        );
        assert!(
            why.contains("/r/peerbus.sock nor at /s/peerbus.sock"),
            "{why}"
        );
        assert!(why.contains("no broker is running"), "{why}");
        assert!(
            why.contains("`peerbus serve`") && why.contains("PEERBUS_URL"),
            "{why}"
        );
    }

    #[tokio::test]
    async fn a_file_of_no_use_is_named_whether_or_not_a_broker_is_there() {
        let url = Url::parse("wss://127.0.0.1:1").unwrap();
        let files = TlsFiles {
            ca: Some("/nonexistent/ca.pem".into()),
            ..TlsFiles::default()
        };
        let said = open_socket(&url, &files).await.err().unwrap();
        assert!(said.contains("PEERBUS_CA is of no use"), "{said}");
    }

    #[test]
    fn a_socket_that_met_itself_is_recognised() {
        let a: SocketAddr = "127.0.0.1:40000".parse().unwrap();
        let b: SocketAddr = "127.0.0.1:40001".parse().unwrap();
        assert!(leads_back(Ok(a), Ok(a)));
        assert!(!leads_back(Ok(a), Ok(b)));
    }
}
