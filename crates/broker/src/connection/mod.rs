//! One connection, from the upgrade to the end of its socket.
//!
//! Reading, writing and watching are three futures of one task, so an idle connection costs one
//! small allocation, and none of them waits for another: a client that writes while it is being
//! written to (v1 adapters ack in their read loop) is always read.

mod close;
mod read;
mod watch;
mod write;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::ws::WebSocket;
use futures_util::StreamExt;
use peerbus_core::broker::BrokerInput;
use peerbus_wire::CloseReason;
use tokio::sync::mpsc::Receiver;

use self::close::CloseHandshake;
use crate::engine_input::Content;
use crate::link::Link;
use crate::listener::Socket;
use crate::places::{Place, StrangersPlace};
use crate::shared::Shared;
use crate::table::Outgoing;

#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// The client sent a close frame.
    Goodbye,
    /// The socket broke or ended without a close frame.
    Lost,
    /// The connection was to be closed, and everything before that is sent.
    Drained,
    /// The connection was to be closed, and what was queued could not be sent in time.
    Cut,
    /// The client broke a rule of the protocol, or is given up.
    Closed(CloseReason),
    /// It broke one of WebSocket itself: the close code (RFC 6455 §7.4.1) and what is said of it.
    Violation(u16, &'static str),
}

/// Serves a connection. `place` is given back when its socket is closed.
pub(crate) async fn serve(
    ws: WebSocket,
    socket: Arc<Socket>,
    (place, stranger): (Place, StrangersPlace),
    shared: Arc<Shared>,
) {
    let (mut sink, mut stream) = ws.split();
    let Some((open, mut queue)) = Open::enter(&shared, stranger) else {
        let close = CloseHandshake::Close(CloseReason::GoingAway);
        return close.say(&mut sink, &mut stream, &socket, &shared).await;
    };
    let link = Arc::clone(&open.link);
    let end = tokio::select! {
        end = read::read(&mut stream, &socket, &link, &shared) => end,
        end = write::write(&mut sink, &mut queue, &socket, &link, &shared) => end,
        end = watch::watch(&link, &shared) => end,
    };
    open.leave(end == End::Goodbye && link.closing().is_none());
    drop(queue);
    tracing::debug!(conn = link.conn().0, ?end, "connection ends");
    if end == End::Cut {
        shared.cut.fetch_add(1, Ordering::Relaxed);
    }
    let close = CloseHandshake::after(end, link.closing());
    close.say(&mut sink, &mut stream, &socket, &shared).await;
    // Until here a client that never registered has a stranger's place.
    drop((link, place));
}

/// An entry of the connection table of which the engine knows. However the task ends, the engine
/// learns of it, once.
struct Open<'a> {
    link: Arc<Link>,
    goodbye: bool,
    shared: &'a Shared,
}

impl<'a> Open<'a> {
    /// `None` when the engine has stopped.
    fn enter(shared: &'a Shared, stranger: StrangersPlace) -> Option<(Self, Receiver<Outgoing>)> {
        let (link, queue) = shared.table.open(shared.clock.mono_ms(), stranger);
        let conn = link.conn();
        // The entry comes first: the engine's answer needs it, and an engine that stops closes
        // every entry after it has stopped taking inputs.
        if shared
            .engine
            .send_now(Content::Input(BrokerInput::Opened(conn)))
            .is_err()
        {
            shared.table.remove(conn);
            return None;
        }
        shared.metrics.opened.inc();
        Some((
            Self {
                link,
                goodbye: false,
                shared,
            },
            queue,
        ))
    }

    fn leave(mut self, goodbye: bool) {
        self.goodbye = goodbye;
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let conn = self.link.conn();
        self.shared.table.remove(conn);
        let closed = BrokerInput::Closed {
            conn,
            goodbye: self.goodbye,
        };
        // An engine that has stopped needs no word of it.
        let _stopped = self.shared.engine.send_now(Content::Input(closed));
    }
}
