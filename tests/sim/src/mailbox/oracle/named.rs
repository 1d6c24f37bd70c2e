//! Messages that a tool call names.

use peerbus_peer::mailbox::{AttemptItem, Named};

use super::{Oracle, Which};

impl Oracle {
    /// The mailbox hears that the agent named a message. Whether it was shown all of it, a part, or
    /// nothing, and whether it is not here.
    pub(in crate::mailbox) fn named(&mut self, id: &str, from: Option<&str>) -> Named {
        let Some(meant) = self.meant(id, from) else {
            return Named::Several;
        };
        let mut named = Named::Unknown;
        for which in meant {
            let session = &mut self.session;
            let Some(entry) = session.entries.get_mut(&which) else {
                continue;
            };
            let open = entry.open.and_then(|open| session.attempts.get(&open));
            let open = open.filter(|showing| !showing.attempt.path.in_result);
            let portion = open.and_then(|showing| {
                let key = self.letters[which].mail.inbound.key;
                let is_it = |item: &&AttemptItem| {
                    let mail = item.content.mail();
                    mail.is_some_and(|mail| mail.inbound.key == key)
                };
                showing
                    .attempt
                    .items
                    .iter()
                    .find(is_it)
                    .map(|item| item.portion)
            });
            let whole = entry.standing.iter().any(|stand| stand.whole)
                || portion.is_some_and(|portion| entry.completes(portion));
            if !whole {
                let begun = entry.read > 0 || !entry.is_fresh() || portion.is_some();
                named = match (named, begun) {
                    (Named::Seen | Named::Pushed | Named::Awaited, _) => named,
                    (_, true) | (Named::InPart, false) => Named::InPart,
                    (_, false) => Named::NotShown,
                };
                continue;
            }
            let last = entry.standing.last().map(|stand| stand.path);
            let path = last.or(open.map(|showing| showing.attempt.path));
            let word = path.map_or("unknown", |path| path.word);
            if session.readable {
                let one = self.letters[which].mail.inbound.one;
                let how = match session.evidence && !one {
                    true => Named::Awaited,
                    false => Named::Pushed,
                };
                if how == Named::Pushed {
                    entry.pushed.insert(word.into());
                }
                named = match (named, how) {
                    (Named::Seen | Named::Pushed, _) => named,
                    (_, how) => how,
                };
                continue;
            }
            named = Named::Seen;
            entry.evidence.insert((word.into(), "tool_call".into()));
        }
        named
    }

    /// The messages that an id means; `None`: several senders used it.
    fn meant(&self, id: &str, from: Option<&str>) -> Option<Vec<Which>> {
        let here: Vec<_> = (self.session.entries.keys())
            .copied()
            .filter(|which| {
                let letter = self.letters.get(*which);
                letter.is_some_and(|letter| letter.mail.inbound.id == id)
            })
            .collect();
        let recent = self.session.recent.iter();
        let mut senders: Vec<_> = here
            .iter()
            .filter_map(|which| self.from(*which))
            .chain(
                recent
                    .filter(|(of, _)| of == id)
                    .map(|(_, from)| from.as_str()),
            )
            .collect();
        senders.sort_unstable();
        senders.dedup();
        if from.is_none() && senders.len() > 1 {
            return None;
        }
        let meant = here.into_iter();
        let meant = meant.filter(|which| from.is_none() || self.from(*which) == from);
        Some(meant.collect())
    }
}
