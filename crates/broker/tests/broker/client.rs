//! A client that speaks v1, written from its specification.

use std::net::SocketAddr;
use std::path::Path;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::support::{PATIENCE, TOKEN};

pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

pub(crate) struct Client {
    pub(crate) ws: WebSocketStream<Box<dyn Io>>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self, tungstenite::Error> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Self::upgrade(Box::new(stream), &format!("ws://{address}")).await
    }

    /// A client whose socket holds little that it has not read.
    pub(crate) async fn connect_narrow(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(65_536).unwrap();
        let stream = socket.connect(address).await.unwrap();
        Self::upgrade(Box::new(stream), &format!("ws://{address}"))
            .await
            .unwrap()
    }

    pub(crate) async fn connect_unix(path: &Path) -> Result<Self, tungstenite::Error> {
        let stream = UnixStream::connect(path).await?;
        Self::upgrade(Box::new(stream), "ws://localhost/any/path").await
    }

    async fn upgrade(stream: Box<dyn Io>, url: &str) -> Result<Self, tungstenite::Error> {
        let (ws, _response) = client_async(url, stream).await?;
        Ok(Self { ws })
    }

    /// Registers under the tests' token and returns the names that are connected.
    pub(crate) async fn register(&mut self, name: &str) -> Vec<String> {
        self.send(registration(name, TOKEN)).await;
        let answer = self.next().await;
        assert_eq!(answer["type"], "peers", "{answer}");
        names(&answer)
    }

    pub(crate) async fn send(&mut self, frame: Value) {
        self.send_raw(Message::text(frame.to_string())).await;
    }

    pub(crate) async fn send_raw(&mut self, message: Message) {
        timeout(PATIENCE, self.ws.send(message))
            .await
            .expect("the broker does not read")
            .unwrap();
    }

    /// The next frame.
    pub(crate) async fn next(&mut self) -> Value {
        loop {
            match self.next_raw().await.expect("the connection has ended") {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("expected a frame, got {other:?}"),
            }
        }
    }

    /// The next delivery: its key and its body.
    pub(crate) async fn delivery(&mut self) -> (String, Value) {
        let frame = self.next().await;
        assert_eq!(frame["type"], "deliver", "{frame}");
        (
            frame["delivery_key"].as_str().unwrap().to_owned(),
            frame["envelope"]["body"].clone(),
        )
    }

    /// Acks, and waits until the broker has it on disk.
    pub(crate) async fn ack(&mut self, key: &str) {
        self.send(ack(key)).await;
        self.peers().await;
    }

    /// The names that are connected. What is delivered meanwhile is an error.
    pub(crate) async fn peers(&mut self) -> Vec<String> {
        self.send(json!({"protocol_version": "v1", "type": "peers"}))
            .await;
        let answer = self.next().await;
        assert_eq!(answer["type"], "peers", "{answer}");
        names(&answer)
    }

    /// Reads on until the close frame; what comes before it is passed over.
    pub(crate) async fn closed(&mut self) -> (u16, String) {
        loop {
            match self
                .next_raw()
                .await
                .expect("the connection ended without a close frame")
            {
                Message::Close(Some(frame)) => {
                    return (frame.code.into(), frame.reason.as_str().to_owned());
                }
                Message::Close(None) => panic!("a close frame without a reason"),
                _ => {}
            }
        }
    }

    /// Says goodbye and waits for the end.
    pub(crate) async fn leave(mut self) {
        self.ws.close(None).await.unwrap();
        while let Ok(Some(Ok(_))) = timeout(PATIENCE, self.ws.next()).await {}
    }

    async fn next_raw(&mut self) -> Option<Message> {
        let next = timeout(PATIENCE, self.ws.next())
            .await
            .expect("nothing came");
        next.map(|message| message.expect("the connection broke"))
    }
}

pub(crate) fn registration(name: &str, token: &str) -> Value {
    json!({"protocol_version": "v1", "type": "register", "token": token, "name": name})
}

pub(crate) fn ack(key: &str) -> Value {
    json!({"protocol_version": "v1", "type": "ack", "id": key})
}

/// A message as a v1 client writes it. The broker cannot and does not check the signature.
pub(crate) fn message(id: &str, from: &str, to: &str, body: impl Into<Value>) -> Value {
    let kind = if to == "*" { "broadcast" } else { "msg" };
    json!({
        "protocol_version": "v1", "id": id, "from": from, "to": to,
        "ts": "2026-11-21T22:00:00.123456789Z", "source": "peer-bus", "kind": kind,
        "body": body.into(), "hmac": "0123456789abcdef".repeat(4),
    })
}

fn names(answer: &Value) -> Vec<String> {
    let names = answer["names"].as_array().unwrap();
    names
        .iter()
        .map(|name| name.as_str().unwrap().to_owned())
        .collect()
}
