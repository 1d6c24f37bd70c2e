//! MCP over stdio: the streams below rmcp, and what is reached through it. Only this module and the
//! handler in `server` name rmcp.
//!
//! The runtime must be single-threaded: rmcp handles each message in a task of its own, and only
//! there do tasks start in the order in which the messages came.

mod caller;
mod outbox;
mod stdio;
#[cfg(test)]
mod tests;
mod transport;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rmcp::model::{CustomNotification, PingRequest, ServerNotification, ServerRequest};
pub(crate) use rmcp::schemars;
use rmcp::schemars::generate::SchemaSettings;
use rmcp::service::Peer;
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::lifecycle::Exit;
use crate::profile::ClientInfo;
pub(crate) use caller::Caller;
use outbox::Outbox;
pub(crate) use outbox::{Calls, Sending};
pub use stdio::{Input, Output, open as stdio};
pub use transport::LINE_BYTES_MAX;
use transport::Pipe;

/// When the client says nothing for so long after an answer that it should confirm, it is asked
/// whether it lives.
const PING_AFTER: Duration = Duration::from_secs(1);

/// Members of a call's notes that are kept, and their longest key and text, in bytes.
const NOTES_MAX: usize = 16;
const NOTE_BYTES_MAX: usize = 256;

/// The JSON Schema of what `T` is written as, without `format`: those of numbers are schemars' own,
/// and clients warn of words that they do not know.
pub(crate) fn output_schema<T: schemars::JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    let mut schema = std::mem::take(schema.ensure_object());
    // Those of the Rust type say nothing to a model.
    schema.retain(|name, value| {
        !matches!(name.as_str(), "title" | "description") && is_kept(name, value)
    });
    schema.values_mut().for_each(without_format);
    schema
}

/// A member `format` that is an object is a property's schema.
fn is_kept(name: &str, value: &Value) -> bool {
    name != "format" || value.is_object()
}

fn without_format(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.retain(|name, value| is_kept(name, value));
            never_null(members);
            members.values_mut().for_each(without_format);
        }
        Value::Array(items) => items.iter_mut().for_each(without_format),
        _ => {}
    }
}

/// What is none is left out of a result: no member of one can be null.
fn never_null(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = schema.get_mut("type")
        && types.len() == 2
    {
        types.retain(|kind| kind != "null");
        let only = types.pop();
        schema.extend(only.map(|kind| ("type".to_owned(), kind)));
    }
    if let Some(Value::Array(any)) = schema.get_mut("anyOf") {
        any.retain(|one| one["type"] != "null");
        if let [Value::Object(only)] = &mut any[..] {
            let only = std::mem::take(only);
            schema.remove("anyOf");
            schema.extend(only);
        }
    }
}

/// The client, as far as a server can reach it.
#[derive(Clone, Default)]
pub struct Host {
    peer: Arc<OnceLock<Peer<RoleServer>>>,
    initialized: Arc<watch::Sender<bool>>,
    client: Arc<watch::Sender<Option<ClientInfo>>>,
    notes: Arc<watch::Sender<Notes>>,
    listener: Arc<OnceLock<Listener>>,
}

/// A method, and who hears its notifications.
type Listener = (&'static str, Box<dyn Fn(Value) + Send + Sync>);

/// What a client wrote beside a tool call (`_meta`): the members that are short texts.
pub type Notes = BTreeMap<String, String>;

/// The client is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the client is gone")]
pub struct Gone;

impl Host {
    /// The client has introduced itself.
    pub(crate) fn met(&self, peer: Peer<RoleServer>, client: ClientInfo) {
        // One that initializes twice is at the other end of the same streams.
        let _ = self.peer.set(peer);
        self.client.send_if_modified(|known| {
            let new = known.is_none();
            known.get_or_insert(client);
            new
        });
    }

    /// The client calls a tool, with this beside it.
    pub(crate) fn noted(&self, meta: &Map<String, Value>) {
        let short = |(key, value): (&String, &Value)| {
            let text = value.as_str().filter(|text| text.len() <= NOTE_BYTES_MAX)?;
            (key.len() <= NOTE_BYTES_MAX).then(|| (key.clone(), text.to_owned()))
        };
        let notes: Notes = meta.iter().filter_map(short).take(NOTES_MAX).collect();
        let changes = |known: &mut Notes| (*known != notes).then(|| *known = notes).is_some();
        self.notes.send_if_modified(changes);
    }

    /// Waits until the client has introduced itself, and says who it is.
    pub async fn client(&self) -> ClientInfo {
        let mut client = self.client.subscribe();
        let known = client.wait_for(Option::is_some).await;
        match known.map(|known| known.clone()) {
            Ok(Some(client)) => client,
            // The sender lives as long as self.
            _ => std::future::pending().await,
        }
    }

    /// What the client wrote beside its last tool call.
    #[must_use]
    pub fn notes(&self) -> watch::Receiver<Notes> {
        self.notes.subscribe()
    }

    /// Has `hear` hear the notifications of this method from now on, with their parameters. It must
    /// not wait. One method is heard; those of others are dropped.
    pub fn listen(&self, method: &'static str, hear: impl Fn(Value) + Send + Sync + 'static) {
        // A second one is one too many.
        let _ = self.listener.set((method, Box::new(hear)));
    }

    /// The client sent a notification that is none of MCP's.
    pub(crate) fn told(&self, method: &str, params: Option<Value>) {
        if let Some((wanted, hear)) = self.listener.get()
            && *wanted == method
        {
            hear(params.unwrap_or_default());
        }
    }

    /// The client has sent `notifications/initialized`.
    pub(crate) fn begin(&self) {
        self.initialized.send_replace(true);
    }

    /// Whether the client has sent `notifications/initialized`. Before that it drops what it is
    /// sent.
    #[must_use]
    pub fn is_initialized(&self) -> bool {
        *self.initialized.borrow()
    }

    /// Says when the client has sent `notifications/initialized`: it takes pushes then.
    #[must_use]
    pub fn ready(&self) -> tokio::sync::watch::Receiver<bool> {
        self.initialized.subscribe()
    }

    /// Sends a notification and waits until its line was flushed.
    ///
    /// # Errors
    ///
    /// When the client is gone, or has not introduced itself.
    pub async fn notify(&self, method: &str, params: Value) -> Result<(), Gone> {
        let peer = self.peer.get().ok_or(Gone)?;
        let notification = CustomNotification::new(method, Some(params));
        let notification = ServerNotification::CustomNotification(notification);
        peer.send_notification(notification).await.map_err(|_| Gone)
    }
}

/// Serves the client until one side ends. `closed` becomes true as soon as the client has closed
/// its end; answers under way are still written.
pub(crate) async fn serve(
    handler: impl ServerHandler,
    (host, calls): (Host, Calls),
    input: impl AsyncRead + Unpin + Send + 'static,
    output: impl AsyncWrite + Unpin + Send,
    closed: watch::Sender<bool>,
) -> Exit {
    let out = Outbox::default();
    let pipe = Pipe::new(input, out.clone(), calls.clone(), closed.clone());
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
    tokio::select! {
        exit = serving => exit,
        error = out.write_to(output, |id| calls.flushed(id)) => {
            tracing::debug!(%error, "the client does not read any more");
            Exit::OutputClosed
        }
        exit = ask_for_life(&calls, &host) => exit,
    }
}

/// Asks a client that goes on with nothing whether it has what it was answered: once for what left
/// meanwhile, and not again before it says something.
async fn ask_for_life(calls: &Calls, host: &Host) -> Exit {
    loop {
        calls.left().await;
        tokio::time::sleep(PING_AFTER).await;
        if let Some(peer) = host.peer.get().filter(|_| calls.wait()) {
            let ping = ServerRequest::PingRequest(PingRequest::default());
            // Any answer is a sign of life, and the transport has noticed it.
            let _ = peer.send_request(ping).await;
        }
    }
}
