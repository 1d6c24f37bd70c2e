//! Deliveries: in accept order of each sender, within window and share, from the commit on.

use peerbus_wire::limits::{AGE_MS_MIN, EXEMPT_V1_MESSAGES};
use peerbus_wire::{
    BrokerFrame, Conversation, DeliverFrame, DeliveryKey, PeerName, Priority, Receipt, Remarks,
    Stage, recipient_of, sender_of,
};

use super::conn::Session;
use super::flights::{Flight, Payer};
use super::leases::Lease;
use super::line::{Turn, Unfit};
use super::mutation::BrokerMutation;
use super::{Broker, BrokerOutput, BusEvent, CommitNeed, ConnId, Cx, Reason};
use crate::grant::Right;
use crate::store::{DeliveryHistory, MessageHead, PeerId, Queued, Result};
use crate::{Now, Stamp};
use peerbus_wire::body_of;

/// Of messages that wait so many bytes are read at a time to find what is urgent among them, and
/// each counts as so many more.
const LOOKED_BYTES_MAX: usize = 1 << 20;
const LOOK_BYTES_MIN: usize = 4_096;

/// The frame in which a message is delivered, and the key in it on a v1 connection.
pub(super) type Framed = (DeliverFrame, Option<DeliveryKey>);

impl Broker {
    /// Delivers a message that was accepted this moment, unless it has to wait; `urgent`: whether it says
    /// so.
    pub(super) fn deliver_fresh(
        &mut self,
        now: Now,
        conn: ConnId,
        (head, framed): (&MessageHead, &Framed),
        urgent: impl Fn() -> bool,
    ) {
        let Some(session) = self.conns.session(conn) else {
            return;
        };
        let (sender, bytes) = (head.sender, framed.0.text().len());
        let is_next = !self.stopping && session.line.is_next(sender)
            || self.mutations.broken(BrokerMutation::Overtake);
        let fits = session.flights.fits(sender, bytes)
            || self.mutations.broken(BrokerMutation::IgnoreWindow);
        if is_next && fits {
            return self.deliver(now, conn, (head, framed), None);
        }
        if !session.line.has(sender) {
            let (payer, urgent) = (self.payer(sender), urgent());
            let of = (sender, payer);
            let loaded = session.line.loaded && !self.stopping;
            if loaded && session.flights.fits_kept(of, bytes, urgent) {
                return self.deliver(now, conn, (head, framed), Some(payer));
            }
            let unfit = Unfit {
                seq: head.seq,
                bytes,
                urgent,
            };
            if let Some(session) = self.conns.session_mut(conn) {
                session.line.add(of, unfit, &session.flights);
                if session.flights.is_crowded() {
                    // Its sender may have the least in flight, and go before those who wait.
                    self.registry.dirty.insert(session.peer);
                }
            }
        }
        self.watch_exemption(conn);
    }

    /// The token that a sender's mail counts for, as long as some of it waits, also when the sender is
    /// forgotten.
    pub(super) fn payer(&self, sender: PeerId) -> Payer {
        let owner = self.registry.get(sender).and_then(|peer| peer.row.owner);
        owner.or_else(|| self.owed.token(sender))
    }

    /// Delivers to a peer's connection what waits and has room.
    pub(super) fn pump(&mut self, cx: &mut Cx<'_>, peer: PeerId) -> Result {
        let Some(conn) = self.registry.conn(peer).filter(|_| !self.stopping) else {
            return Ok(());
        };
        let Some(session) = self.conns.session_mut(conn) else {
            return Ok(());
        };
        if let Some(bridge) = &session.bridge
            && bridge.knows_nothing()
        {
            // What it had forwarded goes first, if it is owed that again.
            return Ok(());
        }
        if session.line.loaded {
            if session.line.is_empty() {
                return Ok(());
            }
        } else {
            let heads = cx.txn.queue_heads(peer)?.into_iter();
            let heads = heads.map(|(sender, seq)| (sender, self.payer(sender), seq));
            let heads = heads.collect();
            if let Some(session) = self.conns.session_mut(conn) {
                session.line.load(heads, &session.flights);
            }
        }
        let mut looked = 0;
        while let Some(turn) = self.next_turn(conn) {
            let sender = turn.sender;
            let (run, next) = cx.txn.read_run(
                (peer, sender),
                turn.from,
                turn.until,
                turn.messages,
                turn.bytes,
            )?;
            let mut run = match self.conns.session(conn).is_some_and(|session| session.ext) {
                true => run,
                false => self.without_foreign(cx, peer, run)?,
            };
            if self.is_bridge(peer) && self.mutations.broken(BrokerMutation::Disorder) {
                run.reverse();
            }
            let unfit = self.deliver_run((cx.now, cx.at), conn, &run, turn.kept);
            if let Some(session) = self.conns.session_mut(conn) {
                session.line.set(sender, next, unfit, &session.flights);
            }
            if turn.kept.is_some() {
                looked += run
                    .iter()
                    .map(|m| LOOK_BYTES_MIN + m.envelope.len())
                    .sum::<usize>();
            }
            if looked > LOOKED_BYTES_MAX {
                self.conns.set_timer(cx.now.mono_ms, Reason::Line, conn);
                break;
            }
        }
        self.watch_exemption(conn);
        Ok(())
    }

    /// What is to be read next: what has room for everybody's mail, then in what is kept.
    fn next_turn(&self, conn: ConnId) -> Option<Turn> {
        let Session { line, flights, .. } = self.conns.session(conn)?;
        line.turn(flights).or_else(|| line.kept_turn(flights))
    }

    /// Whether nothing waits on a connection that has room, as far as it was read.
    pub(super) fn is_pumped(&self, conn: ConnId) -> bool {
        self.next_turn(conn).is_none() || self.conns.has_timer(Reason::Line, conn)
    }

    /// Delivers messages of one sender; gives the first one that does not fit.
    fn deliver_run(
        &mut self,
        (now, at): (Now, Stamp),
        conn: ConnId,
        run: &[Queued],
        kept: Option<Payer>,
    ) -> Option<Unfit> {
        for message in run {
            let session = self.conns.session(conn)?;
            let head = &message.head;
            if session.flights.holds(head.seq) {
                continue;
            }
            let framed = self.frame_for(session, (head, message.steady_ms), at, &message.envelope);
            let bytes = framed.0.text().len();
            let urgent = || is_urgent(&message.envelope);
            let fits = match kept {
                Some(payer) => session
                    .flights
                    .fits_kept((head.sender, payer), bytes, urgent()),
                None => session.flights.fits(head.sender, bytes),
            };
            if !fits {
                return Some(Unfit {
                    seq: head.seq,
                    bytes,
                    urgent: urgent(),
                });
            }
            self.deliver(now, conn, (head, &framed), kept);
        }
        None
    }

    /// The frame in which a message that was accepted at this time, steady clock, is delivered to this
    /// connection.
    pub(super) fn frame_for(
        &self,
        session: &Session,
        (head, steady_ms): (&MessageHead, u64),
        at: Stamp,
        envelope: &str,
    ) -> Framed {
        let seq = head.seq;
        let to = recipient_of(envelope);
        if !session.ext {
            let copy = (to == "*" || to.starts_with('#')).then_some(&session.name);
            let key = session.flights.v1_key(head, copy);
            return (DeliverFrame::keyed(&key, envelope), Some(key));
        }
        let earlier = || session.again.covers(head.sender, seq);
        let lease = self.leases.all.get(&seq);
        let again = lease.and_then(Lease::again).unwrap_or_else(earlier);
        let age_ms = at.steady_ms.saturating_sub(steady_ms);
        let request = lease.and_then(|lease| lease.row.request.as_ref());
        let left_ms = request.map(|it| it.until_ms.saturating_sub(at.steady_ms).max(1));
        let remarks = Remarks {
            again,
            alias: alias(session, to),
            age_ms: if age_ms < AGE_MS_MIN { 0 } else { age_ms },
            within_ms: left_ms.unwrap_or_default(),
            ..self.foreign(session, head.sender, envelope)
        };
        (DeliverFrame::for_one(seq, envelope, &remarks), None)
    }

    /// The token that a sender's name belongs to, where that is not the session's own, and whether
    /// it may approve under the name that it signed with: only if that name is kept for it, or another
    /// token could have come first. A name of another domain belongs to none here, and approves nothing.
    pub(super) fn foreign(&self, session: &Session, sender: PeerId, envelope: &str) -> Remarks {
        if self.is_bridge(sender) {
            return Remarks::default();
        }
        let owner = self.payer(sender);
        let owner = owner.filter(|owner| *owner != session.grant.token);
        let grant = owner.and_then(|owner| self.grants.get(&owner));
        Remarks {
            token: owner.map(|_| grant.map_or(&self.revoked, |grant| &grant.name).clone()),
            approves: grant.is_some_and(|grant| {
                let name = || {
                    let from = sender_of(envelope);
                    // Of this domain, if it has one.
                    from.split_once('@').map_or(from, |(name, _)| name)
                };
                grant.rights.has(Right::Approve) && grant.keeps(name())
            }),
            ..Remarks::default()
        }
    }

    fn deliver(
        &mut self,
        now: Now,
        conn: ConnId,
        (head, (frame, key)): (&MessageHead, &Framed),
        kept: Option<Payer>,
    ) {
        let seq = head.seq;
        let again = self.leases.all.get(&seq).and_then(Lease::again);
        let Some(session) = self.conns.session_mut(conn) else {
            return;
        };
        let weight = session.flights.weight(frame.text().len(), kept.is_some());
        let abroad = session.bridge.is_some();
        let history = match abroad {
            true => DeliveryHistory::default(),
            false => DeliveryHistory::delivered(now.wall_ms),
        };
        let flight = Flight::new(head.clone(), key.clone(), weight, (history, again));
        session.flights.insert(flight, kept, now);
        session.line.weigh(head.sender, &session.flights);
        session.cursor = session.cursor.max(seq);
        let (recipient, greeted) = (session.peer, session.greeted);
        let to = session.name.as_str().to_owned();

        let output = BrokerOutput::Send(conn, BrokerFrame::Deliver(frame.clone()));
        if seq <= self.durable && greeted && !self.expiring {
            self.outbox.now(output);
            self.outbox.want(CommitNeed::Soon);
        } else {
            self.outbox.waiting(output, CommitNeed::Now);
        }
        self.leases.deliver(seq);
        self.log.deliver(seq, recipient);
        self.outbox.event(BusEvent::Delivered);
        if abroad {
            // Its recipient does not have it yet.
            return;
        }
        self.tell_sender(now, (head, recipient), (to, Stage::Delivered));
    }

    /// Tells a sender that is here, and wants to know, of a later state of its message.
    pub(super) fn tell_sender(
        &mut self,
        now: Now,
        (head, recipient): (&MessageHead, PeerId),
        (to, stage): (String, Stage),
    ) {
        self.tell_watcher(now, head, (&to, &stage));
        let Some(conn) = self.registry.conn(head.sender) else {
            return;
        };
        if self.conns.session(conn).is_some_and(|s| s.ext) {
            let receipt = Receipt::at_one(head.id.clone(), to, stage, now.wall_ms);
            self.outbox.later(conn, (head.seq, recipient), receipt);
        }
    }

    /// Tells whoever watches the broker of a later state of a message.
    pub(super) fn tell_watcher(
        &mut self,
        now: Now,
        head: &MessageHead,
        (to, stage): (&str, &Stage),
    ) {
        if !self.watched {
            return;
        }
        let step = BusEvent::Step {
            seq: head.seq,
            from: self.registry.name(head.sender),
            receipt: Receipt::at_one(head.id.clone(), to, stage.clone(), now.wall_ms),
        };
        self.outbox
            .waiting(BrokerOutput::Event(step), CommitNeed::Soon);
    }

    /// Sees to it that what a v1 connection does not ack stops counting one day. One deadline at a
    /// time: when it has come, the next one is set.
    fn watch_exemption(&mut self, conn: ConnId) {
        let Some(session) = self.conns.session_mut(conn) else {
            return;
        };
        if !session.ext
            && !session.exemption_set
            && !session.line.is_empty()
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
            self.registry.dirty.insert(peer);
        }
    }
}

/// Whether a message says that it is to be seen now.
pub(super) fn is_urgent(envelope: &str) -> bool {
    Conversation::of(body_of(envelope)).priority == Priority::Now
}

/// The name that a message was sent to, when that may be another one than the client goes by.
pub(super) fn alias(session: &Session, to: &str) -> Option<PeerName> {
    if to.eq_ignore_ascii_case(session.name.as_str()) && !session.renamed {
        return None;
    }
    PeerName::parse(to).ok()
}
