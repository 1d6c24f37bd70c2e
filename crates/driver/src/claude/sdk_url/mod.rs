//! The client's stream over a WebSocket that is served here, on loopback.

mod ledger;

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use peerbus_adapter::credentials::random_hex;
use peerbus_os::tcp;
use subtle::ConstantTimeEq as _;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::{StatusCode, header::AUTHORIZATION};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async_with_config};

use self::ledger::Ledger;
use crate::process::{self, AgentLines, LINE_MAX, Outgoing, Process};

/// The variable in which the client reads the token.
pub(super) const TOKEN: &str = "CLAUDE_CODE_SESSION_ACCESS_TOKEN";
/// Variables that name what is reached without a proxy.
pub(super) const DIRECT: [&str; 2] = ["NO_PROXY", "no_proxy"];
/// How long a client may take to come, and to come back. After a cut it takes about one second.
const COMES_WITHIN: Duration = Duration::from_secs(30);
/// How long a client that seems to wait for what a cut took may say nothing.
const STUCK_FOR: Duration = Duration::from_secs(5);
/// How long a connection may take to say who it is, and to take a line.
const PATIENCE: Duration = Duration::from_secs(10);
/// After so long without a line it is told that somebody is there.
const QUIET: Duration = Duration::from_secs(60);
/// Says only that somebody is there.
const KEEP_ALIVE: &str = r#"{"type":"keep_alive"}"#;
/// Connections that say who they are. One more takes the place of the first of them: the client says
/// it at once, and others that say nothing keep it from nothing.
const JOINING_MAX: usize = 16;
/// Lines that were read and that nobody has heard.
const READ_MAX: usize = 64;

/// What serves one client.
struct Socket {
    listener: TcpListener,
    token: String,
    /// The client's guard.
    client: Option<u32>,
    /// The process that holds the client's end.
    holder: Option<u32>,
    /// Connections that were taken, and the last of them that was let in.
    taken: u64,
    newest: u64,
    /// It says nothing there, and closes it when it ends.
    stdout: ChildStdout,
    waiting: mpsc::Receiver<Outgoing>,
    heard: Option<mpsc::Sender<String>>,
    read: VecDeque<String>,
    ledger: Ledger,
    connection: Option<WebSocketStream<TcpStream>>,
    joining: JoinSet<Option<Joined>>,
    /// Those of them that may still be there, the first at the beginning.
    handles: VecDeque<AbortHandle>,
    /// Since when it is away.
    away: Option<Instant>,
    stuck: Option<Instant>,
    said: Instant,
    ended: bool,
    /// It was said that others connect.
    noted: bool,
}

/// Starts a client that connects to a socket here.
pub(super) fn start(mut command: Command) -> io::Result<Process> {
    if !tcp::TELLS_HOLDER {
        let why =
            "this system does not tell who connects to a socket: leave out `--transport sdk-url`";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let token = random_hex().to_string();
    let url = format!("ws://{}/", listener.local_addr()?);
    command.arg("--sdk-url").arg(url).env(TOKEN, &token);
    for name in DIRECT {
        let before = std::env::var(name).unwrap_or_default();
        command.env(name, format!("127.0.0.1,{before}").trim_end_matches(','));
    }
    let (mut child, lifeline) = process::spawn(command.stdin(Stdio::null()))?;
    let (to, waiting) = AgentLines::new();
    let (heard, from) = mpsc::channel(1);
    let now = Instant::now();
    let socket = Socket {
        listener,
        token,
        client: child.id(),
        holder: None,
        taken: 0,
        newest: 0,
        stdout: child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?,
        waiting,
        heard: Some(heard),
        read: VecDeque::new(),
        ledger: Ledger::default(),
        connection: None,
        joining: JoinSet::new(),
        handles: VecDeque::new(),
        away: Some(now),
        stuck: None,
        said: now,
        ended: false,
        noted: false,
    };
    let carries = Box::pin(socket.serve());
    Process::new((child, lifeline), to, from, carries, false)
}

/// A connection of the client's: its number, and the process at its other end.
type Joined = (u64, Box<WebSocketStream<TcpStream>>, Option<u32>);

/// What happens next.
enum Next {
    Heard,
    Say(Outgoing),
    Read(Option<tungstenite::Result<Message>>),
    Comes(io::Result<(TcpStream, SocketAddr)>),
    Came(Option<Joined>),
    Stdout(usize),
    Time,
}

impl Socket {
    /// Serves until the client is lost, and says why. When it has ended by itself, the lines do.
    async fn serve(mut self) -> String {
        loop {
            if self.ended && self.connection.is_none() && self.read.is_empty() {
                self.heard = None;
                return std::future::pending().await;
            }
            let now = Instant::now();
            self.stuck = match self.ledger.seems_stuck() {
                true => Some(self.stuck.unwrap_or(now)),
                false => None,
            };
            if self.away.is_some_and(|since| now - since >= COMES_WITHIN) {
                let seconds = COMES_WITHIN.as_secs();
                return match self.newest > 0 {
                    false => format!("it did not connect to --sdk-url within {seconds} s"),
                    true => format!("it did not come back within {seconds} s after a cut"),
                };
            }
            if self.stuck.is_some_and(|since| now - since >= STUCK_FOR) {
                return "a cut took a request of its that it waits for".to_owned();
            }
            match self.next().await {
                Next::Heard | Next::Came(None) | Next::Time => {}
                Next::Say(line) => self.say(line).await,
                Next::Read(Some(Ok(message))) => self.message(&message),
                Next::Read(Some(Err(tungstenite::Error::Capacity(error)))) => {
                    return format!("it said more than is read at once: {error}");
                }
                Next::Read(_) => self.cut("it hung up"),
                Next::Comes(Ok((stream, peer))) => self.comes(stream, peer),
                Next::Comes(Err(error)) => tracing::warn!(%error, "no connection can be taken"),
                Next::Came(Some(joined)) => self.came(joined).await,
                Next::Stdout(0) => self.ended = true,
                Next::Stdout(_) => tracing::debug!("Claude Code writes to its standard output"),
            }
            if self.connection.is_some() && self.said.elapsed() >= QUIET {
                self.write(None, KEEP_ALIVE.to_owned()).await;
            }
        }
    }

    async fn next(&mut self) -> Next {
        let mut buffer = [0; 4_096];
        let deadlines = [
            self.away.map(|since| since + COMES_WITHIN),
            self.stuck.map(|since| since + STUCK_FOR),
            self.connection.is_some().then(|| self.said + QUIET),
        ];
        let deadline = deadlines.into_iter().flatten().min();
        let wakes = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let (heard, connection) = (&self.heard, &mut self.connection);
        let reads = connection.is_some() && self.read.len() < READ_MAX;
        let message = async {
            match connection {
                Some(connection) => connection.next().await,
                None => None,
            }
        };
        let room = async {
            match heard {
                Some(heard) => heard.reserve().await.ok(),
                None => None,
            }
        };
        tokio::select! {
            room = room, if !self.read.is_empty() => {
                let line = self.read.pop_front();
                if let (Some(room), Some(line)) = (room, line) {
                    room.send(line);
                }
                Next::Heard
            }
            Some(line) = self.waiting.recv(), if !self.ledger.is_full() => Next::Say(line),
            message = message, if reads => Next::Read(message),
            stream = self.listener.accept() => Next::Comes(stream),
            Some(joined) = self.joining.join_next() => Next::Came(joined.ok().flatten()),
            // What cannot be read has no more to say.
            count = self.stdout.read(&mut buffer), if !self.ended => {
                Next::Stdout(count.unwrap_or(0))
            }
            () = wakes => Next::Time,
        }
    }

    async fn say(&mut self, line: Outgoing) {
        let number = self.ledger.send(line.text.clone());
        if self.connection.is_some() {
            self.ledger.tried(number);
            self.write(Some(number), line.text).await;
        }
        // Nobody may wait for it.
        let _ = line.written.send(());
    }

    /// Writes a line, and asks for a sign that it came.
    async fn write(&mut self, number: Option<u64>, mut line: String) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        line.push('\n');
        let written = async {
            connection.feed(Message::text(line)).await?;
            if let Some(number) = number {
                let number = number.to_be_bytes().to_vec();
                connection.feed(Message::Ping(number.into())).await?;
            }
            connection.flush().await
        };
        self.said = Instant::now();
        if !matches!(timeout(PATIENCE, written).await, Ok(Ok(()))) {
            self.cut("it takes no line");
        }
    }

    fn message(&mut self, message: &Message) {
        match message {
            Message::Text(text) => {
                for line in text.lines().filter(|line| !line.trim().is_empty()) {
                    self.read.extend(self.ledger.hear(line));
                }
            }
            Message::Pong(number) => {
                if let Ok(number) = number.as_ref().try_into() {
                    self.ledger.proven(u64::from_be_bytes(number));
                }
            }
            _ => {}
        }
    }

    fn cut(&mut self, why: &str) {
        tracing::info!("the connection to Claude Code is cut: {why}");
        self.connection = None;
        self.away = Some(Instant::now());
    }

    /// Somebody connects, and must say who it is.
    #[expect(clippy::result_large_err, reason = "the library's type")]
    fn comes(&mut self, stream: TcpStream, theirs: SocketAddr) {
        let both = stream.local_addr().ok().map(|ours| (theirs, ours));
        let user = both.and_then(|(theirs, ours)| tcp::user(theirs, ours));
        if user.is_some_and(|user| user != peerbus_os::user::id()) {
            // It would take a place that the client needs.
            if !std::mem::replace(&mut self.noted, true) {
                tracing::warn!("another user's process connects, and is closed");
            }
            return;
        }
        let token = format!("Bearer {}", self.token);
        self.taken += 1;
        let number = self.taken;
        let (ends, holder) = (both.zip(self.client), self.holder);
        let config = WebSocketConfig::default()
            .max_message_size(Some(LINE_MAX))
            .max_frame_size(Some(LINE_MAX));
        let joins = self.joining.spawn(async move {
            let mut held = None;
            // Lines are short, and wait for each other.
            stream.set_nodelay(true).ok()?;
            let check = |request: &Request, response: Response| {
                let given = request.headers().get(AUTHORIZATION);
                if !given.is_some_and(|given| given.as_bytes().ct_eq(token.as_bytes()).into()) {
                    tracing::warn!("somebody without the token connects, and is refused");
                    return Err(refusal(StatusCode::UNAUTHORIZED));
                }
                held = ends.and_then(|((theirs, ours), client)| tcp::holder(theirs, ours, client));
                let is_client = held.is_some() && holder.is_none_or(|it| held == Some(it));
                if !is_client {
                    tracing::warn!(
                        "a process that is not Claude Code has its token; it is refused"
                    );
                    return Err(refusal(StatusCode::FORBIDDEN));
                }
                Ok(response)
            };
            let accepted = accept_hdr_async_with_config(stream, check, Some(config));
            let connection = timeout(PATIENCE, accepted).await.ok()?.ok()?;
            Some((number, Box::new(connection), held))
        });
        self.handles.retain(|joins| !joins.is_finished());
        self.handles.push_back(joins);
        if self.handles.len() > JOINING_MAX
            && let Some(first) = self.handles.pop_front()
        {
            first.abort();
        }
    }

    async fn came(&mut self, (number, connection, holder): Joined) {
        // One that was taken earlier is one that the client has left.
        if number < self.newest {
            return;
        }
        self.newest = number;
        self.holder = self.holder.or(holder);
        self.connection = Some(*connection);
        self.away = None;
        for (number, line) in self.ledger.came() {
            self.write(number, line).await;
        }
    }
}

fn refusal(status: StatusCode) -> ErrorResponse {
    let mut refusal = ErrorResponse::new(None);
    *refusal.status_mut() = status;
    refusal
}
