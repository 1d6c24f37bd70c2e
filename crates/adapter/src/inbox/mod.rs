//! A path for clients that take messages at a socket of the session: a connection a message, and
//! whatever is to be said of it comes to a socket of ours. How the lines read is the client's own,
//! see [`InboxClient`].

mod receipts;
mod trace;

use std::fmt;
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use peerbus_os as os;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::mailbox::{BoxFuture, Mailbox, Outcome, Path, Push, WakePath, quote};
use receipts::Receipts;

/// How long the client may take to take a message.
const PATIENCE: Duration = Duration::from_secs(3);
/// Who a push is from, when it is from several.
const SEVERAL: &str = "peerbus";

/// A credential of a socket. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SocketToken(String);

impl SocketToken {
    /// Wraps the text.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself, for the socket that it belongs to.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SocketToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// A message on its way to a client.
#[derive(Debug)]
pub struct Letter<'a> {
    /// What it shows.
    pub push: &'a Push,
    /// Its id, in the form of a UUID.
    pub id: &'a str,
    /// The socket that it goes to.
    pub to: &'a FilePath,
    /// Our own, for what is said of it.
    pub reply: &'a FilePath,
}

impl Letter<'_> {
    /// The name that the user sees on the screen, of characters that cannot end a wrapper: the
    /// sender's where there is one.
    #[must_use]
    pub fn sender(&self) -> String {
        let mails = self.push.items.iter().map(|item| item.content.mail());
        let mut names = mails.map(|mail| Some(mail?.inbound.from.as_str()));
        let first = names.next().flatten();
        let one = first.filter(|first| names.all(|name| name == Some(first)));
        quote::plain(one.unwrap_or(SEVERAL))
    }
}

/// A client whose sessions take messages at a socket, and how it speaks there.
pub trait InboxClient: Send + Sync {
    /// The socket at which the session takes messages now; `Err` says why there is none.
    fn socket(&self) -> Result<PathBuf, String>;

    /// The lines that are written for a message; `Err` if the client would not take them.
    ///
    /// # Errors
    ///
    /// With a sentence, for the log.
    fn lines(&self, letter: &Letter<'_>) -> Result<String, String>;

    /// A message is about to be written.
    fn posts(&self) {}

    /// What tells in the first bytes of a connection to our socket that an agent answers there,
    /// with a tool of its client's, and how many bytes are read for it. Its answer is longer, and
    /// left: it would reach nobody, and its writer is to see the connection break.
    fn answer(&self) -> (&'static [u8], usize);

    /// So many lines come in one connection.
    fn receipt_lines(&self) -> usize {
        1
    }

    /// What the client says of messages: of each its id and what came of it. Words that are not
    /// known say nothing.
    fn receipts(&self, text: &[u8]) -> Vec<(String, Outcome)>;
}

/// The path to a session by its socket.
pub struct InboxPath<C> {
    spec: Path,
    client: std::sync::Arc<C>,
    receipts: Receipts,
}

impl<C: InboxClient + 'static> InboxPath<C> {
    /// The path, and what listens to the client's receipts.
    ///
    /// `notes` is a directory of ours in which to note what is made in the client's.
    pub fn new(
        spec: Path,
        client: C,
        mailbox: Mailbox,
        notes: Option<PathBuf>,
    ) -> (Self, BoxFuture<'static, ()>) {
        let receipts = Receipts::new(notes);
        let client = std::sync::Arc::new(client);
        let listening = receipts.clone().listen(mailbox, client.clone());
        let path = Self {
            spec,
            client,
            receipts,
        };
        (path, Box::pin(listening))
    }

    /// The socket as the client tells it now.
    fn place(&self) -> Result<PathBuf, String> {
        let socket = self.client.socket()?;
        check(&socket).map_err(|error| format!("{}: {error}", socket.display()))?;
        Ok(socket)
    }

    async fn post(&self, push: &Push) -> io::Result<()> {
        let socket = self.place().map_err(io::Error::other)?;
        // Without it the user's refusal would go unheard, and the next path be tried.
        let reply = self.receipts.open_beside(&socket)?;
        let id = uuid::Uuid::now_v7().to_string();
        let letter = Letter {
            push,
            id: &id,
            to: &socket,
            reply: &reply,
        };
        let lines = self.client.lines(&letter).map_err(io::Error::other)?;
        let mut stream = UnixStream::connect(&socket).await?;
        os::socket::check_listener(&stream)?;
        self.client.posts();
        if let Some(attempt) = push.attempt {
            self.receipts.expect(id, attempt);
        }
        stream.write_all(lines.as_bytes()).await?;
        stream.shutdown().await
    }
}

impl<C: InboxClient + 'static> WakePath for InboxPath<C> {
    fn spec(&self) -> Path {
        self.spec
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_shown() {
        let token = SocketToken::new("sesame".into());
        assert_eq!(format!("{token:?}"), "Token(…)");
    }
}
