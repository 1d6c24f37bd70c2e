//! Deliveries: in accept order, within the window, from the commit on.

use peerbus_wire::limits::EXEMPT_V1_MESSAGES;
use peerbus_wire::{
    BrokerFrame, DeliverFrame, MessageId, PeerName, Receipt, Seq, Stage, recipient_of,
};

use super::mutation::Mutation;
use super::{Broker, BusEvent, ConnId, Cx, Need, Output, Reason};
use crate::Now;
use crate::audit::Event;
use crate::store::{PeerId, StoreError};

/// A message that can be delivered without being read.
pub(super) struct Fresh<'a> {
    pub(super) seq: Seq,
    pub(super) sender: PeerId,
    pub(super) id: &'a MessageId,
    pub(super) frame: &'a DeliverFrame,
}

impl Broker {
    /// Delivers a message that was accepted this moment, unless older mail waits (`before` is the
    /// last message owed to the recipient until then) or there is no room.
    pub(super) fn deliver_fresh(&mut self, now: Now, conn: ConnId, before: Seq, fresh: &Fresh<'_>) {
        let Some(session) = self.conns.session(conn) else {
            return;
        };
        let caught_up = session.backfill.is_none() && session.cursor >= before
            || self.mutations.broken(Mutation::Overtake);
        let bytes = fresh.frame.text().len();
        let fits = session.flights.fits(session.window, bytes)
            || self.mutations.broken(Mutation::IgnoreWindow);
        if caught_up && fits {
            self.deliver(now, conn, fresh);
        } else if !fits {
            self.watch_exemption(conn);
        }
    }

    /// Delivers to a peer's connection what waits and has room.
    pub(super) fn pump(&mut self, cx: &mut Cx<'_>, peer: PeerId) -> Result<(), StoreError> {
        while let Some((conn, last)) = self
            .registry
            .get(peer)
            .and_then(|p| p.conn.zip(p.last_delivery))
        {
            let Some(session) = self.conns.session_mut(conn) else {
                return Ok(());
            };
            if session.position() >= last {
                // Nothing older waits.
                session.backfill = None;
                return Ok(());
            }
            let Some((messages, bytes)) = session.flights.room(session.window) else {
                self.watch_exemption(conn);
                return Ok(());
            };
            let queued = cx
                .txn
                .read_queue(peer, session.position(), messages, bytes)?;
            if queued.is_empty() {
                // What was owed last has been settled since.
                let end = session.cursor;
                if let Some(session) = self.conns.session_mut(conn) {
                    session.backfill = None;
                }
                if let Some(known) = self.registry.get_mut(peer) {
                    known.last_delivery = Some(end);
                }
                return Ok(());
            }
            for message in &queued {
                let Some(frame) = self.frame_for(conn, message.seq, &message.envelope) else {
                    return Ok(());
                };
                let Some(session) = self.conns.session_mut(conn) else {
                    return Ok(());
                };
                if session.flights.holds(message.seq) {
                    session.advance(message.seq);
                    continue;
                }
                if !session.flights.fits(session.window, frame.text().len()) {
                    self.watch_exemption(conn);
                    return Ok(());
                }
                let (seq, sender, id) = (message.seq, message.sender, &message.id);
                self.deliver(
                    cx.now,
                    conn,
                    &Fresh {
                        seq,
                        sender,
                        id,
                        frame: &frame,
                    },
                );
            }
        }
        Ok(())
    }

    /// The frame in which a message is delivered to this connection.
    pub(super) fn frame_for(&self, conn: ConnId, seq: Seq, envelope: &str) -> Option<DeliverFrame> {
        let session = self.conns.session(conn)?;
        if session.ext {
            let again = session.was_delivered(seq);
            let alias = alias(&session.name, recipient_of(envelope));
            if again || alias.is_some() {
                let alias = alias.as_ref();
                return Some(DeliverFrame::for_one(seq, envelope, again, alias));
            }
        }
        Some(self.deliver_frame(seq, envelope))
    }

    fn deliver(&mut self, now: Now, conn: ConnId, message: &Fresh<'_>) {
        let Some(session) = self.conns.session_mut(conn) else {
            return;
        };
        let bytes = message.frame.text().len();
        session
            .flights
            .insert(message.seq, message.sender, message.id.clone(), bytes, now);
        session.advance(message.seq);
        let (recipient, greeted) = (session.peer, session.greeted);
        let to = session.name.as_str().to_owned();

        let output = Output::Send(conn, BrokerFrame::Deliver(message.frame.clone()));
        if message.seq <= self.durable && greeted && !self.expiring {
            self.outbox.now(output);
            self.outbox.want(Need::Soon);
        } else {
            self.outbox.waiting(output, Need::Now);
        }
        self.log.push(&Event::Deliver {
            seq: message.seq,
            recipient,
        });
        self.outbox.now(Output::Event(BusEvent::Delivered));
        self.tell_sender(
            now,
            (message.seq, recipient),
            message.sender,
            message.id,
            (to, Stage::Delivered),
        );
    }

    /// Tells a sender that is here, and wants to know, of a later state of its message.
    pub(super) fn tell_sender(
        &mut self,
        now: Now,
        (seq, recipient): (Seq, PeerId),
        sender: PeerId,
        id: &MessageId,
        (to, stage): (String, Stage),
    ) {
        let Some(conn) = self.registry.conn(sender) else {
            return;
        };
        if self.conns.session(conn).is_some_and(|s| s.ext) {
            let receipt = Receipt {
                at_ms: Some(now.wall_ms),
                to: Some(to),
                ..Receipt::new(id.clone(), stage)
            };
            self.outbox.later(conn, seq, recipient, receipt);
        }
    }

    /// Sees to it that what a v1 connection does not ack stops counting one day. One deadline at a
    /// time: when it has come, the next one is set.
    fn watch_exemption(&mut self, conn: ConnId) {
        let Some(session) = self.conns.session_mut(conn) else {
            return;
        };
        if !session.ext
            && !session.exemption_set
            && let Some(oldest) = session.flights.oldest_ms()
        {
            session.exemption_set = true;
            self.conns
                .set_timer(oldest + self.config.exempt_ms, Reason::Exemption, conn);
        }
    }

    /// Exempts old deliveries of a v1 connection from its window.
    pub(super) fn exempt(&mut self, now: Now, conn: ConnId) {
        let until = now.mono_ms.saturating_sub(self.config.exempt_ms);
        let Some(session) = self.conns.session_mut(conn) else {
            return;
        };
        session.exemption_set = false;
        let any = session.flights.exempt(until, EXEMPT_V1_MESSAGES as usize);
        // If the oldest was acked since, the next one is due later. If it may not be exempt because as
        // many have as may, the next ack makes room.
        let later = session.flights.oldest_ms().is_some_and(|at| at > until);
        if any || later {
            let peer = session.peer;
            self.registry.mark_dirty(peer);
        }
    }
}

/// The name that a message was sent to, when that is another one than the peer's.
fn alias(name: &PeerName, to: &str) -> Option<PeerName> {
    if to.eq_ignore_ascii_case(name.as_str()) {
        return None;
    }
    PeerName::parse(to).ok()
}
