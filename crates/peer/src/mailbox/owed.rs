//! Requests that the agent has read and that have no result yet: what this session owes, and how it is
//! reminded of that.

use std::collections::VecDeque;
use std::sync::Arc;

use peerbus_wire::{Priority, Stage, escape};

use super::MailboxMachine;
use super::governor::Starter;
use super::held::plain;
use super::message::Message;
use super::mutation::MailboxMutation;
use super::types::{Activity, Mail, No, NotOwed, Owed};
use crate::session::{Inbound, Key};

/// The broker lets nobody owe more.
pub(super) const OWED_MAX: usize = 64;

/// After so long without a turn the agent is reminded of a request, and once more.
pub(super) const REMIND_MS: [u64; 2] = [60_000, 600_000];

/// So long after it said that it works at a request it is not reminded of it.
const WORKS_MS: u64 = 600_000;

/// A request that was acked and has not ended.
#[derive(Debug)]
pub(super) struct Debt {
    /// The request, without its body.
    mail: Arc<Mail>,
    since_ms: u64,
    until_ms: u64,
    /// Since when, on the clock that stands still while the session works.
    idle_ms: u64,
    pub(super) reminded: usize,
    /// When the agent said last that it works at it, and what.
    worked: Option<(u64, String)>,
}

/// What is owed.
#[derive(Debug, Default)]
pub(super) struct Debts {
    /// The oldest first.
    pub(super) all: VecDeque<Debt>,
    /// The reminder that was made last, and of what it is one.
    reminder: Option<(No, Vec<Key>)>,
    /// When the session became idle, on the clock that stands still while it works.
    pub(super) idle_ms: u64,
    pub(super) off: bool,
}

impl Debt {
    fn key(&self) -> Key {
        self.mail.inbound.key
    }

    fn starter(&self) -> Starter {
        Message::of(&self.mail).starter()
    }
}

impl Debts {
    /// The requests.
    pub(super) fn mails(&self) -> impl Iterator<Item = &Arc<Mail>> {
        self.all.iter().map(|debt| &debt.mail)
    }
}

impl MailboxMachine {
    /// Whether the agent is reminded of what it owes.
    pub fn set_remind(&mut self, now_ms: u64, on: bool) {
        self.advance(now_ms);
        self.owed.off = !on;
        if !on {
            self.retract(|_| true);
        }
        self.finish(now_ms);
    }

    /// A request was acked: this session owes its result.
    pub(super) fn owe(&mut self, mail: &Mail, until_ms: u64) {
        let inbound = Inbound {
            body: String::new(),
            ..mail.inbound.clone()
        };
        let (key, now_ms) = (inbound.key, self.now_ms);
        let before = self.owed.all.iter().find(|debt| debt.key() == key);
        let reminded = before.map_or(0, |debt| debt.reminded);
        self.owed.all.retain(|debt| debt.key() != key);
        if self.owed.all.len() >= OWED_MAX {
            self.owed.all.pop_front();
        }
        let (talk, wanted) = (mail.talk.clone(), mail.wanted.clone());
        self.owed.all.push_back(Debt {
            mail: Arc::new(Mail {
                inbound,
                talk,
                wanted,
                ..*mail
            }),
            since_ms: now_ms,
            until_ms,
            idle_ms: self.clock.at(now_ms),
            reminded,
            worked: None,
        });
    }

    /// What this session owes, the oldest first.
    pub fn owed(&self, now_ms: u64) -> impl Iterator<Item = Owed> + '_ {
        let open = self.owed.all.iter();
        let open = open.filter(move |debt| debt.until_ms > now_ms);
        open.map(move |debt| Owed {
            from: debt.mail.inbound.from.clone(),
            id: debt.mail.inbound.id.clone(),
            gist: debt.mail.wanted.gist.clone(),
            age_ms: now_ms.saturating_sub(debt.since_ms),
            left_ms: debt.until_ms - now_ms,
            said: debt.worked.as_ref().map(|(_, said)| said.clone()),
        })
    }

    /// The broker has an answer of this session's to the message `id` of `from`: nothing is owed for that.
    pub fn answered_request(&mut self, now_ms: u64, from: &str, id: &str) {
        self.advance(now_ms);
        let is_it = |debt: &Debt| debt.mail.is_meant(id, Some(from));
        let debt = self.owed.all.iter().find(|debt| is_it(debt)).map(Debt::key);
        if let Some(key) = debt.filter(|_| !self.mutations.broken(MailboxMutation::RemindAnswered))
        {
            self.forgive(key);
        }
        self.finish(now_ms);
    }

    /// The agent works at a request, and says how far it is.
    ///
    /// # Errors
    ///
    /// When it is not known which is meant; nothing was changed.
    pub fn working(
        &mut self,
        now_ms: u64,
        id: &str,
        from: Option<&str>,
        said: &str,
    ) -> Result<(), NotOwed> {
        self.advance(now_ms);
        let mail = self.request(id, from)?;
        let key = mail.inbound.key;
        self.retract(|of| of == key);
        if let Some(debt) = self.owed.all.iter_mut().find(|debt| debt.key() == key) {
            debt.worked = Some((now_ms, said.to_owned()));
        }
        let said = said.to_owned();
        self.tell(&mail, Stage::Working { said });
        self.finish(now_ms);
        Ok(())
    }

    /// The agent does not do what a request wants.
    ///
    /// # Errors
    ///
    /// When it is not known which is meant; nothing was changed.
    pub fn declined(
        &mut self,
        now_ms: u64,
        id: &str,
        from: Option<&str>,
        why: &str,
    ) -> Result<(), NotOwed> {
        self.advance(now_ms);
        let mail = self.request(id, from)?;
        let (key, why) = (mail.inbound.key, why.to_owned());
        self.forgive(key);
        self.messages.retain(|_, message| !message.is_of(key));
        self.tell(&mail, Stage::Declined { why });
        self.finish(now_ms);
        Ok(())
    }

    /// The request that is meant: one that is owed, or one that waits here.
    fn request(&self, id: &str, from: Option<&str>) -> Result<Arc<Mail>, NotOwed> {
        let owed = self.owed.all.iter().map(|debt| &debt.mail);
        let here = self.messages.values();
        let here = here.filter(|message| !message.is_withheld() && !message.lapsed);
        let here = here.filter_map(|message| message.content.mail());
        let meant = |mail: &&Arc<Mail>| mail.is_request() && mail.is_meant(id, from);
        let mut meant = owed.chain(here).filter(meant);
        let first = meant.next().ok_or(NotOwed::Unknown)?;
        match meant.all(|other| other.inbound.key == first.inbound.key) {
            true => Ok(Arc::clone(first)),
            false => Err(NotOwed::Several),
        }
    }

    /// A request is owed no more. Gives it, if it was.
    pub(super) fn forgive(&mut self, key: Key) -> Option<Arc<Mail>> {
        let at = self.owed.all.iter().position(|debt| debt.key() == key)?;
        self.retract(|of| of == key);
        self.owed.all.remove(at).map(|debt| debt.mail)
    }

    /// Requests whose time is over are owed no more.
    pub(super) fn forgive_late(&mut self, now_ms: u64) {
        let late = self.owed.all.iter().filter(|debt| debt.until_ms <= now_ms);
        for key in late.map(Debt::key).collect::<Vec<_>>() {
            self.forgive(key);
        }
    }

    /// A reminder that names such a request is taken back, if it was not shown. What else it names comes due
    /// again, unless something may be showing it just now.
    fn retract(&mut self, of: impl Fn(Key) -> bool) {
        let names = |(_, keys): &mut (No, Vec<Key>)| keys.iter().any(|key| of(*key));
        let Some((no, keys)) = self.owed.reminder.take_if(names) else {
            return;
        };
        let unshown = |it: &Message| it.out.is_none() && !it.is_begun();
        let unshown = self.messages.remove(&no).is_some_and(|it| unshown(&it));
        self.sweep();
        if unshown {
            let named = self.owed.all.iter_mut();
            for debt in named.filter(|debt| keys.contains(&debt.key())) {
                debt.reminded -= 1;
            }
        }
    }

    /// When the agent is reminded of a request; `None`: not as things are.
    fn reminded_at(&self, debt: &Debt) -> Option<u64> {
        let nags = self.mutations.broken(MailboxMutation::RemindAgain);
        let step = if nags {
            debt.reminded.min(1)
        } else {
            debt.reminded
        };
        let idle_ms = self.owed.idle_ms.max(debt.idle_ms) + REMIND_MS.get(step)?;
        let works_ms = debt.worked.as_ref().map_or(0, |(at, _)| at + WORKS_MS);
        let turn_ms = self
            .hops_max
            .map(|_| self.turns.free_at(false, &debt.starter()));
        let turn_ms = turn_ms.map_or(0, |free| free.at_ms);
        if self.activity == Activity::Waiting {
            // Here with a rule that is broken only.
            return Some(works_ms);
        }
        let at_ms = self.clock.when(idle_ms)?.max(works_ms).max(turn_ms);
        (at_ms < debt.until_ms).then_some(at_ms)
    }

    /// When the next reminder is due.
    pub(super) fn remind_at(&self) -> Option<u64> {
        let waits = self.owed.reminder.as_ref();
        let waits = waits.is_some_and(|(no, _)| self.messages.contains_key(no));
        if self.owed.off || waits || self.stopped || !self.may_remind() {
            return None;
        }
        let all = self.owed.all.iter();
        all.filter_map(|debt| self.reminded_at(debt)).min()
    }

    /// A session that does nothing is reminded, and no other.
    fn may_remind(&self) -> bool {
        let careless = self.mutations.broken(MailboxMutation::RemindWaiting);
        self.activity == Activity::Idle || careless && self.activity == Activity::Waiting
    }

    /// It may start something, as far as reminders go.
    pub(super) fn may_go(&self, message: &Message) -> bool {
        message.reminds.is_none() || self.may_remind()
    }

    /// It may go along with something, as far as reminders go.
    pub(super) fn may_go_along(&self, message: &Message) -> bool {
        self.may_go(message) || self.activity != Activity::Waiting
    }

    /// Reminds the agent of what is due, in one line.
    pub(super) fn remind(&mut self, now_ms: u64) {
        if self.remind_at().is_none_or(|at| at > now_ms) {
            return;
        }
        let due = self.owed.all.iter();
        let due = due.filter(|debt| self.reminded_at(debt).is_some_and(|at| at <= now_ms));
        let due: Vec<_> = due
            .map(|debt| (debt.key(), Arc::clone(&debt.mail)))
            .collect();
        let what = due.iter().map(|(_, mail)| {
            let (from, id) = (plain(&mail.inbound.from), plain(&mail.inbound.id));
            let gist = escape(&mail.wanted.gist, usize::MAX);
            format!("{from} an answer to \"{gist}\" ({id})")
        });
        let what = what.collect::<Vec<_>>().join(", and ");
        let sentence = format!(
            "You still owe {what}: answer with the bus reply tool, or say with it that you cannot"
        );
        let keys: Vec<_> = due.iter().map(|(key, _)| *key).collect();
        let named = self.owed.all.iter_mut();
        for debt in named.filter(|debt| keys.contains(&debt.key())) {
            debt.reminded += 1;
        }
        let no = self.put_notice(&sentence, None, Priority::Next);
        let first = due.first().map(|(_, mail)| Message::of(mail).starter());
        if let Some(message) = self.messages.get_mut(&no) {
            message.reminds = first;
        }
        self.owed.reminder = Some((no, keys));
    }
}
