//! A connection to the app-server: JSON-RPC in WebSocket frames over a Unix socket.

use std::collections::VecDeque;
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

use super::session::Session;

/// How long the server may take for anything.
const PATIENCE: Duration = Duration::from_secs(5);
/// Largest message that is read, in bytes: a thread's description can hold a long first prompt.
const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// Most of what the server says that is kept while an answer is awaited: the last of it tells most.
const HEARD_MAX: usize = 64;

/// A connection that has introduced itself.
pub(super) struct Rpc {
    socket: WebSocketStream<UnixStream>,
    asked: u64,
    /// What the server said while an answer was awaited.
    heard: VecDeque<RpcMessage>,
}

/// What came of a request.
pub(super) enum Answer {
    /// Its result.
    Done(Value),
    /// The server refused it, and did nothing.
    Refused(String),
    /// Nothing came, or the connection broke: whether it was done is not known.
    None,
}

impl Rpc {
    /// Connects to the server that started this session.
    ///
    /// # Errors
    ///
    /// With a sentence, when there is none, or another one listens there.
    pub(super) async fn open(session: &Session) -> Result<Self, String> {
        let opened = timeout(PATIENCE, Self::connect(session)).await;
        let mut rpc = opened.unwrap_or_else(|_| Err("it does not answer".to_owned()))?;
        let us =
            json!({ "name": "peerbus", "title": "peerbus", "version": env!("CARGO_PKG_VERSION") });
        let hello = json!({ "clientInfo": us, "capabilities": {} });
        match rpc.ask("initialize", hello).await {
            Answer::Done(_) => {}
            Answer::Refused(why) => return Err(why),
            Answer::None => return Err("it does not answer".to_owned()),
        }
        let ready = RpcMessage::call(None, "initialized", None);
        let said = rpc.say(ready).await;
        said.then_some(rpc).ok_or_else(|| "it hung up".to_owned())
    }

    async fn connect(session: &Session) -> Result<Self, String> {
        let plain = |error: &dyn std::fmt::Display| error.to_string();
        let path = session.place()?;
        let stream = UnixStream::connect(&path).await.map_err(|e| plain(&e))?;
        os::socket::check_listener(&stream).map_err(|e| plain(&e))?;
        let server = stream.peer_cred().map_err(|e| plain(&e))?.pid();
        session.is_ours(server)?;
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

    /// Asks and waits for the answer.
    pub(super) async fn ask(&mut self, method: &str, params: Value) -> Answer {
        self.asked += 1;
        let id = self.asked;
        if !self.say(RpcMessage::request(id, method, &params)).await {
            return Answer::None;
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
            return Answer::None;
        };
        match answer.done().unwrap_or(Ok(Value::Null)) {
            Ok(result) => Answer::Done(result),
            Err(error) => {
                let why = match error.message.is_empty() {
                    true => "for no reason that it gives".to_owned(),
                    false => error.message.chars().take(200).collect(),
                };
                Answer::Refused(format!("it refused: {why}"))
            }
        }
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
