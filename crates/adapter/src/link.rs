//! The driver: does what the session asks for, one connection at a time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use peerbus_peer::session::{self, Action, PeerSession, Status};
use peerbus_wire::{Instance, Presence};
use tokio::time::sleep_until;

use crate::bus::Bus;
use crate::config::{BusConfig, Naming};
use crate::conn::Conn;
use crate::credentials::Credentials;
use crate::dial::{Socket, Unreached, never};
use crate::names;
use crate::pulse::Pulse;
use crate::reach::{Reached, credentials, reach};
use crate::sessions::Binder;
use crate::shared::{Clock, Shared};

/// Time for the last acks and the goodbye. Less than [`Bus::close`] waits.
const GOODBYE: Duration = Duration::from_millis(40);

/// Drives the connection of a [`Bus`]. Dropping it closes the bus.
#[must_use = "nothing happens before `run`"]
pub struct Link {
    shared: Arc<Shared>,
    config: BusConfig,
}

/// How a link ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEnd {
    /// The broker was told; every ack was flushed.
    Goodbye,
    /// There was no connection at the end, or it did not take the goodbye in time. What was not
    /// acked is delivered again.
    Cut,
}

enum Step {
    Do(Action),
    /// The host wants something.
    Look,
    /// The host closed the bus.
    Over,
}

/// Makes a bus and the link that drives it. Nothing but the name of the session is read before
/// [`Link::run`].
pub fn connect(config: BusConfig) -> (Bus, Link) {
    let mut binder = binder(&config);
    let (name, generated) = match &config.naming {
        Naming::Verbatim(name) => (name.clone(), false),
        Naming::Generated => {
            let id = config.session.as_deref();
            let bound = id.zip(binder.as_ref()).and_then(|(id, b)| b.name_of(id));
            (bound.unwrap_or_else(names::generate), true)
        }
    };
    if let (Some(binder), Some(id)) = (&mut binder, &config.session) {
        binder.add(id, false);
    }
    let presence = config.presence.clone();
    let presence = presence
        .and_then(|presence| Presence::parse(&serde_json::Value::Object(presence).to_string()));
    let session = session::SessionConfig {
        name,
        generated,
        instance: Some(Instance::from_entropy(rand::random())),
        ephemeral: config.ephemeral,
        window: config.window,
        presence,
        groups: config.groups.clone(),
    };
    let clock = Clock::start();
    #[cfg_attr(
        not(feature = "mutations"),
        expect(unused_mut, reason = "to be broken")
    )]
    let mut session = PeerSession::new(session, clock.now(), rand::random());
    #[cfg(feature = "mutations")]
    if std::env::var("PEERBUS_BROKEN").as_deref() == Ok("dedupe-off") {
        session.mutate(session::SessionMutation::ShowTwice);
    }
    let shared = Arc::new(Shared::new(clock, session, binder, Pulse::default()));
    (Bus::new(Arc::clone(&shared)), Link { shared, config })
}

/// Only a made-up name needs to be remembered.
fn binder(config: &BusConfig) -> Option<Binder> {
    let made_up = config.naming == Naming::Generated && !config.ephemeral;
    let sessions = config.sessions.clone().filter(|_| made_up);
    sessions.map(Binder::new)
}

impl Link {
    /// Runs until every [`Bus`] handle is dropped or [`Bus::close`] was called.
    pub async fn run(self) -> LinkEnd {
        loop {
            match self.step().await {
                Step::Do(Action::Dial) => {
                    let Some(socket) = self.dial().await else {
                        continue;
                    };
                    let end = self.serve(Conn::new(socket, &self.shared)).await;
                    self.shared.pulse.ended();
                    if let Some(end) = end {
                        return end;
                    }
                }
                Step::Do(Action::Rename) => {
                    self.shared
                        .with(|session, now| session.go_by(now, names::generate(), true));
                }
                Step::Do(Action::HangUp | Action::Ping | Action::Reread) | Step::Look => {}
                Step::Over => return LinkEnd::Cut,
            }
        }
    }

    /// Connects to no broker, and tells whoever uses the bus why, until it is closed.
    pub async fn refuse(self, why: String) -> LinkEnd {
        loop {
            match self.step().await {
                Step::Do(Action::Dial) => self
                    .shared
                    .with(|session, now| session.handle_no_credentials(now, why.clone())),
                Step::Over => return LinkEnd::Cut,
                Step::Do(_) | Step::Look => {}
            }
        }
    }

    async fn step(&self) -> Step {
        let shared = &self.shared;
        loop {
            let (action, over, timeout) = shared.with(|session, _| {
                let over = *session.status() == Status::Closed;
                (session.poll_action(), over, session.poll_timeout())
            });
            if over {
                return Step::Over;
            }
            if let Some(action) = action {
                return Step::Do(action);
            }
            let deadline = timeout.map(|at| sleep_until(shared.clock().instant(at)));
            tokio::select! {
                () = shared.wake.notified() => return Step::Look,
                Some(()) = OptionFuture::from(deadline) => shared.with(|session, now| session.handle_timeout(now)),
            }
        }
    }

    /// Reads the credentials and connects. `None` when that failed, which the session knows, or
    /// the bus was closed meanwhile.
    async fn dial(&self) -> Option<Socket> {
        let reached = reach(&self.config);
        tokio::pin!(reached);
        let reached = loop {
            tokio::select! {
                reached = &mut reached => break reached,
                step = self.step() => {
                    if matches!(step, Step::Over) {
                        return None;
                    }
                }
            }
        };
        match reached {
            Ok(Reached {
                socket,
                local,
                credentials,
            }) => {
                let Credentials {
                    token,
                    secret,
                    senders,
                    ..
                } = credentials;
                self.shared.set_senders(senders);
                let credentials = session::ConnectionCredentials {
                    token,
                    secret,
                    local,
                };
                self.shared
                    .with(|session, now| session.handle_connected(now, credentials));
                Some(socket)
            }
            Err(Unreached::NoCredentials(error)) => {
                let looked = format!("{error}{}", never(&self.config.demand));
                self.shared
                    .with(|session, now| session.handle_no_credentials(now, looked));
                None
            }
            Err(Unreached::NoBroker { local, why, .. }) => {
                self.shared
                    .with(|session, now| session.handle_unreachable(now, local, why));
                None
            }
        }
    }

    /// Serves a connection to its end; `Some` when that is the end of the link.
    async fn serve(&self, mut conn: Conn) -> Option<LinkEnd> {
        loop {
            tokio::select! {
                biased;
                step = self.step() => match step {
                    Step::Over => {
                        let told = conn.goodbye(&self.shared, GOODBYE).await;
                        return Some(if told { LinkEnd::Goodbye } else { LinkEnd::Cut });
                    }
                    Step::Do(Action::HangUp) => return None,
                    Step::Do(Action::Ping) => conn.ping(),
                    Step::Do(Action::Reread) => {
                        let found = credentials(&self.config).ok();
                        let secret = found.map(|found| {
                            self.shared.set_senders(found.senders);
                            found.secret
                        });
                        self.shared.with(|session, now| session.handle_secret(now, secret));
                    }
                    Step::Do(Action::Dial | Action::Rename) | Step::Look => {}
                },
                ended = conn.run(&self.shared) => {
                    self.shared.with(|session, now| session.handle_closed(now, &ended));
                    return None;
                }
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.with(|session, _| session.close());
        self.shared.ended.send_replace(true);
    }
}
