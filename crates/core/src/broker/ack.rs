//! The recipient is done with a delivery: acked, rejected or handed back.

use peerbus_wire::{Ack, DeliveryKey, MessageId, Receipt, Seq, Stage};

use super::ladder::{End, Way};
use super::mutation::Mutation;
use super::query::notice_number;
use super::{Broker, ConnId, Count, Need, Output};
use crate::Now;
use crate::audit::Event;
use crate::store::{Notice, PeerId, StoreError, Txn};

/// A debt that was settled.
struct Settled {
    seq: Seq,
    sender: PeerId,
    id: MessageId,
    recipient: PeerId,
    /// The recipient's name as it is shown.
    to: String,
    /// What its connection knew of it.
    way: Way,
}

impl Broker {
    /// Settles the debt that an ack names. Only the recipient's own connection can name it; an
    /// unknown key, or one acked before, changes nothing.
    pub(super) fn ack<T: Txn + ?Sized>(
        &mut self,
        now: Now,
        conn: ConnId,
        ack: &Ack,
        txn: &mut T,
    ) -> Result<(), StoreError> {
        if let Some(number) = notice_number(&ack.key) {
            return self.ack_notice(conn, number, txn);
        }
        let Some(done) = self.settle(conn, &ack.key, txn)? else {
            return Ok(());
        };
        let how = ack.how.as_ref();
        self.log.push(&Event::Ack {
            seq: done.seq,
            recipient: done.recipient,
            how,
        });
        self.outbox.now(Output::Count(Count::Acked));
        self.outbox.want(Need::Soon);
        let stage = Stage::Acked(ack.how.clone());
        let end = Some(End {
            to: done.to.clone(),
            stage: stage.clone(),
            at_ms: now.wall_ms,
        });
        let message = (done.sender, &done.id);
        self.recent.record(message, done.recipient, done.way, end);
        let debt = (done.seq, done.recipient);
        self.tell_sender(now, debt, done.sender, &done.id, (done.to, stage));
        Ok(())
    }

    /// Sets a message aside whose verification failed at its recipient.
    pub(super) fn reject<T: Txn + ?Sized>(
        &mut self,
        now: Now,
        conn: ConnId,
        key: &DeliveryKey,
        reason: &str,
        txn: &mut T,
    ) -> Result<(), StoreError> {
        let Some(done) = self.settle(conn, key, txn)? else {
            return Ok(());
        };
        txn.insert_dead(done.recipient, done.seq, reason, now.wall_ms)?;
        self.log.push(&Event::Dead {
            seq: done.seq,
            recipient: done.recipient,
        });
        self.outbox.now(Output::Count(Count::Dead));
        self.outbox.want(Need::Soon);
        let Settled {
            seq,
            sender,
            id,
            recipient,
            to,
            way,
        } = done;
        let end = Some(End {
            to: to.clone(),
            stage: Stage::Dead { why: reason.into() },
            at_ms: now.wall_ms,
        });
        self.recent.record((sender, &id), recipient, way, end);
        self.notify(
            now,
            (seq, recipient),
            Told {
                sender,
                id,
                to,
                dead: true,
                reason,
            },
            txn,
        )
    }

    /// Takes a delivery back from its holder; the name's next connection gets it.
    pub(super) fn release(&mut self, conn: ConnId, key: &DeliveryKey) {
        if let Some(seq) = key.seq()
            && let Some(session) = self.conns.session_mut(conn)
            && session.flights.remove(seq).is_some()
        {
            let peer = session.peer;
            self.registry.mark_dirty(peer);
        }
    }

    fn settle<T: Txn + ?Sized>(
        &mut self,
        conn: ConnId,
        key: &DeliveryKey,
        txn: &mut T,
    ) -> Result<Option<Settled>, StoreError> {
        let Some(seq) = key.seq() else {
            return Ok(None);
        };
        let Some(session) = self.conns.session_mut(conn) else {
            return Ok(None);
        };
        let (recipient, to) = (session.peer, session.name.as_str().to_owned());
        let (sender, id, way) = match session.flights.remove(seq) {
            Some(flight) => (flight.sender, flight.id, flight.way),
            // Delivered on an earlier connection of the name.
            None => match txn.message(seq)? {
                Some(head) => (head.sender, head.id, Way::default()),
                None => return Ok(None),
            },
        };
        self.registry.mark_dirty(recipient);
        if self.mutations.broken(Mutation::AckWithoutEffect) {
            return Ok(None);
        }
        if !txn.delete_debt(recipient, seq)? {
            return Ok(None);
        }
        self.settled(recipient);
        Ok(Some(Settled {
            seq,
            sender,
            id,
            recipient,
            to,
            way,
        }))
    }

    /// Keeps the count of a peer's queue.
    pub(super) fn settled(&mut self, recipient: PeerId) {
        self.sweep.rescan = true;
        if let Some(peer) = self.registry.get_mut(recipient)
            && let Some(owed) = &mut peer.owed
        {
            *owed = owed.saturating_sub(1);
        }
    }

    /// Writes a statement that is kept until its sender has acked it, and says it if the sender
    /// is here.
    pub(super) fn notify<T: Txn + ?Sized>(
        &mut self,
        now: Now,
        debt: (Seq, PeerId),
        told: Told<'_>,
        txn: &mut T,
    ) -> Result<(), StoreError> {
        let Some(sender) = self.registry.get(told.sender) else {
            return Ok(());
        };
        let conn = sender.conn;
        let notice = Notice {
            number: self.head.next_notice,
            sender: told.sender,
            id: told.id,
            to: told.to,
            dead: told.dead,
            reason: told.reason.to_owned(),
            at_ms: now.wall_ms,
        };
        self.head.next_notice += 1;
        txn.insert_notice(&notice)?;
        self.outbox.want(Need::Soon);
        if let Some(conn) = conn
            && self.conns.session(conn).is_some_and(|s| s.ext)
        {
            self.outbox
                .later(conn, debt.0, debt.1, notice_receipt(notice));
        }
        Ok(())
    }
}

/// What a notice says, and to whom.
pub(super) struct Told<'a> {
    pub(super) sender: PeerId,
    pub(super) id: MessageId,
    pub(super) to: String,
    pub(super) dead: bool,
    pub(super) reason: &'a str,
}

/// A notice as its sender gets it.
pub(super) fn notice_receipt(notice: Notice) -> Receipt {
    let why = notice.reason;
    Receipt {
        id: notice.id,
        at_ms: Some(notice.at_ms),
        key: DeliveryKey::parse(&format!("n{}", notice.number)),
        to: Some(notice.to),
        stage: match notice.dead {
            true => Stage::Dead { why },
            false => Stage::Expired { why },
        },
    }
}
