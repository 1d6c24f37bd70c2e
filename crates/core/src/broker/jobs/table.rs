//! Every job that is owed, by holder and by deadline.

use std::collections::{BTreeMap, BTreeSet};

use peerbus_wire::{GroupName, Seq};

use super::next::Had;
use crate::TokenHash;
use crate::store::{JobRow, NOBODY, PeerId};

/// A job, and when something is to be done about it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) row: JobRow,
    /// When it is looked at, on the monotonic clock; `None`: when somebody comes.
    pub(super) due_ms: Option<u64>,
    /// Until when its holder may keep it, or, if nobody has it, when somebody is looked for again;
    /// `None`: that is not known.
    pub(super) until_ms: Option<u64>,
    /// Its holder was asked to give it back, on this connection of its.
    pub(super) asked: bool,
    /// Until when its holder may answer that, over all its connections.
    pub(super) answer_ms: Option<u64>,
    /// From when on one who had it before may get it again.
    pub(super) round_ms: Option<u64>,
    /// It was delivered to its holder, who may have shown it.
    pub(super) delivered: bool,
    /// And on an earlier connection, too: what is said on this one is not all.
    pub(super) earlier: bool,
}

impl Job {
    /// Which of those who had it may get it.
    pub(super) fn had(&self, now_ms: u64) -> Had {
        match self.round_ms.is_some_and(|at| at <= now_ms) {
            _ if self.row.holder == NOBODY => Had::All,
            true => Had::Idle,
            false => Had::Nobody,
        }
    }
}

/// Every job that is owed.
#[derive(Debug, Default)]
pub(in super::super) struct Jobs {
    pub(super) all: BTreeMap<Seq, Job>,
    held: BTreeSet<(PeerId, Seq)>,
    pub(super) due: BTreeSet<(u64, Seq)>,
    /// How many there are of each token.
    open: BTreeMap<TokenHash, usize>,
    /// How many were given to somebody.
    given: u64,
}

impl Jobs {
    /// Those of a store: their holders have until `due_ms` to come back.
    pub(in super::super) fn new(rows: Vec<JobRow>, due_ms: u64) -> Self {
        let mut jobs = Self::default();
        for row in rows {
            let (seq, held) = (row.seq, row.holder != NOBODY);
            jobs.put(row, None);
            if let Some(job) = jobs.all.get_mut(&seq) {
                job.delivered = held;
            }
            jobs.set_due(seq, held.then_some(due_ms), false);
        }
        jobs
    }

    /// It goes on when `due_ms` has come, if its holder did not see it until then.
    pub(super) fn put(&mut self, row: JobRow, due_ms: Option<u64>) {
        let (seq, until_ms) = (row.seq, due_ms);
        self.remove(seq);
        self.held.insert((row.holder, seq));
        *self.open.entry(row.owner).or_default() += 1;
        let asked = false;
        let job = Job {
            row,
            due_ms,
            until_ms,
            asked,
            answer_ms: None,
            round_ms: due_ms,
            delivered: false,
            earlier: false,
        };
        self.all.insert(seq, job);
        self.due.extend(due_ms.map(|at| (at, seq)));
    }

    pub(super) fn remove(&mut self, seq: Seq) -> Option<JobRow> {
        let job = self.all.remove(&seq)?;
        self.held.remove(&(job.row.holder, seq));
        if let Some(at) = job.due_ms {
            self.due.remove(&(at, seq));
        }
        let left = self.open(&job.row.owner).saturating_sub(1);
        match left {
            0 => self.open.remove(&job.row.owner),
            left => self.open.insert(job.row.owner, left),
        };
        Some(job.row)
    }

    /// Its holder is here (again): it has as long as it had, or until then if that is not known.
    pub(super) fn keep(&mut self, seq: Seq, until_ms: u64) {
        if let Some(job) = self.all.get_mut(&seq) {
            job.round_ms.get_or_insert(until_ms);
            let until_ms = *job.until_ms.get_or_insert(until_ms);
            self.set_due(seq, Some(until_ms), false);
        }
    }

    /// Its holder does not come to it: its time is over.
    pub(super) fn late(&mut self, seq: Seq, now_ms: u64) {
        if let Some(job) = self.all.get_mut(&seq) {
            job.until_ms = Some(now_ms);
            self.set_due(seq, Some(now_ms), false);
        }
    }

    /// Its holder is to be asked for it: until when it may answer. The same until somebody has it, or
    /// nobody else wants it.
    pub(super) fn ask(&mut self, seq: Seq, until_ms: Option<u64>) -> Option<u64> {
        let job = self.all.get_mut(&seq)?;
        job.answer_ms = until_ms.map(|until| job.answer_ms.unwrap_or(until));
        job.answer_ms
    }

    pub(super) fn set_due(&mut self, seq: Seq, due_ms: Option<u64>, asked: bool) {
        let Some(job) = self.all.get_mut(&seq) else {
            return;
        };
        if let Some(at) = std::mem::replace(&mut job.due_ms, due_ms) {
            self.due.remove(&(at, seq));
        }
        self.due.extend(due_ms.map(|at| (at, seq)));
        job.asked = asked;
    }

    /// What nobody has, the oldest first.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Job> {
        let range = (NOBODY, Seq(0))..=(NOBODY, Seq(u64::MAX));
        let waiting = self.held.range(range);
        waiting.filter_map(|(_, seq)| self.all.get(seq))
    }

    /// What a peer holds.
    pub(super) fn of(&self, holder: PeerId) -> Vec<Seq> {
        let range = (holder, Seq(0))..=(holder, Seq(u64::MAX));
        self.held.range(range).map(|(_, seq)| *seq).collect()
    }

    /// How many a peer holds, or so many if there are more.
    pub(super) fn count(&self, holder: PeerId, most: usize) -> usize {
        let range = (holder, Seq(0))..=(holder, Seq(u64::MAX));
        self.held.range(range).take(most).count()
    }

    /// It is delivered to its holder. Says whether that one was asked for it already.
    pub(in super::super) fn deliver(&mut self, seq: Seq) -> bool {
        let Some(job) = self.all.get_mut(&seq) else {
            return false;
        };
        job.earlier |= job.delivered;
        job.delivered = true;
        job.asked
    }

    /// Whether it was delivered on an earlier connection of its holder's.
    pub(in super::super) fn earlier(&self, seq: Seq) -> bool {
        self.all.get(&seq).is_some_and(|job| job.earlier)
    }

    /// How many of a token are open.
    pub(super) fn open(&self, owner: &TokenHash) -> usize {
        self.open.get(owner).copied().unwrap_or_default()
    }

    /// A number for a job that is given to somebody: higher than all before.
    pub(super) fn given(&mut self) -> u64 {
        self.given += 1;
        self.given
    }

    /// Whether somebody may have been shown it; `None`: it is no job.
    pub(in super::super) fn again(&self, seq: Seq) -> Option<bool> {
        let job = self.all.get(&seq)?;
        Some(job.row.again || job.delivered)
    }

    /// The group that a job is for.
    pub(in super::super) fn group(&self, seq: Seq) -> Option<&GroupName> {
        Some(&self.all.get(&seq)?.row.group)
    }

    pub(in super::super) fn next_due(&self) -> Option<u64> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Whether what is kept of who holds what, and of deadlines, is that of the jobs.
    pub(in super::super) fn adds_up(&self) -> bool {
        let held = self.all.iter().map(|(seq, job)| (job.row.holder, *seq));
        let due = self
            .all
            .iter()
            .filter_map(|(seq, job)| Some((job.due_ms?, *seq)));
        held.collect::<BTreeSet<_>>() == self.held
            && due.collect::<BTreeSet<_>>() == self.due
            && self.open.values().sum::<usize>() == self.all.len()
    }
}
