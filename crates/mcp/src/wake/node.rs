//! The node of a session.

use std::sync::Arc;

use peerbus_adapter::hooks::SessionSocket;
use peerbus_adapter::mailbox::{BoxFuture, Mailbox, SessionSource};
use peerbus_node::{Node, SessionStatus};

use crate::wake::Surroundings;

/// No hook's client: hooks look for the adapter that knows them.
const NOBODY: u32 = 0;

/// Longest name of a client that is told, in characters.
const NAME_CHARS: usize = 64;

/// Makes the node of a session whose client is this process, and its socket; `Err` says why there
/// can be none.
pub(crate) fn bind(
    around: &Surroundings,
    client: Option<u32>,
    name: &str,
    session: Option<Arc<dyn SessionSource>>,
    mailbox: &Mailbox,
) -> Result<(Node, SessionSocket), String> {
    let (Some(paths), Some(client)) = (&around.paths, client) else {
        return Err("there is no home, or no process that started this one".to_owned());
    };
    let socket = SessionSocket::bind(paths, client).map_err(|error| error.to_string())?;
    let about = SessionStatus {
        client: name.chars().take(NAME_CHARS).collect(),
        session,
        transcript: None,
        shown_as: "peer",
        control: None,
        windowless: false,
    };
    let node = Node::new(&socket, paths, about, mailbox.clone());
    Ok((node, socket))
}

/// Serves the node of a session to which nothing of ours connects.
pub(crate) fn alone(
    around: &Surroundings,
    name: &str,
    session: Option<Arc<dyn SessionSource>>,
    mailbox: &Mailbox,
) -> Option<BoxFuture<'static, ()>> {
    match bind(around, Some(NOBODY), name, session, mailbox) {
        Ok((node, socket)) => Some(Box::pin(node.serve(socket, |_| std::future::ready(())))),
        Err(why) => {
            tracing::debug!(why, "this session has no socket");
            None
        }
    }
}
