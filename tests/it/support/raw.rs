//! A WebSocket client that sends whatever a test wants, and waits for what comes.

use std::fmt::Debug;
use std::path::Path;

use futures_util::SinkExt;
use peerbus_test_support::socket::{Heard, Socket, registration};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::{Broker, Home};

/// A connection that follows no rule by itself.
pub(crate) struct Raw {
    runtime: Runtime,
    socket: Socket,
}

impl Raw {
    pub(crate) fn connect(broker: &Broker) -> Self {
        let address = broker.address.parse().expect("an address");
        Self::over(Socket::connect(address))
    }

    fn over<E: Debug>(connecting: impl Future<Output = Result<Socket, E>>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let connected = runtime.block_on(connecting);
        let socket = connected.expect("the broker answers");
        Self { runtime, socket }
    }

    /// Registers as `name` with the home's token, and asks for receipts.
    pub(crate) fn register(home: &Home, broker: &Broker, name: &str) -> Self {
        let mut register = registration(name, &home.credential("token"));
        register["ext"] = 1.into();
        Self::register_as(broker, &register)
    }

    /// Registers as `name` with the home's token, and speaks v1.
    pub(crate) fn register_v1(home: &Home, broker: &Broker, name: &str) -> Self {
        Self::register_as(broker, &registration(name, &home.credential("token")))
    }

    /// The same as [`Raw::register`], by a name that is forgotten when it says goodbye.
    pub(crate) fn register_temporary(home: &Home, broker: &Broker, name: &str) -> Self {
        let mut register = registration(name, &home.credential("token"));
        register["ext"] = 1.into();
        register["ephemeral"] = true.into();
        Self::register_as(broker, &register)
    }

    /// The same as [`Raw::register`], at this Unix socket.
    pub(crate) fn register_at(home: &Home, socket: &Path, name: &str) -> Self {
        let mut register = registration(name, &home.credential("token"));
        register["ext"] = 1.into();
        Self::over(async { Socket::connect_unix(socket).await }).registered(&register)
    }

    /// Registers with this frame.
    pub(crate) fn register_as(broker: &Broker, register: &Value) -> Self {
        Self::connect(broker).registered(register)
    }

    fn registered(self, register: &Value) -> Self {
        let mut raw = self;
        raw.say(&register.to_string());
        assert_eq!(raw.next()["type"], "peers");
        raw
    }

    /// Says goodbye, and waits for the end.
    pub(crate) fn leave(mut self) {
        let reason = Default::default();
        let code = CloseCode::Normal;
        self.send(Message::Close(Some(CloseFrame { code, reason })));
        while let Some(Message::Text(_) | Message::Ping(_) | Message::Pong(_)) =
            self.runtime.block_on(self.socket.next_raw())
        {}
    }

    pub(crate) fn say(&mut self, text: &str) {
        self.send(Message::text(text));
    }

    pub(crate) fn send(&mut self, message: Message) {
        // The broker may have closed already; what it said is what counts.
        let _ = self.runtime.block_on(self.socket.ws.send(message));
    }

    /// The next frame, or the end.
    pub(crate) fn hear(&mut self) -> Heard {
        self.runtime.block_on(self.socket.hear())
    }

    /// The next frame.
    pub(crate) fn next(&mut self) -> Value {
        self.runtime.block_on(self.socket.next())
    }

    /// The text of the next frame.
    pub(crate) fn next_text(&mut self) -> String {
        loop {
            match self.runtime.block_on(self.socket.next_raw()) {
                Some(Message::Text(text)) => return text.to_string(),
                Some(Message::Ping(_) | Message::Pong(_)) => {}
                other => panic!("expected a frame, got {other:?}"),
            }
        }
    }

    /// The next answer to an envelope.
    pub(crate) fn answer(&mut self) -> Value {
        loop {
            let mut frame = self.next();
            let receipt = frame["receipts"][0].take();
            if receipt["state"] == "accepted" || receipt["state"] == "refused" {
                return receipt;
            }
        }
    }

    /// The next deliver frame.
    pub(crate) fn delivery(&mut self) -> Value {
        loop {
            let frame = self.next();
            if frame["type"] == "deliver" {
                return frame;
            }
        }
    }

    /// The next receipt in a given state.
    pub(crate) fn receipt(&mut self, state: &str) -> Value {
        self.runtime.block_on(self.socket.receipt(state))
    }
}
