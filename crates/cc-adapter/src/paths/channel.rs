//! `notifications/claude/channel`. The client never answers one, and drops those that it does not
//! want without a word: written is all that can be claimed.

use peerbus_adapter::mailbox::{
    Attribute, BoxFuture, Mailbox, Outcome, Path, Push, WakePath, quote,
};
use peerbus_mcp::Host;
use serde_json::{Map, Value, json};

use crate::session::ClaudeSession;
use crate::waking::CHANNEL;

const METHOD: &str = "notifications/claude/channel";

pub(crate) struct Channel {
    pub(crate) host: Host,
    pub(crate) mailbox: Mailbox,
    pub(crate) session: ClaudeSession,
}

impl Channel {
    async fn push(&self, content: &str, meta: Vec<Attribute>) -> Outcome {
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
    fn spec(&self) -> Path {
        &CHANNEL
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            self.mailbox.report(&self.session);
            if self.host.is_initialized() {
                Ok(())
            } else {
                Err("the client is not initialized".to_owned())
            }
        })
    }

    fn wake<'a>(&'a self, push: &'a Push) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            self.session.look_again();
            let (content, meta) = push.channel();
            self.push(&content, meta).await
        })
    }

    fn announce<'a>(&'a self, name: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let name = quote::plain(name);
            let content = format!("📡 connected as {name}");
            let meta = vec![("kind", "system".to_owned()), ("self", name)];
            // A client that is gone needs no name.
            let _ = self.push(&content, meta).await;
        })
    }
}
