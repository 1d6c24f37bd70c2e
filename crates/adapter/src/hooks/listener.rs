//! The adapter's end: a socket for the hooks of one session.

use std::io;
use std::time::Duration;

use peerbus_os::process;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::line::{self, Ask, Go, Tell, Took};
use super::place::Place;
use crate::paths::Paths;

/// Hooks that are served at a time. Others find nobody, and say nothing.
const HOOKS_MAX: usize = 32;
/// How long a hook may take for one of its lines, and how long to wait when no more connections
/// can be had.
const PATIENCE: Duration = Duration::from_secs(1);

/// Listens for the hooks of the session whose process is `client`. The socket is removed when this
/// is dropped.
#[derive(Debug)]
pub struct HookSocket {
    client: u32,
    listener: UnixListener,
    _place: Place,
}

impl HookSocket {
    /// Opens the socket.
    ///
    /// # Errors
    ///
    /// When there can be none, and why.
    pub fn bind(paths: &Paths, client: u32) -> io::Result<Self> {
        let (place, listener) = Place::bind(paths, client)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            client,
            listener: UnixListener::from_std(listener)?,
            _place: place,
        })
    }

    /// Gives each hook to `serve`, for ever. Hooks that wait end when this is dropped.
    pub async fn serve<F>(self, serve: impl Fn(Hook) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut hooks = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                Some(_) = hooks.join_next() => continue,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(PATIENCE).await;
                continue;
            };
            if !is_of(self.client, &stream) {
                tracing::debug!("a process outside the session asked as a hook");
            } else if hooks.len() < HOOKS_MAX {
                hooks.spawn(serve(Hook(BufReader::new(stream))));
            }
        }
    }
}

/// Whether a process of this user's is at the other end, and it is the client or stands below it,
/// as far as the system tells.
fn is_of(client: u32, stream: &UnixStream) -> bool {
    let Ok(peer) = stream.peer_cred() else {
        return false;
    };
    // On Linux, one whose parents cannot be told has ended, and left its connection to another.
    let below = |pid| process::descends(pid, client).unwrap_or(!cfg!(target_os = "linux"));
    let is_hook = |pid| u32::try_from(pid).is_ok_and(|pid| pid == client || below(pid));
    peer.uid() == peerbus_os::user::id() && peer.pid().is_none_or(is_hook)
}

/// A hook at the other end of a connection.
#[derive(Debug)]
pub struct Hook(BufReader<UnixStream>);

impl Hook {
    /// The connection, for an end that speaks lines of its own. Nothing was read from it yet.
    #[must_use]
    pub fn into_stream(self) -> UnixStream {
        self.0.into_inner()
    }

    /// What it says first. `None`: it does not keep to the lines, and is not answered.
    pub async fn asked<T: DeserializeOwned>(&mut self) -> Option<Ask<T>> {
        let ask: Ask<T> = self.hear().await?;
        (ask.v == line::VERSION).then_some(ask)
    }

    /// Answers that there is nothing to show.
    pub async fn nothing(&mut self) {
        self.say(&Tell::new(None)).await;
    }

    /// The next line.
    async fn hear<T: DeserializeOwned>(&mut self) -> Option<T> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.0).take(line::ASK_MAX as u64);
        let read = timeout(PATIENCE, bounded.read_until(b'\n', &mut line)).await;
        read.ok()?.ok()?;
        serde_json::from_slice(&line).ok()
    }

    /// Whether it was written.
    async fn say(&mut self, what: &impl Serialize) -> bool {
        let Some(line) = line::write(what) else {
            return false;
        };
        let written = timeout(PATIENCE, self.0.get_mut().write_all(&line)).await;
        matches!(written, Ok(Ok(())))
    }

    /// Offers a text, and leaves it to the hook if that takes it. Whether it did.
    pub async fn offer(&mut self, text: String) -> bool {
        self.say(&Tell::new(Some(text))).await
            && self.hear::<Took>().await.is_some_and(|answer| answer.took)
            && self.say(&Go { go: true }).await
    }

    /// Waits until it is gone. It has nothing to say while it waits.
    pub async fn gone(&mut self) {
        // An error is an end, too.
        let _ = self.0.fill_buf().await;
    }
}
