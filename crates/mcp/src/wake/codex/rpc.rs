//! A connection to the app-server: JSON-RPC in WebSocket frames over a Unix socket.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use peerbus_os as os;
use peerbus_wire::jsonrpc::RpcMessage;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::wake::Surroundings;

/// How long the server may take for anything.
const PATIENCE: Duration = Duration::from_secs(5);
/// Largest message that is read, in bytes: a thread's description can hold a long first prompt.
const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// Most of what the server says that is kept while an answer is awaited: the last of it tells most.
const HEARD_MAX: usize = 64;

/// Nothing came, or the connection broke: whether something was done is not known.
pub(super) struct Gone;

pub(super) struct Rpc {
    socket: WebSocketStream<UnixStream>,
    asked: u64,
    /// What the server said while an answer was awaited.
    heard: VecDeque<RpcMessage>,
}

impl Rpc {
    /// Connects to the server that started this session. `Err` says that there is none, or another one
    /// listens there.
    pub(super) async fn open(around: &Surroundings) -> Result<Self, String> {
        let opened = timeout(PATIENCE, Self::connect(around)).await;
        let mut rpc = opened.unwrap_or_else(|_| Err("it does not answer".to_owned()))?;
        let us =
            json!({ "name": "peerbus", "title": "peerbus", "version": env!("CARGO_PKG_VERSION") });
        let hello = json!({ "clientInfo": us, "capabilities": {} });
        let greeted = rpc.ask("initialize", hello).await;
        greeted.map_err(|Gone| "it does not answer")??;
        let ready = RpcMessage::call(None, "initialized", None);
        let said = rpc.say(ready).await;
        said.then_some(rpc).ok_or_else(|| "it hung up".to_owned())
    }

    async fn connect(around: &Surroundings) -> Result<Self, String> {
        let plain = |error: &dyn std::fmt::Display| error.to_string();
        let path = place(around)?;
        let stream = UnixStream::connect(&path).await.map_err(|e| plain(&e))?;
        os::socket::check_listener(&stream).map_err(|e| plain(&e))?;
        let server = stream.peer_cred().map_err(|e| plain(&e))?.pid();
        is_ours(around, server)?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX));
        let opened = client_async_with_config("ws://localhost/", stream, Some(config)).await;
        let (socket, _) = opened.map_err(|e| plain(&e))?;
        Ok(Self {
            socket,
            asked: 0,
            heard: VecDeque::new(),
        })
    }

    async fn say(&mut self, mut message: RpcMessage) -> bool {
        // The server writes no version, and reads none.
        message.jsonrpc = "".into();
        let text = Message::text(message.text());
        matches!(timeout(PATIENCE, self.socket.send(text)).await, Ok(Ok(())))
    }

    /// Asks for something. The inner `Err` says that the server refused it, and did nothing.
    pub(super) async fn ask(
        &mut self,
        method: &str,
        params: Value,
    ) -> Result<Result<Value, String>, Gone> {
        self.asked += 1;
        let id = self.asked;
        if !self.say(RpcMessage::request(id, method, &params)).await {
            return Err(Gone);
        }
        let answer = async {
            loop {
                let message = self.next().await?;
                // The server asks, too: with a method.
                if message.number() == Some(id) && message.method.is_none() {
                    return Some(message);
                }
                if message.id.is_none() {
                    if self.heard.len() >= HEARD_MAX {
                        self.heard.pop_front();
                    }
                    self.heard.push_back(message);
                }
            }
        };
        let Ok(Some(answer)) = timeout(PATIENCE, answer).await else {
            return Err(Gone);
        };
        let done = answer.done().unwrap_or(Ok(Value::Null));
        Ok(done.map_err(|error| {
            let why = match error.message.is_empty() {
                true => "for no reason that it gives".to_owned(),
                false => error.message.chars().take(200).collect(),
            };
            format!("it refused: {why}")
        }))
    }

    /// What the server says next, of itself. `None`: the connection ended.
    pub(super) async fn hear(&mut self) -> Option<RpcMessage> {
        if let Some(message) = self.heard.pop_front() {
            return Some(message);
        }
        loop {
            let message = self.next().await?;
            if message.id.is_none() {
                return Some(message);
            }
        }
    }

    async fn next(&mut self) -> Option<RpcMessage> {
        loop {
            match self.socket.next().await?.ok()? {
                Message::Text(text) => return serde_json::from_str(&text).ok(),
                Message::Close(_) => return None,
                _ => {}
            }
        }
    }
}

/// Where the app-server's socket is.
pub(super) fn socket(around: &Surroundings) -> Option<PathBuf> {
    let home = around.directory("CODEX_HOME", ".codex")?;
    Some(home.join("app-server-control/app-server-control.sock"))
}

/// The socket's file, links followed.
fn place(around: &Surroundings) -> Result<PathBuf, String> {
    let path = socket(around).ok_or("there is no home")?;
    let found = path.canonicalize();
    let found = found.map_err(|_| "no app-server runs (feature daemon_auto_start)".to_owned())?;
    match os::socket::is_socket(&found) {
        Ok(true) if os::user::owns(&found) => Ok(found),
        Ok(_) => Err(format!("{} is no socket of this user's", found.display())),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether the process at the other end started this session, as far as the system tells:
/// another server knows nothing of it.
fn is_ours(around: &Surroundings, server: Option<i32>) -> Result<(), String> {
    let server = server.and_then(|pid| u32::try_from(pid).ok());
    let mut above = around.ancestors.iter();
    match server {
        Some(pid) if !above.any(|process| process.id == pid) => {
            Err("the app-server did not start this session, which runs by itself".to_owned())
        }
        _ => Ok(()),
    }
}
