//! What a broker is started with, and why it does not start.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use peerbus_core::TokenHash;
use peerbus_core::broker::BrokerConfig;
use peerbus_core::grant::Grant;
use peerbus_wire::Domain;
use zeroize::Zeroizing;

use crate::tls::ServerTls;

/// The port of v1 and of our default listen address.
pub const DEFAULT_PORT: u16 = 47_821;

/// What a broker is started with.
pub struct BrokerOptions {
    /// TCP addresses to listen on; port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// What TLS over TCP needs; `None`: nothing is encrypted there.
    pub tls: Option<ServerTls>,
    /// Listen where other machines can reach it without TLS, too.
    pub insecure: bool,
    /// Go on without a TCP address that cannot be listened on, if there is a Unix socket.
    pub tcp_optional: bool,
    /// Path of the Unix socket, if there is to be one.
    pub unix: Option<PathBuf>,
    /// Where the Unix socket is to be when that path cannot be used, at the start or any more.
    pub unix_else: Vec<PathBuf>,
    /// Sockets that listen already, TCP or Unix, in place of `listen` and `unix`.
    pub given: Vec<OwnedFd>,
    /// How the broker came to be.
    pub origin: Origin,
    /// The database file; made if it is missing.
    pub db: PathBuf,
    /// The bearer tokens that admit connections and stand in no file.
    pub grants: Vec<Grant>,
    /// A file with more of them, looked at again while the broker runs. It need not be there.
    pub tokens_file: Option<PathBuf>,
    /// The way in for machines that were invited; `None`: none is let in.
    pub inviting: Option<Inviting>,
    /// Durations of the sockets' side.
    pub times: Times,
    /// Tells how many log lines were lost since the start, for the metrics.
    pub log_lost: Option<fn() -> u64>,
    /// What the broker is called among others.
    pub domain: Option<Domain>,
    /// What is kept of mail that ended, if not 7 days of it within 256 MiB.
    pub history: Option<HistoryLimits>,
    /// Changes limits and durations of the core from their defaults.
    pub tune: Option<Tune>,
}

/// How much is kept of mail that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryLimits {
    /// For how long; zero keeps no text, and the rest for ten minutes.
    pub keep: Duration,
    /// How many bytes of the disk, about; the oldest go first.
    pub bytes: u64,
}

/// The way in for machines that were invited.
pub struct Inviting {
    /// The file with the invitations. It need not be there.
    pub file: PathBuf,
    /// Tells the HMAC secret that they are given. The broker asks for it when it lets one in, and
    /// keeps it nowhere.
    pub secret: SecretSource,
    /// Where they connect, and what TLS there needs, beside the addresses to listen on. The files are made
    /// if they are not there; where they cannot be used, only these machines do without.
    pub listen: Option<(SocketAddr, ServerTls)>,
}

/// Tells a secret, or says why not.
pub type SecretSource = Box<dyn Fn() -> Result<Zeroizing<String>, String> + Send + Sync>;

/// Changes the core's configuration.
pub type Tune = Box<dyn FnOnce(&mut BrokerConfig) + Send>;

impl BrokerOptions {
    /// Options for the database `db`: v1's default address, no Unix socket, every limit at its
    /// default.
    #[must_use]
    pub fn new(db: PathBuf, tokens: Vec<TokenHash>) -> Self {
        Self {
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT))],
            tls: None,
            insecure: false,
            tcp_optional: false,
            unix: None,
            unix_else: Vec::new(),
            given: Vec::new(),
            origin: Origin::Hand,
            db,
            grants: Grant::numbered("token", tokens),
            tokens_file: None,
            inviting: None,
            times: Times::default(),
            log_lost: None,
            domain: None,
            history: None,
            tune: None,
        }
    }
}

/// How a broker came to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Origin {
    /// Somebody ran it.
    #[default]
    Hand,
    /// This process found none and started it.
    Demand(String),
    /// The service manager started it.
    Service,
    /// The service manager started it for somebody who connected to its sockets.
    Activated,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hand => f.write_str("by hand"),
            Self::Demand(who) => write!(f, "on demand, by {who}"),
            Self::Service => f.write_str("by systemd"),
            Self::Activated => f.write_str("by systemd, for a connection to its sockets"),
        }
    }
}

/// Durations of the sockets' side of a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// A connection that has been silent for this long is pinged.
    pub ping_every: Duration,
    /// One that has been silent for this long is closed.
    pub silence_max: Duration,
    /// Time to send what is queued for a connection that is being closed.
    pub drain_max: Duration,
    /// Time for the WebSocket closing handshake.
    pub close_max: Duration,
    /// A refusal of a wrong token is delayed this long.
    pub denied_delay: Duration,
    /// Time for the HTTP request of a new socket.
    pub http_max: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            ping_every: Duration::from_secs(30),
            silence_max: Duration::from_secs(75),
            drain_max: Duration::from_secs(1),
            close_max: Duration::from_secs(1),
            denied_delay: Duration::from_millis(500),
            http_max: Duration::from_secs(10),
        }
    }
}

/// Why a broker does not start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
pub enum BrokerStartError {
    /// There is no token, so nobody could register.
    #[error("no bearer token is configured, so no peer could register; set PEERBUS_TOKENS")]
    NoTokens,
    /// The tokens file cannot be used.
    #[error("{0}")]
    Tokens(String),
    /// There is nothing to listen on.
    #[error("no address to listen on; give a TCP address (PEERBUS_LISTEN) or a Unix socket path")]
    NoAddress,
    /// Other machines can reach the address, and nothing would be encrypted.
    #[error(
        "{0} can be reached from other machines, and tokens and messages could be read on the \
         way: give the broker a certificate (--tls-cert FILE --tls-key FILE), or listen on \
         127.0.0.1 and use a tunnel (ssh -L); if the network is a closed one, a container's or a \
         VPN's for instance, say --insecure (PEERBUS_INSECURE=1)"
    )]
    Insecure(SocketAddr),
    /// A file for TLS cannot be used: a sentence that names it, what was found and what to do.
    #[error("cannot speak TLS: {0}")]
    Tls(String),
    /// Another process listens on the port.
    #[error(
        "cannot listen on {}: another process has port {} (is a broker running already? \
         `ss -ltnp sport = :{}` shows which); stop it, or choose another address with \
         PEERBUS_LISTEN",
        .0,
        .0.port(),
        .0.port()
    )]
    PortInUse(SocketAddr),
    /// The TCP address cannot be listened on.
    #[error("cannot listen on {address}: {source}; {}", remedy(source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// A live broker answers on the Unix socket.
    #[error(
        "cannot listen on {}: a broker answers there already; end it (`peerbus stop`), or choose another \
         path with --socket",
        .0.display()
    )]
    SocketInUse(PathBuf),
    /// Something else lies where the Unix socket is to be.
    #[error(
        "cannot listen on {}: a file that is not a socket lies there; move it, or choose another \
         path",
        .0.display()
    )]
    NotASocket(PathBuf),
    /// The Unix socket's path is longer than the system takes.
    #[error(
        "cannot listen on {}: the path has {} bytes, and a Unix socket's must be shorter than 108 \
         (104 on macOS); choose a shorter one with --socket",
        .0.display(),
        .0.as_os_str().len()
    )]
    SocketPathLong(PathBuf),
    /// The Unix socket cannot be made.
    #[error("cannot listen on {}: {}; the socket's directory must be writable", .0.display(), .1)]
    Socket(PathBuf, #[source] io::Error),
    /// Another broker has the database: a sentence that names the other one and says what to do.
    #[error("cannot start: {0}")]
    InUse(String),
    /// A socket that was given cannot be used.
    #[error(
        "a socket that the service manager passed cannot be used: {0}; give it stream sockets \
         that listen (ListenStream=)"
    )]
    Given(#[source] io::Error),
    /// The database cannot be used: a sentence that says what was found and what to do.
    #[error("cannot use the database {}: {}", .0.display(), .1)]
    Database(PathBuf, String),
    /// The engine's thread cannot be started.
    #[error("cannot start the engine's thread: {0}; raise the limit of processes")]
    Thread(#[source] io::Error),
}

/// What to do about a TCP address that cannot be listened on.
fn remedy(why: &io::Error) -> &'static str {
    match why.kind() {
        io::ErrorKind::PermissionDenied => {
            "choose a port from 1024 on with PEERBUS_LISTEN or --listen: those below are not for \
             everybody"
        }
        _ => "choose an address of this machine",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_not_allowed_is_no_address_of_another_machine() {
        for (kind, says, not) in [
            (
                io::ErrorKind::PermissionDenied,
                "a port from 1024 on",
                "address of",
            ),
            (
                io::ErrorKind::AddrNotAvailable,
                "address of this machine",
                "1024",
            ),
        ] {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 80));
            let source = kind.into();
            let said = BrokerStartError::Listen { address, source }.to_string();
            assert!(said.contains(says) && !said.contains(not), "{said}");
        }
    }
}
