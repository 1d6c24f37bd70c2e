//! What the session has for a while: leases, and the requests that it owes.

use peerbus_peer::mailbox::{Activity, Attempt, AttemptItem, Content, MailboxMachine};
use peerbus_peer::session::Key;
use peerbus_wire::Stage;

use super::{Entry, NOTICE, Oracle, Which};
use crate::failure::{Verdict, ensure};

/// A lease, as the mailbox may use it.
const LEASE_MS: u64 = 570_000;

/// How a reminder begins.
const REMINDER: &str = "You still owe ";

/// The broker lets nobody owe more.
const OWED_MAX: usize = 64;

/// A request that was acked and has not ended.
#[derive(Debug)]
pub(super) struct Debt {
    which: Which,
    until_ms: u64,
    worked_ms: Option<u64>,
    /// So many reminders of it stood in the conversation.
    told: usize,
}

impl Oracle {
    /// A message arrives that is here: it is the session's for another while.
    pub(super) fn renews(&mut self, which: Which) -> bool {
        let now_ms = self.now_ms;
        let inbound = &self.letters[which].mail.inbound;
        let Some(entry) = self.session.entries.get_mut(&which) else {
            return false;
        };
        entry.again = true;
        entry.lease(now_ms, inbound.one, inbound.within_ms);
        self.note("renewed");
        true
    }

    /// What the broker may take back: what the session has for a while.
    pub(in crate::mailbox) fn taken(&self) -> Vec<usize> {
        let entries = self.session.entries.range(..NOTICE);
        let here = entries.filter(|(which, entry)| {
            let inbound = &self.letters[**which].mail.inbound;
            entry.lapsed_ms.is_none() && (inbound.one || inbound.within_ms > 0)
        });
        let here = here.map(|(which, _)| *which);
        here.chain(self.session.owed.iter().map(|debt| debt.which))
            .collect()
    }

    /// Of those one member of a group has.
    pub(in crate::mailbox) fn leased(&self) -> Vec<usize> {
        let entries = self.session.entries.range(..NOTICE);
        let one = entries.filter(|(which, _)| self.letters[**which].mail.inbound.one);
        one.map(|(which, _)| *which).collect()
    }

    /// A message is not the session's any more. `over`: it does not come again.
    pub(in crate::mailbox) fn lapses(&mut self, which: Which, over: bool) -> Key {
        let now_ms = self.now_ms;
        let owed = self.session.owed.len();
        self.session.owed.retain(|debt| debt.which != which);
        if owed > self.session.owed.len() {
            self.note("taken back");
        }
        if let Some(entry) = self.session.entries.get_mut(&which) {
            entry.lapsed_ms = Some(now_ms);
        }
        let letter = &mut self.letters[which];
        letter.away = true;
        letter.acked = None;
        letter.end = over.then(|| "recalled".to_owned());
        letter.mail.inbound.key
    }

    /// Another session may have read what is here: what another member may have goes to that one.
    pub(super) fn doubts_leases(&mut self) {
        let now_ms = self.now_ms;
        for which in self.leased() {
            if let Some(entry) = self.session.entries.get_mut(&which)
                && !entry.is_begun()
            {
                entry.lapsed_ms = Some(now_ms);
            }
        }
    }

    /// A message that another one had is this session's again. False: it is over.
    pub(in crate::mailbox) fn comes_again(&mut self, which: Which) -> bool {
        self.letters[which].away = false;
        self.letters[which].end.is_none()
    }

    /// The mailbox gives a message back.
    pub(super) fn gives_back(&mut self, key: Key) -> Verdict {
        let now_ms = self.now_ms;
        let which = self.numbers.get(&key).copied().unwrap_or(NOTICE);
        let outside = self.session.outside.get(&which);
        let entry = self.session.entries.get(&which).or(outside);
        // A push that was not shown yet may be without it.
        let free = |entry: &Entry| {
            let open = entry.open.and_then(|open| self.session.attempts.get(&open));
            open.is_none_or(|s| s.attempt.path.wakes && s.told.is_none())
        };
        let over = entry.is_some_and(|entry| entry.is_over(now_ms) && free(entry));
        ensure(over, "lease", || {
            format!("{which:?} is given back at {now_ms}: {entry:?}")
        })?;
        self.session.entries.remove(&which);
        self.session.outside.remove(&which);
        self.note("given back");
        Ok(())
    }

    /// What was given back is another's. Gives its number, if the broker has it still.
    pub(in crate::mailbox) fn passes(&mut self, key: Key, over: bool) -> Option<usize> {
        let which = *self.numbers.get(&key)?;
        let letter = &mut self.letters[which];
        if std::mem::replace(&mut letter.away, true) || letter.end.is_some() {
            return None;
        }
        letter.end = over.then(|| "recalled".to_owned());
        Some(which)
    }

    /// What is made or shown is the session's still, and what it is reminded of is owed.
    pub(super) fn may_show(&self, item: &AttemptItem, read: bool) -> Verdict {
        let which = self.which(item);
        let entry = which.and_then(|which| self.session.entries.get(&which));
        let over = entry.is_some_and(|entry| entry.is_over(self.now_ms));
        ensure(!over, "lease", || format!("{item:?}: {entry:?}"))?;
        let reminded = self.reminded(item);
        let waits = self.session.activity == Activity::Waiting;
        ensure(reminded.is_empty() || read || !waits, "waiting", || {
            format!("{item:?} while a dialog is open")
        })?;
        for which in reminded {
            let debt = self.session.owed.iter().find(|debt| debt.which == which);
            let worked = debt.and_then(|debt| debt.worked_ms);
            let works = worked.is_some_and(|at| at + 600_000 > self.now_ms);
            ensure(debt.is_some() && !works, "owed", || {
                format!("{item:?} reminds of {which}: {debt:?}")
            })?;
        }
        Ok(())
    }

    /// A push starts something: a session that does nothing is reminded, and no other.
    pub(super) fn may_remind(&self, attempt: &Attempt) -> Verdict {
        let mut items = attempt.items.iter();
        let reminds = items.any(|item| !self.reminded(item).is_empty());
        let idle = self.session.activity == Activity::Idle;
        ensure(!reminds || idle, "waiting", || format!("{attempt:?}"))
    }

    /// Text stands in the conversation.
    pub(super) fn tells(&mut self, item: &AttemptItem) -> Verdict {
        for which in self.reminded(item) {
            self.note("reminded");
            let mut owed = self.session.owed.iter_mut();
            if let Some(debt) = owed.find(|debt| debt.which == which) {
                // What may not have been shown goes again, as a repeat.
                debt.told += usize::from(!item.repeat);
                let told = debt.told;
                ensure(told <= 2, "nagged", || format!("{item:?}, {told} times"))?;
            }
        }
        Ok(())
    }

    /// The requests that a notice reminds of: their ids stand in brackets, behind their senders' names.
    fn reminded(&self, item: &AttemptItem) -> Vec<Which> {
        let Content::Notice { sentence, .. } = &item.content else {
            return Vec::new();
        };
        let Some(what) = sentence.strip_prefix(REMINDER) else {
            return Vec::new();
        };
        let named = what.split(", and ").filter_map(|one| {
            let from = one.split(' ').next()?;
            let id = one.split_once('(')?.1.split_once(')')?.0;
            self.letters.iter().position(|letter| {
                let inbound = &letter.mail.inbound;
                inbound.id == id && inbound.from == from
            })
        });
        named.collect()
    }

    /// A request was acked by a session whose it is.
    pub(super) fn owes(&mut self, which: Which) {
        let inbound = &self.letters[which].mail.inbound;
        let entry = self.session.entries.get(&which);
        let entry = entry.filter(|entry| !entry.is_over(self.now_ms));
        let (Some(entry), true, true) = (entry, inbound.within_ms > 0, inbound.from != "peerbus")
        else {
            return;
        };
        if self.session.owed.len() >= OWED_MAX {
            self.session.owed.remove(0);
        }
        self.session.owed.push(Debt {
            which,
            until_ms: entry.until_ms,
            worked_ms: None,
            told: 0,
        });
    }

    /// A request that is owed: its number, id and sender.
    pub(in crate::mailbox) fn debt(&self, at: usize) -> Option<(Which, String, &'static str)> {
        let owed = &self.session.owed;
        let which = owed.get(at % owed.len().max(1))?.which;
        let inbound = &self.letters[which].mail.inbound;
        let mut peers = crate::mailbox::plan::PEERS.into_iter();
        let from = peers.find(|peer| *peer == inbound.from)?;
        Some((which, inbound.id.clone(), from))
    }

    /// The broker has the answer, or the agent declines.
    pub(in crate::mailbox) fn answers(&mut self, which: Which) {
        self.session.owed.retain(|debt| debt.which != which);
        self.note("answered");
    }

    /// How far a request is, in the agent's words.
    pub(super) fn says_of(&mut self, key: Key, stage: &Stage) -> Verdict {
        let now_ms = self.now_ms;
        let which = self.numbers.get(&key).copied().unwrap_or(NOTICE);
        let at = self.session.owed.iter().position(|it| it.which == which);
        let here = at.is_some() || self.session.entries.contains_key(&which);
        ensure(here, "owed", || format!("{which:?} is {stage:?}"))?;
        self.note(stage.word());
        match (stage, at) {
            (Stage::Working { .. }, Some(at)) => {
                self.session.owed[at].worked_ms = Some(now_ms);
            }
            (Stage::Declined { .. }, Some(at)) => _ = self.session.owed.remove(at),
            (Stage::Declined { .. }, None) => self.end(key, "declined".into()),
            _ => {}
        }
        Ok(())
    }

    /// Between inputs: nothing is here unshown whose lease is over, and what is owed was acked and has
    /// not ended.
    pub(super) fn owed_between(&mut self, mailbox: &MailboxMachine) -> Verdict {
        let now_ms = self.now_ms;
        for (which, entry) in self.session.entries.range(..NOTICE) {
            let unshown = !entry.is_begun() && entry.open.is_none();
            ensure(!unshown || !entry.is_over(now_ms), "lease", || {
                format!("{which:?} is over at {now_ms}, and here: {entry:?}")
            })?;
        }
        self.session.owed.retain(|debt| debt.until_ms > now_ms);
        let open = mailbox.owed().map(|owed| &owed.mail.inbound);
        let found: Vec<_> = open.map(|it| (it.from.clone(), it.id.clone())).collect();
        let owed = self.session.owed.iter().map(|debt| {
            let inbound = &self.letters[debt.which].mail.inbound;
            (inbound.from.clone(), inbound.id.clone())
        });
        let owed: Vec<_> = owed.collect();
        ensure(found == owed, "owed", || format!("{found:?}, not {owed:?}"))
    }

    /// The adapter dies: the next session gets what this one owes.
    pub(super) fn leaves_debts(&mut self) {
        for debt in std::mem::take(&mut self.session.owed) {
            let letter = &mut self.letters[debt.which];
            (letter.end, letter.acked) = (None, None);
        }
        for letter in &mut self.letters {
            letter.away = false;
        }
    }

    /// Time is of use to the mailbox, even where nothing waits.
    pub(super) fn ticks(&self) -> bool {
        let entries = &mut self.session.entries.values();
        let leased = |entry: &Entry| entry.lease_ms.is_some() || entry.lapsed_ms.is_some();
        entries.any(leased) || !self.session.owed.is_empty()
    }
}

impl Entry {
    /// It is the session's for a while.
    pub(super) fn lease(&mut self, now_ms: u64, one: bool, within_ms: u64) {
        self.lapsed_ms = None;
        self.lease_ms = one.then_some(now_ms + LEASE_MS);
        self.until_ms = now_ms + within_ms;
    }

    /// Something of it was shown.
    pub(super) fn is_begun(&self) -> bool {
        self.read > 0 || !self.is_fresh()
    }

    pub(super) fn is_over(&self, now_ms: u64) -> bool {
        self.lapsed_ms.is_some() || self.lease_ms.is_some_and(|at| at <= now_ms)
    }
}
