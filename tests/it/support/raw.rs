//! A WebSocket client that sends whatever a test wants.

use futures_util::{SinkExt, StreamExt};
use peerbus_wire::{Envelope, Secret};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::{Broker, Home, PATIENCE};

/// What came from the broker.
#[derive(Debug, PartialEq)]
pub(crate) enum Heard {
    Frame(Value),
    /// Close code and text.
    Closed(u16, String),
}

/// A connection that follows no rule by itself.
pub(crate) struct Raw {
    runtime: Runtime,
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Raw {
    pub(crate) fn connect(broker: &Broker) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let connected = runtime.block_on(async { connect_async(broker.url()).await });
        let (socket, _) = connected.expect("the broker answers");
        Self { runtime, socket }
    }

    /// Registers as `name` with the home's token; `ext` asks for receipts.
    pub(crate) fn register(home: &Home, broker: &Broker, name: &str, ext: bool) -> Self {
        let mut raw = Self::connect(broker);
        let mut register = json!({
            "protocol_version": "v1", "type": "register", "name": name,
            "token": home.credential("token"),
        });
        if ext {
            register["ext"] = 1.into();
        }
        raw.say(&register.to_string());
        let Heard::Frame(ack) = raw.hear() else {
            panic!("not registered")
        };
        assert_eq!(ack["type"], "peers");
        raw
    }

    pub(crate) fn say(&mut self, text: &str) {
        self.send(Message::text(text));
    }

    pub(crate) fn send(&mut self, message: Message) {
        let socket = &mut self.socket;
        // The broker may have closed already; what it said is what counts.
        let _ = self.runtime.block_on(async { socket.send(message).await });
    }

    /// The next frame, or the end.
    #[track_caller]
    pub(crate) fn hear(&mut self) -> Heard {
        let socket = &mut self.socket;
        self.runtime.block_on(async {
            loop {
                let message = timeout(PATIENCE, socket.next())
                    .await
                    .expect("the broker speaks");
                match message {
                    Some(Ok(Message::Text(text))) => {
                        return Heard::Frame(serde_json::from_str(&text).expect("JSON"));
                    }
                    Some(Ok(Message::Close(Some(close)))) => {
                        return Heard::Closed(close.code.into(), close.reason.to_string());
                    }
                    Some(Ok(_)) => {}
                    None | Some(Err(_)) => return Heard::Closed(1006, String::new()),
                }
            }
        })
    }

    /// The next receipt in a given state.
    #[track_caller]
    pub(crate) fn receipt(&mut self, state: &str) -> Value {
        loop {
            match self.hear() {
                Heard::Frame(frame) => {
                    let receipts = frame["receipts"].as_array().cloned().unwrap_or_default();
                    if let Some(found) = receipts.into_iter().find(|r| r["state"] == state) {
                        return found;
                    }
                }
                Heard::Closed(code, text) => panic!("closed with {code} {text}, no {state}"),
            }
        }
    }
}

/// A signed envelope's text.
pub(crate) fn envelope(secret: &str, id: &str, from: &str, to: &str, body: &str) -> String {
    let mut envelope = Envelope {
        protocol_version: "v1".into(),
        id: id.into(),
        from: from.into(),
        to: to.into(),
        ts: "2026-11-21T12:00:00Z".into(),
        source: "test".into(),
        kind: "msg".into(),
        body: body.as_bytes().to_vec(),
        hmac: String::new(),
    };
    let canonical = envelope.canonical().expect("a body");
    envelope.hmac = Secret::new(secret.as_bytes())
        .expect("a secret")
        .sign(&canonical);
    let mut text = String::from_utf8(canonical).expect("utf-8");
    text.truncate(text.len() - 1);
    format!("{text},\"hmac\":\"{}\"}}", envelope.hmac)
}
