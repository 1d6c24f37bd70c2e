//! MCP over stdio. Only this module names rmcp.
//!
//! The runtime must be single-threaded: rmcp handles each message in a task of its own, and only
//! there do tasks start in the order in which the messages came.

mod caller;
mod calls;
mod handler;
mod lines;
mod outbox;
mod stdio;
#[cfg(test)]
mod tests;
mod transport;

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::handler::server::common::schema_for_output;
use rmcp::model::{CustomNotification, PingRequest, ServerNotification, ServerRequest};
pub(crate) use rmcp::schemars;
use rmcp::service::Peer;
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::lifecycle::Exit;
use crate::session::Session;
pub(crate) use caller::Caller;
use calls::Calls;
pub(crate) use calls::Receipt;
use handler::Handler;
use outbox::Outbox;
pub(crate) use stdio::open as stdio;
use transport::Pipe;

/// When the client says nothing for so long after an answer that it should confirm, it is asked
/// whether it lives.
const PING_AFTER: Duration = Duration::from_secs(1);

/// The JSON Schema of what `T` is written as.
pub(crate) fn output_schema<T: schemars::JsonSchema + 'static>() -> Arc<Map<String, Value>> {
    schema_for_output::<T>()
}

/// The client, as far as a server can reach it.
#[derive(Debug, Clone)]
pub struct Host {
    peer: watch::Receiver<Option<Peer<RoleServer>>>,
    initialized: watch::Receiver<bool>,
}

/// The client is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the client is gone")]
pub struct Gone;

impl Host {
    /// Whether the client has sent `notifications/initialized`. Before that it drops what it is
    /// sent.
    #[must_use]
    pub fn is_initialized(&self) -> bool {
        *self.initialized.borrow()
    }

    /// Waits until the client has sent `notifications/initialized`.
    pub async fn initialized(&mut self) {
        if self.initialized.wait_for(|done| *done).await.is_err() {
            // The session is over; whoever waits is dropped with it.
            std::future::pending::<()>().await;
        }
    }

    /// Sends a notification and waits until its line was flushed.
    ///
    /// # Errors
    ///
    /// When the client is gone, or has not introduced itself.
    pub async fn notify(&self, method: &str, params: Value) -> Result<(), Gone> {
        let peer = self.peer.borrow().clone().ok_or(Gone)?;
        let notification = CustomNotification::new(method, Some(params));
        let notification = ServerNotification::CustomNotification(notification);
        peer.send_notification(notification).await.map_err(|_| Gone)
    }
}

/// One connection with a client.
pub(crate) struct Connection {
    /// The client's side, for what the server starts.
    pub(crate) host: Host,
    handler: Handler,
    calls: Calls,
    peer: watch::Sender<Option<Peer<RoleServer>>>,
}

impl Connection {
    pub(crate) fn new(session: Arc<Session>) -> Self {
        let (peer, known) = watch::channel(None);
        let host = Host {
            peer: known,
            initialized: session.initialized.subscribe(),
        };
        let calls = Calls::default();
        let handler = Handler::new(session, calls.clone(), peer.clone());
        Self {
            host,
            handler,
            calls,
            peer,
        }
    }

    /// Serves the client until one side ends. `closed` becomes true as soon as the client has
    /// closed its end; answers under way are still written.
    pub(crate) async fn serve(
        self,
        input: impl AsyncRead + Unpin + Send + 'static,
        output: impl AsyncWrite + Unpin + Send,
        closed: watch::Sender<bool>,
    ) -> Exit {
        let (out, calls) = (Outbox::default(), self.calls);
        let pipe = Pipe::new(input, out.clone(), calls.clone(), closed.clone());
        let handler = self.handler;
        let serving = async move {
            match rmcp::serve_server(handler, pipe).await {
                Ok(running) => match running.waiting().await {
                    Ok(_) => Exit::InputClosed,
                    Err(error) => Exit::Failed(format!("serving MCP failed: {error}")),
                },
                Err(_) if *closed.borrow() => Exit::InputClosed,
                Err(error) => Exit::Failed(format!("MCP initialize failed: {error}")),
            }
        };
        let exit = tokio::select! {
            exit = serving => exit,
            error = out.write_to(output, |id| calls.flushed(id)) => {
                tracing::debug!(%error, "the client does not read any more");
                Exit::OutputClosed
            }
            exit = ask_for_life(&calls, &self.host) => exit,
        };
        self.peer.send_replace(None);
        exit
    }
}

/// Asks a client that goes on with nothing whether it has what it was answered: once for what left
/// meanwhile, and not again before it says something.
async fn ask_for_life(calls: &Calls, host: &Host) -> Exit {
    loop {
        calls.left().await;
        tokio::time::sleep(PING_AFTER).await;
        let peer = host.peer.borrow().clone();
        if let Some(peer) = peer.filter(|_| calls.wait()) {
            let ping = ServerRequest::PingRequest(PingRequest::default());
            // Any answer is a sign of life, and the transport has noticed it.
            let _ = peer.send_request(ping).await;
        }
    }
}
