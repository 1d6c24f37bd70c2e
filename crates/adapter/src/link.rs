//! The driver: does what the session asks for, one connection at a time.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::OptionFuture;
use futures_util::{Sink, SinkExt as _, Stream as _, StreamExt as _};
use peerbus_peer::session::{self, Action, ConnectionEnd, PeerSession, Status};
use peerbus_wire::{CloseReason, Instance, PeerName, Presence};
use tokio::time::sleep_until;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::bus::Bus;
use crate::config::{BusConfig, Naming};
use crate::credentials::Credentials;
use crate::dial::{Socket, Unreached, never};
use crate::names;
use crate::pulse::Pulse;
use crate::reach::{First, Reached, credentials, reach};
use crate::sessions::Binder;
use crate::shared::{Clock, Shared};

/// Time for the last acks and the goodbye. Less than [`Bus::close`] waits.
const GOODBYE: Duration = Duration::from_millis(40);

/// Drives the connection of a [`Bus`]. Dropping it closes the bus.
#[must_use = "nothing happens before `run`"]
pub struct Link {
    shared: Arc<Shared>,
    config: BusConfig,
    first: First,
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
            (bound.unwrap_or_else(|| made_up(&config)), true)
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
    let link = Link {
        shared: Arc::clone(&shared),
        config,
        first: First::default(),
    };
    (Bus::new(shared), link)
}

fn made_up(config: &BusConfig) -> PeerName {
    match config.ephemeral {
        true => names::of_command(),
        false => names::generate(),
    }
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
                    let name = made_up(&self.config);
                    self.shared.with(|session, now| {
                        let name = names::begin(session.begins().unwrap_or_default(), name);
                        session.go_by(now, name, true);
                    });
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
        let reached = reach(&self.config, &self.first);
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
                        let found = credentials(&self.config, &self.first).ok();
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

/// Messages that are read before what they caused is written.
const READ_BATCH: usize = 64;

pub(crate) struct Conn {
    socket: Socket,
    /// Something was written since the last complete flush.
    dirty: bool,
    /// The last question that was put to the broker.
    asked: u64,
}

impl Conn {
    pub(crate) fn new(socket: Socket, shared: &Shared) -> Self {
        shared.pulse.heard();
        Self {
            socket,
            dirty: false,
            asked: shared.pulse.asked(),
        }
    }

    pub(crate) async fn run(&mut self, shared: &Shared) -> ConnectionEnd {
        poll_fn(|cx| self.poll(cx, shared)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>, shared: &Shared) -> Poll<ConnectionEnd> {
        if let Err(error) = self.write(cx, shared) {
            return Poll::Ready(ended(error));
        }
        for _ in 0..READ_BATCH {
            if !shared.with(|session, _| session.wants_read()) {
                // The host makes room by an ack, which wakes the driver.
                return self.write_replies(cx, shared);
            }
            match Pin::new(&mut self.socket).poll_next(cx) {
                Poll::Pending => return self.write_replies(cx, shared),
                Poll::Ready(None) => return Poll::Ready(broken("the connection was closed")),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(ended(error)),
                Poll::Ready(Some(Ok(Message::Close(frame)))) => {
                    return Poll::Ready(closed(frame));
                }
                Poll::Ready(Some(Ok(message))) => {
                    shared.pulse.heard();
                    if let Message::Pong(payload) = &message
                        && let Ok(number) = payload.as_ref().try_into()
                    {
                        shared.pulse.answered(u64::from_be_bytes(number));
                    }
                    shared.with(|session, now| match message {
                        Message::Text(text) => session.handle_text(now, text.as_bytes()),
                        _ => session.handle_alive(now),
                    });
                }
            }
        }
        // There may be more to read: let others have their turn, then come again.
        cx.waker().wake_by_ref();
        self.write_replies(cx, shared)
    }

    fn write_replies(&mut self, cx: &mut Context<'_>, shared: &Shared) -> Poll<ConnectionEnd> {
        match self.write(cx, shared) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(ended(error)),
        }
    }

    /// Writes what the session has, as far as the socket takes it, with one flush.
    fn write(&mut self, cx: &mut Context<'_>, shared: &Shared) -> Result<(), Error> {
        loop {
            match Pin::new(&mut self.socket).poll_ready(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(ready) => ready?,
            }
            let asked = shared.pulse.asked();
            let message = if asked != self.asked {
                self.asked = asked;
                Message::Ping(asked.to_be_bytes().to_vec().into())
            } else if let Some(frame) = shared.with(|session, _| session.poll_transmit()) {
                Message::text(frame.encode())
            } else {
                break;
            };
            Pin::new(&mut self.socket).start_send(message)?;
            self.dirty = true;
        }
        if self.dirty
            && let Poll::Ready(flushed) = Pin::new(&mut self.socket).poll_flush(cx)
        {
            flushed?;
            self.dirty = false;
            shared.with(|session, _| session.handle_flushed());
        }
        Ok(())
    }

    pub(crate) fn ping(&mut self) {
        // A failure shows at the next write.
        if Pin::new(&mut self.socket)
            .start_send(Message::Ping(Vec::new().into()))
            .is_ok()
        {
            self.dirty = true;
        }
    }

    /// Flushes what the session still has, says goodbye and waits for the answer: closing a
    /// socket with unread data would cut off what the broker has not read yet. `false` when that
    /// takes longer than `limit`.
    pub(crate) async fn goodbye(mut self, shared: &Shared, limit: Duration) -> bool {
        let farewell = async {
            while let Some(frame) = shared.with(|session, _| session.poll_transmit()) {
                self.socket.feed(Message::text(frame.encode())).await?;
            }
            let frame = CloseFrame {
                code: CloseCode::Normal,
                reason: "goodbye".into(),
            };
            self.socket.send(Message::Close(Some(frame))).await?;
            while let Some(Ok(_)) = self.socket.next().await {}
            Ok::<(), Error>(())
        };
        matches!(tokio::time::timeout(limit, farewell).await, Ok(Ok(())))
    }
}

fn broken(why: &str) -> ConnectionEnd {
    ConnectionEnd::Broken { why: why.into() }
}

fn closed(frame: Option<CloseFrame>) -> ConnectionEnd {
    match frame {
        Some(frame) => ConnectionEnd::Closed {
            code: frame.code.into(),
            text: frame.reason.as_str().into(),
        },
        None => broken("the broker closed the connection without a reason"),
    }
}

fn ended(error: Error) -> ConnectionEnd {
    match error {
        Error::ConnectionClosed | Error::AlreadyClosed => broken("the connection was closed"),
        // Of TLS: the end came without a word.
        Error::Io(error) if error.kind() == ErrorKind::UnexpectedEof => {
            broken("the connection was closed")
        }
        Error::Io(error) => broken(&format!("the connection broke: {error}")),
        Error::Capacity(_) => broken(&format!(
            "the broker sent a message over the limit ({})",
            CloseReason::TooLarge.text()
        )),
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => broken(
            "the connection ended without a word: the broker was killed, or the way to it broke",
        ),
        _ => broken("the connection broke: the broker violated the WebSocket protocol"),
    }
}
