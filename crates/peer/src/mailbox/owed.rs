//! Requests that the agent has read and that have no result yet: what this session owes, and how it is
//! reminded of that.

use std::collections::VecDeque;
use std::sync::Arc;

use peerbus_wire::{Priority, Stage};

use super::MailboxMachine;
use super::lease::named;
use super::message::Message;
use super::mutation::MailboxMutation;
use super::types::{Activity, Content, Mail, No, NotOwed, Owed};
use crate::session::Key;

/// The broker lets nobody owe more: 64 that are for a peer alone, and 16 of groups.
pub(super) const OWED_MAX: usize = 80;

/// After so long without a turn the agent is reminded of a request, and once more.
pub(super) const REMIND_MS: [u64; 2] = [60_000, 600_000];

/// So long after it said that it works at a request it is not reminded of it.
const WORKS_MS: u64 = 600_000;

/// What is owed.
#[derive(Debug, Default)]
pub(super) struct Debts {
    /// The oldest first.
    pub(super) all: VecDeque<Owed>,
    /// The reminder that was made last, and of what it is one.
    reminder: Option<(No, Vec<Key>)>,
    /// When the session became idle, on the clock that stands still while it works.
    pub(super) idle_ms: u64,
    pub(super) off: bool,
}

impl Owed {
    fn key(&self) -> Key {
        self.mail.inbound.key
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
        let mut mail = mail.clone();
        mail.inbound.body = String::new();
        let (key, now_ms) = (mail.inbound.key, self.now_ms);
        let all = &mut self.owed.all;
        let before = all.iter().find(|owed| owed.key() == key);
        let reminded = before.map_or(0, |owed| owed.reminded);
        all.retain(|owed| owed.key() != key);
        if all.len() >= OWED_MAX {
            all.pop_front();
        }
        all.push_back(Owed {
            mail: Arc::new(mail),
            since_ms: now_ms,
            until_ms,
            said: None,
            said_ms: None,
            idle_ms: self.clock.at(now_ms),
            reminded,
        });
    }

    /// What this session owes, the oldest first.
    pub fn owed(&self) -> impl Iterator<Item = &Owed> {
        self.owed.all.iter()
    }

    /// The broker has an answer of this session's to the message `id` of `from`: nothing is owed for that.
    pub fn answered_request(&mut self, now_ms: u64, from: &str, id: &str) {
        self.advance(now_ms);
        let keeps = self.mutations.broken(MailboxMutation::RemindAnswered);
        if let Ok(mail) = self.request(id, Some(from))
            && !keeps
        {
            let key = mail.inbound.key;
            self.forgive(key);
            // It may be acked later, and be shown again: it wants nothing any more.
            for message in self.messages.values_mut().filter(|it| it.is_of(key)) {
                message.until_ms = 0;
                if let Content::Mail(mail) = &mut message.content {
                    Arc::make_mut(mail).inbound.within_ms = 0;
                }
            }
        }
        self.finish(now_ms);
    }

    /// The agent says how far a request is, one that it owes or one that waits here: that it works at it, or
    /// ([`Stage::Declined`]) that it does not do what it wants.
    ///
    /// # Errors
    ///
    /// When it is not known which is meant; nothing was changed.
    pub fn says_of(
        &mut self,
        now_ms: u64,
        (id, from): (&str, Option<&str>),
        stage: Stage,
    ) -> Result<(), NotOwed> {
        self.advance(now_ms);
        let mail = self.request(id, from)?;
        let key = mail.inbound.key;
        if let Stage::Working { said } = stage {
            let here = self.messages.values_mut().filter(|it| it.is_of(key));
            let mut named = here.filter(|message| message.named);
            match named.next() {
                // It is told with the ack.
                Some(message) => message.said = Some(said),
                None => self.works_at(&mail, said),
            }
        } else {
            self.forgive(key);
            self.messages.retain(|_, message| !message.is_of(key));
            self.tell(&mail, stage);
        }
        self.finish(now_ms);
        Ok(())
    }

    /// The agent works at a request, in its words. The broker hears of work at one that was read.
    pub(super) fn works_at(&mut self, mail: &Arc<Mail>, said: String) {
        let (key, now_ms) = (mail.inbound.key, self.now_ms);
        self.retract(|of| of == key);
        if let Some(owed) = self.owed.all.iter_mut().find(|owed| owed.key() == key) {
            (owed.said, owed.said_ms) = (Some(said.clone()), Some(now_ms));
        }
        self.tell(mail, Stage::Working { said });
    }

    /// The request that is meant: one that is owed, or one that waits here.
    fn request(&self, id: &str, from: Option<&str>) -> Result<Arc<Mail>, NotOwed> {
        let here = self.messages.values();
        let here = here.filter(|message| !message.is_withheld() && !message.lapsed);
        let here = here.filter_map(|message| message.content.mail());
        let meant = |mail: &&Arc<Mail>| mail.is_request() && mail.is_meant(id, from);
        let mut meant = self.owed().map(|owed| &owed.mail).chain(here).filter(meant);
        let first = meant.next().ok_or(NotOwed::Unknown)?;
        match meant.all(|other| other.inbound.key == first.inbound.key) {
            true => Ok(Arc::clone(first)),
            false => Err(NotOwed::Several),
        }
    }

    /// A request is owed no more. Gives it, if it was.
    pub(super) fn forgive(&mut self, key: Key) -> Option<Arc<Mail>> {
        let at = self.owed.all.iter().position(|owed| owed.key() == key)?;
        self.retract(|of| of == key);
        self.owed.all.remove(at).map(|owed| owed.mail)
    }

    /// Requests whose time is over are owed no more.
    pub(super) fn forgive_late(&mut self, now_ms: u64) {
        let late = self.owed.all.iter().filter(|owed| owed.until_ms <= now_ms);
        for key in late.map(Owed::key).collect::<Vec<_>>() {
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
            for owed in named.filter(|owed| keys.contains(&owed.key())) {
                owed.reminded -= 1;
            }
        }
    }

    /// When the agent is reminded of a request; `None`: not as things are.
    fn reminded_at(&self, owed: &Owed) -> Option<u64> {
        let nags = self.mutations.broken(MailboxMutation::RemindAgain);
        let step = if nags { 0 } else { owed.reminded };
        let idle_ms = self.owed.idle_ms.max(owed.idle_ms) + REMIND_MS.get(step)?;
        let idle_ms = match self.activity {
            Activity::Idle => self.clock.when(idle_ms)?,
            // Here with a rule that is broken only.
            _ => 0,
        };
        let works_ms = owed.said_ms.map_or(0, |at| at + WORKS_MS);
        let by = Message::of(&owed.mail).starter();
        let turn_ms = self.hops_max.map(|_| self.turns.free_at(false, &by).at_ms);
        let at_ms = idle_ms.max(works_ms).max(turn_ms.unwrap_or(0));
        (at_ms < owed.until_ms).then_some(at_ms)
    }

    /// When the next reminder is due.
    pub(super) fn remind_at(&self) -> Option<u64> {
        let waits = self.owed.reminder.as_ref();
        let waits = waits.is_some_and(|(no, _)| self.messages.contains_key(no));
        if self.owed.off || waits || self.stopped || !self.may_remind() {
            return None;
        }
        let all = self.owed.all.iter();
        all.filter_map(|owed| self.reminded_at(owed)).min()
    }

    /// A session that does nothing is reminded, and no other.
    fn may_remind(&self) -> bool {
        let careless = self.mutations.broken(MailboxMutation::RemindWaiting);
        self.activity == Activity::Idle || careless && self.activity == Activity::Waiting
    }

    /// It may go over a path: a reminder starts something in a session that does nothing, and goes along
    /// (`along`) with what is shown anyway unless a dialog waits for the user.
    pub(super) fn may_go(&self, message: &Message, along: bool) -> bool {
        let along = along && self.activity != Activity::Waiting;
        message.reminds.is_none() || along || self.may_remind()
    }

    /// Reminds the agent of what is due, in one line.
    pub(super) fn remind(&mut self, now_ms: u64) {
        if self.remind_at().is_none_or(|at| at > now_ms) {
            return;
        }
        let due = self.owed.all.iter();
        let due = due.filter(|owed| self.reminded_at(owed).is_some_and(|at| at <= now_ms));
        let due: Vec<_> = due.map(|owed| Arc::clone(&owed.mail)).collect();
        let what = due.iter().map(|mail| named(mail));
        let what = what.map(|[from, gist, id]| format!("{from} an answer to {gist} ({id})"));
        let what = what.collect::<Vec<_>>().join(", and ");
        let sentence = format!(
            "You still owe {what}: answer with the bus reply tool, or say with it that you cannot"
        );
        let keys: Vec<_> = due.iter().map(|mail| mail.inbound.key).collect();
        let named = self.owed.all.iter_mut();
        for owed in named.filter(|owed| keys.contains(&owed.key())) {
            owed.reminded += 1;
        }
        let no = self.put_notice(&sentence, None, Priority::Next);
        let first = due.first().map(|mail| Message::of(mail).starter());
        if let Some(message) = self.messages.get_mut(&no) {
            message.reminds = first;
        }
        self.owed.reminder = Some((no, keys));
    }
}
