//! The adapter for Claude Code: bus tools, ways to wake the session, and evidence that its model
//! got what was shown.
//!
//! `CHANNELS_SCHEMA.md` has the contract with the client as a channel, `docs/CLAUDE_CODE.md` what the
//! other ways are.

pub mod hooks;
mod paths;
mod profile;
mod relay;
mod session;
mod transcript;
mod waking;

use std::sync::Arc;

use peerbus_adapter::hooks::SessionSocket;
use peerbus_adapter::inbox::InboxPath;
use peerbus_adapter::mailbox::{AgentLink, BoxFuture, Mailbox, WakePath};
use peerbus_adapter::paths::Paths;
use peerbus_mcp::{Host, Profile};
use peerbus_node::gates::Gates;
use peerbus_node::{Node, SessionStatus};

pub use session::{ClaudeSession, ClaudeSurroundings, Process, SessionFacts};
pub use waking::WAKING;

/// The adapter: what [`peerbus_mcp::run`] serves, and what that starts.
pub fn adapter(
    around: ClaudeSurroundings,
) -> (
    Profile,
    impl FnOnce(Host, Mailbox) -> BoxFuture<'static, AgentLink>,
) {
    let profile = profile::profile(relays(&around));
    (profile, |host, mailbox| {
        Box::pin(std::future::ready(start(around, host, mailbox)))
    })
}

/// Whether the client is to relay what it asks its user: anybody else may answer.
fn relays(around: &ClaudeSurroundings) -> bool {
    let places = around.hooks.as_ref();
    places.is_some_and(|places| Gates::effective(&places.gates).has_approvers())
}

/// What reaches this session, and what runs beside it. Nothing of it outlives the two.
fn start(around: ClaudeSurroundings, host: Host, mailbox: Mailbox) -> AgentLink {
    let allowed = around.wake.clone();
    let hooks = around.hooks.clone();
    let session = ClaudeSession::new(around);
    // Before the bus is asked for a name.
    mailbox.report(&session);
    let notes = hooks.as_ref().and_then(peerbus_adapter::hooks::directory);
    let socket = paths::Socket {
        mailbox: mailbox.clone(),
        session: session.clone(),
    };
    let (socket, receipts) = InboxPath::new(&waking::SOCKET, socket, mailbox.clone(), notes);
    let mut paths: Vec<Box<dyn WakePath>> = vec![Box::new(socket)];
    let mut beside: Vec<BoxFuture<'static, ()>> = vec![receipts];
    if let Some(places) = hooks {
        let rewakes = allowed.allows(&waking::REWAKE);
        if let Some((node, socket)) = node(&places, mailbox.clone(), &session) {
            let (rewake, serve) =
                hooks::server(rewakes, mailbox.clone(), session.clone(), node.clone());
            paths.push(Box::new(rewake));
            relay::relay(&host, node.clone());
            beside.push(Box::pin(node.serve(socket, serve)));
        }
    }
    paths.push(Box::new(paths::Module {
        session: session.clone(),
        has_socket: allowed.allows(&waking::SOCKET),
    }));
    paths.push(Box::new(paths::Channel {
        host,
        mailbox,
        session: session.clone(),
    }));
    paths.retain(|path| allowed.allows(path.spec()));
    AgentLink {
        paths,
        evidence: Some(Box::new(transcript::Witnesses::new(session.clone()))),
        session: Some(Arc::new(session)),
        asleep: String::new(),
        beside,
    }
}

/// The session's node, and the socket at which the hooks are served, too. Where there can be no
/// socket, neither is there.
fn node(
    places: &Paths,
    mailbox: Mailbox,
    session: &ClaudeSession,
) -> Option<(Node, SessionSocket)> {
    let client = session.client().unwrap_or_default();
    let socket = SessionSocket::bind(places, client).inspect_err(
        |error| tracing::warn!(%error, "hooks cannot reach this session: no socket for them"),
    );
    let socket = socket.ok()?;
    let about = SessionStatus {
        client: "claude-code".to_owned(),
        session: Some(Arc::new(session.clone())),
        transcript: Some(transcript::events(session.clone())),
        shown_as: "peer",
        control: Some(Arc::new(session.clone())),
        windowless: false,
    };
    let node = Node::new(&socket, places, about, mailbox);
    Some((node, socket))
}
