//! A gateway that has the address already, asked for a link: it looks up which program asks.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use peerbus_adapter::hooks::{directories_of, is_of_an_agent};
use peerbus_os::process::is_this_program;
use peerbus_os::{tcp, user};
use peerbus_wire::escape;
use serde_json::Value;
use tokio::net::TcpStream;

/// How long another gateway may take to answer, and the most that it says.
const ASKED: Duration = Duration::from_secs(2);
const ANSWER_BYTES_MAX: u64 = 4_096;
const WHY_CHARS: usize = 300;
/// Everything stands below it.
const FIRST_PROCESS: u32 = 1;

/// A gateway of this user's that runs already.
#[derive(Debug)]
pub struct OtherGateway {
    /// Its page, which lets a browser in that opened a link of it.
    pub url: String,
    /// An address that opens its page, once; or why it gives none. The address is a secret.
    pub link: Result<String, String>,
    /// Its process, as far as the system tells.
    pub process: Option<u32>,
}

impl OtherGateway {
    /// The one at this address, without TLS.
    pub(crate) fn at(address: SocketAddr) -> Option<Self> {
        let socket = match address {
            SocketAddr::V4(it) => Some((it, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))),
            SocketAddr::V6(_) => None,
        };
        let owner = socket.and_then(|(it, nobody)| tcp::user(it, nobody));
        // Another user's page is shown to nobody.
        if owner.is_some_and(|owner| owner != user::id()) {
            return None;
        }
        let told = ask(address, "GET /healthz").ok()?;
        if told["status"] != "ok" || !told["version"].is_string() {
            return None;
        }
        let url = format!("http://{address}");
        let link = match ask(address, "POST /link") {
            Err(error) => Err(error.to_string()),
            Ok(told) => match (told["path"].as_str(), told["error"].as_str()) {
                (Some(path), _) if is_link(path) => Ok(format!("{url}{path}")),
                (_, why) => Err(escape(why.unwrap_or("it does not say why"), WHY_CHARS)),
            },
        };
        Some(Self {
            url: format!("{url}/"),
            link,
            process: socket.and_then(|(it, nobody)| tcp::holder(it, nobody, FIRST_PROCESS)),
        })
    }
}

fn is_link(path: &str) -> bool {
    let word = path.strip_prefix("/open/");
    word.is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// What a gateway at an address answers, in JSON.
fn ask(address: SocketAddr, line: &str) -> io::Result<Value> {
    let mut stream = std::net::TcpStream::connect_timeout(&address, ASKED)?;
    stream.set_read_timeout(Some(ASKED))?;
    write!(
        stream,
        "{line} HTTP/1.0\r\nHost: {address}\r\nContent-Length: 0\r\n\r\n"
    )?;
    let mut said = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut said)?;
    let body = said.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok(serde_json::from_str(body)?)
}

/// The other end of a connection, and ours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends(Option<(SocketAddr, SocketAddr)>);

impl Ends {
    pub(crate) fn of(stream: &TcpStream) -> Self {
        Self(stream.peer_addr().ok().zip(stream.local_addr().ok()))
    }

    fn both(self) -> Option<(SocketAddrV4, SocketAddrV4)> {
        match self.0 {
            Some((SocketAddr::V4(theirs), SocketAddr::V4(ours))) => Some((theirs, ours)),
            _ => None,
        }
    }

    /// Whether this user's own `peerbus web` has the other end, and no agent runs it. What hands on
    /// connections, as a proxy or a tunnel, is another program.
    pub(crate) fn may_have_a_link(self) -> Result<(), String> {
        let found = self.both().and_then(|(theirs, ours)| {
            let own = tcp::user(theirs, ours) == Some(user::id());
            tcp::holder(theirs, ours, FIRST_PROCESS).filter(|_| own)
        });
        match found.filter(|id| is_this_program(*id, "web")) {
            None => Err(
                "it is not known for the same program of the same user, by IPv4 on this machine"
                    .into(),
            ),
            Some(id) if is_of_an_agent(&directories_of(id), id) => Err(
                "an agent, or what it runs, gets none: a person asks, in a terminal of their own"
                    .into(),
            ),
            Some(_) => Ok(()),
        }
    }
}
