//! The adapter's end: the one socket of a session.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use peerbus_os::lines::{BoundedLines, NextLine};
use peerbus_os::process;
use peerbus_os::socket::SocketFile;
use peerbus_os::watch::DirectoryWatch;
use peerbus_wire::jsonrpc::{RpcError, RpcMessage};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::agents::is_of_an_agent;
use super::line::{ASK_MAX, ATTACH, HOOK, Offer, RPC_MAX, TOOK, TOOLS};
use super::place::{INDEX, bind, directories};
use crate::paths::Paths;

/// Connections that are served at a time. Others find nobody.
const CONNECTIONS_MAX: usize = 64;
/// So many of them may be from outside of the session: its hooks always find somebody.
const STRANGERS_MAX: usize = 48;
/// So many more are served that belong to no agent: what runs below agents keeps no person out.
const PEOPLES_MAX: usize = 8;
/// How long a hook may take for one of its lines, and how long to wait when no more connections
/// can be had.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks at the socket's file, where nothing tells that it is gone.
const LOOK: Duration = Duration::from_secs(10);
/// The same where the system tells of most.
const LOOK_WATCHED: Duration = Duration::from_secs(60);
/// From the word that it may be gone to the look: whoever removes a whole directory is let finish.
const SETTLED: Duration = Duration::from_secs(1);
/// How a request of HTTP begins, and how it is answered.
const POST: &[u8] = b"POST ";
const POSTED: &[u8] = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
/// How long one that connects may take to say what it is.
const FIRST: Duration = Duration::from_secs(10);

/// Listens for the hooks of the session whose process is `client`, and for programs of the same
/// user that speak JSON-RPC. The socket is removed when this is dropped.
#[derive(Debug)]
pub struct SessionSocket {
    client: u32,
    nth: u64,
    listener: UnixListener,
    file: SocketFile,
    watch: DirectoryWatch,
    paths: Paths,
    path: watch::Sender<PathBuf>,
}

impl SessionSocket {
    /// Opens the socket. Without hooks `client` is 0.
    ///
    /// # Errors
    ///
    /// When there can be none, and why.
    pub fn bind(paths: &Paths, client: u32) -> io::Result<Self> {
        Self::bind_nth(paths, client, 0)
    }

    /// The same for one of several sessions of this process, counted from 1.
    ///
    /// # Errors
    ///
    /// As for [`SessionSocket::bind`].
    pub fn bind_nth(paths: &Paths, client: u32, nth: u64) -> io::Result<Self> {
        let (file, listener) = bind(paths, client, nth)?;
        Ok(Self {
            client,
            nth,
            listener: UnixListener::from_std(listener)?,
            path: watch::Sender::new(file.path().to_owned()),
            file,
            watch: DirectoryWatch::default(),
            paths: paths.clone(),
        })
    }

    /// The session's process, or 0.
    #[must_use]
    pub fn client(&self) -> u32 {
        self.client
    }

    /// Where it is: changes as it is bound anew, and when the list beside it may be another.
    #[must_use]
    pub fn path(&self) -> watch::Receiver<PathBuf> {
        self.path.subscribe()
    }

    /// Binds it anew if its file is gone or is another one. What hinders that may pass.
    /// Gives when to look again, if nothing tells.
    fn look(&mut self) -> Instant {
        let dir = self.file.path().parent();
        let is_told = dir.is_some_and(|dir| self.watch.open(dir));
        let pause = if is_told { LOOK_WATCHED } else { LOOK };
        if self.file.stands() {
            self.path.send_modify(|_| {});
            return Instant::now() + pause;
        }
        let bound = bind(&self.paths, self.client, self.nth)
            .and_then(|(file, listener)| Ok((file, UnixListener::from_std(listener)?)));
        match bound {
            Ok((file, listener)) => {
                self.path.send_replace(file.path().to_owned());
                (self.file, self.listener) = (file, listener);
                self.watch = DirectoryWatch::default();
                Instant::now()
            }
            Err(error) => {
                tracing::debug!(%error, "the session's socket is gone");
                Instant::now() + LOOK
            }
        }
    }

    /// Gives each hook to `hooks` and everybody who speaks JSON-RPC to `rpc`, for ever. Connections
    /// end when this is dropped.
    pub async fn serve<H, R>(
        mut self,
        hooks: impl Fn(HookConnection) -> H + Send + Sync + 'static,
        rpc: impl Fn(Connection) -> R + Send + Sync + 'static,
    ) where
        H: Future<Output = ()> + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let serve = Arc::new((hooks, rpc));
        let client = self.client;
        let places = Places::new(directories(&self.paths));
        let mut connections = JoinSet::new();
        let mut told = false;
        let mut look_at = self.look();
        loop {
            let own = self.file.path().file_name();
            let is_ours = |name: &str| name == INDEX || own.is_some_and(|own| own == name);
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                () = self.watch.changed(is_ours) => {
                    look_at = look_at.min(Instant::now() + SETTLED);
                    continue;
                }
                // Those who wait already are taken first: their socket ends where another takes its place.
                () = sleep_until(look_at) => match self.listener.accept().now_or_never() {
                    Some(accepted) => accepted,
                    None => {
                        look_at = self.look();
                        continue;
                    }
                },
            };
            let Ok((stream, _)) = accepted else {
                sleep(PATIENCE).await;
                continue;
            };
            let Some(caller) = Peer::of(&stream) else {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!("another user's process connected to this session's socket");
                }
                continue;
            };
            let own = caller.is_of(client);
            if let Some(taken) = places.take(caller, own) {
                let serve = Arc::clone(&serve);
                connections.spawn(async move {
                    let _taken = taken;
                    match meet(stream, caller, own).await {
                        Some((Some(asked), connection)) => {
                            (serve.0)(HookConnection { asked, connection }).await;
                        }
                        Some((None, connection)) => (serve.1)(connection).await,
                        None => {}
                    }
                });
                // After a stop many wait that have left: each frees its place before the next takes one.
                yield_now().await;
            }
        }
    }
}

struct Places {
    all: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    peoples: Arc<Semaphore>,
    dirs: Vec<PathBuf>,
}

impl Places {
    fn new(dirs: Vec<PathBuf>) -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self {
            all: places(CONNECTIONS_MAX),
            strangers: places(STRANGERS_MAX),
            peoples: places(PEOPLES_MAX),
            dirs,
        }
    }

    /// `None`: there is none for this one.
    fn take(&self, caller: Peer, own: bool) -> Option<Vec<OwnedSemaphorePermit>> {
        let take = |places: &Arc<Semaphore>| Arc::clone(places).try_acquire_owned().ok();
        let all = [Some(&self.all), (!own).then_some(&self.strangers)];
        let taken: Option<Vec<_>> = all.into_iter().flatten().map(take).collect();
        let is_peoples = || {
            caller
                .pid
                .is_some_and(|pid| !is_of_an_agent(&self.dirs, |_| false, pid))
        };
        taken.or_else(|| Some(vec![take(&self.peoples).filter(|_| is_peoples())?]))
    }
}

/// Reads the first line, which tells what the other end is: what it asks, if that is what only a process
/// asks that the session's client runs. `None`: nobody who is served here.
async fn meet(
    stream: UnixStream,
    caller: Peer,
    own: bool,
) -> Option<(Option<RpcMessage>, Connection)> {
    let (read, mut write) = stream.into_split();
    let mut lines = BoundedLines::new(read, RPC_MAX);
    let mut first = timeout(FIRST, lines.next()).await.ok()?;
    let posts = first == NextLine::Line && lines.line().starts_with(POST);
    if posts {
        if !own {
            return None;
        }
        first = timeout(FIRST, posted(&mut lines, &mut write)).await.ok()?;
    }
    let asked = match first {
        NextLine::Line => asked(lines.line()),
        NextLine::TooLong => None,
        NextLine::End => return None,
    };
    let connection = Connection {
        first,
        lines,
        write,
        caller,
    };
    if asked.is_some() && !own {
        tracing::debug!("a process outside the session asked as one of its own");
        return None;
    }
    let known = asked.is_some() || !posts;
    let short = connection.lines.line().len() <= ASK_MAX;
    (known && (asked.is_none() || short)).then_some((asked, connection))
}

/// Reads on to the lines that a client posted who can speak HTTP alone, and answers so far: what is written from
/// here on is the answer's body, until the connection ends.
async fn posted(lines: &mut BoundedLines<OwnedReadHalf>, write: &mut OwnedWriteHalf) -> NextLine {
    while lines.next().await == NextLine::Line && !lines.line().is_empty() {}
    match write.write_all(POSTED).await {
        Ok(()) => lines.next().await,
        Err(_) => NextLine::End,
    }
}

/// What a process asks that the session's client runs. `None`: the line is no such process's.
fn asked(line: &[u8]) -> Option<RpcMessage> {
    /// What programs in agents said first when they spoke lines of their own.
    #[derive(Deserialize)]
    struct Older {
        peerbus: u64,
    }
    match RpcMessage::read(line) {
        Ok(asked) => {
            let method = asked.method.as_deref();
            method
                .is_some_and(|it| [HOOK, ATTACH, TOOLS].contains(&it))
                .then_some(asked)
        }
        Err(_) => {
            let version = serde_json::from_slice::<Older>(line).ok()?.peerbus;
            let params = json!({ "version": version });
            Some(RpcMessage::notification(ATTACH, &params))
        }
    }
}

/// Who connected: a process of this user's.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// Its number, where the system tells.
    pub pid: Option<u32>,
}

impl Peer {
    /// `None`: another user's.
    fn of(stream: &UnixStream) -> Option<Self> {
        let peer = stream.peer_cred().ok()?;
        let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok());
        let uid = peer.uid();
        (uid == peerbus_os::user::id()).then_some(Self { uid, pid })
    }

    /// Whether it is the client or stands below it. What the system does not tell is no.
    fn is_of(self, client: u32) -> bool {
        // One whose parents cannot be told has ended, and left its connection to another.
        let below = |pid| process::descends(pid, client) == Some(true);
        self.pid.is_some_and(|pid| pid == client || below(pid))
    }
}

/// A connection whose first line was read.
#[derive(Debug)]
pub struct Connection {
    /// What came first.
    pub first: NextLine,
    /// Has that line, and reads what comes after it.
    pub lines: BoundedLines<OwnedReadHalf>,
    /// The way back.
    pub write: OwnedWriteHalf,
    /// Who connected.
    pub caller: Peer,
}

/// A process at the other end of a connection that the session's client runs.
#[derive(Debug)]
pub struct HookConnection {
    /// Its first request.
    asked: RpcMessage,
    /// For an end that says more than a hook.
    pub connection: Connection,
}

impl HookConnection {
    /// The parameters of its first request, if that is of this method. `None`: it is none that is
    /// understood, and is not answered.
    #[must_use]
    pub fn asked<T: DeserializeOwned>(&self, method: &str) -> Option<T> {
        let is_it = self.asked.method.as_deref() == Some(method);
        let params = self.asked.params.as_ref().filter(|_| is_it)?;
        serde_json::from_str(params.get()).ok()
    }

    /// Answers its request. Whether that could be written.
    pub async fn answer<T: Serialize>(&mut self, done: Result<T, RpcError>) -> bool {
        let Some(id) = self.asked.id.take() else {
            return false;
        };
        let line = RpcMessage::response(id, &done).line();
        let written = self.connection.write.write_all(line.as_bytes());
        matches!(timeout(PATIENCE, written).await, Ok(Ok(())))
    }

    /// Answers that there is nothing to show.
    pub async fn nothing(&mut self) {
        self.answer(Ok(Offer { text: None })).await;
    }

    /// Offers a text, and leaves it to the hook if that takes it. Whether it did.
    pub async fn offer(&mut self, text: String) -> bool {
        if !self.answer(Ok(Offer { text: Some(text) })).await {
            return false;
        }
        let line = timeout(PATIENCE, self.connection.lines.whole()).await;
        let took = line.ok().flatten().map(RpcMessage::read);
        match took {
            Some(Ok(took)) if took.method.as_deref() == Some(TOOK) => self.asked = took,
            _ => return false,
        }
        self.answer(Ok(json!({}))).await
    }

    /// Waits until it is gone. It has nothing to say while it waits.
    pub async fn gone(&mut self) {
        self.connection.lines.next().await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// Above any number that Linux gives to a process (`proc(5)`, pid_max).
    const NOBODY: u32 = 4_194_305;

    /// A socket in this directory.
    fn bound(dir: &std::path::Path) -> SessionSocket {
        let paths = Paths {
            config_dir: dir.to_owned(),
            state_dir: dir.join("state"),
            runtime_dir: dir.join("run"),
            credentials: dir.join("credentials.toml"),
            gates: dir.join("sessions.toml"),
            tokens: dir.join("tokens"),
            database: dir.join("peerbus.db"),
            socket: dir.join("peerbus.sock"),
            sockets: Vec::new(),
        };
        SessionSocket::bind(&paths, NOBODY).unwrap()
    }

    #[tokio::test]
    async fn those_that_left_while_the_process_was_stopped_keep_nobody_out() {
        let dir = tempfile::tempdir().unwrap();
        let socket = bound(dir.path());
        let path = socket.path().borrow().clone();
        for _ in 0..2 * STRANGERS_MAX {
            drop(UnixStream::connect(&path).await.unwrap());
        }
        let mut here = UnixStream::connect(&path).await.unwrap();
        here.write_all(b"hello\n").await.unwrap();
        let answers = async |mut connection: Connection| {
            connection.write.write_all(b"!").await.unwrap();
        };
        tokio::select! {
            () = socket.serve(async |_| {}, answers) => {}
            read = here.read_u8() => assert_eq!(read.unwrap(), b'!'),
        }
    }

    #[tokio::test]
    async fn strangers_leave_room_for_the_sessions_hooks() {
        let dir = tempfile::tempdir().unwrap();
        let socket = bound(dir.path());
        let path = socket.path().borrow().clone();
        let nothing = async |stream: &mut UnixStream| stream.read(&mut [0]).await.unwrap();
        let strangers = async {
            let mut idle = Vec::new();
            // This process counts as the adapter, which is an agent's.
            for _ in 0..STRANGERS_MAX {
                idle.push(UnixStream::connect(&path).await.unwrap());
            }
            let mut more = UnixStream::connect(&path).await.unwrap();
            assert_eq!(nothing(&mut more).await, 0, "it is closed at once");
            // Who says what it is frees its place as it goes.
            let mut first = idle.remove(0);
            first.write_all(b"hello\n").await.unwrap();
            assert_eq!(nothing(&mut first).await, 0);
            // All the others still wait for their first lines to be heard.
            let pending = |stream: &UnixStream| {
                let read = stream.try_read(&mut [0]);
                read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            };
            assert!(idle.iter().all(pending));
        };
        tokio::select! {
            () = socket.serve(async |_| {}, async |_| {}) => {}
            () = strangers => {}
        }
    }
}
