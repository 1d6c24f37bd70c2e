//! A place where a test is the broker, frame by frame.

use std::path::PathBuf;

use peerbus_adapter::{
    Bus, BusConfig, Flags, How, Inbound, Link, LinkEnd, LinkState, Naming, PeerName, Secret,
    SessionEvent, Token, Url, connect,
};
use peerbus_test_support::message::SECRET;
use peerbus_test_support::peer::Peer;
use peerbus_test_support::soon;
use tempfile::TempDir;
use tokio::net::UnixListener;

/// A place for a broker, its listener, and the credentials.
pub(crate) struct Place {
    dir: TempDir,
    listener: Option<UnixListener>,
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

    pub(crate) fn config(&self) -> BusConfig {
        let flags = Flags {
            credentials: Some(self.path("credentials.toml")),
            ..Flags::default()
        };
        let mut config = BusConfig::resolve_with(&flags, |_| None).unwrap();
        config.url = Some(Url::Unix(self.path("bus.sock")));
        config.naming = Naming::Verbatim(PeerName::parse("bob").unwrap());
        config.token = Token::parse("the-token");
        config.secret = Some(Secret::new(SECRET.as_bytes()).unwrap());
        // Not the ones of whoever runs the tests.
        config.sessions = None;
        config
    }

    /// A bus at this place, its link running.
    pub(crate) fn bus(&self) -> Bus {
        self.start(self.config()).0
    }

    pub(crate) fn start(&self, config: BusConfig) -> (Bus, tokio::task::JoinHandle<LinkEnd>) {
        let (bus, link): (Bus, Link) = connect(config);
        (bus, tokio::spawn(link.run()))
    }

    /// Takes the next connection and reads its `register`.
    pub(crate) async fn accept(&self) -> Peer {
        let listener = self.listener.as_ref().expect("open() comes first");
        let (stream, _) = soon(listener.accept()).await.unwrap();
        Peer::accept(stream).await
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
        let registered = event(&bus).await;
        let is_it = matches!(
            &registered,
            SessionEvent::Registered { name, ext: speaks, .. } if name == "bob" && *speaks == ext
        );
        assert!(is_it, "{registered:?}");
        (bus, peer)
    }
}

pub(crate) async fn event(bus: &Bus) -> SessionEvent {
    soon(bus.next()).await.expect("an event")
}

pub(crate) async fn inbound(bus: &Bus) -> Inbound {
    match event(bus).await {
        SessionEvent::Message(inbound) => inbound,
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
