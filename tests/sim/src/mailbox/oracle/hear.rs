//! What the mailbox hears: what follows from it.

use peerbus_peer::mailbox::{
    Activity, AskId, Attempt, AttemptId, AttemptItem, Mail, Outcome, Portion,
};
use peerbus_peer::mailbox::{Path, Policy};
use peerbus_wire::{Receipt, Window};

use super::{Ask, Entry, NOTICE, Oracle, Showing, Stand, Which};
use crate::failure::{Verdict, ensure};

impl Oracle {
    pub(in crate::mailbox) fn opened(&mut self) {
        self.session.open = true;
    }

    pub(in crate::mailbox) fn registered(&mut self) {
        self.session.nameless = true;
    }

    pub(in crate::mailbox) fn says(&mut self, activity: Activity) {
        self.session.activity = activity;
    }

    /// It is that late.
    pub(in crate::mailbox) fn passes_to(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// The mailbox is about to compare what is unacked with its window.
    pub(in crate::mailbox) fn gauges(&mut self, window: Window) {
        let here = self.session.entries.range(..NOTICE);
        let owed = here.filter(|(which, _)| !self.letters[**which].mail.is_local());
        let owed = owed.count() + self.session.outside.len();
        self.session.full = owed > 0 && owed * 4 >= window.messages as usize * 3;
    }

    pub(in crate::mailbox) fn readable(&mut self, readable: bool) {
        if std::mem::replace(&mut self.session.readable, readable) != readable {
            self.session.unfound = 0;
        }
    }

    /// The mailbox takes the transcript for one that shows answers, or does not.
    pub(in crate::mailbox) fn evidence(&mut self, evidence: bool) -> Verdict {
        let session = &mut self.session;
        session.evidence = evidence;
        let doubts = session.unfound >= 8;
        ensure(!evidence || session.readable, "evidence", || {
            "it trusts a transcript that it cannot read".into()
        })?;
        ensure(evidence || !session.readable || doubts, "evidence", || {
            let unfound = session.unfound;
            format!("it gave the transcript up after {unfound} attempts")
        })
    }

    /// A message reaches the adapter, as it does.
    pub(in crate::mailbox) fn arrives(&mut self, which: Which) -> Mail {
        let renewed = self.renews(which);
        let mut mail = self.as_sent(which);
        let delivered = &mut self.letters[which].delivered;
        mail.inbound.again = std::mem::replace(delivered, true);
        if renewed {
            return mail;
        }
        let inbound = &mail.inbound;
        let question = mail.talk.reply_to.as_ref();
        let question = question.map(|id| id.as_str().to_owned());
        let asks = &mut self.session.asks;
        let ask = asks.iter_mut().find(|ask| {
            !ask.answered && question.as_ref() == Some(&ask.question) && inbound.from == ask.from
        });
        let expected = ask.map(|ask| {
            ask.answered = true;
            ask.ask
        });
        self.session.arrivals += 1;
        let mut entry = Entry {
            came: self.session.arrivals,
            again: inbound.again,
            expected,
            ..Entry::default()
        };
        entry.lease(self.now_ms, inbound.one, inbound.within_ms);
        if expected.is_some() {
            self.note("expected");
        }
        for (other, entry) in &mut self.session.entries {
            let letter = self.letters.get(*other);
            let same = letter.is_some_and(|letter| letter.mail.inbound.from == inbound.from);
            entry.perhaps_free |= entry.held && same;
        }
        self.session.entries.insert(which, entry);
        self.session.arriving = Some(which);
        mail
    }

    /// A message as it was sent.
    pub(in crate::mailbox) fn as_sent(&self, which: Which) -> Mail {
        self.letters[which].mail.clone()
    }

    /// It is there, or paused: by what its sender was sent, or by what it says at most.
    pub(in crate::mailbox) fn arrived(&mut self, now_ms: u64) -> Verdict {
        let arriving = self.session.arriving.take();
        for entry in self.session.entries.values_mut() {
            let hidden = entry.open.is_some() || entry.is_over(now_ms);
            entry.perhaps_free &= entry.held && hidden;
        }
        let Some(which) = arriving else { return Ok(()) };
        let mail = &self.letters[which].mail;
        let sent = self.session.sent.get(mail.inbound.from.as_str());
        let sent = sent.filter(|(at_ms, _)| now_ms - at_ms < 600_000);
        let least = sent.map_or(0, |(_, hops)| hops + 1);
        let over = |hops| self.hops_max.is_some_and(|most| hops > most);
        let Some(entry) = self.session.entries.get(&which) else {
            return Ok(());
        };
        let judged = entry.expected.is_none() && !mail.is_local();
        let fits = match entry.held {
            true => over(least.max(mail.talk.hops)),
            false => !judged || !over(least),
        };
        ensure(fits, "loop", || {
            format!("{which:?} with {least} hops or more is {entry:?}")
        })
    }

    /// What is here may have been read elsewhere.
    pub(in crate::mailbox) fn doubt(&mut self) {
        self.doubts_leases();
        let entries = self.session.entries.iter_mut();
        let letters = &self.letters;
        let local = |which: Which| letters.get(which).is_none_or(|l| l.mail.is_local());
        // Notices and what was put in here nobody else has.
        for (_, entry) in entries.filter(|(which, _)| !local(**which)) {
            entry.again = true;
        }
    }

    pub(in crate::mailbox) fn expects(&mut self, ask: AskId, question: &str, from: &'static str) {
        self.session.asks.push(Ask {
            ask,
            question: question.into(),
            from,
            answered: false,
        });
    }

    pub(in crate::mailbox) fn unexpects(&mut self, ask: AskId) {
        self.session.asks.retain(|waits| waits.ask != ask);
        for entry in self.session.entries.values_mut() {
            entry.expected.take_if(|expected| *expected == ask);
        }
    }

    /// An answer to this question is here.
    pub(in crate::mailbox) fn awaits(&self, ask: AskId) -> bool {
        let here = |entry: &Entry| entry.expected == Some(ask);
        self.session.entries.values().any(here)
    }

    /// The mailbox is told what came of an attempt.
    pub(in crate::mailbox) fn told(&mut self, now_ms: u64, id: AttemptId, outcome: Outcome) {
        let Some(showing) = self.session.attempts.get_mut(&id) else {
            return;
        };
        let first = showing.told.is_none();
        let lands = outcome == Outcome::Failed
            || outcome == Outcome::Doubtful && first && !showing.attempt.path.wakes;
        // What stands there cannot have failed to get there, nor be kept.
        let moot = match outcome {
            Outcome::Failed => !first,
            Outcome::Kept | Outcome::Dropped | Outcome::Doubtful => showing.presented,
            Outcome::Written => showing.told == Some(Outcome::Written),
            Outcome::Denied => false,
            // It shows nothing.
            Outcome::Reached => true,
        };
        if outcome == Outcome::Doubtful {
            self.doubts(id);
        }
        let Some(showing) = self.session.attempts.get_mut(&id).filter(|_| !moot) else {
            return;
        };
        showing.told = Some(outcome);
        let Showing {
            attempt, reading, ..
        } = showing.clone();
        if first && !lands {
            self.takes(now_ms, &attempt);
        }
        for (which, item) in self.items(&attempt) {
            let policy = self.policy;
            if let Some(entry) = self.session.entries.get_mut(&which) {
                entry.told(&attempt, outcome);
                if outcome == Outcome::Written {
                    entry.written(&item, attempt.path, policy);
                }
            }
        }
        let over = matches!(
            outcome,
            Outcome::Dropped | Outcome::Doubtful | Outcome::Failed
        );
        if over || reading && outcome == Outcome::Denied {
            self.session.attempts.remove(&id);
        }
    }

    /// What was in an attempt may have been shown.
    fn doubts(&mut self, id: AttemptId) {
        let Some(showing) = self.session.attempts.get(&id) else {
            return;
        };
        for (which, item) in self.items(&showing.attempt.clone()) {
            if let Some(entry) = self.session.entries.get_mut(&which) {
                entry.again = true;
                if let Portion::Part { from, .. } = item.portion {
                    entry.read = entry.read.min(from);
                }
            }
        }
    }

    /// The client has an attempt.
    fn takes(&mut self, now_ms: u64, attempt: &Attempt) {
        let path = attempt.path;
        let push = path.wakes;
        if push {
            self.session.took_ms.insert(path, now_ms);
            let showing = self.session.attempts.get(&attempt.id);
            if showing.is_some_and(|showing| showing.starts) {
                self.session.turns_ms.push(now_ms);
            }
        }
        for (which, item) in self.items(attempt) {
            let hops = item.content.mail().map_or(0, |mail| mail.talk.hops);
            let mail = item.content.mail();
            self.session.shown |= mail.is_some_and(|mail| !mail.is_local());
            self.session.hops = self.session.hops.max(hops);
            let Some(entry) = self.session.entries.get_mut(&which) else {
                continue;
            };
            let part = matches!(item.portion, Portion::Part { .. });
            let whole = entry.completes(item.portion);
            if part && !whole {
                continue;
            }
            if push && !entry.had_first {
                self.session.first_ms = Some(now_ms);
            }
            entry.had_first = true;
            entry.standing.push(Stand {
                attempt: attempt.id,
                path,
                whole,
            });
        }
    }

    /// The text of an attempt joins the conversation, as the model of the client has it.
    pub(in crate::mailbox) fn joined(&mut self, attempt: &Attempt) -> Verdict {
        for (which, item) in self.all_items(attempt) {
            self.tells(&item)?;
            let Some(letter) = self.letters.get_mut(which) else {
                continue;
            };
            let (from, to) = match item.portion {
                Portion::Part { from, to, .. } => (from, to),
                Portion::All | Portion::Beginning => (0, 1),
            };
            letter.stands_to = match item.portion {
                Portion::Part { from, to, .. } if from <= letter.stands_to => {
                    letter.stands_to.max(to)
                }
                Portion::All => letter.mail.chars,
                Portion::Part { .. } | Portion::Beginning => letter.stands_to,
            };
            letter.stood_whole |= letter.stands_to == letter.mail.chars;
            // What a client kept may stand there after parts of it that came later.
            let part = matches!(item.portion, Portion::Part { .. });
            let before = letter.shown_as_new && from == 0 || part && from < letter.shown_to;
            ensure(item.repeat || !before, "repeat", || {
                format!("{item:?} stands there twice as new")
            })?;
            if !item.repeat {
                letter.shown_as_new |= from == 0;
                letter.shown_to = letter.shown_to.max(to);
            }
        }
        Ok(())
    }

    /// The mailbox hears that a text stands in the conversation.
    pub(in crate::mailbox) fn presented(&mut self, now_ms: u64, id: AttemptId) {
        self.session.unfound = 0;
        let open = |showing: &&mut Showing| showing.told.is_none();
        if self.session.attempts.get_mut(&id).filter(open).is_some() {
            self.told(now_ms, id, Outcome::Written);
        }
        let policy = self.policy;
        let Some(showing) = self.session.attempts.get_mut(&id) else {
            return;
        };
        if std::mem::replace(&mut showing.presented, true) {
            return;
        }
        let attempt = showing.attempt.clone();
        for (which, item) in self.items(&attempt) {
            let entry = self.session.entries.get_mut(&which);
            if let Portion::Part { from, to, .. } = item.portion {
                if let Some(entry) = entry.filter(|entry| from <= entry.stood) {
                    entry.stood = entry.stood.max(to);
                }
                continue;
            }
            if let Some(entry) = entry {
                entry.kept = None;
                if policy == Policy::Pushed && item.portion == Portion::All {
                    entry.pushed.insert(attempt.path.word.into());
                }
            }
        }
    }

    /// The mailbox hears that the model answered after it.
    pub(in crate::mailbox) fn answered(&mut self, now_ms: u64, id: AttemptId) {
        self.presented(now_ms, id);
        let Some(showing) = self.session.attempts.get(&id) else {
            return;
        };
        let attempt = showing.attempt.clone();
        for (which, item) in self.items(&attempt) {
            let Some(entry) = self.session.entries.get_mut(&which) else {
                continue;
            };
            if entry.is_proven(item.portion) {
                let word = attempt.path.word.to_owned();
                entry.evidence.insert((word, "transcript".into()));
            } else if entry.completes(item.portion) {
                (entry.read, entry.again) = (entry.stood, true);
                entry.standing.retain(|stand| stand.attempt != id);
            }
        }
    }

    /// The mailbox hears that the agent called a tool.
    pub(in crate::mailbox) fn called(&mut self) {
        if self.policy != Policy::Auto || self.session.evidence {
            return;
        }
        for (which, entry) in &mut self.session.entries {
            // Another member of the group would get it if this one has not seen it.
            let letter = self.letters.get(*which);
            if letter.is_some_and(|letter| letter.mail.inbound.one) {
                continue;
            }
            let in_result = |stand: &&Stand| stand.path.in_result && stand.whole;
            let words = entry.standing.iter().filter(in_result);
            let words: Vec<_> = words.map(|stand| stand.path.word.to_owned()).collect();
            entry.pushed.extend(words);
        }
    }

    /// The agent sends something: so many replies led to it, the mailbox says.
    pub(in crate::mailbox) fn hops(&self, hops: u32) -> Verdict {
        let most = self.session.hops + u32::from(self.session.shown);
        ensure(hops <= most, "hops", || format!("{hops}, not {most}"))
    }

    /// What goes along of the agent's own messages.
    pub(in crate::mailbox) fn receipts(&self, receipts: Vec<Receipt>) -> Verdict {
        let mut about: Vec<_> = receipts
            .iter()
            .map(|receipt| (receipt.id.as_str(), receipt.to.as_deref()))
            .collect();
        about.sort_unstable();
        let count = about.len();
        about.dedup();
        ensure(count == about.len() && count <= 10, "receipts", || {
            format!("{receipts:?}")
        })
    }
}

impl Entry {
    fn told(&mut self, attempt: &Attempt, outcome: Outcome) {
        let id = attempt.id;
        if self.open == Some(id) {
            self.open = None;
        }
        let last = self
            .standing
            .last()
            .is_some_and(|stand| stand.attempt == id);
        match outcome {
            Outcome::Written | Outcome::Failed => {
                self.kept.take_if(|kept| *kept == id);
            }
            Outcome::Kept if last && self.open.is_none() => self.kept = Some(id),
            Outcome::Kept => {}
            Outcome::Dropped | Outcome::Doubtful => {
                self.standing.retain(|stand| stand.attempt != id);
                self.kept.take_if(|kept| *kept == id);
            }
            Outcome::Denied => self.denied = true,
            Outcome::Reached => {}
        }
    }

    /// The client has this much of it.
    fn written(&mut self, item: &AttemptItem, path: Path, policy: Policy) {
        if let Portion::Part { from, to, .. } = item.portion
            && !self.completes(item.portion)
        {
            if from <= self.read {
                self.read = self.read.max(to);
            }
            return;
        }
        if path.in_result {
            self.quiet |= self.held;
            self.held = false;
            self.expected = None;
        }
        if policy == Policy::Pushed && item.portion != Portion::Beginning {
            self.pushed.insert(path.word.into());
        }
    }
}
