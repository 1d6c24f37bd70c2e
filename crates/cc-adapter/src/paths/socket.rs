//! The socket at which the session itself takes messages from other processes of its user.
//!
//! The client documents the socket, its two environment variables and the line with the token.
//! The rest was seen with 2.1.330 and 2.1.280: treat it as unstable. An idle session starts a turn,
//! a busy one takes the text in at the next boundary between tools. Nothing says that a message
//! was taken; that it was not is said at our own socket, see [`Receipts`].

use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use peerbus_adapter::mailbox::{BoxFuture, Mailbox, Outcome, Path, Push, WakePath, quote};
use peerbus_os as os;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::receipts::Receipts;
use crate::session::{Session, Token};
use crate::wake_list::SOCKET;

/// Longest line that the client reads, in characters.
const LINE_CHARS_MAX: usize = 1_048_576;
/// How long the client may take to take a line.
const PATIENCE: Duration = Duration::from_secs(3);
/// Who a push is from, when it is from several.
const SEVERAL: &str = "peerbus";

/// The session's socket.
pub(crate) struct Socket {
    mailbox: Mailbox,
    session: Session,
    receipts: Receipts,
}

impl Socket {
    /// The path, and what listens to the client's receipts.
    ///
    /// `notes` is a directory of ours in which to note what is made in the client's.
    pub(crate) fn new(
        mailbox: Mailbox,
        session: Session,
        notes: Option<PathBuf>,
    ) -> (Self, impl Future<Output = ()> + use<>) {
        let receipts = Receipts::new(notes);
        let listening = receipts.clone().listen(mailbox.clone());
        let path = Self {
            mailbox,
            session,
            receipts,
        };
        (path, listening)
    }

    /// The socket as the client tells it now.
    fn place(&self) -> Result<PathBuf, String> {
        self.mailbox.report(&self.session);
        let Some(socket) = self.session.socket() else {
            return Err("the client tells of no socket for its session".to_owned());
        };
        check(&socket).map_err(|error| format!("{}: {error}", socket.display()))?;
        Ok(socket)
    }

    async fn post(&self, push: &Push) -> io::Result<()> {
        let socket = self.place().map_err(io::Error::other)?;
        // Without it the user's refusal would go unheard, and the next path be tried.
        let reply = self.receipts.open_beside(&socket)?;
        let id = uuid::Uuid::now_v7().to_string();
        let lines = lines(push, &id, &reply, self.session.token_for(&socket))?;
        let mut stream = UnixStream::connect(&socket).await?;
        os::socket::check_listener(&stream)?;
        self.session.look_again();
        if let Some(attempt) = push.attempt {
            self.receipts.expect(id, attempt);
        }
        stream.write_all(lines.as_bytes()).await?;
        stream.shutdown().await
    }
}

impl WakePath for Socket {
    fn spec(&self) -> Path {
        &SOCKET
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { self.place().map(drop) })
    }

    fn wake<'a>(&'a self, push: &'a Push) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let posted = timeout(PATIENCE, self.post(push)).await;
            match posted.unwrap_or_else(|elapsed| Err(elapsed.into())) {
                Ok(()) => Outcome::Written,
                Err(error) => {
                    tracing::debug!(%error, "the session's socket did not take a message");
                    Outcome::Failed
                }
            }
        })
    }
}

/// Whether this is a socket of our own user.
fn check(socket: &FilePath) -> io::Result<()> {
    if !os::socket::is_socket(socket)? {
        return Err(io::Error::other("it is no socket"));
    }
    if !os::user::owns(socket) {
        return Err(io::Error::other("it belongs to another user"));
    }
    Ok(())
}

/// What is written: the token if there is one, then the message. The priority is always the one
/// that waits for a boundary: `now` would abort a tool that runs. The permission mode of the
/// sender, which the wrapper could claim, is never claimed: the user's own hold stands on it.
fn lines(push: &Push, id: &str, reply: &FilePath, token: Option<&Token>) -> io::Result<String> {
    let from = format!("uds:{}", reply.display());
    let name = sender(push);
    let text = push.text();
    let content = format!(
        "<cross-session-message from=\"{from}\" from-name=\"{name}\">\n{text}\n</cross-session-message>"
    );
    let message = json!({
        "msgV": 1,
        "msg_id": id,
        "type": "user",
        "message": { "role": "user", "content": content },
        "priority": "next",
        "from": from,
    });
    let message = message.to_string();
    if message.chars().count() > LINE_CHARS_MAX {
        return Err(io::Error::other(
            "the message is too long for the session's socket",
        ));
    }
    let auth =
        token.map(|token| format!("{}\n", json!({ "type": "auth", "token": token.reveal() })));
    Ok(format!("{}{message}\n", auth.unwrap_or_default()))
}

/// The name that the user sees on the screen, of characters that cannot end the wrapper.
fn sender(push: &Push) -> String {
    let mails = push.items.iter().map(|item| item.content.mail());
    let mut names = mails.map(|mail| Some(mail?.inbound.from.as_str()));
    let first = names.next().flatten();
    let one = first.filter(|first| names.all(|name| name == Some(first)));
    quote::plain(one.unwrap_or(SEVERAL))
}
