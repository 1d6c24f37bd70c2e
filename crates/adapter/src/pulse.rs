//! When the broker was last heard.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use peerbus_os::clock::since_boot;
use peerbus_os::sync::lock;
use tokio::sync::watch;

/// A name is taken from a living process only after it left a ping unanswered for this long: what
/// was heard more recently shows that the name is still ours.
const FRESH: Duration = Duration::from_secs(2);

/// Signs of life of the connections, and questions for one.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// When the broker was last heard, on the clock that counts sleep.
    last: Mutex<Option<Duration>>,
    /// The last question.
    asked: AtomicU64,
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
    /// Forgets when the broker was last heard.
    pub(crate) fn doubt(&self) {
        *lock(&self.last) = None;
    }

    pub(crate) fn heard(&self) {
        *lock(&self.last) = Some(since_boot());
    }

    /// Whether the broker was heard within the time that a takeover takes.
    pub(crate) fn is_fresh(&self) -> bool {
        self.heard_within(FRESH)
    }

    /// Whether the broker was heard in this time.
    pub(crate) fn heard_within(&self, time: Duration) -> bool {
        let heard = *lock(&self.last);
        heard.is_some_and(|heard| since_boot().saturating_sub(heard) < time)
    }

    /// Puts another question, and gives its number.
    pub(crate) fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    /// A pong came back with this number.
    pub(crate) fn answered(&self, number: u64) {
        self.told.send_modify(|told| told.answered = number);
    }

    pub(crate) fn ended(&self) {
        self.told.send_modify(|told| told.ended += 1);
    }
}
