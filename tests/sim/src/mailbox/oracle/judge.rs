//! Whether what the mailbox does is right.

use std::collections::BTreeSet;

use peerbus_peer::mailbox::{
    ASK, Activity, Attempt, AttemptItem, MailboxOutput, Outcome, Policy, Portion, WHOLE_BYTES_MAX,
};
use peerbus_peer::session::Key;
use peerbus_wire::{How, Priority, Stage};

use super::{Entry, NOTICE, Oracle, Showing, Which};
use crate::failure::{Failure, Verdict, ensure};

impl Oracle {
    /// The mailbox does something.
    pub(in crate::mailbox) fn output(&mut self, now_ms: u64, output: &MailboxOutput) -> Verdict {
        if let Some(verdict) = self.outside(output) {
            return verdict;
        }
        match output {
            MailboxOutput::Announce(_) => {
                self.session.nameless = false;
                ensure(self.session.open, "gate", || "announced too early".into())
            }
            MailboxOutput::Push(attempt) => self.push(now_ms, attempt),
            MailboxOutput::Reached { mail, .. } if self.is_local(mail.inbound.key) => {
                let text = format!("the broker hears of what was put in here: {output:?}");
                Err(Failure::new("local", text))
            }
            MailboxOutput::GiveBack { mail } => self.gives_back(mail.inbound.key),
            MailboxOutput::Reached { mail, stage } => self.reached(mail.inbound.key, stage),
            MailboxOutput::Local { mail, stage } => self.local(mail.inbound.key, stage),
            MailboxOutput::Answered(ask) => ensure(self.awaits(*ask), "expected", || {
                format!("there is no answer to {ask:?}")
            }),
            // The broker has said who has it.
            MailboxOutput::Claimed(ask) => {
                ensure(false, "expected", || format!("{ask:?} is claimed"))
            }
            MailboxOutput::Told(_) => Ok(()),
            MailboxOutput::Warn(_) => {
                self.note("warned");
                Ok(())
            }
        }
    }

    /// A message is so far.
    pub(super) fn reached(&mut self, key: Key, stage: &Stage) -> Verdict {
        match stage {
            Stage::Acked(Some(how)) => self.acked(key, how),
            Stage::Acked(None) => ensure(false, "senders", || format!("{key:?} is dropped")),
            Stage::Dead { .. } => self.rejected(key),
            Stage::Working { .. } | Stage::Declined { .. } => self.says_of(key, stage),
            stage => self.progress(key, stage),
        }
    }

    fn rejected(&mut self, key: Key) -> Verdict {
        let which = self.numbers.get(&key).copied();
        let entry = which.and_then(|which| self.session.entries.get(&which));
        let denied = entry.is_some_and(|entry| entry.denied);
        ensure(denied, "denied", || {
            format!("{which:?} was rejected for nothing")
        })?;
        self.end(key, "rejected".into());
        Ok(())
    }

    /// An attempt is made.
    pub(in crate::mailbox) fn made(&mut self, attempt: &Attempt, reading: bool) -> Verdict {
        let first = |item: &AttemptItem| {
            let which = self.which(item).unwrap_or(NOTICE);
            let held = self.session.entries.get(&which).is_some_and(|e| e.held);
            which < NOTICE && !held && self.priority(which) == Priority::Now
        };
        let push = attempt.path.wakes;
        let order = |item: &AttemptItem| (push || !first(item), item.no);
        let sorted = attempt.items.is_sorted_by_key(order);
        ensure(!attempt.items.is_empty() && sorted, "order", || {
            format!("{attempt:?}")
        })?;
        let mut rests = false;
        for (which, item) in self.items(attempt) {
            if which >= NOTICE {
                self.session.entries.entry(which).or_default();
            }
            self.may_show(&item, reading)?;
            let Some(entry) = self.session.entries.get_mut(&which) else {
                let text = format!("{item:?} is over: {attempt:?}");
                return Err(Failure::new("denied", text));
            };
            let what = || format!("{attempt:?} while {entry:?}");
            ensure(!entry.denied, "denied", what)?;
            ensure(entry.open.is_none(), "flight", what)?;
            ensure(entry.kept.is_none(), "kept", what)?;
            ensure(reading || !entry.held, "held", what)?;
            let mine = entry.expected.is_none() || attempt.path == &ASK;
            ensure(mine, "expected", what)?;
            let repeat = entry.is_repeat(item.portion);
            ensure(item.repeat == repeat, "repeat", what)?;
            let over = |stand: &super::Stand| stand.path == attempt.path;
            // The rest of what was named before all of it was shown.
            let part = matches!(item.portion, Portion::Part { .. });
            let rest = part && attempt.path.in_result && (entry.read > 0 || !entry.is_fresh());
            if rest && !reading {
                rests = true;
            }
            let wakes = attempt.path.wakes;
            let once = reading || wakes || rest || !entry.standing.iter().any(over);
            ensure(once, "once", what)?;
            entry.open = Some(attempt.id);
            let fits = self.bytes(&item) <= WHOLE_BYTES_MAX;
            let whole = reading || rest || fits || item.portion == Portion::Beginning;
            ensure(whole, "whole", || format!("{item:?}"))?;
        }
        if rests {
            self.note("rest along");
        }
        self.check_size(attempt, reading)?;
        self.others_of_burst += usize::from(!attempt.path.wakes && self.is_of_burst(attempt));
        let mail = attempt
            .items
            .iter()
            .all(|item| item.content.mail().is_some_and(|mail| !mail.is_local()));
        let idle = matches!(self.session.activity, Activity::Idle | Activity::Unknown);
        let showing = Showing {
            attempt: attempt.clone(),
            reading,
            starts: attempt.path.wakes && idle && mail,
            told: None,
            presented: false,
        };
        self.session.unfound += 1;
        self.session.attempts.insert(attempt.id, showing);
        Ok(())
    }

    /// These are shown now.
    pub(in crate::mailbox) fn shows(&mut self, made: &Attempt, items: &[AttemptItem]) -> Verdict {
        let attempt = Attempt {
            items: items.to_vec(),
            ..made.clone()
        };
        for item in items {
            let which = self.which(item);
            let entry = which.and_then(|which| self.session.entries.get(&which));
            let what = || format!("{item:?} is shown while {entry:?}");
            let here = entry.filter(|entry| !entry.is_over(self.now_ms));
            ensure(here.is_some(), "shown", what)?;
            let again = entry.is_some_and(|entry| entry.again);
            ensure(item.repeat || !again, "shown", what)?;
            self.may_show(item, false)?;
        }
        // What is not among them is not in the push any more.
        let items = self.items(&attempt);
        let shown = |which: &Which| items.iter().any(|(of, _)| of == which);
        for (which, entry) in &mut self.session.entries {
            entry
                .open
                .take_if(|open| *open == attempt.id && !shown(which));
        }
        if let Some(showing) = self.session.attempts.get_mut(&attempt.id) {
            showing.attempt = attempt;
        }
        Ok(())
    }

    /// The mailbox wants a push.
    fn push(&mut self, now_ms: u64, attempt: &Attempt) -> Verdict {
        let ready = self.session.open && !self.session.nameless;
        ensure(ready, "gate", || format!("too early: {attempt:?}"))?;
        let waits = |s: &Showing| s.told.is_none() && s.attempt.path.wakes;
        let waits = self.session.attempts.values().any(waits);
        ensure(!waits, "flight", || format!("not alone: {attempt:?}"))?;
        for (which, _) in self.items(attempt) {
            self.lets_go(which);
        }
        self.may_remind(attempt)?;
        self.check_order(attempt)?;
        self.check_pause(now_ms, attempt)?;
        for (which, item) in self.items(attempt) {
            let entry = self.session.entries.get(&which);
            let woken = entry.map_or(0, |entry| {
                let waking = entry.standing.iter().filter(|stand| stand.path.wakes);
                waking.count()
            });
            ensure(woken < 3, "often", || format!("{item:?} woke three times"))?;
        }
        if self.healed {
            self.pushes_healed += 1;
            let burst = self.is_of_burst(attempt);
            let idle = matches!(self.session.activity, Activity::Idle | Activity::Unknown);
            self.pushes_of_burst += usize::from(burst);
            self.turns_of_burst += usize::from(burst && idle);
        }
        self.made(attempt, false)
    }

    fn is_of_burst(&self, attempt: &Attempt) -> bool {
        // What another member had meanwhile comes by itself.
        let again = |which: &Which| self.session.entries.get(which).is_some_and(|e| e.again);
        let burst = |which: &Which| self.letters.get(*which).is_some_and(|l| l.burst);
        let items = self.items(attempt);
        items.iter().any(|(which, _)| burst(which) && !again(which))
    }

    fn check_pause(&mut self, now_ms: u64, attempt: &Attempt) -> Verdict {
        let session = &self.session;
        let numbers: Vec<_> = session.entries.keys().copied().collect();
        let urgent = numbers
            .into_iter()
            .any(|which| self.priority(which) == Priority::Now);
        let gap_ms = attempt.path.gap_ms;
        let last = session.took_ms.get(attempt.path).map(|at| at + gap_ms);
        // A burst is one push and one digest, whatever the paths.
        let first = |which: &Which| session.entries.get(which).is_none_or(|e| !e.had_first);
        let items = self.items(attempt);
        let digest = items.iter().all(|(which, _)| first(which));
        let any = session.first_ms.filter(|_| digest).map(|at| at + 2_000);
        // A text that was put in waits for no pause.
        let put_in = |(which, _): &(Which, AttemptItem)| {
            self.letters.get(*which).is_some_and(|l| l.mail.is_local())
        };
        let hurries = urgent || items.iter().any(put_in);
        let free = last.max(any).filter(|_| !hurries);
        ensure(free.is_none_or(|at| at <= now_ms), "pause", || {
            format!("{attempt:?} at {now_ms}, not before {free:?}")
        })?;
        self.session.pushes_ms.push(now_ms);
        let within = |ms: u64, times: &[u64]| {
            let recent = times.iter().filter(|at| **at + ms > now_ms);
            recent.count()
        };
        let minute = within(60_000, &self.session.pushes_ms);
        // Twenty that are urgent, and one for each of the shortest pauses.
        ensure(minute <= 140, "often", || {
            format!("{minute} pushes in a minute")
        })?;
        let turns = within(600_000, &self.session.turns_ms);
        if turns >= 50 {
            self.note("many turns");
        }
        ensure(turns <= 60 || self.hops_max.is_none(), "budget", || {
            format!("{turns} turns in ten minutes")
        })
    }

    /// First showings of a sender's do not overtake each other, and quiet ones start nothing.
    fn check_order(&self, attempt: &Attempt) -> Verdict {
        let loud = |which: Which| self.priority(which) != Priority::Quiet;
        let inside: BTreeSet<_> = (self.items(attempt).into_iter())
            .map(|(which, _)| which)
            .collect();
        let any = inside.iter().any(|which| loud(*which));
        ensure(any, "quiet", || format!("{attempt:?}"))?;
        let waits = |which: Which, entry: &Entry| {
            let hidden = entry.held || entry.expected.is_some() || entry.kept.is_some();
            // A lapsed message stays for its proof, and is not pushed here any more.
            let hidden = hidden || entry.lapsed_ms.is_some();
            let open = entry.open.and_then(|open| self.session.attempts.get(&open));
            // It is in the client's hands already, which takes its time.
            let out = open.is_some_and(|showing| showing.attempt.path.in_result);
            loud(which) && !entry.had_first && !hidden && !out
        };
        for (which, entry) in &self.session.entries {
            if *which >= NOTICE || inside.contains(which) || !waits(*which, entry) {
                continue;
            }
            let from = self.from(*which);
            let overtakes = inside.iter().find(|other| {
                let later = |other: &Entry| !other.had_first && other.came > entry.came;
                let later = self.session.entries.get(other).is_some_and(later);
                **other < NOTICE && later && loud(**other) && self.from(**other) == from
            });
            ensure(overtakes.is_none(), "order", || {
                format!("{overtakes:?} overtakes {which:?} in {attempt:?}: {entry:?}")
            })?;
        }
        Ok(())
    }

    fn check_size(&self, attempt: &Attempt, reading: bool) -> Verdict {
        let items = attempt.items.iter();
        let items = items.filter(|item| !matches!(item.portion, Portion::Part { .. }));
        let sum: usize = items.clone().map(|item| self.bytes(item)).sum();
        let (count, limit) = (items.count(), attempt.path.limit);
        let fits = count <= 1 || count <= limit.messages && sum <= limit.bytes;
        ensure(reading || fits, "size", || {
            format!("{count} messages, {sum} bytes")
        })
    }

    fn acked(&mut self, key: Key, how: &How) -> Verdict {
        let which = self.numbers.get(&key).copied();
        let Some(entry) = which.and_then(|which| self.session.entries.get(&which)) else {
            let text = format!("{which:?} is acked twice");
            return Err(Failure::new("evidence", text));
        };
        let (holds, word) = match how {
            How::Seen { path, evidence } => {
                let letter = which.and_then(|which| self.letters.get(which));
                let stood = letter.is_some_and(|letter| letter.stood_whole);
                let shown = entry.evidence.contains(&(path.clone(), evidence.clone()));
                // A name proves without it where nothing would show it.
                let shown = shown && (stood || evidence == "tool_call" && !self.session.readable);
                (shown, format!("seen {path} {evidence}"))
            }
            How::Pushed { path } => {
                let session = &self.session;
                let lets_go = self.policy == Policy::Auto && !session.evidence && session.full;
                let stands = |stand: &super::Stand| stand.path.word == path && stand.whole;
                let stands = lets_go && entry.standing.iter().any(stands);
                let word = format!("pushed {path}");
                (entry.pushed.contains(path) || stands, word)
            }
        };
        ensure(holds && !entry.denied, "evidence", || {
            format!("{which:?} is {word}: {entry:?}")
        })?;
        self.owes(which.unwrap_or(NOTICE));
        self.end(key, word);
        Ok(())
    }

    fn progress(&mut self, key: Key, progress: &Stage) -> Verdict {
        let which = self.numbers.get(&key).copied().unwrap_or(NOTICE);
        let arriving = self.session.arriving == Some(which);
        let Some(entry) = self.session.entries.get_mut(&which) else {
            let text = format!("{which:?} is over, and yet {progress:?}");
            return Err(Failure::new("progress", text));
        };
        if let Stage::Held { why: reason } = progress
            && reason.starts_with("paused: ")
        {
            entry.held = true;
            let expected = entry.expected.is_some();
            self.note("held");
            return ensure(arriving && !expected, "held", || {
                format!("{which:?} is held too late")
            });
        }
        let inside = |s: &&Showing| {
            let of = |item: &peerbus_peer::mailbox::AttemptItem| self.which(item) == Some(which);
            s.attempt.items.iter().any(of)
        };
        let has = |fits: &dyn Fn(&Showing) -> bool| {
            self.session.attempts.values().filter(inside).any(fits)
        };
        // How much of it was shown, where that is not all.
        let (word, part) = match progress {
            Stage::Pushed { path } | Stage::Presented { path } => {
                let (word, part) = path.split_once(' ').unzip();
                (word.unwrap_or(path), part)
            }
            _ => ("", None),
        };
        let portion = |shown: usize| {
            let of = self.letters.get(which).map(|letter| letter.mail.chars);
            Some(format!("{shown}/{}", of.unwrap_or(0)))
        };
        let read = self.session.entries.get(&which).map_or(0, |e| e.read);
        let begins = |s: &Showing| {
            let mut items = s.attempt.items.iter();
            let begins = |item: &AttemptItem| item.portion == Portion::Beginning;
            items.any(|item| self.which(item) == Some(which) && begins(item))
        };
        let beginning = self.letters.get(which).map_or(0, |l| l.mail.beginning);
        let is_part = part.is_none()
            || part.map(str::to_owned) == portion(read) && read > 0
            || part.map(str::to_owned) == portion(beginning) && has(&begins);
        ensure(is_part, "progress", || {
            format!("{which:?} {progress:?}, {read} read")
        })?;
        let stands = |path: &str| {
            let entry = self.session.entries.get(&which);
            entry.is_some_and(|e| e.standing.iter().any(|stand| stand.path.word == path))
        };
        let holds = match progress {
            Stage::Pushed { .. } => stands(word),
            Stage::Presented { .. } => has(&|s| {
                let read = part.is_some() && s.told == Some(Outcome::Written);
                let taken = s.attempt.path.in_result && (stands(word) || read);
                s.attempt.path.word == word && (s.presented || taken)
            }),
            Stage::Held { why: reason } => has(&|s| {
                let kept = s.told == Some(peerbus_peer::mailbox::Outcome::Kept);
                kept && reason.contains(s.attempt.path.word)
            }),
            _ => false,
        };
        ensure(holds, "progress", || format!("{which:?} {progress:?}"))
    }

    pub(super) fn end(&mut self, key: Key, word: String) {
        let Some(&which) = self.numbers.get(&key) else {
            return;
        };
        self.session.entries.remove(&which);
        let letter = &mut self.letters[which];
        if word != "rejected" && word != "dropped" {
            let inbound = &letter.mail.inbound;
            let named = (inbound.id.clone(), inbound.from.clone());
            self.session.recent.insert(named);
        }
        if letter.mail.is_local() {
            letter.end = Some(format!("local {word}"));
        }
        letter.acked = Some(word);
    }
}
