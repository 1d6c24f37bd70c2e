//! A gateway that has the address already, asked for a link: it looks up which program asks.

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use peerbus_adapter::TlsFiles;
use peerbus_adapter::demand::ask_over;
use peerbus_adapter::hooks::is_an_agents;
use peerbus_os::process::{closed, is_this_program};
use peerbus_os::{tcp, user};
use peerbus_wire::escape_sentence;
use serde_json::Value;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// How long another gateway may take to answer, and the most that it says.
const ASKED: Duration = Duration::from_secs(2);
const ANSWER_BYTES_MAX: usize = 4_096;
const WHY_CHARS: usize = 300;
const UNKNOWN: &str =
    "it is not known for the same program of the same user, by IPv4 on this machine";
const UNSEEN: &str = "it is not known which program asks";
const AGENTS: &str =
    "an agent, or what it runs, gets none: a person asks, in a terminal of their own";
/// Everything stands below it, what was put into a container from outside too.
const NO_PROCESS: u32 = 0;

/// A gateway of this user's that runs already.
#[derive(Debug)]
pub struct OtherGateway {
    /// Its page, which lets a browser in that opened a link of it.
    pub url: String,
    /// An address that opens its page, once; or why it gives none. The address is a secret.
    pub link: Result<String, String>,
    /// Its process.
    pub process: u32,
}

impl OtherGateway {
    /// The one at this address, without TLS.
    pub(crate) fn at(address: SocketAddr) -> Option<Self> {
        let (told, process) = ask(address, "GET /healthz").ok()?;
        if told["status"] != "ok" || !told["version"].is_string() {
            return None;
        }
        let url = format!("http://{address}");
        let link = match ask(address, "POST /link") {
            Err(error) => Err(error.to_string()),
            Ok((told, _)) => link_of(&told).map(|path| format!("{url}{path}")),
        };
        Some(Self {
            url: format!("{url}/"),
            link,
            process,
        })
    }
}

/// A link of the gateway at `https://HOST:PORT`, for a browser of another machine.
///
/// # Errors
///
/// A sentence: none answers there, its certificate is not trusted, or it gives no link.
pub(crate) async fn trusted_link(host: &str, port: u16) -> Result<String, String> {
    let asked = async {
        let all = lookup_host((host, port)).await;
        let all = all.map_err(|error| error.to_string())?;
        // Its processes are looked up for these alone.
        let of_v4: Vec<_> = all.filter(SocketAddr::is_ipv4).collect();
        let tcp = TcpStream::connect(&of_v4[..]).await;
        let tcp = tcp.map_err(|error| error.to_string())?;
        let ends = Ends::of(&tcp);
        // As a browser trusts, which knows no other authorities than this system's.
        let stream = TlsFiles::default().trusted(host, tcp).await?;
        // A page of another user's, or of an agent's, is shown to nobody.
        ends.holder()?;
        let asked = ask_over(stream, host, "POST", "/link").await;
        asked.map_err(|error| error.to_string())
    };
    let late = |_| Err("there is no answer".to_owned());
    let (_, body) = timeout(ASKED, asked).await.unwrap_or_else(late)?;
    let told: Value = serde_json::from_str(&body).unwrap_or_default();
    match link_of(&told) {
        Ok(path) => Ok(format!("https://{host}:{port}{path}")),
        Err(why) => Err(format!("it gives no link: {why}")),
    }
}

/// The link in a gateway's answer, or why there is none.
fn link_of(told: &Value) -> Result<&str, String> {
    let path = told["path"].as_str().filter(|path| is_link(path));
    path.ok_or_else(|| {
        let why = told["error"].as_str().unwrap_or("it does not say why");
        escape_sentence(why, WHY_CHARS)
    })
}

fn is_link(path: &str) -> bool {
    let word = path.strip_prefix("/open/");
    word.is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// What a gateway at an address answers, in JSON, and its process. A page of another user's, or of an agent's, is
/// shown to nobody.
fn ask(address: SocketAddr, line: &str) -> io::Result<(Value, u32)> {
    let mut stream = std::net::TcpStream::connect_timeout(&address, ASKED)?;
    stream.set_read_timeout(Some(ASKED))?;
    // The connection stays, so that whoever holds its other end can be looked up.
    write!(
        stream,
        "{line} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\n\r\n"
    )?;
    let ends = Ends(stream.peer_addr().ok().zip(stream.local_addr().ok()));
    let (mut said, mut piece) = (Vec::new(), [0; 1_024]);
    while said.len() < ANSWER_BYTES_MAX {
        let read = stream.read(&mut piece)?;
        said.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&said);
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        if let Ok(told) = serde_json::from_str(body) {
            let holder = ends.holder().map_err(io::Error::other)?;
            return Ok((told, holder));
        }
        if read == 0 {
            break;
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// The other end of a connection, and ours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends(Option<(SocketAddr, SocketAddr)>);

impl Ends {
    pub(crate) fn of(stream: &TcpStream) -> Self {
        Self(stream.peer_addr().ok().zip(stream.local_addr().ok()))
    }

    /// Whether a link may be opened from the other end: by no agent of this machine, nor by what one runs.
    pub(crate) fn may_open(self) -> Result<(), String> {
        let (theirs, ours) = self.0.ok_or(UNSEEN)?;
        let Some(user) = tcp::user(theirs, ours) else {
            // It is on another machine, if the system tells such things at all.
            let is_here = tcp::TELLS_HOLDER && theirs.ip().to_canonical().is_loopback();
            return if is_here { Err(UNSEEN.into()) } else { Ok(()) };
        };
        let is_agents = |id: &u32| is_an_agents(*id, &[]);
        let is_agents = match tcp::holder(theirs, ours, NO_PROCESS) {
            Some(id) => is_agents(&id),
            // A browser may close its files to others; then it may be any such process of this user's.
            None => user == user::id() && closed().iter().any(is_agents),
        };
        if is_agents {
            Err(AGENTS.into())
        } else {
            Ok(())
        }
    }

    /// Whether this user's own `peerbus web` has the other end, and no agent runs it. What hands on
    /// connections, as a proxy or a tunnel, is another program.
    pub(crate) fn may_have_a_link(self) -> Result<(), String> {
        let id = self.holder()?;
        // `peerbus web --open`, and `peerbus invite NAME --web`.
        let is_ours = ["web", "invite"]
            .into_iter()
            .any(|verb| is_this_program(id, verb));
        if is_ours { Ok(()) } else { Err(UNKNOWN.into()) }
    }

    /// The process of this user's at the other end, if no agent runs it.
    fn holder(self) -> Result<u32, String> {
        // To look through all processes costs: other users' are not worth that.
        let is_own = |(theirs, ours): &_| tcp::user(*theirs, *ours) == Some(user::id());
        let is_v4 = |(theirs, _): &(SocketAddr, _)| theirs.is_ipv4();
        let own = self.0.filter(is_v4).filter(is_own);
        let found = own.and_then(|(theirs, ours)| tcp::holder(theirs, ours, NO_PROCESS));
        match found {
            None => Err(UNKNOWN.into()),
            Some(id) if is_an_agents(id, &[]) => Err(AGENTS.into()),
            Some(id) => Ok(id),
        }
    }
}
