//! What the ladder does is compared with what it was told, and with what the model of the client
//! shows.

use std::collections::{BTreeMap, BTreeSet};

use peerbus_core::wake::{
    Action, EntryId, Outcome, Parcel, ParcelId, Path, Policy, Priority, Step, WHOLE_BYTES_MAX,
};
use peerbus_wire::How;

use crate::failure::{Failure, Verdict, ensure};

/// A message, whatever sessions it goes through.
#[derive(Debug)]
struct Mail {
    priority: Priority,
    bytes: usize,
    /// An adapter had it.
    delivered: bool,
    /// It stood in a conversation without the mark of a repeat.
    shown_as_new: bool,
    end: Option<String>,
    burst: bool,
}

/// What an adapter did with a message.
#[derive(Debug)]
struct Entry {
    mail: usize,
    again: bool,
    /// Showings that stand: written or held, not given back.
    standing: Vec<(ParcelId, Path)>,
    /// It went over a waking path, or was shown otherwise.
    had_first: bool,
    open: Option<ParcelId>,
    held: Option<ParcelId>,
    denied: bool,
    evidence: BTreeSet<(String, String)>,
    /// What may be claimed without evidence.
    pushed: BTreeSet<String>,
}

/// What is known of a showing.
#[derive(Debug, Clone)]
struct Showing {
    parcel: Parcel,
    reading: bool,
    told: Option<Outcome>,
    presented: bool,
}

/// Knows what was promised.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    policy: Policy,
    readable: bool,
    crowded: bool,
    mail: Vec<Mail>,
    /// Those of this adapter that are not settled.
    entries: BTreeMap<EntryId, Entry>,
    parcels: BTreeMap<ParcelId, Showing>,
    /// When each path took its last push.
    took_ms: BTreeMap<Path, u64>,
    /// When a path took first showings last.
    first_ms: Option<u64>,
    pushes_ms: Vec<u64>,
    healed: bool,
    pushes_healed: usize,
    pushes_of_burst: usize,
}

impl Oracle {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    /// A message is sent.
    pub(super) fn sent(&mut self, priority: Priority, bytes: usize, burst: bool) -> usize {
        self.mail.push(Mail {
            priority,
            bytes,
            delivered: false,
            shown_as_new: false,
            end: None,
            burst,
        });
        self.mail.len() - 1
    }

    /// The adapter dies: what it knew is gone.
    pub(super) fn killed(&mut self) {
        self.entries.clear();
        self.parcels.clear();
        self.took_ms.clear();
        self.first_ms = None;
        self.pushes_ms.clear();
    }

    /// A message reaches the adapter. Says whether an earlier one had it.
    pub(super) fn arrived(&mut self, id: EntryId, mail: usize) -> bool {
        let again = std::mem::replace(&mut self.mail[mail].delivered, true);
        let entry = Entry {
            mail,
            again,
            standing: Vec::new(),
            had_first: false,
            open: None,
            held: None,
            denied: false,
            evidence: BTreeSet::new(),
            pushed: BTreeSet::new(),
        };
        self.entries.insert(id, entry);
        again
    }

    pub(super) fn readable(&mut self, readable: bool) {
        self.readable = readable;
    }

    pub(super) fn crowded(&mut self, crowded: bool) {
        self.crowded = crowded;
    }

    pub(super) fn healed(&mut self) {
        self.healed = true;
    }

    /// Messages that are unsettled, for a new adapter.
    pub(super) fn owed(&self) -> Vec<usize> {
        let open = |mail: &usize| self.mail[*mail].end.is_none();
        (0..self.mail.len()).filter(open).collect()
    }

    /// How soon a message wants to be seen, and its size.
    pub(super) fn looks(&self, mail: usize) -> (Priority, usize) {
        (self.mail[mail].priority, self.mail[mail].bytes)
    }

    fn priority(&self, id: EntryId) -> Priority {
        let entry = self.entries.get(&id);
        entry.map_or(Priority::Quiet, |entry| self.mail[entry.mail].priority)
    }

    /// A parcel is made.
    pub(super) fn made(&mut self, parcel: &Parcel, reading: bool) -> Verdict {
        let ids: Vec<_> = parcel.items.iter().map(|item| item.entry).collect();
        ensure(!ids.is_empty() && ids.is_sorted(), "order", || {
            format!("{parcel:?}")
        })?;
        for item in &parcel.items {
            let Some(entry) = self.entries.get_mut(&item.entry) else {
                return Err(Failure::new(
                    "denied",
                    format!("{item:?} is over: {parcel:?}"),
                ));
            };
            ensure(!entry.denied, "denied", || {
                format!("{item:?} in {parcel:?}")
            })?;
            ensure(
                entry.open.is_none() && entry.held.is_none(),
                "flight",
                || format!("{parcel:?} while {entry:?}"),
            )?;
            let repeat = entry.again || !entry.standing.is_empty();
            ensure(item.repeat == repeat, "repeat", || {
                format!("{item:?}, {entry:?}")
            })?;
            let whole = reading || self.mail[entry.mail].bytes <= WHOLE_BYTES_MAX;
            ensure(item.whole <= whole, "whole", || format!("{item:?}"))?;
            let over = entry
                .standing
                .iter()
                .filter(|(_, path)| *path == parcel.path);
            ensure(
                reading || parcel.path.wakes() || over.count() == 0,
                "once",
                || format!("{item:?} again over {:?}", parcel.path),
            )?;
            entry.open = Some(parcel.id);
        }
        let showing = Showing {
            parcel: parcel.clone(),
            reading,
            told: None,
            presented: false,
        };
        self.parcels.insert(parcel.id, showing);
        Ok(())
    }

    /// The ladder wants a push.
    pub(super) fn push(&mut self, now_ms: u64, parcel: &Parcel) -> Verdict {
        self.check_order(parcel)?;
        self.check_size(parcel)?;
        let urgent = self.priorities().any(|priority| priority == Priority::Now);
        let paused = parcel.path != Path::Rewake;
        let last = self.took_ms.get(&parcel.path).filter(|_| paused);
        // A burst is one push and one digest, whatever the paths.
        let first = |id: EntryId| self.entries.get(&id).is_some_and(|entry| !entry.had_first);
        let digest = parcel.items.iter().all(|item| first(item.entry));
        let any = self.first_ms.as_ref().filter(|_| digest);
        let last = last.max(any).filter(|_| !urgent);
        ensure(last.is_none_or(|at| at + 2_000 <= now_ms), "pause", || {
            format!("{parcel:?} at {now_ms}, the one before at {last:?}")
        })?;
        let woken = |id| {
            self.entries.get(&id).map_or(0, |entry| {
                entry
                    .standing
                    .iter()
                    .filter(|(_, path)| path.wakes())
                    .count()
            })
        };
        for item in &parcel.items {
            ensure(woken(item.entry) < 3, "often", || {
                format!("{item:?} woke three times")
            })?;
        }
        self.pushes_ms.push(now_ms);
        let minute = self
            .pushes_ms
            .iter()
            .filter(|at| **at + 60_000 > now_ms)
            .count();
        ensure(minute <= 80, "often", || {
            format!("{minute} pushes in a minute")
        })?;
        if self.healed {
            self.pushes_healed += 1;
            let burst = |id| {
                self.entries
                    .get(&id)
                    .is_some_and(|e| self.mail[e.mail].burst)
            };
            self.pushes_of_burst += usize::from(parcel.items.iter().any(|i| burst(i.entry)));
        }
        self.made(parcel, false)
    }

    fn priorities(&self) -> impl Iterator<Item = Priority> {
        self.entries
            .values()
            .map(|entry| self.mail[entry.mail].priority)
    }

    /// First showings do not overtake each other, and quiet ones start nothing.
    fn check_order(&self, parcel: &Parcel) -> Verdict {
        let loud = |id: &EntryId| self.priority(*id) != Priority::Quiet;
        let inside: BTreeSet<_> = parcel.items.iter().map(|item| item.entry).collect();
        ensure(inside.iter().any(loud), "quiet", || format!("{parcel:?}"))?;
        let first = |id: &EntryId| self.entries.get(id).is_some_and(|entry| !entry.had_first);
        let last = inside.iter().filter(|id| loud(id) && first(id)).max();
        let waiting = self.entries.keys().filter(|id| loud(id) && first(id));
        let mut before = waiting.filter(|id| last.is_some_and(|last| *id < last));
        let overtaken = before.find(|id| !inside.contains(id));
        ensure(overtaken.is_none(), "order", || {
            format!("{parcel:?} overtakes {overtaken:?}")
        })
    }

    fn check_size(&self, parcel: &Parcel) -> Verdict {
        let bytes = |id| {
            self.entries
                .get(&id)
                .map_or(0, |entry| self.mail[entry.mail].bytes)
        };
        let sum: usize = parcel.items.iter().map(|item| bytes(item.entry)).sum();
        let count = parcel.items.len();
        let fits = count == 1 || count <= 20 && sum <= 12_000;
        ensure(fits, "size", || format!("{count} entries, {sum} bytes"))
    }

    /// The ladder is told what came of a parcel.
    pub(super) fn told(&mut self, now_ms: u64, id: ParcelId, outcome: &Outcome) {
        let Some(showing) = self.parcels.get_mut(&id) else {
            return;
        };
        let first = showing.told.is_none();
        // Whoever shows it cannot have failed to, nor be unwilling to.
        let moot = match outcome {
            Outcome::Failed => !first,
            Outcome::Held | Outcome::Dropped => showing.presented,
            Outcome::Written => matches!(showing.told, Some(Outcome::Written)),
            Outcome::Denied => false,
        };
        if moot {
            return;
        }
        showing.told = Some(outcome.clone());
        let Showing {
            parcel, reading, ..
        } = showing.clone();
        if parcel.path.wakes() && *outcome != Outcome::Failed && first {
            self.took_ms.insert(parcel.path, now_ms);
        }
        for item in &parcel.items {
            if let Some(entry) = self.entries.get_mut(&item.entry) {
                if first && *outcome != Outcome::Failed {
                    if parcel.path.wakes() && !entry.had_first {
                        self.first_ms = Some(now_ms);
                    }
                    entry.had_first = true;
                    entry.standing.push((id, parcel.path));
                }
                entry.told(id, parcel.path, outcome);
                if reading && *outcome == Outcome::Written {
                    entry.prove(parcel.path, "tool_result");
                }
                if *outcome == Outcome::Written && item.whole && self.policy == Policy::Pushed {
                    entry.pushed.insert(parcel.path.as_str().into());
                }
            }
        }
    }

    /// The text of a parcel joins the conversation, as the model of the client has it.
    pub(super) fn joined(&mut self, parcel: &Parcel) -> Verdict {
        for item in &parcel.items {
            let Some(entry) = self.entries.get(&item.entry) else {
                continue;
            };
            let mail = &mut self.mail[entry.mail];
            let twice = !item.repeat && std::mem::replace(&mut mail.shown_as_new, true);
            ensure(!twice, "repeat", || {
                format!("{item:?} stands there twice as new")
            })?;
        }
        Ok(())
    }

    /// The ladder hears that a text stands in the conversation.
    pub(super) fn presented(&mut self, now_ms: u64, id: ParcelId) {
        let open = |showing: &&mut Showing| showing.told.is_none();
        if self.parcels.get_mut(&id).filter(open).is_some() {
            self.told(now_ms, id, &Outcome::Written);
        }
        let Some(showing) = self.parcels.get_mut(&id) else {
            return;
        };
        showing.presented = true;
        let parcel = showing.parcel.clone();
        for item in &parcel.items {
            if let Some(entry) = self.entries.get_mut(&item.entry) {
                entry.held = None;
                if self.policy == Policy::Pushed && item.whole {
                    entry.pushed.insert(parcel.path.as_str().into());
                }
            }
        }
    }

    /// The ladder hears that the model answered after it.
    pub(super) fn answered(&mut self, now_ms: u64, id: ParcelId) {
        self.presented(now_ms, id);
        let Some(parcel) = self.parcels.get(&id).map(|s| s.parcel.clone()) else {
            return;
        };
        for item in parcel.items.iter().filter(|item| item.whole) {
            if let Some(entry) = self.entries.get_mut(&item.entry) {
                entry.prove(parcel.path, "transcript");
            }
        }
    }

    /// The ladder hears that the agent named an entry.
    pub(super) fn named(&mut self, id: EntryId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            let open = entry.open.and_then(|open| self.parcels.get(&open));
            let last = entry.standing.last().map(|(_, path)| *path);
            let path = last.or(open.map(|showing| showing.parcel.path));
            let word = path.map_or("unknown", Path::as_str);
            entry.evidence.insert((word.into(), "tool_call".into()));
        }
    }

    /// The ladder hears that the agent called a tool.
    pub(super) fn called(&mut self) {
        if self.policy != Policy::Auto || self.readable {
            return;
        }
        let results = self.parcels.values().filter(|showing| {
            showing.parcel.path == Path::Piggyback && showing.told == Some(Outcome::Written)
        });
        let items = results.flat_map(|showing| &showing.parcel.items);
        for item in items.filter(|item| item.whole) {
            if let Some(entry) = self.entries.get_mut(&item.entry) {
                entry.pushed.insert("piggyback".into());
            }
        }
    }

    /// The ladder does something.
    pub(super) fn action(&mut self, action: &Action) -> Verdict {
        match action {
            Action::Push(_) => Ok(()),
            Action::Settle { entry, how } => self.settle(*entry, how),
            Action::Reject { entry, .. } => {
                let denied = self.entries.get(entry).is_some_and(|entry| entry.denied);
                ensure(denied, "denied", || {
                    format!("{entry:?} was rejected for nothing")
                })?;
                self.end(*entry, "rejected".into());
                Ok(())
            }
            Action::Progress { entry, step } => self.progress(*entry, *step),
            Action::Crowded { waiting } => {
                let all = self.entries.len();
                ensure(self.crowded && *waiting == all, "crowd", || {
                    format!("{waiting} of {all} are said to wait")
                })
            }
        }
    }

    fn settle(&mut self, id: EntryId, how: &How) -> Verdict {
        let Some(entry) = self.entries.get(&id) else {
            return Err(Failure::new("evidence", format!("{id:?} is settled twice")));
        };
        let (holds, word) = match how {
            How::Seen { path, evidence } => {
                let shown = entry.evidence.contains(&(path.clone(), evidence.clone()));
                (shown, format!("seen {path} {evidence}"))
            }
            How::Pushed { path } => {
                let full = self.crowded && self.policy == Policy::Auto && !self.readable;
                let stands = entry.standing.iter().any(|(_, over)| over.as_str() == path);
                (
                    entry.pushed.contains(path) || full && stands,
                    format!("pushed {path}"),
                )
            }
        };
        ensure(holds && !entry.denied, "evidence", || {
            format!("{id:?} is {word}: {entry:?}")
        })?;
        self.end(id, word);
        Ok(())
    }

    fn progress(&self, id: EntryId, step: Step) -> Verdict {
        let Some(entry) = self.entries.get(&id) else {
            return Err(Failure::new(
                "progress",
                format!("{id:?} is over, and yet {step:?}"),
            ));
        };
        let has = |fits: &dyn Fn(&Showing) -> bool| {
            let inside = |s: &&Showing| s.parcel.items.iter().any(|item| item.entry == id);
            self.parcels.values().filter(inside).any(fits)
        };
        let holds = match step {
            Step::Pushed(path) => entry.standing.iter().any(|(_, over)| *over == path),
            Step::Presented(path) => has(&|s| s.presented && s.parcel.path == path),
            Step::Held(path) => has(&|s| s.told == Some(Outcome::Held) && s.parcel.path == path),
        };
        ensure(holds, "progress", || format!("{id:?} {step:?}: {entry:?}"))
    }

    fn end(&mut self, id: EntryId, word: String) {
        if let Some(entry) = self.entries.remove(&id) {
            self.mail[entry.mail].end = Some(word);
        }
    }

    /// Between inputs: what was denied is rejected, what was proven is settled, and nothing ticks
    /// when nothing waits.
    pub(super) fn between(&self, waiting: usize, ticks: bool) -> Verdict {
        for (id, entry) in &self.entries {
            ensure(!entry.denied, "denied", || {
                format!("{id:?} is not rejected")
            })?;
            let proven = !entry.evidence.is_empty() || !entry.pushed.is_empty();
            ensure(!proven, "evidence", || {
                format!("{id:?} is not settled: {entry:?}")
            })?;
        }
        let known = self.entries.len();
        ensure(waiting == known, "rest", || {
            format!("{waiting} of {known} wait")
        })?;
        let idle = self
            .priorities()
            .all(|priority| priority == Priority::Quiet);
        ensure(!(idle && ticks), "rest", || {
            "it ticks, and nothing waits".into()
        })
    }

    /// What of the burst that came after the healing is not settled, and whether it took more
    /// than `most` pushes.
    pub(super) fn finish_burst(&self, most: usize) -> Verdict {
        let loud = |mail: &&Mail| mail.burst && mail.priority != Priority::Quiet;
        let open = self
            .mail
            .iter()
            .filter(loud)
            .filter(|mail| mail.end.is_none())
            .count();
        ensure(open == 0, "liveness", || {
            format!("{open} messages that came after the healing are not settled")
        })?;
        let found = self.pushes_of_burst;
        ensure(found <= most, "turns", || {
            format!("{found} pushes for one burst, not {most}")
        })
    }

    /// Messages so far.
    pub(super) fn count(&self) -> usize {
        self.mail.len()
    }

    /// What is not settled when the session had much time, and is not in the hands of its user.
    pub(super) fn finish_session(&self) -> Verdict {
        let free = |entry: &&Entry| entry.held.is_none() || self.readable;
        let open = self.entries.values().find(free);
        ensure(open.is_none(), "liveness", || {
            format!("never settled: {open:?}")
        })
    }

    /// What is not settled in the end.
    pub(super) fn finish(&self) -> Verdict {
        let open = self.mail.iter().filter(|mail| mail.end.is_none()).count();
        ensure(open == 0, "liveness", || {
            format!("{open} messages are never settled")
        })
    }

    pub(super) fn pushes_healed(&self) -> usize {
        self.pushes_healed
    }

    pub(super) fn settled(&self) -> Vec<String> {
        self.mail
            .iter()
            .filter_map(|mail| mail.end.clone())
            .collect()
    }
}

impl Entry {
    fn prove(&mut self, path: Path, evidence: &str) {
        self.evidence
            .insert((path.as_str().into(), evidence.into()));
    }

    fn told(&mut self, id: ParcelId, path: Path, outcome: &Outcome) {
        let was_open = self.open == Some(id);
        if was_open {
            self.open = None;
        }
        let last = self.standing.last() == Some(&(id, path));
        match outcome {
            Outcome::Written | Outcome::Failed => self.held = self.held.filter(|held| *held != id),
            Outcome::Held if last && self.open.is_none() => self.held = Some(id),
            Outcome::Held => {}
            Outcome::Dropped => {
                self.standing.retain(|(parcel, _)| *parcel != id);
                self.held = self.held.filter(|held| *held != id);
            }
            Outcome::Denied => self.denied = true,
        }
    }
}
