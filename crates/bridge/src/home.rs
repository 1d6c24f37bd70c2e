//! The connection to the own broker.

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use peerbus_adapter::{Socket, TlsFiles, Token, Url, Window, open_socket};
use peerbus_wire::{
    ClientFrame, EXT_AUDIT, Instance, Mark, PROTOCOL_VERSION, Presence, Received, Register,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Duration, timeout};
use tokio_tungstenite::tungstenite::Message;

/// Frames on the way to the broker, and from it, that are held.
const HELD: usize = 256;
/// How long the broker may take to answer a registration.
const ANSWERS: Duration = Duration::from_secs(15);
const GOODBYE: Duration = Duration::from_secs(2);
/// After so long without a word of the broker, which pings those that are silent, it is gone.
const SILENCE: Duration = Duration::from_secs(75);

/// Where the own broker is, and as whom.
#[derive(Debug, Clone)]
pub struct BrokerAddress {
    /// Its address.
    pub url: Url,
    /// The settings of TLS there.
    pub tls: TlsFiles,
    /// A token with the right `bridge`.
    pub token: Token,
}

/// A registered connection. It ends when it is dropped.
pub(crate) struct Home {
    to: mpsc::Sender<String>,
    from: mpsc::Receiver<Received>,
    reading: JoinHandle<()>,
}

impl Home {
    /// Registers, and gives the broker's answer, too.
    ///
    /// # Errors
    ///
    /// A sentence: it is away, or refuses.
    pub(crate) async fn register(
        broker: &BrokerAddress,
        register: Register,
    ) -> Result<(Self, Received), String> {
        let greet = async {
            let mut socket = open_socket(&broker.url, &broker.tls).await?;
            let frame = ClientFrame::Register(register).encode();
            let sent = socket.send(Message::text(frame)).await;
            sent.map_err(|error| error.to_string())?;
            loop {
                match socket.next().await {
                    Some(Ok(Message::Text(text))) => {
                        return Ok((socket, Received::parse(text.as_bytes())));
                    }
                    Some(Ok(Message::Close(Some(close)))) => return Err(close.reason.to_string()),
                    Some(Ok(Message::Close(None))) | None => {
                        return Err("it closed the connection".to_owned());
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error.to_string()),
                }
            }
        };
        let greeted = timeout(ANSWERS, greet).await;
        let (socket, answer) = greeted.map_err(|_late| "it does not answer".to_owned())??;
        let (to, out) = mpsc::channel(HELD);
        let (into, from) = mpsc::channel(HELD);
        let (sink, stream) = socket.split();
        tokio::spawn(write(sink, out));
        let reading = tokio::spawn(read(stream, into));
        Ok((Self { to, from, reading }, answer))
    }

    /// Sends a frame; `false` when the connection has ended.
    pub(crate) async fn send(&self, frame: &ClientFrame) -> bool {
        self.to.send(frame.encode()).await.is_ok()
    }

    /// The next frame of the broker; `None` when the connection has ended.
    pub(crate) async fn next(&mut self) -> Option<Received> {
        self.from.recv().await
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

/// The registration of a bridge called `name`.
pub(crate) fn registration(
    broker: &BrokerAddress,
    name: &str,
    (instance, window): (&Instance, Option<Window>),
    bridge: Option<Mark>,
) -> Register {
    Register {
        protocol_version: PROTOCOL_VERSION.into(),
        token: Some(broker.token.clone()),
        name: name.into(),
        renaming: None,
        ext: EXT_AUDIT,
        instance: Some(instance.clone()),
        ephemeral: bridge.is_none(),
        generated: bridge.is_none(),
        window,
        presence: Presence::parse(r#"{"client":"bridge"}"#),
        bridge,
    }
}

/// Hands out what the broker says, until it ends or is silent.
async fn read(mut socket: SplitStream<Socket>, into: mpsc::Sender<Received>) {
    while let Ok(Some(Ok(message))) = timeout(SILENCE, socket.next()).await {
        let gone = match message {
            Message::Text(text) => {
                let heard = Received::parse(text.as_bytes());
                into.send(heard).await.is_err()
            }
            Message::Close(_) => true,
            _ => false,
        };
        if gone {
            return;
        }
    }
}

async fn write(mut socket: SplitSink<Socket, Message>, mut out: mpsc::Receiver<String>) {
    while let Some(frame) = out.recv().await {
        if socket.feed(Message::text(frame)).await.is_err() {
            return;
        }
        if out.is_empty() && socket.flush().await.is_err() {
            return;
        }
    }
    // Who says goodbye is forgotten, or counts as away, at once. The broker may be gone.
    let _ = timeout(GOODBYE, socket.close()).await;
}
