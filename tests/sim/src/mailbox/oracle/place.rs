//! Where messages stand between inputs, and at the end.

use peerbus_peer::mailbox::{AttemptItem, MailboxMachine, Portion};
use peerbus_wire::Priority;

use super::{Entry, NOTICE, Oracle, Which};
use crate::failure::{Verdict, ensure};

impl Oracle {
    /// Between inputs: each message stands where it was put and comes back to its place, what was
    /// denied is rejected, what was proven is acked, and nothing ticks when nothing waits.
    pub(in crate::mailbox) fn between(&mut self, mailbox: &MailboxMachine) -> Verdict {
        self.owed_between(mailbox)?;
        self.places(mailbox)?;
        for (which, entry) in self.session.entries.range(..NOTICE) {
            ensure(!entry.denied, "denied", || {
                format!("{which:?} is not rejected")
            })?;
            let proven = !entry.evidence.is_empty() || !entry.pushed.is_empty();
            ensure(!proven, "evidence", || {
                format!("{which:?} is not acked: {entry:?}")
            })?;
        }
        let waits = |which: &Which, entry: &Entry| {
            let hidden = entry.held || entry.expected.is_some() || entry.kept.is_some();
            self.priority(*which) != Priority::Quiet && !hidden
        };
        let mut mail = self.session.entries.range(..NOTICE);
        let count = mail.clone().count();
        let waits = mail.any(|(which, entry)| waits(which, entry));
        let unseen = mailbox.unseen();
        ensure(unseen >= count, "back", || {
            format!("{unseen} of {count} are here")
        })?;
        // Notices beyond that may want to be told.
        let rests = unseen == count && !waits && !self.session.full && !self.ticks();
        let ticks = mailbox.poll_timeout();
        ensure(!rests || ticks.is_none(), "rest", || {
            format!("it ticks at {ticks:?}, and nothing waits")
        })
    }

    /// Another conversation begins: no part of a message stands in it.
    pub(in crate::mailbox) fn clears(&mut self) {
        self.leaves_conversation();
        let entries = &mut self.session.entries;
        for entry in entries.values_mut() {
            entry.again |= entry.read > 0;
            (entry.read, entry.stood) = (0, 0);
        }
        for (id, showing) in &mut self.session.attempts {
            let is_part = |item: &mut AttemptItem| match item.portion {
                Portion::Part { from, last, .. } => from > 0 || !last,
                Portion::All | Portion::Beginning => false,
            };
            let items = &mut showing.attempt.items;
            for item in items.extract_if(.., is_part) {
                let entry = entries.values_mut().find(|entry| entry.no == Some(item.no));
                if let Some(entry) = entry {
                    entry.again = true;
                    entry.open.take_if(|open| open == id);
                    entry.standing.retain(|stand| stand.attempt != *id);
                }
            }
        }
    }

    pub(super) fn leaves_conversation(&mut self) {
        for letter in &mut self.letters {
            letter.stands_to = 0;
        }
    }

    /// What the agent could read is what should be there, in order of arrival.
    fn places(&mut self, mailbox: &MailboxMachine) -> Verdict {
        let listed = mailbox.look();
        let found: Vec<_> = listed
            .iter()
            .filter_map(|one| self.numbers.get(&one.mail.inbound.key).copied())
            .collect();
        let here = self.session.entries.range(..NOTICE);
        let last =
            |which: Which, entry: &Entry| entry.held || self.priority(which) != Priority::Now;
        let mut should: Vec<_> = here
            .filter(|(_, entry)| self.is_listed(entry))
            .map(|(which, entry)| (last(*which, entry), entry.came, *which))
            .collect();
        should.sort_unstable();
        let should: Vec<_> = should.into_iter().map(|(.., which)| which).collect();
        let more = found.iter().find(|which| !should.contains(which));
        let withheld = more.is_some_and(|it| self.session.outside.contains_key(it));
        let more = more.and_then(|which| self.session.entries.get(which));
        let rule = match more {
            None if withheld => "denied",
            Some(entry) if entry.kept.is_some() => "kept",
            Some(entry) if entry.expected.is_some() => "expected",
            Some(entry) if entry.is_over(self.now_ms) => "lease",
            _ => "back",
        };
        ensure(found == should, rule, || {
            format!("{found:?} can be read, not {should:?}")
        })?;
        for (one, which) in listed.iter().zip(found) {
            let Some(entry) = self.session.entries.get_mut(&which) else {
                continue;
            };
            let no = *entry.no.get_or_insert(one.no);
            ensure(no == one.no, "back", || {
                format!("{which:?} was {no:?} and is {:?}", one.no)
            })?;
            ensure(entry.read == one.read, "read", || {
                format!("{} was read of {entry:?}", one.read)
            })?;
            if one.held.is_none() {
                self.lets_go(which);
            }
            let held = self.session.entries.get(&which).is_some_and(|e| e.held);
            ensure(held == one.held.is_some(), "held", || {
                format!("{which:?} is held: {:?}", one.held)
            })?;
        }
        Ok(())
    }

    /// What is held may be let go when something of its sender's arrives.
    pub(super) fn lets_go(&mut self, which: Which) {
        let arriving = self.session.arriving.filter(|arriving| *arriving != which);
        let same = arriving.is_some_and(|arriving| self.from(arriving) == self.from(which));
        let Some(entry) = self.session.entries.get_mut(&which).filter(|e| e.held) else {
            return;
        };
        if same || entry.perhaps_free {
            entry.held = false;
            entry.quiet = true;
            self.note("released");
        }
    }

    /// The agent may read it, or it is being pushed.
    fn is_listed(&self, entry: &Entry) -> bool {
        let open = entry.open.and_then(|open| self.session.attempts.get(&open));
        let taken = open.is_some_and(|showing| !showing.attempt.path.wakes);
        let over = entry.is_over(self.now_ms);
        entry.kept.is_none() && entry.expected.is_none() && !taken && !over
    }

    /// What of the burst that came after the healing is not acked, and whether it took more than
    /// `most` pushes.
    pub(in crate::mailbox) fn finish_burst(&self, most: usize) -> Verdict {
        let held = |which: &Which| {
            let entry = self.session.entries.get(which);
            entry.is_some_and(|entry| entry.held || entry.quiet)
        };
        let open = |which: &Which| {
            let letter = &self.letters[*which];
            let loud = letter.mail.talk.priority != Priority::Quiet;
            letter.burst && loud && letter.end.is_none() && !held(which)
        };
        let open: Vec<_> = (0..self.letters.len()).filter(open).collect();
        ensure(open.is_empty(), "liveness", || {
            format!("{open:?} came after the healing and are not acked")
        })?;
        let (found, others) = (self.pushes_of_burst, self.others_of_burst);
        // What a hook is showing holds up its senders' mail, and no other.
        ensure(found <= most + others, "turns", || {
            format!("{found} pushes for one burst, not {most} and {others}")
        })?;
        let found = self.turns_of_burst;
        ensure(found <= most, "turns", || {
            format!("{found} turns for one burst, not {most}")
        })
    }

    /// What is not acked when the session had much time, and is not in the hands of its user.
    pub(in crate::mailbox) fn finish_session(&self) -> Verdict {
        let free = |(_, entry): &(&Which, &Entry)| entry.kept.is_none() || self.session.readable;
        let open = self.session.entries.range(..NOTICE).find(free);
        ensure(open.is_none(), "liveness", || {
            format!("never acked: {open:?}")
        })
    }

    /// What is not acked in the end.
    pub(in crate::mailbox) fn finish(&self) -> Verdict {
        let open = self.owed();
        ensure(open.is_empty(), "liveness", || {
            format!("{open:?} are never acked")
        })
    }
}
