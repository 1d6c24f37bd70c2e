//! What the handle and the driver share: the session behind a lock that is held only to decide.

use std::collections::HashMap;
use std::sync::Mutex;

use peerbus_core::Now;
use peerbus_os::clock::{millis, since_boot};
use peerbus_os::sync::lock;
use peerbus_peer::mailbox::Senders;
use peerbus_peer::session::{PeerSession, QueryId, Rejected, Reply, Status};
use peerbus_wire::{MessageId, PeerName, escape};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Duration, Instant};

use crate::pulse::Pulse;
use crate::sessions::Binder;

/// Longest text of a peer that is logged, in characters.
const LOGGED_CHARS: usize = 200;
/// Messages that failed verification are logged once in so many milliseconds, with their number.
const REJECTED_EVERY_MS: u64 = 60_000;

/// The session and everybody who waits for something of it.
pub(crate) struct Shared {
    inner: Mutex<Inner>,
    /// What remembers the session's name. Never locked while `inner` is.
    binder: Mutex<Option<Binder>>,
    clock: Clock,
    /// The host wants something: the driver looks again.
    pub(crate) wake: Notify,
    /// There may be an event: the host looks again.
    pub(crate) events: Notify,
    status: watch::Sender<Status>,
    pub(crate) pulse: Pulse,
    /// Whose mail reaches the agent.
    senders: Mutex<Senders>,
    pub(crate) ended: watch::Sender<bool>,
}

pub(crate) struct Inner {
    session: PeerSession,
    /// Messages that failed verification, as last logged.
    rejected: u64,
    /// Until then no more of them are logged.
    quiet_until_ms: u64,
    waiting: HashMap<Asked, oneshot::Sender<Reply>>,
}

/// What a reply is found by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Asked {
    Message(MessageId),
    Query(QueryId),
}

#[derive(Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    pub(crate) fn now(&self) -> Now {
        // No session tells a time of the day.
        Now {
            mono_ms: millis(self.start.elapsed()),
            boot_ms: millis(since_boot()),
            wall_ms: 0,
        }
    }

    pub(crate) fn instant(&self, mono_ms: u64) -> Instant {
        self.start + Duration::from_millis(mono_ms)
    }
}

impl Shared {
    pub(crate) fn set_senders(&self, senders: Option<Senders>) {
        *lock(&self.senders) = senders.unwrap_or_default();
    }

    pub(crate) fn senders(&self) -> Senders {
        lock(&self.senders).clone()
    }

    pub(crate) fn new(
        clock: Clock,
        session: PeerSession,
        binder: Option<Binder>,
        pulse: Pulse,
    ) -> Self {
        let status = watch::Sender::new(session.status().clone());
        let inner = Inner {
            session,
            rejected: 0,
            quiet_until_ms: 0,
            waiting: HashMap::new(),
        };
        Self {
            inner: Mutex::new(inner),
            binder: Mutex::new(binder),
            clock,
            wake: Notify::new(),
            events: Notify::new(),
            status,
            pulse,
            senders: Mutex::default(),
            ended: watch::Sender::new(false),
        }
    }

    /// Hands something to the session, then hands on what came of it.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut PeerSession, Now) -> T) -> T {
        self.with_inner(|inner, now| act(&mut inner.session, now))
    }

    fn with_inner<T>(&self, act: impl FnOnce(&mut Inner, Now) -> T) -> T {
        let mut inner = lock(&self.inner);
        let now = self.clock.now();
        let result = act(&mut inner, now);
        let news = self.hand_on(&mut inner, now);
        drop(inner);
        self.tell(news);
        result
    }

    /// Uses what remembers the session's name, where that is done.
    pub(crate) fn with_binder<T>(&self, act: impl FnOnce(&mut Binder) -> T) -> Option<T> {
        let mut binder = lock(&self.binder);
        binder.as_mut().map(act)
    }

    /// The session is registered under this name: it is to find it again.
    pub(crate) fn remember(&self, name: &PeerName) {
        if let Some(Err(error)) = self.with_binder(|binder| binder.registered(name)) {
            tracing::warn!(%error, "the session's name is not remembered: it gets another one when it is resumed");
        }
    }

    /// As [`Shared::with`], for what is answered later; `act` says by what the reply is found.
    pub(crate) fn ask<E>(
        &self,
        act: impl FnOnce(&mut PeerSession, Now) -> Result<Asked, E>,
    ) -> Result<oneshot::Receiver<Reply>, E> {
        let (sender, receiver) = oneshot::channel();
        self.with_inner(|inner, now| -> Result<(), E> {
            let asked = act(&mut inner.session, now)?;
            inner.waiting.insert(asked, sender);
            Ok(())
        })?;
        self.wake.notify_one();
        Ok(receiver)
    }

    pub(crate) fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Where the connection stands, as a sentence.
    pub(crate) fn sentence(&self) -> String {
        self.status.borrow().to_string()
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Hands on what can be under the lock and gives the rest.
    fn hand_on(&self, inner: &mut Inner, now: Now) -> News {
        let mut news = News::default();
        while let Some(reply) = inner.session.poll_reply() {
            inner.answer(reply);
        }
        let status = inner.session.status();
        if *status != *self.status.borrow() {
            news.status = Some(status.clone());
            self.status.send_replace(status.clone());
        }
        if inner.session.has_action() {
            self.wake.notify_one();
        }
        let rejected = inner.session.counters().rejected;
        if rejected != inner.rejected && now.mono_ms >= inner.quiet_until_ms {
            inner.rejected = rejected;
            inner.quiet_until_ms = now.mono_ms + REJECTED_EVERY_MS;
            news.rejected = Some((rejected, inner.session.take_rejected()));
        }
        if inner.session.has_event() || *inner.session.status() == Status::Closed {
            self.events.notify_one();
        }
        news
    }

    /// Does what must not be done under the lock.
    fn tell(&self, news: News) {
        if let Some(status) = news.status {
            if let Status::Online { name, .. } = &status {
                self.remember(name);
            }
            tracing::info!(link = %status, "link");
        }
        if let Some((rejected, last)) = news.rejected {
            let safe = |text: &str| escape(text, LOGGED_CHARS);
            let [from, id, why] = match &last {
                Some(last) => [&last.from, &last.id, &last.reason].map(|text| safe(text)),
                None => Default::default(),
            };
            tracing::warn!(
                from,
                id,
                why,
                rejected,
                "a message failed verification and is not shown"
            );
        }
    }
}

/// What is done after the lock is given back.
#[derive(Default)]
struct News {
    /// The link has just come to this.
    status: Option<Status>,
    /// So many messages have failed verification; the last of them.
    rejected: Option<(u64, Option<Rejected>)>,
}

impl Inner {
    /// Nobody waits any more when the caller's future was dropped.
    fn answer(&mut self, reply: Reply) {
        let asked = match &reply {
            Reply::Sent { id, .. } => Asked::Message(id.clone()),
            Reply::Answered { query, .. } => Asked::Query(*query),
        };
        self.waiting
            .remove(&asked)
            .map(|waiting| waiting.send(reply));
    }
}
