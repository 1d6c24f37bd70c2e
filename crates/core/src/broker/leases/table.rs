//! Every lease that is open, by holder and by deadline.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};

use peerbus_wire::Seq;

use super::next::{HELD_MAX, Had};
use crate::TokenHash;
use crate::store::{LeaseRow, Lessee, NOBODY, PeerId, PeerRow};

/// A lease, and when something is to be done about it. Times are of the monotonic clock.
#[derive(Debug)]
pub(in super::super) struct Lease {
    pub(in super::super) row: LeaseRow,
    /// When it is looked at; `None`: when somebody comes.
    due_ms: Option<u64>,
    /// Until when its holder may keep it from others who could have it; `None`: nobody else could.
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

    /// Whether another one than its holder may have been shown it, or its holder in another process. `None`:
    /// that is not all that is to be known of it.
    pub(in super::super) fn again(&self) -> Option<bool> {
        let to_one = self.row.group().is_some();
        let again = self.row.again || self.delivered && to_one;
        (again || to_one).then_some(again)
    }
}

/// Every lease that is open.
#[derive(Debug, Default)]
pub(in super::super) struct Leases {
    pub(in super::super) all: BTreeMap<Seq, Lease>,
    held: BTreeSet<(PeerId, Seq)>,
    /// What nobody holds, by who may have it and by token.
    pub(super) waiting: BTreeMap<(Lessee, TokenHash), BTreeSet<Seq>>,
    due: BTreeSet<(u64, Seq)>,
    /// How many there are of each token.
    open: BTreeMap<TokenHash, usize>,
    /// How many were given to somebody.
    pub(super) given: u64,
}

impl Leases {
    /// Those of a store: their holders have until `due_ms` to come back, and then until `until_ms`.
    pub(in super::super) fn new(rows: Vec<LeaseRow>, due_ms: u64, until_ms: u64) -> Self {
        let mut leases = Self::default();
        for row in rows {
            let (seq, until_ms) = (row.head.seq, row.group().map(|_| until_ms));
            leases.put(row, until_ms);
            leases.deliver(seq);
            leases.set_due(seq, Some(due_ms));
        }
        leases
    }

    /// A lease, new or changed, whose holder may keep it until then.
    pub(super) fn put(&mut self, row: LeaseRow, until_ms: Option<u64>) {
        let seq = row.head.seq;
        self.remove(seq);
        self.held.insert((row.holder, seq));
        if row.holder == NOBODY {
            let waiting = self.waiting.entry((row.to.clone(), row.owner));
            waiting.or_default().insert(seq);
        }
        *self.open.entry(row.owner).or_default() += 1;
        let lease = Lease {
            row,
            due_ms: None,
            until_ms,
            delivered: false,
        };
        self.all.insert(seq, lease);
    }

    pub(super) fn remove(&mut self, seq: Seq) -> Option<LeaseRow> {
        self.set_due(seq, None);
        let Lease { row, .. } = self.all.remove(&seq)?;
        self.held.remove(&(row.holder, seq));
        if let Entry::Occupied(mut waiting) = self.waiting.entry((row.to.clone(), row.owner)) {
            waiting.get_mut().remove(&seq);
            if waiting.get().is_empty() {
                waiting.remove();
            }
        }
        match self.open(&row.owner) {
            ..=1 => self.open.remove(&row.owner),
            open => self.open.insert(row.owner, open - 1),
        };
        Some(row)
    }

    /// What a holder does not come to: others may have it.
    pub(in super::super) fn late(
        &mut self,
        holder: PeerId,
        now_ms: u64,
        which: impl Fn(&LeaseRow) -> bool,
    ) {
        for seq in self.of_groups(holder) {
            if let Some(lease) = self.all.get_mut(&seq).filter(|lease| which(&lease.row)) {
                lease.until_ms = Some(now_ms);
                self.set_due(seq, Some(now_ms));
            }
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

    /// What is to be looked at first, and when.
    pub(in super::super) fn next_due(&self) -> Option<(u64, Seq)> {
        self.due.first().copied()
    }

    /// A lease that is open.
    pub(in super::super) fn get(&self, seq: Seq) -> Option<&LeaseRow> {
        Some(&self.all.get(&seq)?.row)
    }

    /// A request that is open.
    pub(in super::super) fn request(&self, seq: Seq) -> Option<&LeaseRow> {
        self.get(seq).filter(|row| row.request.is_some())
    }

    /// What a peer holds, the oldest first.
    pub(in super::super) fn held(&self, holder: PeerId) -> impl Iterator<Item = &LeaseRow> {
        let range = (holder, Seq(0))..=(holder, Seq(u64::MAX));
        let held = self.held.range(range);
        held.filter_map(|(_, seq)| self.get(*seq))
    }

    /// The numbers of what a peer holds for one of a group.
    pub(super) fn of_groups(&self, holder: PeerId) -> Vec<Seq> {
        let held = self.held(holder).filter(|row| row.group().is_some());
        held.map(|row| row.head.seq).collect()
    }

    /// What nobody holds for a peer alone, of each token.
    fn asked(&self, peer: PeerId) -> impl Iterator<Item = &BTreeSet<Seq>> {
        let key = |byte| (Lessee::Peer(peer), TokenHash([byte; 32]));
        let asked = self.waiting.range(key(0)..=key(u8::MAX));
        asked.map(|(_, seqs)| seqs)
    }

    /// What a peer may get of what nobody holds: of each token, and for each group, the oldest.
    pub(super) fn offered(&self, peer: &PeerRow, may: impl Fn(&&LeaseRow) -> bool) -> Vec<Seq> {
        let groups = peer.groups.iter().cloned().map(Lessee::One);
        let groups = groups.filter_map(|group| self.waiting.get(&(group, peer.owner?)));
        let each = self.asked(peer.id).chain(groups).map(|seqs| seqs.iter());
        let each = each.map(|seqs| seqs.filter_map(|seq| self.get(*seq)).filter(&may));
        let all = each.flat_map(|rows| rows.take(HELD_MAX));
        let all: BTreeSet<_> = all.map(|row| row.head.seq).collect();
        all.into_iter().collect()
    }

    /// The requests for one peer alone that it has, those that wait for a place last.
    pub(in super::super) fn own(&self, peer: PeerId) -> impl Iterator<Item = &LeaseRow> {
        let held = self
            .held(peer)
            .filter(move |row| row.to == Lessee::Peer(peer));
        held.chain(self.asked(peer).flatten().filter_map(|seq| self.get(*seq)))
    }

    /// Requests that a peer has not answered, whether it has read them or not.
    pub(in super::super) fn owed_by(&self, holder: PeerId) -> u64 {
        let held = self.held(holder).filter(|row| row.request.is_some());
        (held.count() + self.asked(holder).map(BTreeSet::len).sum::<usize>()) as u64
    }

    /// It is delivered to its holder.
    pub(in super::super) fn deliver(&mut self, seq: Seq) {
        if let Some(lease) = self.all.get_mut(&seq) {
            lease.delivered = lease.row.holder != NOBODY;
        }
    }

    /// How many of a token are open.
    pub(super) fn open(&self, owner: &TokenHash) -> usize {
        self.open.get(owner).copied().unwrap_or_default()
    }

    /// Whether what is kept of who holds what, and of deadlines, is that of the leases.
    pub(in super::super) fn adds_up(&self) -> bool {
        let held = self.all.iter().map(|(seq, it)| (it.row.holder, *seq));
        let due = self.all.iter();
        let due = due.filter_map(|(seq, it)| Some((it.due_ms?, *seq)));
        let nobodys = self.held(NOBODY).map(|it| it.head.seq);
        let own = |row: &LeaseRow| match row.to {
            Lessee::Peer(to) => [to, NOBODY].contains(&row.holder),
            Lessee::One(_) => true,
        };
        held.collect::<BTreeSet<_>>() == self.held
            && nobodys.collect::<BTreeSet<_>>()
                == self.waiting.values().flatten().copied().collect()
            && due.collect::<BTreeSet<_>>() == self.due
            && self.open.values().sum::<usize>() == self.all.len()
            && self.all.values().all(|lease| own(&lease.row))
    }
}
