//! The wake path: one hook that waits.

use std::sync::{Arc, Mutex};

use peerbus_adapter::mailbox::{BoxFuture, Mailbox, Outcome, Path, Push, WakePath};
use peerbus_os::sync::lock;
use tokio::sync::{Notify, oneshot};

use crate::waking::REWAKE;

/// Something to show, and where to say what came of it. Dropped unanswered, it was not shown.
pub(super) struct WakeText {
    pub(super) text: String,
    pub(super) outcome: oneshot::Sender<Outcome>,
}

/// The hook of this session that waits, if one does. Clones share it.
#[derive(Clone)]
pub struct Rewake {
    mailbox: Mailbox,
    waiter: Arc<Mutex<Waiter>>,
    taken: Arc<Notify>,
}

#[derive(Default)]
struct Waiter {
    /// Tells one waiter from the next.
    number: u64,
    waits: Option<oneshot::Sender<WakeText>>,
}

impl Rewake {
    pub(super) fn new(mailbox: Mailbox) -> Self {
        Self {
            mailbox,
            waiter: Arc::default(),
            taken: Arc::default(),
        }
    }

    /// A hook waits from now on, until the caller lets go of what is returned. The one that waited
    /// before has nothing to wait for any more: its receiver ends.
    pub(super) fn wait_here(&self) -> WaiterGuard<'_> {
        let (due, waits) = oneshot::channel();
        let mut waiter = lock(&self.waiter);
        waiter.number += 1;
        waiter.waits = Some(due);
        let number = waiter.number;
        drop(waiter);
        self.taken.notify_waiters();
        self.mailbox.found(&REWAKE, Ok(()));
        WaiterGuard {
            path: self,
            number,
            waits,
        }
    }

    /// Returns once a hook waits.
    pub(super) async fn waits(&self) {
        let taken = self.taken.notified();
        if lock(&self.waiter).waits.is_none() {
            taken.await;
        }
    }

    /// Takes the waiter: nobody else gets it.
    fn claim(&self) -> Option<oneshot::Sender<WakeText>> {
        let waits = lock(&self.waiter).waits.take();
        if waits.is_some() {
            self.mailbox.found(&REWAKE, absent());
        }
        waits
    }

    fn leave(&self, number: u64) {
        let mut waiter = lock(&self.waiter);
        if waiter.number == number && waiter.waits.take().is_some() {
            drop(waiter);
            self.mailbox.found(&REWAKE, absent());
        }
    }
}

fn absent() -> Result<(), String> {
    Err("no hook waits for this session now".to_owned())
}

pub(super) struct WaiterGuard<'a> {
    path: &'a Rewake,
    number: u64,
    waits: oneshot::Receiver<WakeText>,
}

impl WaiterGuard<'_> {
    /// What it is to show; `None`: another one waits in its place.
    pub(super) async fn due(&mut self) -> Option<WakeText> {
        (&mut self.waits).await.ok()
    }
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        self.path.leave(self.number);
    }
}

impl WakePath for Rewake {
    fn spec(&self) -> Path {
        &REWAKE
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        let waits = lock(&self.waiter).waits.is_some();
        Box::pin(async move {
            match waits {
                true => Ok(()),
                false => absent(),
            }
        })
    }

    fn wake<'a>(&'a self, push: &'a Push) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let Some(waiter) = self.claim() else {
                return Outcome::Failed;
            };
            let (outcome, told) = oneshot::channel();
            let text = push.text();
            if waiter.send(WakeText { text, outcome }).is_err() {
                return Outcome::Failed;
            }
            told.await.unwrap_or(Outcome::Failed)
        })
    }
}
