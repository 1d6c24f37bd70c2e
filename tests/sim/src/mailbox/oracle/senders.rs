//! Mail that the user's rules keep out: it is in nobody's sight until the user lets it in.

use peerbus_peer::mailbox::{MailboxOutput, SenderRule};
use peerbus_wire::Stage;

use super::{Oracle, Which};
use crate::failure::{Verdict, ensure};
use crate::mailbox::plan::RULES;

impl Oracle {
    /// What the user says of its sender.
    pub(in crate::mailbox) fn rule(&self, which: Which) -> SenderRule {
        let from = self.from(which).unwrap_or_default();
        let fits = RULES.iter().find(|(name, _)| *name == from);
        fits.map_or(SenderRule::Allow, |(_, rule)| *rule)
    }

    /// What is arriving is kept out.
    pub(in crate::mailbox) fn keeps_out(&mut self, which: Which) {
        // What is here already was let in.
        if self.session.arriving == Some(which)
            && let Some(entry) = self.session.entries.remove(&which)
        {
            self.session.outside.insert(which, entry);
        }
    }

    /// The user decides about the oldest that waits.
    pub(in crate::mailbox) fn decides(&mut self, show: bool) {
        let outside = &mut self.session.outside;
        let oldest = outside.iter().min_by_key(|(_, entry)| entry.came);
        let oldest = oldest.map(|(which, _)| *which);
        let Some((which, entry)) = oldest.and_then(|which| outside.remove_entry(&which)) else {
            return;
        };
        if show {
            self.session.entries.insert(which, entry);
            self.session.released = Some(which);
            self.note("let in");
        } else {
            self.session.declined = Some(which);
            self.session.outside.insert(which, entry);
        }
    }

    /// What is said of a message that was kept out, or is let in; `None`: it was neither.
    pub(super) fn outside(&mut self, output: &MailboxOutput) -> Option<Verdict> {
        let MailboxOutput::Reached { mail, stage } = output else {
            return None;
        };
        let key = mail.inbound.key;
        let which = *self.numbers.get(&key)?;
        if matches!(stage, Stage::Held { why } if why.starts_with("released: ")) {
            let released = self.session.released.take_if(|it| *it == which);
            return Some(ensure(released.is_some(), "senders", || {
                format!("{which:?} is released, and nobody let it in")
            }));
        }
        self.session.outside.get(&which)?;
        let declined = self.session.declined.take_if(|it| *it == which).is_some();
        let end = match (self.rule(which), stage) {
            (SenderRule::Hold, Stage::Held { .. }) => return Some(Ok(())),
            (SenderRule::Hold, Stage::Dead { .. }) if declined => "rejected",
            (SenderRule::Refuse, Stage::Dead { .. }) => "rejected",
            (SenderRule::Drop, Stage::Acked(None)) => "dropped",
            (rule, _) => {
                let wrong = || format!("{which:?}, which waits by {rule:?}: {output:?}");
                return Some(ensure(false, "senders", wrong));
            }
        };
        self.session.outside.remove(&which);
        self.end(key, end.into());
        Some(Ok(()))
    }

    /// So many wait for the user.
    pub(in crate::mailbox) fn waiting_outside(&self) -> usize {
        self.session.outside.len()
    }
}
