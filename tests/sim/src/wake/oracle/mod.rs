//! What the ladder does is compared with what it was told, and with what the model of the client
//! shows.

mod judge;

use std::collections::{BTreeMap, BTreeSet};

use peerbus_core::wake::{EntryId, Outcome, Parcel, ParcelId, Path, Policy, Priority};

use crate::failure::{Verdict, ensure};

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
pub(in crate::wake) struct Oracle {
    policy: Policy,
    readable: bool,
    /// An answer would be noticed, as the ladder has it.
    evidence: bool,
    /// Pushes since a mark was found.
    unfound: usize,
    crowded: bool,
    /// That was said.
    crowd_said: bool,
    /// So many are kept from the ladder.
    held_back: usize,
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
    pub(in crate::wake) fn new(policy: Policy) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    /// A message is sent.
    pub(in crate::wake) fn sent(&mut self, priority: Priority, bytes: usize, burst: bool) -> usize {
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
    pub(in crate::wake) fn killed(&mut self) {
        self.entries.clear();
        self.parcels.clear();
        self.took_ms.clear();
        self.first_ms = None;
        self.pushes_ms.clear();
    }

    /// A message reaches the adapter. Says whether an earlier one had it.
    pub(in crate::wake) fn arrived(&mut self, id: EntryId, mail: usize) -> bool {
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

    pub(in crate::wake) fn readable(&mut self, readable: bool) {
        if std::mem::replace(&mut self.readable, readable) != readable {
            self.unfound = 0;
        }
    }

    /// The ladder takes the transcript for one that shows answers, or does not.
    pub(in crate::wake) fn evidence(&mut self, evidence: bool) -> Verdict {
        self.evidence = evidence;
        let doubts = self.unfound >= 8;
        ensure(!evidence || self.readable, "evidence", || {
            "it trusts a transcript that it cannot read".into()
        })?;
        ensure(evidence || !self.readable || doubts, "evidence", || {
            format!("it gave the transcript up after {} pushes", self.unfound)
        })
    }

    pub(in crate::wake) fn crowded(&mut self, crowded: bool) {
        self.crowd_said &= self.crowded && crowded;
        self.crowded = crowded;
    }

    pub(in crate::wake) fn held_back(&mut self, held_back: usize) {
        self.held_back = held_back;
    }

    pub(in crate::wake) fn healed(&mut self) {
        self.healed = true;
    }

    /// Messages that are unsettled, for a new adapter.
    pub(in crate::wake) fn owed(&self) -> Vec<usize> {
        let open = |mail: &usize| self.mail[*mail].end.is_none();
        (0..self.mail.len()).filter(open).collect()
    }

    /// How soon a message wants to be seen, and its size.
    pub(in crate::wake) fn looks(&self, mail: usize) -> (Priority, usize) {
        (self.mail[mail].priority, self.mail[mail].bytes)
    }

    fn priority(&self, id: EntryId) -> Priority {
        let entry = self.entries.get(&id);
        entry.map_or(Priority::Quiet, |entry| self.mail[entry.mail].priority)
    }

    /// The ladder is told what came of a parcel.
    pub(in crate::wake) fn told(&mut self, now_ms: u64, id: ParcelId, outcome: &Outcome) {
        let Some(showing) = self.parcels.get_mut(&id) else {
            return;
        };
        let first = showing.told.is_none();
        // Whoever shows it cannot have failed to, nor be unwilling to.
        let moot = match outcome {
            Outcome::Failed => !first,
            Outcome::Held | Outcome::Dropped | Outcome::Doubtful => showing.presented,
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
    pub(in crate::wake) fn joined(&mut self, parcel: &Parcel) -> Verdict {
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
    pub(in crate::wake) fn presented(&mut self, now_ms: u64, id: ParcelId) {
        self.unfound = 0;
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
    pub(in crate::wake) fn answered(&mut self, now_ms: u64, id: ParcelId) {
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
    pub(in crate::wake) fn named(&mut self, id: EntryId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            let open = entry.open.and_then(|open| self.parcels.get(&open));
            let last = entry.standing.last().map(|(_, path)| *path);
            let path = last.or(open.map(|showing| showing.parcel.path));
            let word = path.map_or("unknown", Path::as_str);
            entry.evidence.insert((word.into(), "tool_call".into()));
        }
    }

    /// The ladder hears that the agent called a tool.
    pub(in crate::wake) fn called(&mut self) {
        if self.policy != Policy::Auto || self.evidence {
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

    pub(in crate::wake) fn pushes_healed(&self) -> usize {
        self.pushes_healed
    }

    pub(in crate::wake) fn settled(&self) -> Vec<String> {
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
            Outcome::Dropped | Outcome::Doubtful => {
                self.again |= *outcome == Outcome::Doubtful;
                self.standing.retain(|(parcel, _)| *parcel != id);
                self.held = self.held.filter(|held| *held != id);
            }
            Outcome::Denied => self.denied = true,
        }
    }
}
