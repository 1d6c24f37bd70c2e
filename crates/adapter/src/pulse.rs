//! When the broker was last heard.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// A name is taken from a living process only after it left a ping unanswered for this long: what
/// was heard more recently shows that the name is still ours.
const FRESH: Duration = Duration::from_secs(2);

/// Signs of life of the connections, and questions for one.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// When the broker was last heard, on the clock that counts sleep; and the last question.
    last: Mutex<(Option<Duration>, u64)>,
    pub(crate) told: watch::Sender<Told>,
}

/// What came of questions.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Told {
    /// The last question that was answered.
    pub(crate) answered: u64,
    /// Connections that ended.
    pub(crate) ended: u64,
}

impl Pulse {
    fn with_last<T>(&self, act: impl FnOnce(&mut (Option<Duration>, u64)) -> T) -> T {
        act(&mut self.last.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Forgets when the broker was last heard.
    pub(crate) fn doubt(&self) {
        self.with_last(|last| last.0 = None);
    }

    /// Something came from the broker.
    pub(crate) fn heard(&self) {
        let now = peerbus_os::clock::since_boot();
        self.with_last(|last| last.0 = Some(now));
    }

    /// Whether the broker was heard within the time that a takeover takes.
    pub(crate) fn is_fresh(&self) -> bool {
        self.heard_within(FRESH)
    }

    /// Whether the broker was heard in this time.
    pub(crate) fn heard_within(&self, time: Duration) -> bool {
        let now = peerbus_os::clock::since_boot();
        let heard = self.with_last(|last| last.0);
        heard.is_some_and(|heard| now.saturating_sub(heard) < time)
    }

    /// Puts another question, and gives its number.
    pub(crate) fn ask(&self) -> u64 {
        self.with_last(|last| {
            last.1 += 1;
            last.1
        })
    }

    /// The last question.
    pub(crate) fn asked(&self) -> u64 {
        self.with_last(|last| last.1)
    }

    /// A pong came back with this number.
    pub(crate) fn answered(&self, number: u64) {
        self.told.send_modify(|told| told.answered = number);
    }

    /// The connection ended.
    pub(crate) fn ended(&self) {
        self.told.send_modify(|told| told.ended += 1);
    }
}
