//! What somebody beside the mailbox is told of it: how far each message is, and what the session
//! does.

use std::sync::{Arc, Weak};

use peerbus_core::peer::Inbound;
use peerbus_wire::{Receipt, Stage};

use super::{Mailbox, Snapshot};

/// How far a message is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// Its sender's id for it.
    pub id: String,
    /// Its sender, or, of one that this session sent, its recipient where there is one.
    pub peer: Option<String>,
    /// This session sent it.
    pub sent: bool,
    /// How far.
    pub stage: Stage,
}

/// Is told what happens in a mailbox. Must not wait: it is called by whoever changes something.
pub trait Observer: Send + Sync {
    /// A message is so far.
    fn staged(&self, staged: &Staged);

    /// Somebody looked at the session. It need not have changed.
    fn looked(&self, session: &Snapshot);

    /// A message came. True: it is taken here, and nothing that the agent is to see.
    fn takes(self: Arc<Self>, inbound: &Inbound) -> bool;
}

impl Staged {
    /// Of a message that came here.
    pub(super) fn here(inbound: &Inbound, stage: Stage) -> Self {
        Self {
            id: inbound.id.clone(),
            peer: Some(inbound.from.clone()),
            sent: false,
            stage,
        }
    }

    /// Of one that this session sent.
    pub(super) fn there(receipt: &Receipt) -> Self {
        Self {
            id: receipt.id.to_string(),
            peer: receipt.to.clone(),
            sent: true,
            stage: receipt.stage.clone(),
        }
    }
}

impl Mailbox {
    /// From now on this one is told. There is one at most: a second is not taken.
    pub fn observed_by(&self, observer: Weak<dyn Observer>) {
        let _ = self.shared.observer.set(observer);
    }

    pub(super) fn observer(&self) -> Option<Arc<dyn Observer>> {
        self.shared.observer.get()?.upgrade()
    }
}
