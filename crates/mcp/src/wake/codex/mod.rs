//! Codex.
//!
//! Its screen is a client of a server of the user's, which owns the conversations (threads) and
//! starts tool servers such as this one. That app-server has a socket, and whoever of this user's
//! connects there may start a turn; a turn under way takes the text in at its next boundary. An open
//! dialog and half-typed text are left alone (seen with 0.169.0; the protocol is documented, where
//! the socket is and what it is told of it are not). The server outlives the screen: that a thread
//! takes a message does not mean that somebody looks at it.
//!
//! The text reaches the model as a user's, because no other way is sure to be taken by every model's
//! service: so it says itself what it is. No setting of the thread is ever sent with it.

mod rollout;
mod rpc;
mod session;

use std::sync::Arc;

use peerbus_adapter::mailbox::{AgentLink, BoxFuture, Outcome, Path, PathSpec, Push, WakePath};
use peerbus_adapter::transcript::{LineReader, Places, Transcripts};
use serde_json::json;

use crate::wake::{Context, Waker};
use rpc::{Gone, Rpc};
use session::Session;

pub(crate) static WAKER: Waker = Waker {
    agent: "codex",
    // The app-server that owns the thread.
    path: PathSpec {
        word: "app_server",
        joins_busy_turn: true,
        ..PathSpec::waking(GAP_MS)
    },
    reaches: |_, around| rpc::socket(around).is_some_and(|socket| socket.exists()),
    absent: "",
    process: None,
    start,
};

/// The pause after a push, in milliseconds: what comes meanwhile is one turn.
const GAP_MS: u64 = 2_000;

fn start(_: &'static Waker, context: Context) -> AgentLink {
    let session = Session::new(&context.around, context.host.notes());
    let watching = session.clone().watch(context.mailbox.clone());
    let reader = || -> Box<dyn LineReader> { Box::<rollout::Lines>::default() };
    let places = |snapshot: &peerbus_adapter::mailbox::Snapshot| Places {
        file: snapshot.transcript.clone(),
        ..Places::default()
    };
    AgentLink {
        paths: vec![Box::new(AppServer(session.clone()))],
        session: Some(Arc::new(session)),
        evidence: Some(Box::new(Transcripts::new(places, reader))),
        asleep: String::new(),
        beside: vec![Box::pin(watching)],
    }
}

struct AppServer(Session);

impl WakePath for AppServer {
    fn spec(&self) -> Path {
        &WAKER.path
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        let reachable = self.0.reachable();
        Box::pin(async { reachable.map(drop) })
    }

    fn wake<'a>(&'a self, push: &'a Push) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let Ok(thread) = self.0.reachable() else {
                return Outcome::Failed;
            };
            let mut server = match Rpc::open(&self.0.around).await {
                Ok(server) => server,
                Err(why) => {
                    tracing::debug!(why, "the app-server cannot be asked");
                    return Outcome::Failed;
                }
            };
            let text = push.framed();
            let mut turn = json!({
                "threadId": thread,
                "input": [{ "type": "text", "text": text }],
            });
            if let Some(mark) = &push.mark {
                turn["clientUserMessageId"] = mark.as_str().into();
            }
            match server.ask("turn/start", turn).await {
                Ok(Ok(_)) => Outcome::Written,
                Ok(Err(why)) => {
                    tracing::debug!(why, "the app-server did not take a message");
                    self.0.refused(&why);
                    Outcome::Failed
                }
                // It may have been read before the connection broke.
                Err(Gone) => Outcome::Doubtful,
            }
        })
    }
}
