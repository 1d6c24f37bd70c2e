//! Leases: messages that one peer at a time has. One for a member of a group goes to the next when its
//! holder does not come to it; a request goes on until it has its result.
//!
//! A lease is owed to its holder like any message, to [`NOBODY`] while nobody can take it, and to
//! [`ANSWERS`](crate::store::ANSWERS) while its holder, who has read it, works at it. What else is known of
//! it commits together with that.

mod next;
mod table;

use peerbus_wire::limits::WITHIN_MS_MAX;
use peerbus_wire::{BrokerFrame, Carried, Recall, Refusal, RefusalCode, Seq, Stage, escape};

use self::next::Had;
pub(super) use self::table::{Lease, Leases};
use super::ack::{End, GIVEN_BACK};
use super::expire::SLICE;
use super::groups::Recipients;
use super::mutation::BrokerMutation;
use super::{Broker, BrokerOutput, Caller, CommitNeed, Cx};
use crate::store::{LeaseRow, Lessee, MessageHead, NOBODY, PeerId, RequestRow, Result};

/// Leases of one token that may be open: all of them are in memory.
const OPEN_MAX: usize = 10_000;

/// Characters that are repeated of what a peer says.
pub(super) const WHY_CHARS: usize = 300;

/// Why a lease goes on: what its sender is told.
const ENDED: &str = "its session ended";
pub(super) const NAME_ENDED: &str = "its name ended";
const LATE: &str = "it was not read there in time";
const IDLE: &str = "it was read there, and nothing more was said of it";
const UNWANTED: &str = "every member that is left rejected it";

impl Broker {
    /// A message that one peer at a time has is owed to the first one who can take it, or to nobody yet.
    #[cold]
    pub(super) fn leased(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        carried: &Carried,
        to: Lessee,
    ) -> Result<Result<Recipients, Refusal>> {
        if self.leases.open(&caller.token) >= OPEN_MAX {
            return Ok(Err(RefusalCode::Quota.because(format!(
                "{OPEN_MAX} requests and messages for one of a group were sent with this token and have \
                     not ended, and no more may; send again when some have"
            ))));
        }
        let mut row = LeaseRow::new(self.head_of(cx, caller.peer, carried, 1), caller.token, to);
        row.request = caller.asks(carried).map(|within_ms| RequestRow {
            until_ms: cx.at.steady_ms + within_ms.min(WITHIN_MS_MAX),
            work: None,
        });
        // Those for one peer alone keep their order.
        let before = (row.to.clone(), row.owner);
        let waits = row.group().is_none() && self.leases.waiting.contains_key(&before);
        let first = match waits {
            true => NOBODY,
            false => self.next_holder(cx, &row, Had::All)?.unwrap_or(NOBODY),
        };
        Ok(Ok(Recipients::Lease(first, Box::new(row))))
    }

    /// A lease is this one's from now on.
    #[cold]
    pub(super) fn give(&mut self, cx: &mut Cx<'_>, mut row: LeaseRow, holder: PeerId) -> Result {
        row.give(holder);
        if let Some(known) = self.registry.get_mut(holder) {
            self.leases.given += 1;
            known.served = self.leases.given;
        }
        self.put_lease(cx, row)
    }

    /// Keeps a lease, new or changed, from now on: its holder has its time.
    pub(super) fn put_lease(&mut self, cx: &mut Cx<'_>, row: LeaseRow) -> Result {
        cx.txn.put_lease(&row)?;
        self.outbox.want(CommitNeed::Soon);
        let seq = row.head.seq;
        let patience = row.group().map(|_| self.config.patience_ms);
        self.leases.put(row, patience.map(|ms| cx.now.mono_ms + ms));
        self.set_lease_due(cx, seq, None);
        Ok(())
    }

    /// When a lease is looked at: when its holder's time is over, or that for its result. Says whether that is now.
    fn set_lease_due(&mut self, cx: &Cx<'_>, seq: Seq, at_ms: Option<u64>) -> bool {
        let Some(lease) = self.leases.all.get(&seq) else {
            return false;
        };
        let left_ms = self.left_ms(cx, &lease.row);
        let over = left_ms.map(|left_ms| cx.now.mono_ms + left_ms);
        let due = [at_ms.or(lease.until_ms), over].into_iter().flatten().min();
        self.leases.set_due(seq, due);
        due.is_some_and(|at| at <= cx.now.mono_ms)
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
        for _ in 0..SLICE {
            match self.leases.next_due().filter(|_| !self.stopping) {
                Some((at, seq)) if at <= cx.now.mono_ms => self.lease_due(cx, seq)?,
                _ => break,
            }
        }
        Ok(())
    }

    /// A holder had its time, or somebody has come.
    fn lease_due(&mut self, cx: &mut Cx<'_>, seq: Seq) -> Result {
        let Some(lease) = self.leases.all.get(&seq) else {
            return Ok(());
        };
        let (row, had) = (lease.row.clone(), lease.had(cx.now.mono_ms));
        if self.left_ms(cx, &row) == Some(0) {
            return self.unanswered(cx, &row, "its time is over");
        }
        let to_one = row.group().is_some();
        // A queue may have room by then.
        let next_ms = cx.now.mono_ms + self.config.patience_ms;
        self.set_lease_due(cx, seq, Some(next_ms).filter(|_| to_one));
        let here = self.session_of(row.holder).is_some_and(|it| it.ext);
        if !to_one || here && self.is_at_work(&row) {
            return Ok(());
        }
        let (why, keeps) = match (here, row.work()) {
            (false, _) => (ENDED, BrokerMutation::KeepLease),
            (true, Some(_)) => (IDLE, BrokerMutation::KeepLate),
            (true, None) => (LATE, BrokerMutation::KeepLate),
        };
        let stays = here && self.next_holder(cx, &row, had)?.is_none();
        match stays || self.mutations.broken(keeps) {
            true => Ok(()),
            false => self.pass_lease(cx, &row, why),
        }
    }

    /// A peer has come: what it holds it may keep for the rest of its time, what another process of its name
    /// has read goes to this one, and it may be given what waits. A client of version 1 has nothing of a
    /// group.
    pub(super) fn holder_came(&mut self, cx: &mut Cx<'_>, peer: PeerId, ext: bool) -> Result {
        if !ext {
            return self.leave_leases(cx, peer, ENDED);
        }
        let process = self.process(peer);
        let held: Vec<_> = self.leases.held(peer).cloned().collect();
        for row in held {
            let another = row.work().and_then(|work| work.process.as_ref());
            if self.set_lease_due(cx, row.head.seq, None) {
                self.lease_due(cx, row.head.seq)?;
            } else if another.is_some_and(|read_by| Some(read_by) != process.as_ref()) {
                self.move_lease(cx, row, peer)?;
            }
        }
        self.offer_leases(cx, peer)
    }

    /// A peer has come, has joined a group or is idle: it may be given what waits.
    pub(super) fn offer_leases(&mut self, cx: &mut Cx<'_>, peer: PeerId) -> Result {
        let now_ms = cx.now.mono_ms;
        let owner = self.registry.get(peer).and_then(|known| known.row.owner);
        let owner = owner.filter(|_| self.has_room(peer));
        let here = self.registry.of_token(owner);
        let here = here.filter(|(_, member)| member.conn.is_some());
        let held = here.flat_map(|(member, _)| self.leases.of_groups(member));
        let late = held.filter(|seq| {
            let lease = self.leases.all.get(seq);
            let late = lease.filter(|it| it.had(now_ms) == Had::Idle);
            late.is_some_and(|it| self.could_have(peer, &it.row, Had::Idle))
        });
        let late: Vec<_> = late.take(SLICE).collect();
        for seq in late {
            self.lease_due(cx, seq)?;
        }
        self.offer_waiting(cx, peer)
    }

    /// A peer has room: it may be given what nobody has, of each token in its order. None holds up
    /// another's.
    pub(super) fn offer_waiting(&mut self, cx: &mut Cx<'_>, peer: PeerId) -> Result {
        let Some(known) = self.registry.get(peer) else {
            return Ok(());
        };
        let may = |row: &&LeaseRow| {
            let over = self.left_ms(cx, row) == Some(0);
            let own = row.group().is_some() && row.head.sender == peer;
            !over && !own && !row.rejected.contains(&peer)
        };
        for seq in self.leases.offered(&known.row, may) {
            let row = self.leases.get(seq);
            let row = row.filter(|row| self.could_have(peer, row, Had::All));
            if let Some(row) = row.cloned() {
                // Others had their chance.
                self.pass_lease(cx, &row, LATE)?;
            }
        }
        Ok(())
    }

    /// A holder has left: when it does not come back soon, others get what it has.
    pub(super) fn holder_left(&mut self, cx: &Cx<'_>, peer: PeerId, goodbye: bool) {
        let wait_ms = if goodbye { 0 } else { self.config.recall_ms };
        for seq in self.leases.of_groups(peer) {
            self.set_lease_due(cx, seq, Some(cx.now.mono_ms + wait_ms));
        }
    }

    /// Others get what a peer has for one of a group.
    pub(super) fn leave_leases(&mut self, cx: &mut Cx<'_>, peer: PeerId, why: &str) -> Result {
        for seq in self.leases.of_groups(peer) {
            self.leave_lease(cx, seq, why)?;
        }
        Ok(())
    }

    /// Others get a lease, if it is for one of a group. Says whether it is.
    pub(super) fn leave_lease(&mut self, cx: &mut Cx<'_>, seq: Seq, why: &str) -> Result<bool> {
        let row = self.leases.get(seq).filter(|row| row.group().is_some());
        let passed = row.cloned().map(|row| self.pass_lease(cx, &row, why));
        Ok(passed.transpose()?.is_some())
    }

    /// Its holder does not want it. Says whether another one may.
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
        let row = lease.row.clone();
        let wanted = self.is_wanted(cx.now, &row);
        if wanted {
            let word = match row.request {
                Some(_) => "declined",
                None => "rejected",
            };
            let why = format!("it was {word} there: \"{}\"", escape(why, WHY_CHARS));
            self.pass_lease(cx, &row, &why)?;
        }
        Ok(wanted)
    }

    /// Owes a lease to the next one who may have it, or to nobody, instead of to its holder.
    fn pass_lease(&mut self, cx: &mut Cx<'_>, row: &LeaseRow, why: &str) -> Result {
        // Those who give it back whenever they get it are not given it in turn.
        let had = match why {
            GIVEN_BACK => Had::Nobody,
            _ => Had::All,
        };
        let next = self.next_holder(cx, row, had)?;
        if next.is_none() && !row.rejected.is_empty() && !self.is_wanted(cx.now, row) {
            return self.end_owed(cx, row, End::Dead(UNWANTED));
        }
        let (from, to) = (row.holder, next.unwrap_or(NOBODY));
        if from == to {
            return Ok(());
        }
        if from != NOBODY {
            self.recall(row, why);
            self.tell_recalled(cx, row, why);
        }
        self.move_lease(cx, row.clone(), to)
    }

    /// Whoever sent a lease is told that its holder has it no more.
    pub(super) fn tell_recalled(&mut self, cx: &Cx<'_>, row: &LeaseRow, why: &str) {
        let (history, why) = (self.land(row.holder, row.head.seq), why.to_owned());
        let told = (self.registry.name(row.holder), Stage::Recalled { why });
        self.tell_fate(cx.now, (&row.head, row.holder), told, history);
    }

    /// Tells a holder that is here that something is not its any more.
    pub(super) fn recall(&mut self, row: &LeaseRow, why: &str) {
        let Some(conn) = self.registry.conn(row.holder) else {
            return;
        };
        let session = self.conns.session(conn);
        let session = session.filter(|it| it.ext && it.bridge.is_none());
        if session.is_some_and(|it| row.work().is_some() || it.flights.holds(row.head.seq)) {
            let recall = BrokerFrame::Recall(Recall {
                key: row.head.seq.key(),
                reason: why.to_owned(),
            });
            // Not before the message itself, which waits for the same commit.
            let recall = BrokerOutput::Send(conn, recall);
            self.outbox.waiting(recall, CommitNeed::Now);
        }
    }

    /// Owes a lease to another holder, or to the same one once more.
    pub(super) fn move_lease(&mut self, cx: &mut Cx<'_>, mut row: LeaseRow, to: PeerId) -> Result {
        let (queue, seq) = (row.queue(), row.head.seq);
        if !self.requeue(cx, &row.head, (queue, to))? {
            return Ok(());
        }
        self.passed((queue, to), row.head.sender, seq);
        let delivered = self.leases.all.get(&seq).is_some_and(|it| it.delivered);
        let shown = delivered || row.work().is_some();
        row.again |= shown && !self.mutations.broken(BrokerMutation::PassAsNew);
        self.outbox.want(CommitNeed::Now);
        self.give(cx, row, to)
    }

    /// What is owed in one queue is owed in another one from now on. Says whether it was.
    pub(super) fn requeue(
        &mut self,
        cx: &mut Cx<'_>,
        head: &MessageHead,
        (from, to): (PeerId, PeerId),
    ) -> Result<bool> {
        let (seq, sender) = (head.seq, head.sender);
        let Some(waiting) = cx.txn.delivery((from, sender), seq)? else {
            return Ok(false);
        };
        if !self.mutations.broken(BrokerMutation::TwoHolders) {
            cx.txn.delete_delivery((from, sender), seq)?;
        }
        cx.txn
            .insert_delivery((to, sender), seq, waiting.steady_ms)?;
        self.settled(from);
        self.owed.pass((from, to), sender, head.bytes);
        Ok(true)
    }
}
