//! Looking at what waits, and taking it: what the reading tools stand on.

use std::collections::BTreeSet;
use std::sync::Arc;

use peerbus_adapter::wake::{EntryId, Limit, Path};

use super::Desk;
use super::letter::Mail;
use super::state::{Content, HeldBack, State};
use super::taken::{Taken, seen};

/// Most notices in an answer.
const NOTICES_MAX: usize = 64;

/// A message that waits.
#[derive(Debug, Clone)]
pub(crate) struct Looked {
    pub(crate) entry: EntryId,
    order: u64,
    pub(crate) mail: Arc<Mail>,
    /// It may have been shown before.
    pub(crate) shown: bool,
    /// Why the governor holds it.
    pub(crate) held: Option<String>,
}

/// What it says that a tool call names a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    /// It was unseen, and is seen now.
    Seen,
    /// It waits, and was not shown yet: the id is known from elsewhere.
    NotShown,
    /// No unseen message has this id.
    Unknown,
    /// Several senders used this id: which of their messages is meant is not known.
    Several,
}

impl Desk {
    /// The agent is told of this message, in a list or in part.
    pub(crate) fn listed(&self, looked: &Looked) {
        self.with(|state, _| {
            if let Some(waiting) = state.waiting.get_mut(&looked.entry) {
                waiting.listed = true;
            }
            if let Some(held) = state.held.get_mut(&looked.entry) {
                held.listed = true;
            }
        });
    }

    /// The messages that wait and are not being read, in order of arrival.
    pub(crate) fn look(&self) -> Vec<Looked> {
        self.with(|state, _| {
            let mut found: Vec<Looked> = looked(state).collect();
            let held = state.held.iter().map(|(id, held)| Looked {
                entry: *id,
                order: id.0,
                mail: held.mail.clone(),
                shown: held.again,
                held: Some(held.reason.clone()),
            });
            found.extend(held);
            found.sort_by_key(|looked| looked.order);
            found
        })
    }

    /// Takes the first of these messages, as many as fit, for an agent that asked for them.
    pub(crate) fn take(&self, path: Path, chosen: &[Looked], limit: Limit) -> Taken {
        let mut taken = Taken::new(self.clone());
        let (held, waiting): (Vec<&Looked>, Vec<&Looked>) =
            chosen.iter().partition(|looked| looked.held.is_some());
        let only: Vec<EntryId> = waiting.iter().map(|looked| looked.entry).collect();
        self.with(|state, now_ms| {
            if let Some(parcel) = state.read(now_ms, path, &only, limit) {
                taken.add_read(state, &parcel);
            }
            let of_held =
                |looked: &&Looked| Some((looked.entry, state.held.remove(&looked.entry)?));
            let held: Vec<_> = held.iter().filter_map(of_held).collect();
            if !held.is_empty() {
                taken.add_held(held);
            }
        });
        taken
    }

    /// Takes the oldest notices.
    pub(crate) fn take_notices(&self, path: Path) -> Taken {
        let mut taken = Taken::new(self.clone());
        self.with(|state, now_ms| {
            let notices = state.waiting.iter().filter(|(_, waiting)| {
                matches!(waiting.content, Content::Notice { .. }) && waiting.is_free()
            });
            let only: Vec<EntryId> = notices.map(|(id, _)| *id).take(NOTICES_MAX).collect();
            let limit = Limit {
                entries: NOTICES_MAX,
                bytes: usize::MAX,
            };
            if let Some(parcel) = state.read(now_ms, path, &only, limit) {
                taken.add_read(state, &parcel);
            }
        });
        taken
    }

    /// So many messages and notices wait and are not being read, without those that are held.
    pub(crate) fn waiting(&self) -> usize {
        self.with(|state, _| state.waiting.values().filter(|w| w.is_free()).count())
    }

    /// So many messages are held, and why the last of them is.
    pub(crate) fn held(&self) -> (usize, Option<String>) {
        self.with(|state, _| {
            let last = state.held.values().next_back();
            (state.held.len(), last.map(|held| held.reason.clone()))
        })
    }
}

impl State {
    /// A tool call names a message: the agent has seen it, if it was shown it.
    pub(super) fn named(&mut self, now_ms: u64, id: &str) -> Named {
        match self.senders(id).len() {
            0 => return Named::Unknown,
            1 => {}
            _ => return Named::Several,
        }
        let is_it = |mail: &Mail| mail.inbound.id == id;
        let waiting = self.waiting.iter();
        let entries: Vec<(EntryId, bool)> = waiting
            .filter(|(_, waiting)| waiting.content.mail().is_some_and(is_it))
            .map(|(entry, waiting)| (*entry, waiting.is_known()))
            .collect();
        let mut found = entries.iter().any(|(_, known)| *known);
        for (entry, _) in entries.iter().filter(|(_, known)| *known) {
            self.ladder.named(now_ms, *entry);
        }
        let known = |held: &HeldBack| held.listed || held.again;
        let mut hidden = entries.iter().any(|(_, known)| !known);
        hidden |= self.held.values().any(|h| is_it(&h.mail) && !known(h));
        let held = self.held.extract_if(.., |_, h| is_it(&h.mail) && known(h));
        let held: Vec<_> = held.collect();
        for (_, held) in &held {
            let how = seen(Path::Inbox.as_str(), "tool_call");
            self.bus.ack(&held.mail.inbound.key, how);
            self.recent.add(&held.mail);
            found = true;
        }
        match (found, hidden) {
            (true, _) => Named::Seen,
            (false, true) => Named::NotShown,
            (false, false) => Named::Unknown,
        }
    }

    /// Who used this id, of what waits or was seen lately. An id is unique per sender only.
    fn senders(&self, id: &str) -> BTreeSet<String> {
        let waiting = self.waiting.values().filter_map(|w| w.content.mail());
        let held = self.held.values().map(|held| &*held.mail);
        let here = waiting.chain(held).filter(|mail| mail.inbound.id == id);
        let here = here.map(|mail| mail.inbound.from.to_ascii_lowercase());
        let before = self.recent.get(id);
        here.chain(before.map(|parent| parent.from.to_ascii_lowercase()))
            .collect()
    }
}

fn looked(state: &State) -> impl Iterator<Item = Looked> {
    state
        .waiting
        .iter()
        .filter_map(|(id, waiting)| match &waiting.content {
            Content::Message(mail) if waiting.is_free() => Some(Looked {
                entry: *id,
                order: waiting.order,
                mail: mail.clone(),
                shown: waiting.shown || waiting.out.is_some(),
                held: None,
            }),
            _ => None,
        })
}
