//! Every lease that is open, by holder and by deadline.

use std::collections::{BTreeMap, BTreeSet};

use peerbus_wire::Seq;

use super::next::Had;
use crate::TokenHash;
use crate::store::{LeaseRow, Lessee, NOBODY, PeerId, Work};

/// A lease, and when something is to be done about it. Times are of the monotonic clock.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) row: LeaseRow,
    /// When it is looked at; `None`: when somebody comes.
    due_ms: Option<u64>,
    /// Until when its holder may keep it from others who could have it; `None`: that is not known.
    pub(super) until_ms: Option<u64>,
    /// It was delivered to its holder, who may have shown it.
    pub(super) delivered: bool,
}

impl Lease {
    /// Which of those who had it may get it.
    pub(super) fn had(&self, now_ms: u64) -> Had {
        match self.until_ms.is_some_and(|at| at <= now_ms) {
            _ if self.row.holder == NOBODY => Had::All,
            true => Had::Idle,
            false => Had::Nobody,
        }
    }
}

/// Every lease that is open.
#[derive(Debug, Default)]
pub(in super::super) struct Leases {
    pub(super) all: BTreeMap<Seq, Lease>,
    held: BTreeSet<(PeerId, Seq)>,
    due: BTreeSet<(u64, Seq)>,
    /// How many there are of each token.
    open: BTreeMap<TokenHash, usize>,
    /// How many were given to somebody.
    given: u64,
}

impl Leases {
    /// Those of a store: their holders have until `due_ms` to come back.
    pub(in super::super) fn new(rows: Vec<LeaseRow>, due_ms: u64) -> Self {
        let mut leases = Self::default();
        for row in rows {
            let (seq, held) = (row.seq, row.holder != NOBODY);
            leases.put(row, None);
            if let Some(lease) = leases.all.get_mut(&seq) {
                lease.delivered = held;
            }
            leases.set_due(seq, Some(due_ms));
        }
        leases
    }

    /// A lease, new or changed, whose holder may keep it until then.
    pub(super) fn put(&mut self, row: LeaseRow, until_ms: Option<u64>) {
        let seq = row.seq;
        self.remove(seq);
        self.held.insert((row.holder, seq));
        *self.open.entry(row.owner).or_default() += 1;
        let lease = Lease {
            row,
            due_ms: None,
            until_ms,
            delivered: false,
        };
        self.all.insert(seq, lease);
        self.set_due(seq, until_ms);
    }

    pub(super) fn remove(&mut self, seq: Seq) -> Option<LeaseRow> {
        let lease = self.all.remove(&seq)?;
        self.held.remove(&(lease.row.holder, seq));
        if let Some(at) = lease.due_ms {
            self.due.remove(&(at, seq));
        }
        let left = self.open(&lease.row.owner).saturating_sub(1);
        match left {
            0 => self.open.remove(&lease.row.owner),
            left => self.open.insert(lease.row.owner, left),
        };
        Some(lease.row)
    }

    /// Its holder is here again: it has as long as it had, or until then if that is not known.
    pub(super) fn keep(&mut self, seq: Seq, until_ms: u64) {
        if let Some(lease) = self.all.get_mut(&seq) {
            lease.until_ms.get_or_insert(until_ms);
        }
    }

    /// Its holder does not come to it: others may have it.
    pub(super) fn late(&mut self, seq: Seq, now_ms: u64) {
        if let Some(lease) = self.all.get_mut(&seq) {
            lease.until_ms = Some(now_ms);
            self.set_due(seq, Some(now_ms));
        }
    }

    pub(super) fn set_due(&mut self, seq: Seq, due_ms: Option<u64>) {
        let Some(lease) = self.all.get_mut(&seq) else {
            return;
        };
        if let Some(at) = std::mem::replace(&mut lease.due_ms, due_ms) {
            self.due.remove(&(at, seq));
        }
        self.due.extend(due_ms.map(|at| (at, seq)));
    }

    pub(in super::super) fn next_due(&self) -> Option<u64> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Whether a lease is to be looked at.
    pub(super) fn is_due(&self, seq: Seq, now_ms: u64) -> bool {
        let due_ms = self.all.get(&seq).and_then(|lease| lease.due_ms);
        due_ms.is_some_and(|at| at <= now_ms)
    }

    /// What is due, the oldest first.
    pub(super) fn due(&self, now_ms: u64) -> Option<Seq> {
        let due = self.due.first().filter(|(at, _)| *at <= now_ms);
        due.map(|(_, seq)| *seq)
    }

    pub(in super::super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// A lease that is open.
    pub(in super::super) fn get(&self, seq: Seq) -> Option<&LeaseRow> {
        Some(&self.all.get(&seq)?.row)
    }

    /// The requests that are open, the oldest first.
    pub(in super::super) fn rows(&self) -> impl Iterator<Item = &LeaseRow> {
        let all = self.all.values().map(|lease| &lease.row);
        all.filter(|row| row.request.is_some())
    }

    /// What nobody has, the oldest first.
    pub(in super::super) fn waiting(&self) -> impl Iterator<Item = &LeaseRow> {
        self.held(NOBODY)
    }

    /// What a peer holds, the oldest first.
    pub(in super::super) fn held(&self, holder: PeerId) -> impl Iterator<Item = &LeaseRow> {
        let range = (holder, Seq(0))..=(holder, Seq(u64::MAX));
        let held = self.held.range(range);
        held.filter_map(|(_, seq)| self.get(*seq))
    }

    /// The numbers of what a peer holds.
    pub(in super::super) fn of(&self, holder: PeerId) -> Vec<Seq> {
        self.held(holder).map(|row| row.seq).collect()
    }

    /// Requests that a peer has read and not answered.
    pub(in super::super) fn owed_by(&self, holder: PeerId) -> u64 {
        self.held(holder).filter(|row| row.work().is_some()).count() as u64
    }

    /// It is delivered to its holder.
    pub(in super::super) fn deliver(&mut self, seq: Seq) {
        if let Some(lease) = self.all.get_mut(&seq) {
            lease.delivered = true;
        }
    }

    /// How many of a token are open.
    pub(super) fn open(&self, owner: &TokenHash) -> usize {
        self.open.get(owner).copied().unwrap_or_default()
    }

    /// A number for a lease that is given to somebody: higher than all before.
    pub(super) fn given(&mut self) -> u64 {
        self.given += 1;
        self.given
    }

    /// Whether another one than its holder may have been shown it, or its holder in another process. `None`:
    /// that is not all that is to be known of it.
    pub(in super::super) fn again(&self, seq: Seq) -> Option<bool> {
        let lease = self.all.get(&seq)?;
        let again = lease.row.again || lease.delivered && lease.row.group().is_some();
        (again || lease.row.group().is_some()).then_some(again)
    }

    /// How its holder is with a request that was read.
    pub(in super::super) fn work(&self, seq: Seq) -> Option<&Work> {
        self.get(seq)?.work()
    }

    /// Whether what is kept of who holds what, and of deadlines, is that of the leases.
    pub(in super::super) fn adds_up(&self) -> bool {
        let held = self.all.iter().map(|(seq, it)| (it.row.holder, *seq));
        let due = self.all.iter();
        let due = due.filter_map(|(seq, it)| Some((it.due_ms?, *seq)));
        let own = |row: &LeaseRow| match row.to {
            Lessee::Peer(to) => [to, NOBODY].contains(&row.holder),
            Lessee::One(_) => true,
        };
        held.collect::<BTreeSet<_>>() == self.held
            && due.collect::<BTreeSet<_>>() == self.due
            && self.open.values().sum::<usize>() == self.all.len()
            && self.all.values().all(|lease| own(&lease.row))
    }
}
