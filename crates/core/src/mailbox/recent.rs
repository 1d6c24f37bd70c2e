//! Messages that were seen lately: they can be replied to.

use std::collections::{BTreeMap, VecDeque};

use peerbus_wire::MessageId;

use super::types::{Mail, Parent};

/// So many are remembered.
const RECENT_MAX: usize = 1_024;

impl Parent {
    pub(super) fn of(mail: &Mail) -> Option<Self> {
        Some(Self {
            id: MessageId::parse(&mail.inbound.id).ok()?,
            from: mail.inbound.from.clone(),
            talk: mail.talk.clone(),
        })
    }
}

/// The last ones, by id.
#[derive(Debug, Default)]
pub(super) struct Recent {
    parents: BTreeMap<String, Vec<Parent>>,
    order: VecDeque<String>,
}

impl Recent {
    pub(super) fn add(&mut self, mail: &Mail) {
        if let Some(parent) = Parent::of(mail) {
            self.remember(parent);
        }
    }

    fn remember(&mut self, parent: Parent) {
        let id = parent.id.as_str().to_owned();
        let same = self.parents.entry(id.clone()).or_default();
        if same.iter().any(|known| known.from == parent.from) {
            return;
        }
        same.push(parent);
        self.order.push_back(id);
        if self.order.len() > RECENT_MAX
            && let Some(oldest) = self.order.pop_front()
            && let Some(same) = self.parents.get_mut(&oldest)
        {
            same.remove(0);
            if same.is_empty() {
                self.parents.remove(&oldest);
            }
        }
    }

    /// Those with this id.
    pub(super) fn get(&self, id: &str) -> impl Iterator<Item = Parent> {
        self.parents.get(id).into_iter().flatten().cloned()
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
            recent.remember(parent(&format!("m{n}"), "bob"));
            recent.remember(parent(&format!("m{n}"), "bob"));
        }
        assert_eq!(recent.get("m9").count(), 0);
        assert_eq!(recent.get("m10").count(), 1);
        recent.remember(parent("m10", "mallory"));
        assert_eq!(recent.get("m10").count(), 1, "the oldest went for it");
        assert_eq!(
            (recent.order.len(), recent.parents.len()),
            (RECENT_MAX, RECENT_MAX)
        );
    }
}
