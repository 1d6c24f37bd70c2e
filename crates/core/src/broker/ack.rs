//! A delivery ends, or its holder hands it back.

use std::sync::Arc;

use peerbus_wire::{Ack, DeliveryKey, How, MessageId, Seq, Stage};

use super::mutation::BrokerMutation;
use super::{Broker, BusEvent, Caller, CommitNeed, Cx};
use crate::Now;
use crate::audit::AuditLog;
use crate::store::{
    ANSWERS, DeliveryHistory, FATE_BYTES, Fate, LeaseRow, MessageHead, PeerId, Result, Txn,
};

/// What ends a request.
#[derive(Clone, Copy)]
pub(super) struct Answer<'a> {
    /// The message that has the result, or why there is none.
    pub(super) reply: &'a MessageId,
    /// What the request wants failed.
    pub(super) failed: bool,
    /// It could not be queued, and its asker finds it with the history.
    pub(super) kept: bool,
}

/// The reason for which the next member gets a lease that its holder gave back.
pub(super) const GIVEN_BACK: &str = "it was given back";

/// How a delivery ends.
#[derive(Clone, Copy)]
pub(super) enum End<'a> {
    /// Its recipient has it.
    Acked(Option<&'a How>),
    /// Its recipient could not verify it, and says why.
    Dead(&'a str),
    /// Nobody acked it, and why nobody will.
    Expired(&'a str),
    /// A request has its answer.
    Answered(Answer<'a>),
    /// Its holder does not do what a request wants, and says why.
    Declined(&'a str),
    /// Its asker took a request back.
    Withdrawn,
    /// A request has no result, and why it will have none.
    Unanswered(&'a str),
}

impl End<'_> {
    /// Writes it down in the audit chain, and gives what is counted.
    fn note(self, log: &mut AuditLog, seq: Seq, recipient: PeerId) -> BusEvent {
        match self {
            Self::Acked(how) => {
                log.ack(seq, recipient, how);
                BusEvent::Acked
            }
            Self::Dead(_) => {
                log.reject(seq, recipient);
                BusEvent::Dead
            }
            Self::Expired(_) | Self::Unanswered(_) => {
                log.expire(seq, recipient);
                BusEvent::Expired
            }
            Self::Declined(_) => {
                log.reject(seq, recipient);
                BusEvent::Ended
            }
            Self::Answered(_) => {
                log.ack(seq, recipient, None);
                BusEvent::Ended
            }
            Self::Withdrawn => {
                log.expire(seq, recipient);
                BusEvent::Ended
            }
        }
    }

    /// As the sender is told it.
    #[inline]
    pub(super) fn stage(self) -> Stage {
        match self {
            Self::Acked(how) => Stage::Acked(how.cloned()),
            Self::Dead(why) => Stage::Dead { why: why.into() },
            Self::Expired(why) => Stage::Expired { why: why.into() },
            Self::Answered(Answer { reply, failed, .. }) => match (reply.clone(), failed) {
                (reply, true) => Stage::Failed { reply },
                (reply, false) => Stage::Done { reply },
            },
            Self::Declined(why) => Stage::Declined { why: why.into() },
            Self::Withdrawn => Stage::Withdrawn,
            Self::Unanswered(why) => Stage::Unanswered { why: why.into() },
        }
    }

    /// Its sender is told until it takes note, besides being told if it is here.
    const fn is_kept(self) -> bool {
        match self {
            Self::Dead(_) | Self::Expired(_) | Self::Declined(_) | Self::Unanswered(_) => true,
            Self::Answered(answer) => answer.kept,
            Self::Acked(_) | Self::Withdrawn => false,
        }
    }
}

impl Broker {
    /// Ends the delivery, or drops the notice, that an ack names.
    pub(super) fn ack(&mut self, cx: &mut Cx<'_>, caller: Caller, ack: &Ack) -> Result {
        let notice = ack.key.as_str().strip_prefix('n');
        match notice.and_then(|number| number.parse().ok()) {
            Some(number) if caller.ext => self.ack_notice(cx, caller, number),
            _ => self.finish_named(cx, caller, &ack.key, End::Acked(ack.how.as_ref())),
        }
    }

    /// Ends the delivery that its recipient names. Only the recipient's own connection can name it;
    /// an unknown key, or one that was named before, changes nothing.
    pub(super) fn finish_named(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        key: &DeliveryKey,
        end: End<'_>,
    ) -> Result {
        let Some(session) = self.conns.session(caller.conn) else {
            return Ok(());
        };
        let named = match caller.ext {
            true => key.seq(),
            false => session.flights.named(key),
        };
        let Some(seq) = named else {
            return Ok(());
        };
        if let End::Dead(why) = end
            && self.lease_rejected(cx, seq, (caller.peer, why))?
        {
            return Ok(());
        }
        let Some(session) = self.conns.session_mut(caller.conn) else {
            return Ok(());
        };
        let (recipient, head, history) = match session.land(seq) {
            Some(mut flight) => {
                if caller.bridges && !matches!(end, End::Dead(_)) {
                    // Whoever says so of another domain has it on disk there.
                    flight.history.step(&Stage::Forwarded, cx.now.wall_ms);
                }
                (caller.peer, flight.head, flight.history)
            }
            // Delivered on an earlier connection of the name, or forwarded.
            None => match cx.txn.message(seq)? {
                Some(head) => {
                    let queue = self.queue_of(cx.txn, caller.peer, seq)?;
                    (queue, head, DeliveryHistory::default())
                }
                None => return Ok(()),
            },
        };
        self.registry.dirty.insert(caller.peer);
        if self.mutations.broken(BrokerMutation::AckWithoutEffect) {
            return Ok(());
        }
        self.finish(cx, (recipient, head), history, end)
    }

    /// A message is not on its way to a peer any more: what its connection knew of it.
    pub(super) fn land(&mut self, peer: PeerId, seq: Seq) -> DeliveryHistory {
        let session = self.session_of_mut(peer);
        let Some(flight) = session.and_then(|session| session.land(seq)) else {
            return DeliveryHistory::default();
        };
        self.registry.dirty.insert(peer);
        flight.history
    }

    /// Ends the delivery of a message to a recipient, unless it has ended: its row goes, and its sender
    /// is told.
    pub(super) fn finish(
        &mut self,
        cx: &mut Cx<'_>,
        (recipient, head): (PeerId, MessageHead),
        mut history: DeliveryHistory,
        end: End<'_>,
    ) -> Result {
        let (seq, pair) = (head.seq, (recipient, head.sender));
        let lease = self.leases.get(seq);
        let end = match (end, lease.filter(|row| row.request.is_some())) {
            (End::Acked(how), Some(row)) if !self.mutations.broken(BrokerMutation::EndRead) => {
                return match row.work() {
                    None => self.read(cx, (recipient, &head), history, (how, row.clone())),
                    Some(_) => Ok(()),
                };
            }
            (End::Expired(why), Some(_)) => End::Unanswered(why),
            (End::Dead(why), Some(_)) => End::Declined(why),
            (end, _) => end,
        };
        let leased = lease.is_some();
        // Whoever has read a request is said to have ended it.
        let who = match lease {
            Some(row) if recipient == ANSWERS => row.holder,
            _ => recipient,
        };
        if let Some((said, at_ms)) = lease
            .and_then(LeaseRow::work)
            .and_then(|it| it.said.clone())
        {
            history.step(&Stage::Working { said }, at_ms);
        }
        let to = self.called(cx.txn, pair, seq)?;
        if !cx.txn.delete_delivery(pair, seq)? {
            return Ok(());
        }
        self.settled(recipient);
        self.not_owed(pair, head.bytes);
        if leased {
            self.end_lease(cx, seq)?;
        }
        let stage = end.stage();
        let counted = end.note(&mut self.log, seq, recipient);
        self.outbox.event(counted);
        self.outbox.want(CommitNeed::Soon);
        let text = match !matches!(end, End::Dead(_))
            && self.forget_fleeting(cx.txn, (who, head.sender), seq)?
        {
            true => 0,
            // The copies of a broadcast share one text.
            false => head.bytes / u64::from(head.recipients.max(1)),
        };
        let now = cx.since();
        self.ended(cx.now, text);
        self.keep_fate(now, (seq, who), (&to, &stage), history);
        if !end.is_kept() {
            self.tell_sender(now, (&head, who), (to, stage));
            return Ok(());
        }
        self.tell_watcher(now, &head, (&to, &stage));
        match end {
            End::Dead(reason) => cx.txn.insert_dead(recipient, seq, reason, cx.at)?,
            _ => self.expiring = true,
        }
        self.notify(cx, (&head, who), to, end)
    }

    /// Keeps what became of a delivery whose message goes on, and tells its sender.
    pub(super) fn tell_fate(
        &mut self,
        now: Now,
        (head, recipient): (&MessageHead, PeerId),
        (to, stage): (String, Stage),
        history: DeliveryHistory,
    ) {
        self.keep_fate(now, (head.seq, recipient), (&to, &stage), history);
        self.tell_sender(now, (head, recipient), (to, stage));
    }

    /// Has the commit keep how a delivery ended. Neighbours that ended alike share what is said.
    fn keep_fate(
        &mut self,
        now: Now,
        (seq, recipient): (Seq, PeerId),
        (to, stage): (&str, &Stage),
        history: DeliveryHistory,
    ) {
        let mut way = self.recent.take_with((seq, recipient), history);
        way.precede(now.wall_ms);
        self.ended(now, FATE_BYTES + stage.bytes() as u64 + way.bytes());
        // A peer may have been renamed in between.
        let alike = |last: &&Fate| *last.to == *to && *last.stage == *stage;
        let (to, stage) = match self.fates.last().filter(alike) {
            Some(last) => (Arc::clone(&last.to), Arc::clone(&last.stage)),
            None => (to.into(), Arc::new(stage.clone())),
        };
        // Else its lease has gone by now.
        let goes_on = self.leases.get(seq).is_some();
        self.fates.push(Fate {
            seq,
            recipient,
            to,
            stage,
            at_ms: now.wall_ms,
            way,
            goes_on,
        });
    }

    /// Writes what is to be kept of ends.
    pub(super) fn write_fates(&mut self, steady_ms: u64, txn: &mut dyn Txn) -> Result {
        if !self.fates.is_empty() {
            txn.insert_fates(&self.fates, self.fates_bytes, steady_ms)?;
            self.fates.clear();
            self.fates_bytes = 0;
        }
        Ok(())
    }

    /// Takes a delivery back from its holder; the name's next connection gets it, or, of what is for one
    /// member of a group, another one.
    pub(super) fn release(&mut self, cx: &mut Cx<'_>, caller: Caller, key: &DeliveryKey) -> Result {
        let session = self.conns.session_mut(caller.conn);
        let held = key.seq().zip(session);
        let Some((seq, _)) = held.filter(|(seq, session)| session.flights.holds(*seq)) else {
            return Ok(());
        };
        if !self.leave_lease(cx, seq, GIVEN_BACK)? {
            self.land(caller.peer, seq);
        }
        Ok(())
    }

    /// Keeps the count of a peer's queue.
    pub(super) fn settled(&mut self, recipient: PeerId) {
        if let Some(peer) = self.registry.get_mut(recipient)
            && let Some(pending) = &mut peer.pending
        {
            *pending = pending.saturating_sub(1);
        }
    }
}
