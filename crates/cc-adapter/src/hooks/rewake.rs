//! The wake path: one hook that waits.

use std::sync::{Arc, Mutex, PoisonError};

use peerbus_adapter::wake::{Outcome, Path, PathState};
use peerbus_mcp::{BoxFuture, Desk, Letter, WakePath};
use tokio::sync::{Notify, oneshot};

/// Something to show, and where to say what came of it. Dropped unanswered, it was not shown.
pub(super) struct Due {
    pub(super) text: String,
    pub(super) outcome: oneshot::Sender<Outcome>,
}

/// The hook of this session that waits, if one does. Clones share it.
#[derive(Clone)]
pub struct Rewake {
    desk: Desk,
    seat: Arc<Mutex<Seat>>,
    taken: Arc<Notify>,
}

#[derive(Default)]
struct Seat {
    /// Tells one waiter from the next.
    number: u64,
    waits: Option<oneshot::Sender<Due>>,
}

impl Rewake {
    pub(super) fn new(desk: Desk) -> Self {
        Self {
            desk,
            seat: Arc::default(),
            taken: Arc::default(),
        }
    }

    /// A hook waits from now on, until the caller lets go of what is returned. The one that waited
    /// before has nothing to wait for any more: its receiver ends.
    pub(super) fn sit(&self) -> Sitting<'_> {
        let (due, waits) = oneshot::channel();
        let mut seat = self.seat();
        seat.number += 1;
        seat.waits = Some(due);
        let number = seat.number;
        drop(seat);
        self.taken.notify_waiters();
        self.desk.set_path(Path::Rewake, PathState::Ready);
        Sitting {
            path: self,
            number,
            waits,
        }
    }

    /// Returns once a hook waits.
    pub(super) async fn waits(&self) {
        let taken = self.taken.notified();
        if self.seat().waits.is_none() {
            taken.await;
        }
    }

    /// Takes the waiter: nobody else gets it.
    fn claim(&self) -> Option<oneshot::Sender<Due>> {
        let waits = self.seat().waits.take();
        if waits.is_some() {
            self.desk.set_path(Path::Rewake, PathState::Absent);
        }
        waits
    }

    fn leave(&self, number: u64) {
        let mut seat = self.seat();
        if seat.number == number && seat.waits.take().is_some() {
            drop(seat);
            self.desk.set_path(Path::Rewake, PathState::Absent);
        }
    }

    fn seat(&self) -> std::sync::MutexGuard<'_, Seat> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A hook that waits.
pub(super) struct Sitting<'a> {
    path: &'a Rewake,
    number: u64,
    waits: oneshot::Receiver<Due>,
}

impl Sitting<'_> {
    /// What it is to show; `None`: another one waits in its place.
    pub(super) async fn due(&mut self) -> Option<Due> {
        (&mut self.waits).await.ok()
    }
}

impl Drop for Sitting<'_> {
    fn drop(&mut self) {
        self.path.leave(self.number);
    }
}

impl WakePath for Rewake {
    fn path(&self) -> Path {
        Path::Rewake
    }

    fn needs(&self) -> &'static str {
        "the peerbus hooks in the settings of Claude Code: `peerbus install claude-code`"
    }

    fn evidence(&self) -> &'static str {
        "an answer of the model after the hook's text, in the session's transcript"
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        let waits = self.seat().waits.is_some();
        Box::pin(async move {
            waits
                .then_some(())
                .ok_or_else(|| "no hook waits for this session now".to_owned())
        })
    }

    fn wake<'a>(&'a self, letter: &'a Letter) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let Some(waiter) = self.claim() else {
                return Outcome::Failed;
            };
            let (outcome, told) = oneshot::channel();
            let text = letter.text();
            if waiter.send(Due { text, outcome }).is_err() {
                return Outcome::Failed;
            }
            told.await.unwrap_or(Outcome::Failed)
        })
    }
}
