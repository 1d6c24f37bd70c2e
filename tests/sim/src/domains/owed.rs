//! What was promised of requests: each ends once, as its holder, its asker or its time says, and so at home
//! as in the other domain.

use std::collections::BTreeMap;

use peerbus_core::store::NOBODY;
use peerbus_core::testing::Tables;
use peerbus_wire::{Seq, Stage};

use super::home::WALL_ZERO;
use super::oracle::{Key, Letter, Oracle};
use crate::failure::{Verdict, ensure};

/// An end is known at home so long after it came to be in the other domain, once there is no trouble.
const HOME_MS: u64 = 60_000;

impl Oracle {
    /// Whether a request can have ended so by now, as its home tells it.
    pub(super) fn may_end(&self, now_ms: u64, (key, letter): (&Key, &Letter), end: &Stage) -> bool {
        let over = letter.accepted_ms.zip(letter.within_ms);
        let over = over.is_some_and(|(at_ms, within_ms)| at_ms + within_ms <= now_ms);
        match end {
            Stage::Done { reply } | Stage::Failed { reply } => {
                let failed = matches!(end, Stage::Failed { .. });
                let answer = (key.clone(), failed);
                let mut all = self.letters.iter();
                all.any(|((from, id), it)| {
                    let on_disk = it.order > 0 && (it.landed || it.home == it.far);
                    let says = *id == *reply.as_str() && it.answers.as_ref() == Some(&answer);
                    says && on_disk && holds(letter, from, it.home)
                })
            }
            Stage::Declined { why } => {
                let why = why.clone();
                letter.hopeless || letter.said.contains(&Stage::Dead { why })
            }
            Stage::Withdrawn => letter.withdrawn,
            Stage::Unanswered { .. } => over || self.expires,
            _ => false,
        }
    }

    /// The answer with which a request ended there was refused on its way home.
    fn was_refused(&self, end: &Stage) -> bool {
        let (Stage::Done { reply } | Stage::Failed { reply }) = end else {
            return false;
        };
        let mut all = self.letters.iter();
        all.any(|((_, id), letter)| *id == *reply.as_str() && letter.hopeless)
    }

    /// A message has come to a broker's disk: if it answers a request that its sender holds, that has ended.
    pub(super) fn answers(&self, at: usize, seq: Seq, key: &Key, tables: &Tables) -> Verdict {
        let letter = self.letters.get(key);
        let Some((letter, (asked, _))) = letter.and_then(|it| Some((it, it.answers.as_ref()?)))
        else {
            return Ok(());
        };
        let Some(request) = self.letters.get(asked) else {
            return Ok(());
        };
        let holds = holds(request, &key.0, letter.home);
        let mut open = tables.leases.values().filter(|row| row.head.seq < seq);
        let goes_on = open.any(|row| {
            let known = self.ends.key(at, row.head.seq);
            known == Some(asked) && row.holder != NOBODY
        });
        let lies = [letter, request].iter().any(|it| it.concerns(self.liar));
        ensure(!goes_on || !holds || lies, "request", || {
            format!("{asked:?} was answered by {key:?} and goes on in domain {at}: {request:?}")
        })
    }

    /// All requests have ended, each once and as it was said.
    pub(super) fn requests_ended(&self) -> Verdict {
        for (key, letter) in &self.letters {
            let skip = letter.order == 0 || letter.excused || letter.concerns(self.liar);
            if letter.within_ms.is_none() || letter.hopeless || skip {
                continue;
            }
            let here = self.ends.of(letter.home, key);
            ensure(here.len() == 1, "request", || {
                format!("{key:?} ended as {here:?}: {letter:?}")
            })?;
            let End { stage, at_ms, .. } = &here[0];
            let may = self.may_end(*at_ms, (key, letter), stage);
            ensure(may, "request", || {
                format!("{key:?} ended as {stage:?} at {at_ms}: {letter:?}")
            })?;
            // What its broker forgot comes to the other domain again while it is open.
            let healed_ms = self.healed_ms + HOME_MS;
            ensure(!letter.forgotten || *at_ms <= healed_ms, "request", || {
                format!("{key:?} was forgotten there, and ended only as {here:?}: {letter:?}")
            })?;
            if letter.home == letter.far || self.was_restored(letter) {
                continue;
            }
            let there = self.ends.of(letter.far, key);
            ensure(there.len() == usize::from(letter.landed), "request", || {
                format!("{key:?} ended there as {there:?}: {letter:?}")
            })?;
            let known_ms = match there.first() {
                Some(end) if !self.was_refused(&end.stage) => end.at_ms,
                _ => u64::MAX,
            };
            let in_time_ms = known_ms.max(self.healed_ms).saturating_add(HOME_MS);
            ensure(*at_ms <= in_time_ms, "request", || {
                format!("{key:?} ended as {there:?} there, and only so at home: {here:?}")
            })?;
        }
        Ok(())
    }
}

/// How a message ended at a broker.
#[derive(Debug)]
pub(super) struct End {
    /// The number of its row.
    row: u64,
    stage: Stage,
    at_ms: u64,
}

/// How messages ended at each broker: what that keeps of it goes after a while.
#[derive(Debug, Default)]
pub(super) struct Ends {
    keys: BTreeMap<(usize, Seq), Key>,
    all: BTreeMap<(usize, Key), Vec<End>>,
    /// The last row that was looked at.
    looked: BTreeMap<usize, u64>,
}

impl Ends {
    fn of(&self, at: usize, key: &Key) -> &[End] {
        let all = self.all.get(&(at, key.clone()));
        all.map_or(&[], Vec::as_slice)
    }

    /// The message that has this number at a broker, or had it.
    pub(super) fn key(&self, at: usize, seq: Seq) -> Option<&Key> {
        self.keys.get(&(at, seq))
    }

    /// A message has this number at a broker.
    pub(super) fn message(&mut self, at: usize, seq: Seq, key: Key) {
        self.keys.insert((at, seq), key);
    }

    /// Looks at what a broker has committed.
    pub(super) fn look(&mut self, at: usize, tables: &Tables) {
        let looked = self.looked.entry(at).or_default();
        for (row, fates) in tables.fates.range(*looked + 1..) {
            *looked = *row;
            for fate in fates.fates.iter().filter(|fate| !fate.goes_on) {
                if let Some(key) = self.keys.get(&(at, fate.seq)) {
                    let (stage, at_ms) = (Stage::clone(&fate.stage), fate.at_ms - WALL_ZERO);
                    let row = *row;
                    let ends = self.all.entry((at, key.clone())).or_default();
                    ends.push(End { row, stage, at_ms });
                }
            }
        }
    }

    /// A broker was brought back from a backup.
    pub(super) fn restored(&mut self, at: usize, tables: &Tables) {
        let last = tables.fates.keys().next_back().copied().unwrap_or_default();
        self.looked.insert(at, last);
        for ((of, _), ends) in &mut self.all {
            ends.retain(|end| *of != at || end.row <= last);
        }
    }
}

/// Whether a peer holds a request.
fn holds(request: &Letter, peer: &str, home: usize) -> bool {
    home == request.far && request.to == peer
}
