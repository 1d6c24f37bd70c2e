//! One end of a WebSocket, as a test drives it. It follows no rule by itself.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};

use futures_util::{SinkExt, StreamExt};
use peerbus_wire::CloseReason;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, accept_async, client_async};

use crate::soon;

/// A port of this machine's own that nobody listens at, and that the system gives to nobody who asks for any.
pub fn free() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = u16::try_from(std::process::id() % 20_000).unwrap_or_default();
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed) % 100;
        let port = 10_000 + (own + next * 199) % 20_000;
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(at).is_ok() {
            return at;
        }
    }
}

/// Ends a listener, as the death of its process does: its file stays, and nobody listens.
///
/// Dropping alone does not: a process that a test beside this one just started has a copy of the
/// listener until it executes its program. On macOS nothing else ends one.
pub fn end(listener: impl AsFd) {
    let _ended = rustix::net::shutdown(&listener, rustix::net::Shutdown::Both);
    drop(listener);
}

/// A stream of bytes in both directions.
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// What came from the other end.
#[derive(Debug, PartialEq)]
pub enum Heard {
    /// A frame of the protocol.
    Frame(Value),
    /// Close code and text; 1006 and none when it ended without them.
    Closed(u16, String),
}

/// A client's end, or a broker's.
pub struct Socket {
    /// The stream itself, for what the methods below do not do.
    pub ws: WebSocketStream<Box<dyn Io>>,
}

impl Socket {
    /// A client's end over TCP.
    ///
    /// # Errors
    ///
    /// What the broker answers instead of the upgrade.
    pub async fn connect(address: SocketAddr) -> Result<Self, tungstenite::Error> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Self::upgrade(stream, &format!("ws://{address}")).await
    }

    /// A client's end that holds little that it has not read.
    pub async fn connect_narrow(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(65_536).unwrap();
        let stream = socket.connect(address).await.unwrap();
        let url = format!("ws://{address}");
        Self::upgrade(stream, &url).await.unwrap()
    }

    /// A client's end over a Unix socket.
    ///
    /// # Errors
    ///
    /// As for [`Socket::connect`].
    pub async fn connect_unix(path: &Path) -> Result<Self, tungstenite::Error> {
        let stream = UnixStream::connect(path).await?;
        Self::upgrade(stream, "ws://localhost/any/path").await
    }

    /// A client's end over a stream that is there already.
    ///
    /// # Errors
    ///
    /// As for [`Socket::connect`].
    pub async fn over(stream: impl Io + 'static) -> Result<Self, tungstenite::Error> {
        Self::upgrade(stream, "ws://localhost").await
    }

    async fn upgrade(stream: impl Io + 'static, url: &str) -> Result<Self, tungstenite::Error> {
        let stream: Box<dyn Io> = Box::new(stream);
        let (ws, _response) = client_async(url, stream).await?;
        Ok(Self { ws })
    }

    /// A broker's end.
    ///
    /// # Errors
    ///
    /// The client did not ask for an upgrade.
    pub async fn accept(stream: impl Io + 'static) -> Result<Self, tungstenite::Error> {
        let stream: Box<dyn Io> = Box::new(stream);
        let ws = accept_async(stream).await?;
        Ok(Self { ws })
    }

    /// Registers and gives the names that are connected.
    pub async fn register(&mut self, name: &str, token: &str) -> Vec<String> {
        self.send(registration(name, token)).await;
        self.names().await
    }

    /// Sends a frame.
    pub async fn send(&mut self, frame: Value) {
        self.send_raw(Message::text(frame.to_string())).await;
    }

    /// Sends any message.
    pub async fn send_raw(&mut self, message: Message) {
        soon(self.ws.send(message)).await.unwrap();
    }

    /// The next message, pings and pongs included; `None` at the end.
    pub async fn next_raw(&mut self) -> Option<Message> {
        soon(self.ws.next()).await?.ok()
    }

    /// The next frame, or the end.
    pub async fn hear(&mut self) -> Heard {
        loop {
            match self.next_raw().await {
                Some(Message::Text(text)) => {
                    return Heard::Frame(serde_json::from_str(&text).unwrap());
                }
                Some(Message::Ping(_) | Message::Pong(_)) => {}
                Some(Message::Close(Some(close))) => {
                    return Heard::Closed(close.code.into(), close.reason.to_string());
                }
                None => return Heard::Closed(1006, String::new()),
                Some(other) => panic!("expected a frame, got {other:?}"),
            }
        }
    }

    /// The next frame.
    pub async fn next(&mut self) -> Value {
        match self.hear().await {
            Heard::Frame(frame) => frame,
            Heard::Closed(code, text) => panic!("closed with {code} {text}"),
        }
    }

    /// The next delivery: its key and its body.
    pub async fn delivery(&mut self) -> (String, Value) {
        let frame = self.next().await;
        assert_eq!(frame["type"], "deliver", "{frame}");
        (
            frame["delivery_key"].as_str().unwrap().to_owned(),
            frame["envelope"]["body"].clone(),
        )
    }

    /// The first receipt in a given state.
    pub async fn receipt(&mut self, state: &str) -> Value {
        loop {
            let frame = self.next().await;
            let receipts = frame["receipts"].as_array().into_iter().flatten();
            if let Some(found) = receipts.into_iter().find(|r| r["state"] == state) {
                return found.clone();
            }
        }
    }

    /// Acks, and waits until the broker has it on disk.
    pub async fn ack(&mut self, key: &str) {
        self.send(ack(key)).await;
        self.peers().await;
    }

    /// The names that are connected. What is delivered meanwhile is an error.
    pub async fn peers(&mut self) -> Vec<String> {
        self.send(json!({"protocol_version": "v1", "type": "peers"}))
            .await;
        self.names().await
    }

    async fn names(&mut self) -> Vec<String> {
        let answer = self.next().await;
        assert_eq!(answer["type"], "peers", "{answer}");
        let names = answer["names"].as_array().unwrap().iter();
        names
            .map(|name| name.as_str().unwrap().to_owned())
            .collect()
    }

    /// Reads on until the close frame, and gives its code and text.
    pub async fn closed(&mut self) -> (u16, String) {
        loop {
            if let Heard::Closed(code, text) = self.hear().await {
                assert_ne!(code, 1006, "the connection ended without a close frame");
                return (code, text);
            }
        }
    }

    /// Closes as a broker does.
    ///
    /// # Errors
    ///
    /// The connection has ended.
    pub async fn close(&mut self, reason: &CloseReason) -> Result<(), tungstenite::Error> {
        let frame = CloseFrame {
            code: reason.code().into(),
            reason: reason.text().into(),
        };
        self.ws.close(Some(frame)).await
    }

    /// Says goodbye and waits for the end.
    pub async fn leave(mut self) {
        self.ws.close(None).await.unwrap();
        while self.next_raw().await.is_some() {}
    }
}

/// The first frame of a v1 client.
pub fn registration(name: &str, token: &str) -> Value {
    json!({"protocol_version": "v1", "type": "register", "token": token, "name": name})
}

/// The ack of a v1 client.
pub fn ack(key: &str) -> Value {
    json!({"protocol_version": "v1", "type": "ack", "id": key})
}
