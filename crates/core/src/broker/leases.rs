//! Leases: messages that one peer at a time has. One for a member of a group goes to the next when its
//! holder does not come to it; a request goes on until it has its result.
//!
//! A lease is owed to its holder like any message, to [`NOBODY`] while nobody can take it, and to
//! [`ANSWERS`](crate::store::ANSWERS) while its holder, who has read it, works at it. What else is known of
//! it commits together with that.

mod next;
mod table;

use std::collections::BTreeSet;

use peerbus_wire::{BrokerFrame, GroupName, Recall, Refusal, RefusalCode, Seq, Stage, escape};

use self::next::Had;
pub(super) use self::table::Leases;
use super::ack::End;
use super::expire::SLICE;
use super::groups::Recipients;
use super::mutation::BrokerMutation;
use super::{Broker, BrokerOutput, Caller, CommitNeed, Cx};
use crate::Now;
use crate::store::{
    FATE_BYTES, LeaseRow, Lessee, NOBODY, PeerId, PeerRow, Queued, RequestRow, Result,
};

/// Leases of one token that may be open: all of them are in memory.
const OPEN_MAX: usize = 10_000;

/// Characters that are repeated of what a peer says.
pub(super) const WHY_CHARS: usize = 300;

/// Why a lease goes on: what its sender is told.
const ENDED: &str = "its session ended";
pub(super) const NAME_ENDED: &str = "its name ended";
const LATE: &str = "it was not read there in time";
const IDLE: &str = "it was read there, and nothing more was said of it";
const GIVEN_BACK: &str = "it was given back";
const UNWANTED: &str = "every member that is left rejected it";

impl Broker {
    /// To whom a message for one member of a group is owed first: a member who is here, or nobody yet.
    pub(super) fn one_of(
        &mut self,
        cx: &mut Cx<'_>,
        (caller, group): (Caller, &GroupName),
        bytes: u64,
        row: Box<LeaseRow>,
    ) -> Result<Result<Recipients, Refusal>> {
        if let Err(refusal) = self.members(cx, caller, group, bytes)? {
            return Ok(Err(refusal));
        }
        let first = self.next_holder(cx, &row, (caller.peer, bytes), Had::All)?;
        Ok(self.leased(row, first.unwrap_or(NOBODY)))
    }

    /// A lease may be open besides those that are.
    pub(super) fn leased(&self, row: Box<LeaseRow>, first: PeerId) -> Result<Recipients, Refusal> {
        if self.leases.open(&row.owner) >= OPEN_MAX {
            return Err(RefusalCode::Quota.because(format!(
                "{OPEN_MAX} requests and messages for one of a group were sent with this token and have \
                     not ended, and no more may; send again when some have"
            )));
        }
        Ok(Recipients {
            owed: vec![first],
            lease: Some(row),
            ..Recipients::default()
        })
    }

    /// A lease was accepted for this holder.
    pub(super) fn begin_lease(
        &mut self,
        cx: &mut Cx<'_>,
        mut row: LeaseRow,
        holder: PeerId,
    ) -> Result {
        self.give(&mut row, holder);
        cx.txn.put_lease(&row)?;
        self.put_lease(cx, row);
        Ok(())
    }

    fn give(&mut self, row: &mut LeaseRow, holder: PeerId) {
        row.give(holder);
        if let Some(known) = self.registry.get_mut(holder) {
            known.served = self.leases.given();
        }
    }

    /// Keeps a lease in memory from now on: its holder has its time.
    pub(super) fn put_lease(&mut self, cx: &Cx<'_>, row: LeaseRow) {
        let seq = row.seq;
        let patience = row.group().map(|_| self.config.patience_ms);
        self.leases.put(row, patience.map(|ms| cx.now.mono_ms + ms));
        self.set_lease_due(cx, seq, None);
    }

    /// When a lease is looked at: when its holder's time is over, or that for its result.
    pub(super) fn set_lease_due(&mut self, cx: &Cx<'_>, seq: Seq, at_ms: Option<u64>) {
        let Some(lease) = self.leases.all.get(&seq) else {
            return;
        };
        let ends = |_: &&RequestRow| !self.mutations.broken(BrokerMutation::WaitForEver);
        let until = lease.row.request.as_ref().filter(ends);
        let until = until.map(|it| it.until_ms.saturating_sub(cx.at.steady_ms));
        let until = until.map(|left_ms| cx.now.mono_ms + left_ms);
        let own = at_ms.or(lease.until_ms);
        let due = [own, until].into_iter().flatten().min();
        self.leases.set_due(seq, due);
    }

    /// It is owed to nobody any more: who had it may have another one.
    pub(super) fn end_lease(&mut self, cx: &mut Cx<'_>, seq: Seq) -> Result {
        match self.leases.remove(seq) {
            Some(row) => {
                cx.txn.delete_lease(seq)?;
                self.offer_waiting(cx, row.holder)
            }
            None => Ok(()),
        }
    }

    /// Does what is due, a slice of it.
    pub(super) fn tick_leases(&mut self, cx: &mut Cx<'_>) -> Result {
        if self.stopping {
            return Ok(());
        }
        for _ in 0..SLICE {
            let Some(seq) = self.leases.due(cx.now.mono_ms) else {
                break;
            };
            self.lease_due(cx, seq)?;
        }
        Ok(())
    }

    /// A holder had its time, or somebody has come.
    fn lease_due(&mut self, cx: &mut Cx<'_>, seq: Seq) -> Result {
        let Some(lease) = self.leases.all.get(&seq) else {
            return Ok(());
        };
        let (row, had) = (lease.row.clone(), lease.had(cx.now.mono_ms));
        if self.is_over(cx, &row) {
            return self.unanswered(cx, &row, None);
        }
        // A queue may have room by then.
        let next_ms = row
            .group()
            .map(|_| cx.now.mono_ms + self.config.patience_ms);
        self.set_lease_due(cx, seq, next_ms);
        let session = self.session_of(row.holder);
        let here = session.is_some_and(|session| session.ext);
        if here && (row.group().is_none() || self.is_at_work(&row)) {
            return Ok(());
        }
        let Some(waiting) = self.waiting_lease(cx, &row)? else {
            return Ok(());
        };
        if !here {
            return match self.mutations.broken(BrokerMutation::KeepLease) {
                true => Ok(()),
                false => self.pass_lease(cx, &row, ENDED),
            };
        }
        let next = self.next_holder(cx, &row, (waiting.head.sender, waiting.head.bytes), had)?;
        match next.is_none() || self.mutations.broken(BrokerMutation::KeepLate) {
            true => Ok(()),
            false => {
                let why = if row.work().is_some() { IDLE } else { LATE };
                self.pass_lease(cx, &row, why)
            }
        }
    }

    /// The message of a lease, as it waits.
    pub(super) fn waiting_lease(&self, cx: &mut Cx<'_>, row: &LeaseRow) -> Result<Option<Queued>> {
        let Some(head) = cx.txn.message(row.seq)? else {
            return Ok(None);
        };
        let queue = match row.work() {
            Some(_) => row.queue(),
            // A bridge may have forwarded it.
            None => self.queue_of(cx.txn, (row.holder, head.sender), row.seq)?,
        };
        cx.txn.delivery((queue, head.sender), row.seq)
    }

    /// A peer has come: what it holds it may keep for the rest of its time, what another process of its name
    /// has read goes to this one, and it may be given what waits. A client of version 1 has nothing of a
    /// group.
    pub(super) fn holder_came(&mut self, cx: &mut Cx<'_>, peer: PeerId, ext: bool) -> Result {
        if !ext {
            return self.leave_leases(cx, peer, ENDED);
        }
        let until_ms = cx.now.mono_ms + self.config.patience_ms;
        let process = self.process(peer);
        for seq in self.leases.of(peer) {
            let Some(row) = self.leases.get(seq).cloned() else {
                continue;
            };
            if row.group().is_some() {
                self.leases.keep(seq, until_ms);
            }
            self.set_lease_due(cx, seq, None);
            if self.leases.is_due(seq, cx.now.mono_ms) {
                self.lease_due(cx, seq)?;
                continue;
            }
            let another = row.work().and_then(|work| work.process.as_ref());
            if another.is_some_and(|read_by| Some(read_by) != process.as_ref()) {
                self.move_lease(cx, row, peer)?;
            }
        }
        self.offer_leases(cx, peer)
    }

    /// A peer has come, has joined a group or is idle: it may be given what waits.
    pub(super) fn offer_leases(&mut self, cx: &mut Cx<'_>, peer: PeerId) -> Result {
        let Some(known) = self
            .registry
            .get(peer)
            .filter(|_| !self.leases.all.is_empty())
        else {
            return Ok(());
        };
        let PeerRow { owner, groups, .. } = &known.row;
        let now_ms = cx.now.mono_ms;
        let stuck = self.leases.all.values().filter(|lease| {
            let late = lease.until_ms.is_some_and(|until| until <= now_ms);
            let here = self.registry.conn(lease.row.holder).is_some();
            late && here && lease.row.is_for(peer, *owner, groups)
        });
        let late: Vec<_> = stuck.map(|lease| lease.row.seq).take(SLICE).collect();
        for seq in late {
            if self.could_have(cx, peer, seq)? {
                self.lease_due(cx, seq)?;
            }
        }
        self.offer_waiting(cx, peer)
    }

    /// A peer has room: it may be given what nobody has.
    pub(super) fn offer_waiting(&mut self, cx: &mut Cx<'_>, peer: PeerId) -> Result {
        self.offer_own(cx, peer)?;
        let Some(known) = self.registry.get(peer) else {
            return Ok(());
        };
        let waiting = self.leases.waiting().filter(|row| {
            let to_one = row.group().is_some() && !row.rejected.contains(&peer);
            to_one && row.is_for(peer, known.row.owner, &known.row.groups)
        });
        let waiting: Vec<_> = waiting.take(SLICE).cloned().collect();
        for row in waiting {
            if !self.has_room(peer) {
                break;
            }
            // Others had their chance.
            if self.could_have(cx, peer, row.seq)? && !self.is_over(cx, &row) {
                self.pass_lease(cx, &row, LATE)?;
            }
        }
        Ok(())
    }

    /// A peer may have a place for requests that are for it alone: those of one token keep their order, and
    /// hold up no other token's.
    fn offer_own(&mut self, cx: &mut Cx<'_>, peer: PeerId) -> Result {
        let own = self.leases.waiting();
        let own = own.filter(|row| row.to == Lessee::Peer(peer));
        let own: Vec<_> = own.map(|row| (row.owner, row.seq)).collect();
        let mut full = BTreeSet::new();
        for (owner, seq) in own {
            if !self.has_any_place(peer) {
                break;
            }
            if full.contains(&owner) || !self.has_place(peer, &owner) {
                full.insert(owner);
                continue;
            }
            let row = self.leases.get(seq).cloned();
            if let Some(row) = row.filter(|row| !self.is_over(cx, row)) {
                self.pass_lease(cx, &row, LATE)?;
            }
        }
        Ok(())
    }

    /// A member has left these groups: others may have what it holds for them.
    pub(super) fn left_groups(&mut self, now: Now, peer: PeerId, left: &[GroupName]) {
        for seq in self.leases.of(peer) {
            let group = self.leases.get(seq).and_then(LeaseRow::group);
            if group.is_some_and(|group| left.contains(group)) {
                self.leases.late(seq, now.mono_ms);
            }
        }
    }

    /// A holder has left: when it does not come back soon, others get what it has.
    pub(super) fn holder_left(&mut self, now: Now, peer: PeerId, goodbye: bool) {
        let wait_ms = if goodbye { 0 } else { self.config.recall_ms };
        for seq in self.leases.of(peer) {
            if self
                .leases
                .get(seq)
                .is_some_and(|row| row.group().is_some())
            {
                self.leases.set_due(seq, Some(now.mono_ms + wait_ms));
            }
        }
    }

    /// Others get what a peer has for one of a group.
    pub(super) fn leave_leases(&mut self, cx: &mut Cx<'_>, peer: PeerId, why: &str) -> Result {
        for seq in self.leases.of(peer) {
            if let Some(row) = self.leases.get(seq).cloned()
                && row.group().is_some()
            {
                self.pass_lease(cx, &row, why)?;
            }
        }
        Ok(())
    }

    /// Its holder keeps it from its agent: another one may be free.
    pub(super) fn lease_held(&mut self, now: Now, seq: Seq, holder: PeerId) {
        let row = self.leases.get(seq);
        if row.is_some_and(|row| row.holder == holder && row.group().is_some()) {
            self.leases.late(seq, now.mono_ms);
        }
    }

    /// Its holder gives it back. Says whether it was such a one.
    pub(super) fn lease_released(
        &mut self,
        cx: &mut Cx<'_>,
        seq: Seq,
        holder: PeerId,
    ) -> Result<bool> {
        let row = self.leases.get(seq).cloned();
        let Some(row) = row.filter(|row| row.holder == holder && row.group().is_some()) else {
            return Ok(false);
        };
        self.pass_lease(cx, &row, GIVEN_BACK)?;
        Ok(true)
    }

    /// Its holder does not want it. Says whether that was all that there is to do.
    pub(super) fn lease_rejected(
        &mut self,
        cx: &mut Cx<'_>,
        seq: Seq,
        (holder, why): (PeerId, &str),
    ) -> Result<bool> {
        let lease = self.leases.all.get_mut(&seq);
        let Some(lease) = lease.filter(|lease| lease.row.holder == holder) else {
            return Ok(false);
        };
        lease.row.rejected.insert(holder);
        let (row, head) = (lease.row.clone(), cx.txn.message(seq)?);
        if head.is_some_and(|head| self.is_wanted(cx.now, &row, head.sender)) {
            let why = format!("it was rejected there: \"{}\"", escape(why, WHY_CHARS));
            self.pass_lease(cx, &row, &why)?;
            return Ok(true);
        }
        match row.request {
            Some(_) => {
                self.end_request(cx, &row, End::Declined(why))?;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Owes a lease to the next one who may have it, or to nobody, instead of to its holder.
    fn pass_lease(&mut self, cx: &mut Cx<'_>, row: &LeaseRow, why: &str) -> Result {
        let Some(waiting) = self.waiting_lease(cx, row)? else {
            return Ok(());
        };
        // Those who give it back whenever they get it are not given it in turn.
        let had = if why == GIVEN_BACK {
            Had::Nobody
        } else {
            Had::All
        };
        let (sender, bytes) = (waiting.head.sender, waiting.head.bytes);
        let next = self.next_holder(cx, row, (sender, bytes), had)?;
        let (seq, from, to) = (row.seq, row.holder, next.unwrap_or(NOBODY));
        if next.is_none() && !row.rejected.is_empty() && !self.is_wanted(cx.now, row, sender) {
            if row.request.is_some() {
                return self.end_request(cx, row, End::Declined(UNWANTED));
            }
            let history = self.land(from, seq);
            return self.finish(cx, (from, waiting.head), history, End::Dead(UNWANTED));
        }
        if from == to {
            return Ok(());
        }
        self.recall(from, row, why);
        self.tell_recalled(cx, from, &waiting, why);
        self.move_lease(cx, row.clone(), to)
    }

    /// Tells a holder that is here that something is not its any more.
    pub(super) fn recall(&mut self, holder: PeerId, row: &LeaseRow, why: &str) {
        let Some(conn) = self.registry.conn(holder) else {
            return;
        };
        let session = self.conns.session(conn).filter(|session| session.ext);
        let has = |it: &super::conn::Session| row.work().is_some() || it.flights.holds(row.seq);
        if session.is_some_and(|session| session.bridge.is_none() && has(session)) {
            let recall = BrokerFrame::Recall(Recall {
                key: row.seq.key(),
                reason: why.to_owned(),
            });
            // Not before the message itself, which waits for the same commit.
            let recall = BrokerOutput::Send(conn, recall);
            self.outbox.waiting(recall, CommitNeed::Now);
        }
    }

    /// Owes a lease to another holder, or to the same one once more.
    pub(super) fn move_lease(&mut self, cx: &mut Cx<'_>, mut row: LeaseRow, to: PeerId) -> Result {
        let Some(waiting) = self.waiting_lease(cx, &row)? else {
            return Ok(());
        };
        let (seq, sender, from) = (row.seq, waiting.head.sender, row.queue());
        if !self.mutations.broken(BrokerMutation::TwoHolders) {
            cx.txn.delete_delivery((from, sender), seq)?;
        }
        cx.txn
            .insert_delivery((to, sender), seq, waiting.steady_ms)?;
        self.settled(from);
        self.owed.pass((from, to), sender, waiting.head.bytes);
        self.passed((from, to), sender, seq);
        let delivered = self.leases.all.get(&seq).is_some_and(|it| it.delivered);
        let shown = delivered || row.work().is_some();
        row.again |= shown && !self.mutations.broken(BrokerMutation::PassAsNew);
        self.give(&mut row, to);
        cx.txn.put_lease(&row)?;
        self.put_lease(cx, row);
        self.outbox.want(CommitNeed::Now);
        Ok(())
    }

    /// The sender hears, and status says, that a member does not have a lease any more.
    fn tell_recalled(&mut self, cx: &mut Cx<'_>, from: PeerId, waiting: &Queued, why: &str) {
        if from == NOBODY {
            return;
        }
        let seq = waiting.head.seq;
        let history = self.land(from, seq);
        let way = self.recent.take_with((seq, from), history);
        let (to, why) = (self.registry.name(from), why.to_owned());
        let stage = Stage::Recalled { why };
        self.ended(cx.now, FATE_BYTES + stage.bytes() as u64 + way.bytes());
        self.keep_fate((seq, from), &to, &stage, (way, cx.now.wall_ms));
        self.tell_sender(cx.now, (&waiting.head, from), (to, stage));
    }
}
