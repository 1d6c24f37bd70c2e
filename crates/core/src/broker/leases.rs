//! Jobs: messages for one member of a group. One member has it at a time; when that one does not come
//! to it, the next one gets it.
//!
//! A job is owed to its holder like any message, or to [`NOBODY`] while no member can take it. What
//! else is known of it commits together with that.

mod next;
mod table;

use peerbus_wire::{BrokerFrame, GroupName, Refusal, RefusalCode, Seq, Stage};

use self::next::Had;
use self::table::Job;
pub(super) use self::table::Jobs;
use super::ack::End;
use super::expire::SLICE;
use super::groups::Recipients;
use super::mutation::BrokerMutation;
use super::{Broker, BrokerOutput, Caller, CommitNeed, ConnId, Cx};
use crate::Now;
use crate::store::{FATE_BYTES, JobRow, NOBODY, PeerId, PeerRow, Queued, Result};

/// Jobs of one token that may be open: all of them are in memory.
const OPEN_MAX: usize = 10_000;

/// Why a job goes on: what its sender is told.
const ENDED: &str = "its session ended";
pub(super) const NAME_ENDED: &str = "its name ended";
const SILENT: &str = "it was not seen there in time, and whether it was shown is not known";
const LATE: &str = "it was not seen there in time";
const GIVEN_BACK: &str = "it was given back";
const UNWANTED: &str = "every member that is left rejected it";

impl Broker {
    /// To whom a message for one member of a group is owed first: a member who is here, or nobody yet.
    pub(super) fn one_of(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        group: &GroupName,
        bytes: u64,
    ) -> Result<Result<Recipients, Refusal>> {
        if let Err(refusal) = self.members(cx, caller, group, bytes)? {
            return Ok(Err(refusal));
        }
        if self.jobs.open(&caller.token) >= OPEN_MAX {
            return Ok(Err(RefusalCode::Quota.because(format!(
                "{OPEN_MAX} messages for one of a group were sent with this token and wait to be \
                     seen, and no more may; send again when some were"
            ))));
        }
        let row = JobRow::new(Seq(0), caller.token, group.clone());
        let first = self.next_holder(cx, &row, (caller.peer, bytes), Had::All)?;
        let first = first.unwrap_or(NOBODY);
        Ok(Ok(vec![first].into()))
    }

    /// A job was accepted for this holder.
    pub(super) fn begin_job(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        (seq, group): (Seq, &GroupName),
        holder: PeerId,
    ) -> Result {
        let mut row = JobRow::new(seq, caller.token, group.clone());
        self.give(&mut row, holder);
        cx.txn.put_job(&row)?;
        let until_ms = cx.now.mono_ms + self.config.patience_ms;
        self.jobs.put(row, Some(until_ms));
        Ok(())
    }

    fn give(&mut self, row: &mut JobRow, holder: PeerId) {
        row.give(holder);
        if let Some(known) = self.registry.get_mut(holder) {
            known.served = self.jobs.given();
        }
    }

    /// It is owed to nobody any more: who had it may have another one.
    pub(super) fn end_job(&mut self, cx: &mut Cx<'_>, seq: Seq) -> Result {
        match self.jobs.remove(seq) {
            Some(row) => {
                cx.txn.delete_job(seq)?;
                self.offer_waiting(cx, row.holder)
            }
            None => Ok(()),
        }
    }

    /// Does what is due, a slice of it.
    pub(super) fn tick_jobs(&mut self, cx: &mut Cx<'_>) -> Result {
        if self.stopping {
            return Ok(());
        }
        for _ in 0..SLICE {
            let due = self.jobs.due.first().copied();
            let Some((_, seq)) = due.filter(|(at, _)| *at <= cx.now.mono_ms) else {
                break;
            };
            self.job_due(cx, seq)?;
        }
        Ok(())
    }

    /// A holder had its time, or somebody has come.
    fn job_due(&mut self, cx: &mut Cx<'_>, seq: Seq) -> Result {
        let Some(job) = self.jobs.all.get(&seq) else {
            return Ok(());
        };
        let (row, asked, delivered) = (job.row.clone(), job.asked, job.delivered);
        let had = job.had(cx.now.mono_ms);
        // A queue may have room by then.
        let next_ms = cx.now.mono_ms + self.config.patience_ms;
        self.jobs.set_due(seq, Some(next_ms), false);
        let conn = self.registry.conn(row.holder);
        let ext = |conn: &ConnId| self.conns.session(*conn).is_some_and(|s| s.ext);
        let Some(conn) = conn.filter(ext) else {
            return match self.mutations.broken(BrokerMutation::KeepJob) {
                true => Ok(()),
                false => self.pass_job(cx, &row, (delivered, ENDED)),
            };
        };
        let Some(waiting) = self.waiting_job(cx, &row)? else {
            return Ok(());
        };
        let next = self.next_holder(cx, &row, (waiting.head.sender, waiting.head.bytes), had)?;
        if next.is_some() && (asked || !delivered) {
            let why = if delivered { SILENT } else { LATE };
            return self.pass_job(cx, &row, (delivered, why));
        }
        let until = next.map(|_| cx.now.mono_ms + self.config.recall_ms);
        let until = self.jobs.ask(seq, until);
        if let Some(until) = until.filter(|_| !self.mutations.broken(BrokerMutation::NeverRecall)) {
            let over = until <= cx.now.mono_ms;
            let session = self.conns.session(conn);
            // Else it comes behind the message.
            if over || session.is_some_and(|session| session.flights.holds(seq)) {
                let recall = BrokerOutput::Send(conn, BrokerFrame::Recall(seq.key()));
                self.outbox.waiting(recall, CommitNeed::Soon);
            }
            if over {
                return self.pass_job(cx, &row, (true, SILENT));
            }
            self.jobs.set_due(seq, Some(until), true);
        }
        Ok(())
    }

    /// The message of a job, as it waits for its holder.
    fn waiting_job(&self, cx: &mut Cx<'_>, row: &JobRow) -> Result<Option<Queued>> {
        match cx.txn.message(row.seq)? {
            Some(head) => cx.txn.delivery((row.holder, head.sender), row.seq),
            None => Ok(None),
        }
    }

    /// A member has come: what it holds it may keep for the rest of its time, and it may be given what
    /// waits. A client of version 1 may do neither.
    pub(super) fn holder_came(&mut self, cx: &mut Cx<'_>, peer: PeerId, ext: bool) -> Result {
        if !ext {
            return self.leave_jobs(cx, peer, ENDED);
        }
        let until_ms = cx.now.mono_ms + self.config.patience_ms;
        for seq in self.jobs.of(peer) {
            self.jobs.keep(seq, until_ms);
        }
        self.offer_jobs(cx, peer)
    }

    /// A member has come, or has joined: it may be given what waits.
    pub(super) fn offer_jobs(&mut self, cx: &mut Cx<'_>, peer: PeerId) -> Result {
        let Some(known) = self
            .registry
            .get(peer)
            .filter(|_| !self.jobs.all.is_empty())
        else {
            return Ok(());
        };
        let PeerRow { owner, groups, .. } = &known.row;
        let of_its = |job: &&Job| job.row.is_for(*owner, groups);
        let now_ms = cx.now.mono_ms;
        let late = |job: &Job| !job.asked && job.until_ms.is_some_and(|until| until <= now_ms);
        let here = |job: &Job| self.registry.conn(job.row.holder).is_some();
        let stuck = |job: &&Job| late(job) && here(job);
        let all = self.jobs.all.values().filter(stuck).filter(of_its);
        let late: Vec<_> = all.map(|job| job.row.seq).take(SLICE).collect();
        for seq in late {
            if self.has_job_room(peer) && self.could_have(cx, peer, seq)? {
                self.jobs.set_due(seq, Some(now_ms), false);
            }
        }
        self.tick_jobs(cx)?;
        self.offer_waiting(cx, peer)
    }

    /// A member has room: it may be given what nobody has.
    fn offer_waiting(&mut self, cx: &mut Cx<'_>, peer: PeerId) -> Result {
        let Some(known) = self.registry.get(peer) else {
            return Ok(());
        };
        let waiting = self.jobs.waiting().filter(|job| {
            job.row.is_for(known.row.owner, &known.row.groups) && !job.row.rejected.contains(&peer)
        });
        let waiting: Vec<_> = waiting.map(|job| job.row.seq).take(SLICE).collect();
        for seq in waiting {
            if !self.has_job_room(peer) {
                break;
            }
            // Others had their chance.
            if self.could_have(cx, peer, seq)? {
                self.job_due(cx, seq)?;
            }
        }
        Ok(())
    }

    /// A member has left these groups: others may have what it holds for them.
    pub(super) fn left_groups(&mut self, now: Now, peer: PeerId, left: &[GroupName]) {
        for seq in self.jobs.of(peer) {
            if self
                .jobs
                .group(seq)
                .is_some_and(|group| left.contains(group))
            {
                self.jobs.late(seq, now.mono_ms);
            }
        }
    }

    /// A holder has left: when it does not come back soon, others get what it has.
    pub(super) fn holder_left(&mut self, now: Now, peer: PeerId, goodbye: bool) {
        if self.mutations.broken(BrokerMutation::KeepJob) {
            return;
        }
        let wait_ms = if goodbye { 0 } else { self.config.recall_ms };
        for seq in self.jobs.of(peer) {
            self.jobs.set_due(seq, Some(now.mono_ms + wait_ms), false);
        }
    }

    /// Others get what a peer has.
    pub(super) fn leave_jobs(&mut self, cx: &mut Cx<'_>, peer: PeerId, why: &str) -> Result {
        for seq in self.jobs.of(peer) {
            if let Some(job) = self.jobs.all.get(&seq) {
                let (row, delivered) = (job.row.clone(), job.delivered);
                self.pass_job(cx, &row, (delivered, why))?;
            }
        }
        Ok(())
    }

    /// Its holder keeps it from its agent: another one may be free.
    pub(super) fn job_held(&mut self, now: Now, seq: Seq, holder: PeerId) {
        let job = self.jobs.all.get(&seq);
        if job.is_some_and(|job| job.row.holder == holder) {
            self.jobs.late(seq, now.mono_ms);
        }
    }

    /// Its holder gives it back. Says whether it was a job of its.
    pub(super) fn job_released(
        &mut self,
        cx: &mut Cx<'_>,
        seq: Seq,
        (holder, again): (PeerId, bool),
    ) -> Result<bool> {
        let job = self.jobs.all.get(&seq);
        let Some(job) = job.filter(|job| job.row.holder == holder) else {
            return Ok(false);
        };
        let (row, why) = (job.row.clone(), if job.asked { LATE } else { GIVEN_BACK });
        self.pass_job(cx, &row, (again, why))?;
        Ok(true)
    }

    /// Its holder does not want it. Says whether another member may.
    pub(super) fn job_rejected(
        &mut self,
        cx: &mut Cx<'_>,
        seq: Seq,
        (holder, why): (PeerId, &str),
    ) -> Result<bool> {
        let Some(job) = self
            .jobs
            .all
            .get_mut(&seq)
            .filter(|job| job.row.holder == holder)
        else {
            return Ok(false);
        };
        job.row.rejected.insert(holder);
        let (row, head) = (job.row.clone(), cx.txn.message(seq)?);
        let left = head.is_some_and(|head| self.is_wanted(cx.now, &row, head.sender));
        if left {
            let why = format!("it was rejected there: \"{why}\"");
            self.pass_job(cx, &row, (true, &why))?;
        }
        Ok(left)
    }

    /// Owes a job to the next member, or to nobody, instead of to its holder; `again`: that one may have
    /// shown it.
    fn pass_job(&mut self, cx: &mut Cx<'_>, row: &JobRow, (again, why): (bool, &str)) -> Result {
        let Some(waiting) = self.waiting_job(cx, row)? else {
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
            let history = self.land(from, seq);
            return self.finish(cx, (from, waiting.head), history, End::Dead(UNWANTED));
        }
        if from == to {
            return Ok(());
        }
        self.tell_recalled(cx, from, &waiting, why);
        if !self.mutations.broken(BrokerMutation::TwoHolders) {
            cx.txn.delete_delivery((from, sender), seq)?;
        }
        cx.txn
            .insert_delivery((to, sender), seq, waiting.steady_ms)?;
        self.settled(from);
        self.owed.pass((from, to), sender, bytes);
        self.passed((from, to), sender, seq);
        let mut row = row.clone();
        row.again |= again && from != NOBODY && !self.mutations.broken(BrokerMutation::PassAsNew);
        self.give(&mut row, to);
        cx.txn.put_job(&row)?;
        // Who gave it back gets it again when nobody else has come.
        self.jobs
            .put(row, Some(cx.now.mono_ms + self.config.patience_ms));
        self.outbox.want(CommitNeed::Now);
        Ok(())
    }

    /// The sender hears, and status says, that a member does not have a job any more.
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
