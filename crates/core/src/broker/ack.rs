//! A delivery ends, or its holder hands it back.

use std::sync::Arc;

use peerbus_wire::{Ack, DeliveryKey, How, MessageId, Seq, Stage};

use super::mutation::BrokerMutation;
use super::{Broker, BusEvent, Caller, CommitNeed, Cx};
use crate::audit::AuditLog;
use crate::store::{ANSWERS, DeliveryHistory, FATE_BYTES, Fate, MessageHead, PeerId, Result, Txn};

/// How a delivery ends.
#[derive(Clone, Copy)]
pub(super) enum End<'a> {
    /// Its recipient has it.
    Acked(Option<&'a How>),
    /// Its recipient could not verify it, and says why.
    Dead(&'a str),
    /// Nobody acked it, and why nobody will.
    Expired(&'a str),
    /// A request has this message as its result.
    Done(&'a MessageId),
    /// What a request wants failed: this message says why.
    Failed(&'a MessageId),
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
            Self::Done(_) | Self::Failed(_) => {
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
            Self::Done(reply) => Stage::Done {
                reply: reply.clone(),
            },
            Self::Failed(reply) => Stage::Failed {
                reply: reply.clone(),
            },
            Self::Declined(why) => Stage::Declined { why: why.into() },
            Self::Withdrawn => Stage::Withdrawn,
            Self::Unanswered(why) => Stage::Unanswered { why: why.into() },
        }
    }

    /// Its sender is told until it takes note, besides being told if it is here.
    const fn is_kept(self) -> bool {
        matches!(
            self,
            Self::Dead(_) | Self::Expired(_) | Self::Declined(_) | Self::Unanswered(_)
        )
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
                    let queue = self.queue_of(cx.txn, (caller.peer, head.sender), seq)?;
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
        history: DeliveryHistory,
        end: End<'_>,
    ) -> Result {
        let (seq, pair) = (head.seq, (recipient, head.sender));
        let lease = self.leases.get(seq);
        if let End::Acked(how) = end
            && let Some(row) = lease.filter(|row| row.request.is_some() && row.work().is_none())
            && !self.mutations.broken(BrokerMutation::EndRead)
        {
            let row = row.clone();
            return self.read(cx, (recipient, &head), history, (how, row));
        }
        let end = match end {
            End::Expired(why) if lease.is_some_and(|row| row.request.is_some()) => {
                End::Unanswered(why)
            }
            end => end,
        };
        let leased = lease.is_some();
        // Whoever has read a request is said to have ended it.
        let holder = lease.map_or(recipient, |row| row.holder);
        let who = if recipient == ANSWERS {
            holder
        } else {
            recipient
        };
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
        let way = self.recent.take_with((seq, who), history);
        let text = match !matches!(end, End::Dead(_))
            && self.forget_fleeting(cx.txn, (who, head.sender), seq)?
        {
            true => 0,
            // The copies of a broadcast share one text.
            false => head.bytes / u64::from(head.recipients.max(1)),
        };
        let words = stage.bytes() as u64;
        self.ended(cx.now, text + FATE_BYTES + words + way.bytes());
        self.keep_fate((seq, who), &to, &stage, (way, cx.now.wall_ms));
        if !end.is_kept() {
            self.tell_sender(cx.now, (&head, who), (to, stage));
            return Ok(());
        }
        self.tell_watcher(cx.now, &head, (&to, &stage));
        match end {
            End::Dead(reason) => cx.txn.insert_dead(recipient, seq, reason, cx.at)?,
            _ => self.expiring = true,
        }
        self.notify(cx, (&head, who), to, end)
    }

    /// Has the commit keep how a delivery ended. Neighbours that ended alike share what is said.
    pub(super) fn keep_fate(
        &mut self,
        (seq, recipient): (Seq, PeerId),
        to: &str,
        stage: &Stage,
        (way, at_ms): (DeliveryHistory, u64),
    ) {
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
            at_ms,
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
        if !self.lease_released(cx, seq, caller.peer)?
            && let Some(session) = self.conns.session_mut(caller.conn)
        {
            session.land(seq);
            self.registry.dirty.insert(caller.peer);
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
