//! Whether what the ladder does is right.

use std::collections::BTreeSet;

use peerbus_core::wake::{
    Action, EntryId, Outcome, Parcel, Path, Policy, Priority, Step, WHOLE_BYTES_MAX,
};
use peerbus_wire::How;

use super::{Entry, Mail, Oracle, Showing};
use crate::failure::{Failure, Verdict, ensure};

impl Oracle {
    /// A parcel is made.
    pub(in crate::wake) fn made(&mut self, parcel: &Parcel, reading: bool) -> Verdict {
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
    pub(in crate::wake) fn push(&mut self, now_ms: u64, parcel: &Parcel) -> Verdict {
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
        self.unfound += 1;
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

    /// The ladder does something.
    pub(in crate::wake) fn action(&mut self, action: &Action) -> Verdict {
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
                let all = self.entries.len() + self.held_back;
                self.crowd_said = true;
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
                let full = self.crowded && self.policy == Policy::Auto && !self.evidence;
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
    pub(in crate::wake) fn between(&self, waiting: usize, ticks: bool) -> Verdict {
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
        let crowd = self.crowded && known + self.held_back > 0;
        ensure(!crowd || self.crowd_said, "crowd", || {
            format!("nobody says that {known} wait")
        })?;
        ensure(!idle || crowd || !ticks, "rest", || {
            "it ticks, and nothing waits".into()
        })
    }

    /// What of the burst that came after the healing is not settled, and whether it took more
    /// than `most` pushes.
    pub(in crate::wake) fn finish_burst(&self, most: usize) -> Verdict {
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
    pub(in crate::wake) fn count(&self) -> usize {
        self.mail.len()
    }

    /// What is not settled when the session had much time, and is not in the hands of its user.
    pub(in crate::wake) fn finish_session(&self) -> Verdict {
        let free = |entry: &&Entry| entry.held.is_none() || self.readable;
        let open = self.entries.values().find(free);
        ensure(open.is_none(), "liveness", || {
            format!("never settled: {open:?}")
        })
    }

    /// What is not settled in the end.
    pub(in crate::wake) fn finish(&self) -> Verdict {
        let open = self.mail.iter().filter(|mail| mail.end.is_none()).count();
        ensure(open == 0, "liveness", || {
            format!("{open} messages are never settled")
        })
    }
}
