//! One peer `web:NAME` for each token, joined to the bus when it is first used.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{Extensions, StatusCode, header};
use peerbus_adapter::{Bus, BusConfig, Naming, Token, connect};
use peerbus_os::sync::lock;
use peerbus_wire::Window;
use peerbus_wire::limits::{FRAME_BYTES_MAX, WINDOW_BYTES_MAX, WINDOW_MESSAGES_MAX};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::answer::Failure;
use crate::answered::Answered;
use crate::body::{Arriving, BODIES_OF_TOKEN};
use crate::kept::{UNCONFIRMED_BYTES_MAX, UNCONFIRMED_MAX};
use crate::replies::Replies;
use crate::streams::STREAMS_OF_TOKEN;
use crate::tokens::{self, WebToken};
use crate::{App, strangers};

/// Requests of one token in a second, and at once.
const PER_SECOND: u32 = 20;
/// Questions of one token to sessions at once: one that hangs keeps a thread for ten seconds.
const QUESTIONS_OF_TOKEN: usize = 4;
/// Connections of one token that stay when all places are taken.
const CONNECTIONS_OF_TOKEN: usize = 64;
/// What the broker may have under way to a peer. Of one sender, which gets half of it, more than a stream
/// hands on without a confirmation and one message: a stream ends before nothing more comes.
const WINDOW: Window = Window {
    messages: WINDOW_MESSAGES_MAX,
    bytes: WINDOW_BYTES_MAX,
};
const _: () = assert!(
    WINDOW.messages as usize >= 3 * UNCONFIRMED_MAX
        && WINDOW.bytes as usize >= 3 * UNCONFIRMED_BYTES_MAX + 2 * FRAME_BYTES_MAX
);

pub(crate) struct Peer {
    pub(crate) bus: Bus,
    pub(crate) replies: Arc<Replies>,
    pub(crate) answered: Answered,
    /// Of its requests.
    pub(crate) bodies: Arriving,
    /// Questions to sessions that are under way.
    pub(crate) questions: Arc<Semaphore>,
    /// Places for its streams.
    pub(crate) streams: Arc<Semaphore>,
    /// Places for its connections that no newcomer gets.
    connections: Arc<Semaphore>,
    pace: Mutex<Pace>,
}

/// The caller.
pub(crate) struct Caller {
    name: String,
    pub(crate) token: WebToken,
    pub(crate) peer: Arc<Peer>,
}

/// The peers that have joined, by the names of their tokens.
pub(crate) type Peers = Mutex<HashMap<String, Arc<Peer>>>;

impl App {
    /// Whose request it is, by what it shows. Nobody learns why not.
    pub(crate) fn admit(self: &Arc<Self>, request: &Request) -> Result<Caller, Failure> {
        let found = self.tokens.admit(request.headers());
        self.caller(found.ok_or_else(nobody)?, request.extensions())
    }

    /// Whose request it is, by the signature of its body.
    pub(crate) fn admit_signed(
        self: &Arc<Self>,
        parts: &Parts,
        body: &[u8],
    ) -> Result<Caller, Failure> {
        let found = self.tokens.signer(&parts.headers, body);
        self.caller(found.ok_or_else(nobody)?, &parts.extensions)
    }

    fn caller(
        self: &Arc<Self>,
        (name, token): (String, WebToken),
        extensions: &Extensions,
    ) -> Result<Caller, Failure> {
        let peer = self.peer(&name)?;
        strangers::known_by(extensions, &peer.connections);
        let mut pace = lock(&peer.pace);
        if !pace.admits(Instant::now()) {
            let why = format!("a token has {PER_SECOND} requests a second; try again in a second");
            return Err(Failure::new(StatusCode::TOO_MANY_REQUESTS, why).retry_after(1));
        }
        drop(pace);
        Ok(Caller { name, token, peer })
    }

    /// The caller as it is now, after its request took its time to come.
    pub(crate) fn still(&self, caller: Caller) -> Result<Caller, Failure> {
        let now = self.tokens.now();
        let token = now.tokens.get(&caller.name);
        let same =
            |token: &&WebToken| token.hash == caller.token.hash && token.by == caller.token.by;
        let token = token.filter(same);
        let token = token.ok_or_else(nobody)?.clone();
        Ok(Caller { token, ..caller })
    }

    /// The peer of a token, joined now if need be.
    fn peer(&self, name: &str) -> Result<Arc<Peer>, Failure> {
        let mut peers = lock(&self.peers);
        if let Some(peer) = peers.get(name) {
            return Ok(Arc::clone(peer));
        }
        let config = self.config(name)?;
        let (bus, link) = connect(config);
        tokio::spawn(link.run());
        let replies = Arc::new(Replies::new(bus.clone()));
        tokio::spawn(Arc::clone(&replies).gather());
        let peer = Arc::new(Peer {
            bus,
            replies,
            answered: Answered::default(),
            bodies: Arriving::new(BODIES_OF_TOKEN),
            questions: Arc::new(Semaphore::new(QUESTIONS_OF_TOKEN)),
            streams: Arc::new(Semaphore::new(STREAMS_OF_TOKEN)),
            connections: Arc::new(Semaphore::new(CONNECTIONS_OF_TOKEN)),
            pace: Mutex::default(),
        });
        peers.insert(name.to_owned(), Arc::clone(&peer));
        Ok(peer)
    }

    fn config(&self, name: &str) -> Result<BusConfig, Failure> {
        let unusable = |why| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, why);
        let mut config = self.options.bus.clone();
        config.naming = Naming::Verbatim(tokens::peer(name).map_err(unusable)?);
        config.ephemeral = false;
        config.window = WINDOW;
        config.presence = json!({ "client": "web", "pid": std::process::id() })
            .as_object()
            .cloned();
        if self.options.own_token
            && let Some(bus) = &self.tokens.now().bus
        {
            config.token = Token::parse(&bus.token.0);
        }
        Ok(config)
    }

    /// Lets the peers of tokens that are gone leave the bus. Never ends.
    pub(crate) async fn follow_tokens(&self) {
        let mut changes = self.tokens.changes();
        loop {
            let now = Arc::clone(&changes.borrow_and_update());
            let gone: Vec<_> = {
                let mut peers = lock(&self.peers);
                let gone = peers.extract_if(|name, _| !now.tokens.contains_key(name));
                gone.map(|(_, peer)| peer.bus.clone()).collect()
            };
            for bus in gone {
                bus.close().await;
            }
            if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    pub(crate) async fn leave(&self) {
        let peers = std::mem::take(&mut *lock(&self.peers));
        let buses = peers.into_values().map(|peer| peer.bus.clone());
        for bus in buses.chain(self.take_writer()) {
            bus.close().await;
        }
    }
}

/// No token, or none that is admitted.
pub(crate) fn nobody() -> Failure {
    let why = "a token is needed (`peerbus web token add`): as Authorization: Bearer TOKEN, or in the \
               way that it was made for";
    // A client that sends a password only when it is asked for one is asked. Never to be said to our own
    // page: its browser would ask the person.
    let nobody = Failure::new(StatusCode::UNAUTHORIZED, why);
    nobody.saying(header::WWW_AUTHENTICATE, "Basic realm=\"peerbus\"")
}

/// How many requests may come now: a second's, and then one at a time. It has the moment up to which
/// they were used.
#[derive(Debug, Default)]
struct Pace(Option<Instant>);

impl Pace {
    const EACH: Duration = Duration::from_millis(1_000 / PER_SECOND as u64);

    fn admits(&mut self, now: Instant) -> bool {
        let second_ago = now.checked_sub(Self::EACH * PER_SECOND);
        let used = self.0.max(second_ago).unwrap_or(now) + Self::EACH;
        let admits = used <= now;
        if admits {
            self.0 = Some(used);
        }
        admits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_admitted_and_then_so_many_a_second() {
        let start = Instant::now();
        let mut pace = Pace::default();
        let mut admitted = |at| (0..100).filter(|_| pace.admits(at)).count();
        assert_eq!(admitted(start), 20);
        assert_eq!(admitted(start + Duration::from_millis(49)), 0);
        assert_eq!(admitted(start + Duration::from_millis(1_049)), 20);
        assert_eq!(admitted(start + Duration::from_secs(3_600)), 20);
    }
}
