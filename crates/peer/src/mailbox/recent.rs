//! Messages that were seen lately: they can be replied to.

use std::collections::VecDeque;

use peerbus_wire::MessageId;

use super::types::{Mail, Parent};

/// So many are remembered.
pub(super) const RECENT_MAX: usize = 1_024;

impl Parent {
    pub(super) fn of(mail: &Mail) -> Option<Self> {
        Some(Self {
            id: MessageId::parse(&mail.inbound.id).ok()?,
            from: mail.inbound.from.clone(),
            talk: mail.talk.clone(),
        })
    }
}

/// The last ones, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Recent(VecDeque<Parent>);

impl Recent {
    pub(super) fn add(&mut self, parent: Parent) {
        if self
            .get(parent.id.as_str())
            .any(|known| known.from == parent.from)
        {
            return;
        }
        if self.0.len() >= RECENT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(parent);
    }

    /// Those with this id.
    pub(super) fn get(&self, id: &str) -> impl Iterator<Item = &Parent> {
        self.0.iter().filter(move |parent| parent.id.as_str() == id)
    }
}

#[cfg(test)]
mod tests {
    use peerbus_wire::Conversation;

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
        assert_eq!(recent.get("m9").count(), 0);
        assert_eq!(recent.get("m10").count(), 1);
        recent.add(parent("m10", "mallory"));
        assert_eq!(recent.get("m10").count(), 1, "the oldest went for it");
        assert_eq!(recent.0.len(), RECENT_MAX);
    }
}
