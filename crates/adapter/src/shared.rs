//! What the handle and the driver share: the session behind a lock that is held only to decide.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant as StdInstant;

use peerbus_core::Now;
use peerbus_core::peer::{QueryId, Reply, Session, Status};
use peerbus_wire::{MessageId, PeerName, neutralise};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Duration, Instant};

use crate::compose::wall_ms;
use crate::pulse::Pulse;
use crate::sessions::Binder;
use crate::state::LinkState;

/// Longest text of a peer that is logged, in characters.
const LOGGED_CHARS: usize = 200;

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
    state: watch::Sender<LinkState>,
    pub(crate) pulse: Pulse,
    /// The driver is done.
    pub(crate) ended: watch::Sender<bool>,
}

/// What the lock holds.
pub(crate) struct Inner {
    session: Session,
    status: Status,
    /// Messages that failed verification, as last logged.
    rejected: u64,
    waiting: HashMap<Asked, oneshot::Sender<Reply>>,
}

/// What a reply is found by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Asked {
    Message(MessageId),
    Query(QueryId),
}

/// Both clocks.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
    start_std: StdInstant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            start: Instant::now(),
            start_std: StdInstant::now(),
        }
    }

    pub(crate) fn now(&self) -> Now {
        Now {
            mono_ms: u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX),
            wall_ms: wall_ms(),
        }
    }

    pub(crate) fn instant(&self, mono_ms: u64) -> Instant {
        self.start + Duration::from_millis(mono_ms)
    }

    fn std_instant(&self, mono_ms: u64) -> StdInstant {
        self.start_std + Duration::from_millis(mono_ms)
    }
}

impl Shared {
    pub(crate) fn new(
        clock: Clock,
        session: Session,
        binder: Option<Binder>,
        pulse: Pulse,
    ) -> Self {
        let status = session.status().clone();
        let state = watch::Sender::new(state_of(&status, &clock));
        let inner = Inner {
            session,
            status,
            rejected: 0,
            waiting: HashMap::new(),
        };
        Self {
            inner: Mutex::new(inner),
            binder: Mutex::new(binder),
            clock,
            wake: Notify::new(),
            events: Notify::new(),
            state,
            pulse,
            ended: watch::Sender::new(false),
        }
    }

    /// Hands something to the session, then hands on what came of it.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Session, Now) -> T) -> T {
        let mut inner = self.lock();
        let result = act(&mut inner.session, self.clock.now());
        let registered = self.hand_on(&mut inner);
        drop(inner);
        if let Some(name) = registered {
            self.with_binder(|binder| binder.registered(&name));
        }
        result
    }

    /// Uses what remembers the session's name, where that is done.
    pub(crate) fn with_binder<T>(&self, act: impl FnOnce(&mut Binder) -> T) -> Option<T> {
        let mut binder = self.binder.lock().unwrap_or_else(PoisonError::into_inner);
        binder.as_mut().map(act)
    }

    /// As [`Shared::with`], for what is answered later; `act` says by what the reply is found.
    pub(crate) fn ask<E>(
        &self,
        act: impl FnOnce(&mut Session, Now) -> Result<Asked, E>,
    ) -> Result<oneshot::Receiver<Reply>, E> {
        let mut inner = self.lock();
        let asked = act(&mut inner.session, self.clock.now())?;
        let (sender, receiver) = oneshot::channel();
        inner.waiting.insert(asked, sender);
        // A question registers nothing.
        self.hand_on(&mut inner);
        drop(inner);
        self.wake.notify_one();
        Ok(receiver)
    }

    pub(crate) fn state(&self) -> watch::Receiver<LinkState> {
        self.state.subscribe()
    }

    /// Where the connection stands, as a sentence.
    pub(crate) fn sentence(&self) -> String {
        self.state.borrow().to_string()
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// A panic elsewhere does not make the session unusable: each input leaves it consistent.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the name under which the session has just been registered.
    fn hand_on(&self, inner: &mut Inner) -> Option<PeerName> {
        let mut registered = None;
        while let Some(reply) = inner.session.poll_reply() {
            inner.answer(reply);
        }
        if *inner.session.status() != inner.status {
            inner.status = inner.session.status().clone();
            if let Status::Online { name, .. } = &inner.status {
                registered = Some(name.clone());
            }
            let state = state_of(&inner.status, &self.clock);
            tracing::info!(link = %state, "link");
            self.state.send_replace(state);
        }
        if inner.session.has_action() {
            self.wake.notify_one();
        }
        let rejected = inner.session.counters().rejected;
        if rejected != inner.rejected {
            inner.rejected = rejected;
            let last = inner.session.take_rejected();
            let safe = |text: &str| neutralise(text, LOGGED_CHARS);
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
        if inner.session.has_event() || inner.status == Status::Closed {
            self.events.notify_one();
        }
        registered
    }
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

fn state_of(status: &Status, clock: &Clock) -> LinkState {
    match status {
        Status::Connecting {
            since_ms,
            last_error,
        } => LinkState::Connecting {
            since: clock.std_instant(*since_ms),
            last_error: last_error.clone(),
        },
        Status::Online { name, ext } => LinkState::Online {
            name: name.as_str().into(),
            ext: *ext,
        },
        Status::Refused { name, why } => LinkState::Refused {
            name: name.as_str().into(),
            why: why.clone(),
        },
        Status::NoCredentials { looked } => LinkState::NeedCredentials {
            looked: looked.clone(),
        },
        Status::Closed => LinkState::Closed,
    }
}
