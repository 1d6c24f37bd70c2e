//! One peer `web:NAME` for each token, joined to the bus when it is first used.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, StatusCode, header};
use peerbus_adapter::{Bus, Config, Naming, Token, connect};
use serde_json::json;

use crate::App;
use crate::answer::Failure;
use crate::answered::Answered;
use crate::replies::Replies;
use crate::tokens::{self, WebToken};

/// Requests of one token in a second, and at once.
const PER_SECOND: u32 = 20;

/// A token's peer.
pub(crate) struct Peer {
    pub(crate) bus: Bus,
    pub(crate) replies: Arc<Replies>,
    pub(crate) answered: Answered,
    pace: Mutex<Pace>,
}

/// Whoever asks.
pub(crate) struct Caller {
    name: String,
    pub(crate) token: WebToken,
    pub(crate) peer: Arc<Peer>,
}

/// The peers that have joined, by the names of their tokens.
#[derive(Default)]
pub(crate) struct Peers(Mutex<HashMap<String, Arc<Peer>>>);

impl App {
    /// Whose request it is. Nobody learns why not.
    pub(crate) fn admit(self: &Arc<Self>, headers: &HeaderMap) -> Result<Caller, Failure> {
        let shown = headers.get(header::AUTHORIZATION).and_then(|value| {
            let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
            Token::parse(token.trim()).filter(|_| scheme.eq_ignore_ascii_case("bearer"))
        });
        let found = shown.and_then(|shown| self.tokens.admit(&shown));
        let (name, token) = found.ok_or_else(nobody)?;
        let peer = self.peer(&name)?;
        let mut pace = peer.pace.lock().unwrap_or_else(PoisonError::into_inner);
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
        let token = token.filter(|token| token.hash == caller.token.hash);
        let token = token.ok_or_else(nobody)?.clone();
        Ok(Caller { token, ..caller })
    }

    /// The peer of a token, joined now if need be.
    fn peer(&self, name: &str) -> Result<Arc<Peer>, Failure> {
        let mut peers = self.peers.0.lock().unwrap_or_else(PoisonError::into_inner);
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
            pace: Mutex::new(Pace::new(Instant::now())),
        });
        peers.insert(name.to_owned(), Arc::clone(&peer));
        Ok(peer)
    }

    fn config(&self, name: &str) -> Result<Config, Failure> {
        let unusable = |why| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, why);
        let mut config = self.options.bus.clone();
        config.naming = Naming::Verbatim(tokens::peer(name).map_err(unusable)?);
        config.ephemeral = false;
        config.presence = json!({ "client": "web" }).as_object().cloned();
        if self.options.own_token
            && let Some(bus) = &self.tokens.now().bus
        {
            config.token = Token::parse(&bus.token);
        }
        Ok(config)
    }

    /// Lets the peers of tokens that are gone leave the bus. Never ends.
    pub(crate) async fn follow_tokens(&self) {
        let mut changes = self.tokens.changes();
        loop {
            let now = Arc::clone(&changes.borrow_and_update());
            let gone: Vec<_> = {
                let mut peers = self.peers.0.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Says goodbye for all peers.
    pub(crate) async fn leave(&self) {
        let peers =
            std::mem::take(&mut *self.peers.0.lock().unwrap_or_else(PoisonError::into_inner));
        for peer in peers.into_values() {
            peer.bus.close().await;
        }
    }
}

/// No token, or none that is admitted.
fn nobody() -> Failure {
    let why = "a token is needed: Authorization: Bearer TOKEN (`peerbus web token add`)";
    Failure::new(StatusCode::UNAUTHORIZED, why)
}

/// How many requests may come now: what a bucket holds that fills evenly.
#[derive(Debug)]
struct Pace {
    /// Requests, in thousandths.
    left: u64,
    at: Instant,
}

impl Pace {
    const FULL: u64 = PER_SECOND as u64 * 1_000;

    fn new(now: Instant) -> Self {
        Self {
            left: Self::FULL,
            at: now,
        }
    }

    fn admits(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at);
        let filled = u64::from(PER_SECOND).saturating_mul(millis(passed));
        if filled > 0 {
            (self.left, self.at) = ((self.left + filled).min(Self::FULL), now);
        }
        let admits = self.left >= 1_000;
        if admits {
            self.left -= 1_000;
        }
        admits
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_admitted_and_then_so_many_a_second() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let mut admitted = |at| (0..100).filter(|_| pace.admits(at)).count();
        assert_eq!(admitted(start), 20);
        assert_eq!(admitted(start + Duration::from_millis(49)), 0);
        assert_eq!(admitted(start + Duration::from_millis(1_049)), 20);
        assert_eq!(admitted(start + Duration::from_secs(3_600)), 20);
    }
}
