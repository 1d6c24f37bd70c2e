//! Our own socket, at which the client says what became of a message that it did not show.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peerbus_os as os;
use peerbus_os::lines::BoundedLines;
use peerbus_os::socket::SocketFile;
use peerbus_os::sync::lock;
use tokio::io::AsyncReadExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::InboxClient;
use super::trace::{self, Trace};
use crate::mailbox::{AttemptId, Mailbox};

/// Messages whose receipts are still understood; the oldest are forgotten.
const EXPECTED_MAX: usize = 256;
/// Longest line that is read, in bytes.
const LINE_MAX: usize = 65_536;
/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// What was posted, and the socket for what is said of it. Clones share it. The socket is made at
/// first use, and its file removed when the last of them is dropped.
#[derive(Debug, Clone)]
pub(super) struct Receipts(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    notes: Option<PathBuf>,
    state: Mutex<State>,
    opened: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The socket's file, and what tells of it should this process be killed.
    file: Option<(SocketFile, Option<Trace>)>,
    fresh: Option<UnixListener>,
    expected: VecDeque<(String, AttemptId)>,
}

/// Sweeps what killed adapters left, and leaves a note for the next one.
fn traced(notes: &Path, socket: &Path) -> Option<Trace> {
    trace::sweep(notes);
    let left = Trace::leave(notes, socket);
    left.inspect_err(|error| tracing::debug!(%error, "nobody will know whose this socket is"))
        .ok()
}

impl Receipts {
    /// `notes` is a directory of ours in which to note which files are.
    pub(super) fn new(notes: Option<PathBuf>) -> Self {
        Self(Arc::new(Shared {
            notes,
            ..Shared::default()
        }))
    }

    /// Listens in the directory of the client's socket, where the client wants it, and gives the
    /// socket's path.
    pub(super) fn open_beside(&self, socket: &Path) -> io::Result<PathBuf> {
        let name = format!("{}.sock", std::process::id());
        let path = socket.with_file_name(name);
        let mut state = lock(&self.0.state);
        if let Some((open, _)) = &state.file
            && open.path() == path
            && open.stands()
        {
            return Ok(path);
        }
        drop(state.file.take());
        if os::socket::is_listening(&path).is_ok_and(|listening| listening) {
            return Err(io::Error::other(format!("{} is in use", path.display())));
        }
        // It is of an earlier process with our number: nobody listens there.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        let file = SocketFile::private(&path)?;
        let trace = self.0.notes.as_deref().and_then(|dir| traced(dir, &path));
        state.file = Some((file, trace));
        state.fresh = Some(listener);
        drop(state);
        self.0.opened.notify_one();
        Ok(path)
    }

    /// From now on a receipt for this id is about that attempt.
    pub(super) fn expect(&self, id: String, attempt: AttemptId) {
        let mut state = lock(&self.0.state);
        if state.expected.len() == EXPECTED_MAX {
            state.expected.pop_front();
        }
        state.expected.push_back((id, attempt));
    }

    /// Tells the mailbox what the client says, for as long as the session lasts.
    pub(super) async fn listen(self, mailbox: Mailbox, client: Arc<impl InboxClient>) {
        self.0.opened.notified().await;
        loop {
            let listener = lock(&self.0.state).fresh.take();
            let Some(listener) = listener else {
                self.0.opened.notified().await;
                continue;
            };
            self.serve(&listener, &mailbox, &*client).await;
        }
    }

    /// Serves one listener until there is another one, or it fails.
    async fn serve(&self, listener: &UnixListener, mailbox: &Mailbox, client: &impl InboxClient) {
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        tracing::debug!(%error, "the session's receipts are not heard for now");
                        drop(lock(&self.0.state).file.take());
                        return;
                    }
                },
                () = self.0.opened.notified() => return,
            };
            // The client waits for the end of the connection: nothing else tells it that the line
            // was read.
            let _ = timeout(PATIENCE, self.read(stream, mailbox, client)).await;
        }
    }

    async fn read(&self, mut stream: UnixStream, mailbox: &Mailbox, client: &impl InboxClient) {
        let (answer, head) = client.answer();
        let mut text = vec![0; head];
        let Ok(read) = stream.read(&mut text).await else {
            return;
        };
        let text = text.get(..read).unwrap_or_default();
        // Closed with something unread, the connection breaks, and an agent that answers here is
        // told that its answer was not sent.
        if text.windows(answer.len()).any(|part| part == answer) {
            return;
        }
        let mut lines = BoundedLines::new(text.chain(stream), LINE_MAX);
        let mut receipt = Vec::new();
        for _ in 0..client.receipt_lines() {
            let Some(line) = lines.whole().await else {
                break;
            };
            receipt.extend_from_slice(line);
            receipt.push(b'\n');
        }
        for (id, outcome) in client.receipts(&receipt) {
            let about = |(known, _): &&(String, AttemptId)| *known == id;
            let attempt = lock(&self.0.state)
                .expected
                .iter()
                .find(about)
                .map(|(_, at)| *at);
            if let Some(attempt) = attempt {
                tracing::debug!(?outcome, "the session did not take a message");
                mailbox.outcome(attempt, outcome);
            }
        }
    }
}
