//! Messages that were seen lately: they can be replied to.

use std::collections::VecDeque;

use peerbus_wire::{Conversation, MessageId};

use super::types::Parent;

/// So many are remembered.
pub(super) const RECENT_MAX: usize = 1_024;

impl Parent {
    pub(super) fn of(id: &str, from: &str, talk: &Conversation) -> Option<Self> {
        Some(Self {
            id: MessageId::parse(id).ok()?,
            from: from.to_owned(),
            talk: talk.clone(),
        })
    }
}

/// The last ones, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Recent(VecDeque<Parent>);

impl Recent {
    pub(super) fn add(&mut self, parent: Parent) {
        let same = |known: &Parent| known.id == parent.id && known.from == parent.from;
        if self.0.iter().any(same) {
            return;
        }
        if self.0.len() >= RECENT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(parent);
    }

    /// Their ids, senders and places in conversations.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &str, &Conversation)> {
        let all = self.0.iter();
        all.map(|parent| (parent.id.as_str(), &*parent.from, &parent.talk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent(id: &str, from: &str) -> Parent {
        Parent {
            id: MessageId::parse(id).unwrap(),
            from: from.into(),
            talk: Conversation::default(),
        }
    }

    #[test]
    fn the_last_ones_are_remembered_and_no_more() {
        let mut recent = Recent::default();
        for n in 0..RECENT_MAX + 10 {
            recent.add(parent(&format!("m{n}"), "bob"));
            recent.add(parent(&format!("m{n}"), "bob"));
        }
        let count = |recent: &Recent, id: &str| recent.all().filter(|it| it.0 == id).count();
        assert_eq!(count(&recent, "m9"), 0);
        assert_eq!(count(&recent, "m10"), 1);
        recent.add(parent("m10", "mallory"));
        assert_eq!(count(&recent, "m10"), 1, "the oldest went for it");
        assert_eq!(recent.0.len(), RECENT_MAX);
    }
}
