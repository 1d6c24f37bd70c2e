//! Between the MCP server of the bus, which speaks lines over a pair of streams, and the clients of
//! the agent that is driven: inside its own stream, or at relays. Each begins with `initialize` and
//! counts its requests from zero.

mod relays;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use peerbus_adapter::hooks::{Connection, Introduced};
use peerbus_adapter::mailbox::BoxFuture;
use peerbus_mcp::{ClientInfo, LINE_BYTES_MAX};
use peerbus_os::lines::{BoundedLines, NextLine};
use peerbus_os::sync::lock;
use peerbus_wire::jsonrpc::{INVALID_REQUEST, RpcError, RpcMessage, raw};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, split};
use tokio::sync::{mpsc, watch};

pub(crate) use relays::Relays;

/// Bytes between the two that nobody has taken.
pub(crate) const PIPE_BYTES: usize = 65_536;
const WAITING_MAX: usize = 64;
/// The request that begins everything.
const HELLO: u64 = 0;
/// The client inside the agent's stream.
pub(crate) const STREAM: u64 = 0;
/// Requests of a relay's client whose answers have not left: it is not heard while there are more.
const OPEN_MAX: usize = 256;
/// Longest line of a relay: the server's number may be longer than the client's.
const LINE_MAX: usize = LINE_BYTES_MAX - 32;

/// Takes an answer to where its request came from.
pub(crate) type Back = Box<dyn FnOnce(RpcMessage) -> BoxFuture<'static, ()> + Send>;

pub(crate) struct Tools {
    lines: mpsc::Sender<String>,
    last: AtomicU64,
    clients: AtomicU64,
    open: Mutex<BTreeMap<u64, Open>>,
    /// What `initialize` was answered, for each client that asks.
    hello: watch::Sender<Option<RpcMessage>>,
}

/// A request of a client's that the server has not answered.
struct Open {
    client: u64,
    id: Box<RawValue>,
    back: Back,
}

/// What is read of what a client says.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Params {
    protocol_version: String,
    client_info: Option<Introduced>,
    request_id: Option<Box<RawValue>>,
}

impl Tools {
    /// Makes one, and gives the lines that [`Tools::carry`] takes to the server.
    pub(crate) fn new() -> (Arc<Self>, mpsc::Receiver<String>) {
        let (lines, waiting) = mpsc::channel(WAITING_MAX);
        let tools = Self {
            lines,
            last: AtomicU64::new(HELLO),
            clients: AtomicU64::new(STREAM),
            open: Mutex::default(),
            hello: watch::Sender::new(None),
        };
        (Arc::new(tools), waiting)
    }

    /// Introduces the client to the server, before any client is there, since the bus needs no turn to
    /// begin with and some ask only when their first turn begins; then moves lines both ways until the
    /// server has ended. `answers` is told what a client was answered. Dropped, it ends the server.
    pub(crate) async fn carry(
        &self,
        who: &ClientInfo,
        server: DuplexStream,
        mut waiting: mpsc::Receiver<String>,
        answers: impl Fn(&str),
    ) {
        let (read, mut write) = split(server);
        let hello = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": who.name, "version": who.version },
        });
        let hello = RpcMessage::request(HELLO, "initialize", &hello).line();
        let ready = RpcMessage::call(None, "notifications/initialized", None).line();
        let up = async {
            let mut next = Some(hello + &ready);
            while let Some(line) = next
                && write.write_all(line.as_bytes()).await.is_ok()
            {
                next = waiting.recv().await;
            }
        };
        let down = async {
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if self.answered(&line).await {
                    answers(&line);
                }
            }
        };
        tokio::select! {
            () = up => {}
            () = down => {}
        }
    }

    /// A message of a client's. `back` is kept for the answer if it asks for one. Gives who it says it
    /// is, where it introduces itself.
    pub(crate) async fn take(
        &self,
        client: u64,
        message: RpcMessage,
        back: Back,
    ) -> Option<ClientInfo> {
        let params = message.params.as_deref();
        let params = params.and_then(|params| serde_json::from_str::<Params>(params.get()).ok());
        let params = params.unwrap_or_default();
        match (message.method.as_deref(), message.id) {
            (Some("initialize"), Some(id)) => {
                let mut hello = self.hello(&params.protocol_version).await;
                hello.id = Some(id);
                back(hello).await;
                let Introduced { name, version } = params.client_info?;
                return Some(ClientInfo { name, version });
            }
            (Some(method), Some(id)) => {
                let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
                let open = Open { client, id, back };
                lock(&self.open).insert(number, open);
                self.pass(raw(&number), method, message.params).await;
            }
            // The server was told already.
            (Some("notifications/initialized"), None) => {}
            (Some("notifications/cancelled"), None) => {
                let id = params.request_id.as_deref().map(RawValue::get);
                let is_it = |open: &Open| open.client == client && Some(open.id.get()) == id;
                // It is answered no more: its place is free.
                let number = {
                    let mut all = lock(&self.open);
                    let mut found = all.extract_if(.., |_, open| is_it(open));
                    found.next().map(|(number, _)| number)
                };
                if let Some(number) = number {
                    self.cancel(number).await;
                }
            }
            (Some(method), None) => self.pass(None, method, message.params).await,
            // An answer to something that was never asked.
            (None, _) => {}
        }
        None
    }

    /// Nobody waits any more for what a client has asked.
    pub(crate) async fn gone(&self, client: u64) {
        let left: Vec<_> = lock(&self.open)
            .extract_if(.., |_, open| open.client == client)
            .map(|(number, _)| number)
            .collect();
        for number in left {
            self.cancel(number).await;
        }
    }

    /// Serves a client at a relay until that is gone.
    pub(crate) async fn relay(&self, connection: Connection) {
        let client = self.clients.fetch_add(1, Ordering::Relaxed) + 1;
        let mut lines = BoundedLines::new(connection.lines.rest(), LINE_MAX);
        let mut write = connection.write;
        let (to, mut answers) = mpsc::channel::<String>(OPEN_MAX);
        let hear = async {
            loop {
                let read = match lines.next().await {
                    NextLine::Line if lines.line().trim_ascii().is_empty() => continue,
                    NextLine::Line => RpcMessage::read(lines.line()),
                    NextLine::TooLong => Err(too_long()),
                    NextLine::End => return,
                };
                // With a place for it an answer waits for nobody.
                let Ok(place) = to.clone().reserve_owned().await else {
                    return;
                };
                let back = |answer: RpcMessage| -> BoxFuture<'static, ()> {
                    place.send(answer.line());
                    Box::pin(std::future::ready(()))
                };
                match read {
                    Ok(message) => _ = self.take(client, message, Box::new(back)).await,
                    Err(error) => back(refusal(RawValue::NULL.to_owned(), error)).await,
                }
            }
        };
        let say = async {
            while let Some(line) = answers.recv().await
                && write.write_all(line.as_bytes()).await.is_ok()
            {}
        };
        tokio::select! {
            () = hear => {}
            () = say => {}
        }
        self.gone(client).await;
    }

    /// What the server told the first client, in the version that another one asks for if it is served.
    async fn hello(&self, version: &str) -> RpcMessage {
        let mut hello = self.hello.subscribe();
        let told = hello.wait_for(Option::is_some).await;
        // The sender lives as long as self.
        let told = told.ok().and_then(|told| told.clone()).unwrap_or_default();
        let result = told.result.as_deref().map_or("", RawValue::get);
        match serde_json::from_str::<Value>(result) {
            Ok(mut result) if peerbus_mcp::speaks(version) => {
                result["protocolVersion"] = version.into();
                let result = raw(&result);
                RpcMessage { result, ..told }
            }
            _ => told,
        }
    }

    async fn cancel(&self, number: u64) {
        let params = json!({ "requestId": number });
        self.pass(None, "notifications/cancelled", raw(&params))
            .await;
    }

    async fn pass(&self, id: Option<Box<RawValue>>, method: &str, params: Option<Box<RawValue>>) {
        let line = RpcMessage::call(id, method, params).line();
        // It fails when the server has ended, and everything with it.
        let _ = self.lines.send(line).await;
    }

    /// What the server says. Whether it answered a client.
    async fn answered(&self, line: &str) -> bool {
        let Ok(mut message) = RpcMessage::read(line.as_bytes()) else {
            return false;
        };
        match (&message.method, message.number()) {
            (None, Some(HELLO)) => drop(self.hello.send_replace(Some(message))),
            (None, Some(number)) => {
                let open = lock(&self.open).remove(&number);
                if let Some(Open { id, back, .. }) = open {
                    message.id = Some(id);
                    back(message).await;
                    return true;
                }
            }
            (Some(method), _) => {
                tracing::debug!(method, "the server speaks by itself");
                if let Some(id) = message.id.filter(|_| method == "ping") {
                    // With 64 lines on their way it hears that somebody lives.
                    let pong = RpcMessage::response(id, &Ok::<_, ()>(json!({})));
                    let _ = self.lines.try_send(pong.line());
                }
            }
            (None, None) => {}
        }
        false
    }
}

fn too_long() -> RpcError {
    RpcError::new(
        INVALID_REQUEST,
        format!("a line has at most {LINE_MAX} bytes"),
    )
}

/// The answer to what is not passed on.
fn refusal(id: Box<RawValue>, error: RpcError) -> RpcMessage {
    RpcMessage::response(id, &Err::<(), _>(error))
}

#[cfg(test)]
mod tests;
