//! Messages that were seen lately: they can be replied to.

use std::collections::{BTreeMap, VecDeque};

use peerbus_wire::{Conversation, MessageId};

use super::letter::Mail;

/// So many are remembered.
const RECENT_MAX: usize = 1_024;

/// A message that can be replied to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parent {
    pub(crate) id: MessageId,
    pub(crate) from: String,
    pub(crate) talk: Conversation,
}

impl Parent {
    pub(super) fn of(mail: &Mail) -> Option<Self> {
        Some(Self {
            id: MessageId::parse(&mail.inbound.id).ok()?,
            from: mail.inbound.from.clone(),
            talk: mail.talk.clone(),
        })
    }
}

/// The last ones, by id; of two with the same id the later one.
#[derive(Debug, Default)]
pub(super) struct Recent {
    parents: BTreeMap<String, Parent>,
    order: VecDeque<String>,
}

impl Recent {
    pub(super) fn add(&mut self, mail: &Mail) {
        let Some(parent) = Parent::of(mail) else {
            return;
        };
        let id = mail.inbound.id.clone();
        if self.parents.insert(id.clone(), parent).is_none() {
            self.order.push_back(id);
        }
        if self.order.len() > RECENT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.parents.remove(&oldest);
        }
    }

    pub(super) fn get(&self, id: &str) -> Option<Parent> {
        self.parents.get(id).cloned()
    }
}
