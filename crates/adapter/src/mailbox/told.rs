//! What somebody beside the mailbox is told of it: how far each message is, and what the session
//! does.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use peerbus_core::peer::{Inbound, Key};
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

/// What is to be told, and of what. What is unseen is bounded by the broker's window.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Of each message that is unseen its id and its sender.
    unseen: BTreeMap<Key, (String, String)>,
    staged: Vec<Staged>,
}

impl Told {
    pub(super) fn arrived(&mut self, inbound: &Inbound) {
        let named = (inbound.id.clone(), inbound.from.clone());
        self.unseen.insert(inbound.key, named);
        self.reached(&inbound.key, Stage::Delivered);
    }

    pub(super) fn reached(&mut self, key: &Key, stage: Stage) {
        let named = match stage.is_final() {
            true => self.unseen.remove(key),
            false => self.unseen.get(key).cloned(),
        };
        if let Some((id, peer)) = named {
            self.staged.push(Staged {
                id,
                peer: Some(peer),
                sent: false,
                stage,
            });
        }
    }

    pub(super) fn sent(&mut self, receipt: &Receipt) {
        self.staged.push(Staged {
            id: receipt.id.to_string(),
            peer: receipt.to.clone(),
            sent: true,
            stage: receipt.stage.clone(),
        });
    }

    pub(super) fn take(&mut self) -> Vec<Staged> {
        std::mem::take(&mut self.staged)
    }
}

impl Mailbox {
    /// From now on this one is told. There is one at most: a second is not taken.
    pub fn observed_by(&self, observer: Weak<dyn Observer>) {
        let _ = self.shared.observer.set(observer);
    }

    fn observer(&self) -> Option<Arc<dyn Observer>> {
        self.shared.observer.get()?.upgrade()
    }

    pub(super) fn tell_stages(&self, staged: &[Staged]) {
        if let Some(observer) = self.observer().filter(|_| !staged.is_empty()) {
            staged.iter().for_each(|staged| observer.staged(staged));
        }
    }

    pub(super) fn is_taken(&self, inbound: &Inbound) -> bool {
        let observer = self.observer();
        observer.is_some_and(|observer| observer.takes(inbound))
    }

    pub(super) fn tell_session(&self, snapshot: &Snapshot) {
        if let Some(observer) = self.observer() {
            observer.looked(snapshot);
        }
    }
}
