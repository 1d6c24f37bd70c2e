//! A broker that does what a test tells it, frame by frame.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use peerbus_adapter::{
    Bus, Config, Event, Flags, How, Inbound, Link, LinkEnd, LinkState, Naming, PeerName, Receipt,
    Secret, Stage, Token, Url, connect,
};
use peerbus_wire::{
    Accepted, BrokerFrame, ClientFrame, CloseReason, DeliveryKey, Envelope, MessageId, PeersFrame,
    Register,
};
use tempfile::TempDir;
use tokio::net::{UnixListener, UnixStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::{WebSocketStream, accept_async};

pub(crate) const SECRET: &[u8] = b"peerbus-test-secret-of-enough-bytes";
/// Longer than anything here takes; how long a caller waits that is not meant to time out.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A place for a broker, its listener, and the credentials.
pub(crate) struct Place {
    dir: TempDir,
    listener: Option<UnixListener>,
}

/// The broker's end of one connection.
pub(crate) struct Peer {
    socket: WebSocketStream<UnixStream>,
    pub(crate) register: Register,
}

/// Ends a wait that would be for ever.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future)
        .await
        .expect("nothing happened for 30 s")
}

impl Place {
    /// A place without a broker.
    pub(crate) fn empty() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            listener: None,
        }
    }

    /// A place with a broker.
    pub(crate) fn new() -> Self {
        let mut place = Self::empty();
        place.open();
        place
    }

    pub(crate) fn open(&mut self) {
        self.listener = Some(UnixListener::bind(self.path("bus.sock")).unwrap());
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    pub(crate) fn config(&self) -> Config {
        let flags = Flags {
            credentials: Some(self.path("credentials.toml")),
            ..Flags::default()
        };
        let mut config = Config::resolve_with(&flags, |_| None).unwrap();
        config.url = Some(Url::Unix(self.path("bus.sock")));
        config.naming = Naming::Verbatim(PeerName::parse("bob").unwrap());
        config.token = Token::parse("the-token");
        config.secret = Some(Secret::new(SECRET).unwrap());
        config
    }

    /// A bus at this place, its link running.
    pub(crate) fn bus(&self) -> Bus {
        self.start(self.config()).0
    }

    pub(crate) fn start(&self, config: Config) -> (Bus, tokio::task::JoinHandle<LinkEnd>) {
        let (bus, link): (Bus, Link) = connect(config);
        (bus, tokio::spawn(link.run()))
    }

    /// Takes the next connection and reads its `register`.
    pub(crate) async fn accept(&self) -> Peer {
        let listener = self.listener.as_ref().expect("open() comes first");
        let (stream, _) = soon(listener.accept()).await.unwrap();
        let mut socket = soon(accept_async(stream)).await.unwrap();
        let text = soon(socket.next()).await.unwrap().unwrap();
        match ClientFrame::parse(text.into_text().unwrap().as_bytes()) {
            ClientFrame::Register(register) => Peer { socket, register },
            other => panic!("expected register, got {other:?}"),
        }
    }

    /// Takes the next connection and admits it.
    pub(crate) async fn admit(&self, ext: bool) -> Peer {
        let mut peer = self.accept().await;
        peer.admit(ext).await;
        peer
    }

    /// A bus that is online, and the broker's end.
    pub(crate) async fn online(&self, ext: bool) -> (Bus, Peer) {
        let bus = self.bus();
        let peer = self.admit(ext).await;
        assert_eq!(
            event(&bus).await,
            Event::Registered {
                name: "bob".into(),
                ext
            }
        );
        (bus, peer)
    }
}

impl Peer {
    pub(crate) async fn admit(&mut self, ext: bool) {
        let names = vec![self.register.name.clone()];
        let frame = PeersFrame {
            names,
            ext: ext.then_some(1),
            ..PeersFrame::default()
        };
        self.frame(&BrokerFrame::Peers(frame)).await;
    }

    pub(crate) async fn frame(&mut self, frame: &BrokerFrame) {
        self.text(frame.encode().to_string()).await;
    }

    pub(crate) async fn text(&mut self, text: String) {
        soon(self.socket.send(Message::text(text))).await.unwrap();
    }

    pub(crate) async fn message(&mut self, message: Message) {
        soon(self.socket.send(message)).await.unwrap();
    }

    /// The next message, whatever it is; `None` at the end.
    pub(crate) async fn raw(&mut self) -> Option<Message> {
        soon(self.socket.next()).await?.ok()
    }

    /// The next frame, and its text.
    pub(crate) async fn read(&mut self) -> (ClientFrame, String) {
        let message = self.raw().await.expect("a frame");
        let text = message.into_text().unwrap().to_string();
        (ClientFrame::parse(text.as_bytes()), text)
    }

    /// The next frame, which is an envelope.
    pub(crate) async fn envelope(&mut self) -> (MessageId, String) {
        match self.read().await {
            (ClientFrame::Envelope(carried), text) => (carried.id, text),
            (other, _) => panic!("expected an envelope, got {other:?}"),
        }
    }

    /// The next frame, which is an ack.
    pub(crate) async fn ack(&mut self) -> (String, Option<How>) {
        match self.read().await.0 {
            ClientFrame::Ack(ack) => (ack.key.as_str().into(), ack.how),
            other => panic!("expected an ack, got {other:?}"),
        }
    }

    pub(crate) async fn receipt(&mut self, id: &MessageId, stage: Stage) {
        let receipt = Receipt {
            to: stage.is_at_one().then(|| "alice".to_owned()),
            ..Receipt::new(id.clone(), stage)
        };
        self.frame(&BrokerFrame::Receipts(vec![receipt])).await;
    }

    pub(crate) async fn accepted(&mut self, id: &MessageId) {
        self.receipt(
            id,
            Stage::Accepted(Accepted {
                recipients: 1,
                online: 0,
                duplicate: false,
            }),
        )
        .await;
    }

    pub(crate) async fn deliver(&mut self, key: &str, id: &str) {
        self.text(deliver(key, &signed(id))).await;
    }

    pub(crate) async fn close(mut self, reason: &CloseReason) {
        let frame = CloseFrame {
            code: reason.code().into(),
            reason: reason.text().into(),
        };
        soon(self.socket.close(Some(frame))).await.unwrap();
    }
}

/// A message from alice to bob.
pub(crate) fn signed(id: &str) -> Envelope {
    let mut envelope = Envelope {
        protocol_version: "v1".into(),
        id: id.into(),
        from: "alice".into(),
        to: "bob".into(),
        ts: "2026-11-21T00:00:00Z".into(),
        source: "peer-bus".into(),
        kind: "msg".into(),
        body: format!("\"{id}\"").into_bytes(),
        hmac: String::new(),
    };
    envelope.hmac = Secret::new(SECRET)
        .unwrap()
        .sign(&envelope.canonical().unwrap());
    envelope
}

/// A deliver frame, whether or not the envelope verifies.
pub(crate) fn deliver(key: &str, envelope: &Envelope) -> String {
    assert!(DeliveryKey::parse(key).is_some());
    let canonical = String::from_utf8(envelope.canonical().unwrap()).unwrap();
    let open = canonical.strip_suffix('}').unwrap();
    format!(
        r#"{{"protocol_version":"v1","type":"deliver","delivery_key":"{key}","envelope":{open},"hmac":"{}"}}}}"#,
        envelope.hmac
    )
}

pub(crate) async fn event(bus: &Bus) -> Event {
    soon(bus.next()).await.expect("an event")
}

pub(crate) async fn inbound(bus: &Bus) -> Inbound {
    match event(bus).await {
        Event::Message(inbound) => inbound,
        other => panic!("expected a message, got {other:?}"),
    }
}

/// Waits until the link is in a state.
pub(crate) async fn until(bus: &Bus, is: impl Fn(&LinkState) -> bool) -> LinkState {
    let mut link = bus.link();
    soon(link.wait_for(|state| is(state)))
        .await
        .unwrap()
        .clone()
}

pub(crate) fn seen() -> How {
    How::Seen {
        path: "drain".into(),
        evidence: "tool_result".into(),
    }
}
