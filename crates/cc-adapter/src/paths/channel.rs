//! `notifications/claude/channel`. The client never answers one, and drops those that it does not
//! want without a word: written is all that can be claimed.

use peerbus_adapter::wake::{Outcome, Path};
use peerbus_mcp::{BoxFuture, Desk, Host, Letter, WakePath};
use serde_json::{Map, Value, json};

use crate::session::Session;
use crate::text::plain;

const METHOD: &str = "notifications/claude/channel";

/// The channel.
pub(crate) struct Channel {
    host: Host,
    desk: Desk,
    session: Session,
}

impl Channel {
    pub(crate) fn new(host: Host, desk: Desk, session: Session) -> Self {
        Self {
            host,
            desk,
            session,
        }
    }

    async fn push(&self, content: &str, meta: Vec<(&'static str, String)>) -> Outcome {
        let meta = meta
            .into_iter()
            .map(|(key, value)| (key.to_owned(), Value::from(value)));
        let params = json!({ "content": content, "meta": meta.collect::<Map<_, _>>() });
        match self.host.notify(METHOD, params).await {
            Ok(()) => Outcome::Written,
            Err(_) => Outcome::Failed,
        }
    }
}

impl WakePath for Channel {
    fn path(&self) -> Path {
        Path::Channel
    }

    fn needs(&self) -> &'static str {
        "a session that was started with the flag for channels, on an account that has them; \
         whether it takes pushes cannot be asked"
    }

    fn evidence(&self) -> &'static str {
        "a push that was written proves nothing; an answer in the transcript after it does, and a \
         tool call that names the message"
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            self.session.report(&self.desk);
            if self.host.is_initialized() {
                Ok(())
            } else {
                Err("the client is not initialized".to_owned())
            }
        })
    }

    fn wake<'a>(&'a self, letter: &'a Letter) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            self.session.stir();
            let (content, meta) = letter.channel();
            self.push(&content, meta).await
        })
    }

    fn announce<'a>(&'a self, name: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let name = plain(name);
            let content = format!("📡 connected as {name}");
            let meta = vec![("kind", "system".to_owned()), ("self", name)];
            // A client that is gone needs no name.
            let _ = self.push(&content, meta).await;
        })
    }
}
