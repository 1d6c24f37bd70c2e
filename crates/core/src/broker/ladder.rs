//! The ladder of a message: what is remembered of its way to each recipient, and how it is told.
//!
//! What is on disk (that it was accepted, to whom it is still owed) is read there. The rest is in
//! memory, bounded, and lost with the process.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;

use peerbus_wire::{Accepted, BrokerFrame, DeliveryKey, MessageId, Receipt, Seq, Stage};

use super::conn::Flight;
use super::{Broker, ConnId, Count, Output};
use crate::Now;
use crate::store::{MessageHead, PeerId, StoreError, Txn};

/// Ways and steps that are remembered, of however many messages.
const RECENT_MAX: usize = 32_768;

/// Recipients of one message whose ways are remembered, or that are named in an answer.
const RECIPIENTS_MAX: usize = 64;

/// Steps of one way that are remembered; the newest.
const STEPS_MAX: usize = 16;

/// The way of one message to one recipient, without what is on disk. Small, because every delivery
/// under way has one.
#[derive(Debug, Clone, Default)]
pub(super) struct Way {
    /// When it was first delivered, wall clock.
    delivered_ms: Option<NonZeroU64>,
    /// What its holder said of it, if it did.
    steps: Option<Box<Steps>>,
}

#[derive(Debug, Clone, Default)]
struct Steps(Vec<(Stage, u64)>);

impl Way {
    pub(super) fn delivered(at_ms: u64) -> Self {
        Self {
            delivered_ms: NonZeroU64::new(at_ms),
            steps: None,
        }
    }

    fn steps(&self) -> &[(Stage, u64)] {
        self.steps.as_ref().map_or(&[], |steps| &steps.0)
    }

    /// Adds a step; `false` when it was the last one already.
    pub(super) fn step(&mut self, step: &Stage, at_ms: u64) -> bool {
        let Steps(steps) = &mut **self.steps.get_or_insert_default();
        if steps.last().is_some_and(|(last, _)| last == step) {
            return false;
        }
        if steps.len() >= STEPS_MAX {
            steps.remove(0);
        }
        steps.push((step.clone(), at_ms));
        true
    }

    /// Adds what came later.
    fn follow(&mut self, later: &Self) {
        self.delivered_ms = self.delivered_ms.or(later.delivered_ms);
        for (step, at_ms) in later.steps() {
            self.step(step, *at_ms);
        }
    }

    fn tell(&self, to: &str, told: &mut Vec<End>) {
        let end = |stage, at_ms| End {
            to: to.to_owned(),
            stage,
            at_ms,
        };
        let delivered = self.delivered_ms.map(NonZeroU64::get);
        told.extend(delivered.map(|at_ms| end(Stage::Delivered, at_ms)));
        let steps = self.steps().iter();
        told.extend(steps.map(|(step, at_ms)| end(step.clone(), *at_ms)));
    }
}

/// What became of a message at a recipient, by the name that it had then.
#[derive(Debug, Clone)]
pub(super) struct End {
    pub(super) to: String,
    pub(super) stage: Stage,
    pub(super) at_ms: u64,
}

/// A way that the recipient's connection does not hold (any more).
#[derive(Debug, Clone)]
struct Past {
    recipient: PeerId,
    way: Way,
    end: Option<End>,
}

impl Past {
    fn weight(&self) -> usize {
        1 + self.way.steps().len()
    }
}

/// Ways of messages of late. Lost with the process.
#[derive(Debug, Default)]
pub(super) struct Recent {
    ways: BTreeMap<(PeerId, MessageId), Vec<Past>>,
    order: VecDeque<(PeerId, MessageId)>,
    weight: usize,
}

impl Recent {
    /// Remembers what the recipient's connection knew of a delivery, and how it ended if it did.
    pub(super) fn record(
        &mut self,
        (sender, id): (PeerId, &MessageId),
        recipient: PeerId,
        way: Way,
        end: Option<End>,
    ) {
        let pasts = match self.ways.entry((sender, id.clone())) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                self.order.push_back(entry.key().clone());
                entry.insert(Vec::new())
            }
        };
        let known = pasts.iter().position(|past| past.recipient == recipient);
        let room = pasts.len() < RECIPIENTS_MAX;
        match known.and_then(|at| pasts.get_mut(at)) {
            Some(past) => {
                self.weight -= past.weight();
                past.way.follow(&way);
                past.end = end.or_else(|| past.end.take());
                self.weight += past.weight();
            }
            None if room => {
                let past = Past {
                    recipient,
                    way,
                    end,
                };
                self.weight += past.weight();
                pasts.push(past);
            }
            None => {}
        }
        while self.weight > RECENT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            let gone = self.ways.remove(&oldest).unwrap_or_default();
            self.weight -= gone.iter().map(Past::weight).sum::<usize>();
        }
    }

    fn of(&self, sender: PeerId, id: &MessageId) -> &[Past] {
        let ways = self.ways.get(&(sender, id.clone()));
        ways.map_or(&[], Vec::as_slice)
    }
}

/// The ladder of a message, for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ladder {
    /// Who sent it; empty when that name is forgotten, as a temporary one is that has left.
    pub from: String,
    /// What became of it, in order of time.
    pub receipts: Vec<Receipt>,
}

impl Broker {
    /// Says what became of a sender's own messages.
    pub(super) fn answer_status<T: Txn + ?Sized>(
        &mut self,
        conn: ConnId,
        ids: &[MessageId],
        txn: &mut T,
    ) -> Result<(), StoreError> {
        let Some(sender) = self.conns.session(conn).map(|s| s.peer) else {
            return Ok(());
        };
        let mut receipts = Vec::new();
        for id in ids {
            match txn.find_message(sender, id)? {
                Some(head) => receipts.extend(self.receipts(&head, txn)?),
                None => receipts.push(Receipt::new(id.clone(), Stage::Unknown)),
            }
        }
        for frame in BrokerFrame::receipts(receipts) {
            self.outbox.barrier(Output::Send(conn, frame));
        }
        Ok(())
    }

    /// The ladders of the messages that go by this id, of whichever sender.
    ///
    /// # Errors
    ///
    /// Only when storage failed.
    pub fn ladder_of<T: Txn + ?Sized>(
        &self,
        id: &MessageId,
        txn: &mut T,
    ) -> Result<Vec<Ladder>, StoreError> {
        let mut ladders = Vec::new();
        for head in txn.find_by_id(id)? {
            ladders.push(Ladder {
                from: self.registry.name(head.sender),
                receipts: self.receipts(&head, txn)?,
            });
        }
        Ok(ladders)
    }

    /// A message's ladder: what happened, in order of time, then what is to happen yet.
    fn receipts<T: Txn + ?Sized>(
        &self,
        head: &MessageHead,
        txn: &mut T,
    ) -> Result<Vec<Receipt>, StoreError> {
        let owed = txn.owed_to(head.seq)?;
        let here = |peer: &PeerId| self.registry.conn(*peer).is_some();
        let online = owed.iter().filter(|peer| here(peer)).count();
        let pasts = self.recent.of(head.sender, &head.id);
        let mut told = Vec::new();
        let mut queued = Vec::new();
        let say = |to, stage, at_ms| Receipt {
            at_ms,
            to,
            ..Receipt::new(head.id.clone(), stage)
        };
        for past in pasts {
            let to = self.shown_name(past);
            if let (Some(to), false) = (to, owed.contains(&past.recipient)) {
                past.way.tell(&to, &mut told);
            }
            told.extend(past.end.clone());
        }
        let ended = pasts.iter().filter(|past| past.end.is_some()).count();
        let settled = (head.recipients as usize).saturating_sub(owed.len() + ended);
        for peer in owed.into_iter().take(RECIPIENTS_MAX) {
            let to = self.registry.name(peer);
            let mut way = pasts
                .iter()
                .find(|past| past.recipient == peer)
                .map(|past| past.way.clone())
                .unwrap_or_default();
            match self.flight(peer, head.seq) {
                Some(flight) => way.follow(&flight.way),
                None => queued.push(say(Some(to.clone()), Stage::Queued, None)),
            }
            way.tell(&to, &mut told);
        }
        if settled > 0 {
            let recipients = u32::try_from(settled).unwrap_or(u32::MAX);
            queued.push(say(None, Stage::Settled { recipients }, None));
        }
        told.sort_by_key(|end| end.at_ms);
        let accepted = Stage::Accepted(Accepted {
            recipients: head.recipients,
            online: u32::try_from(online).unwrap_or(u32::MAX),
            duplicate: false,
        });
        let accepted = say(None, accepted, Some(head.accepted_ms));
        let told = told.into_iter();
        let told = told.map(|end| say(Some(end.to), end.stage, Some(end.at_ms)));
        Ok(std::iter::once(accepted)
            .chain(told)
            .chain(queued)
            .collect())
    }

    /// The recipient's name; `None` when it is forgotten and nothing says how it was called.
    fn shown_name(&self, past: &Past) -> Option<String> {
        let said = past.end.as_ref().map(|end| end.to.clone());
        said.or_else(|| Some(self.registry.name(past.recipient)))
            .filter(|name| !name.is_empty())
    }

    fn flight(&self, peer: PeerId, seq: Seq) -> Option<&Flight> {
        let conn = self.registry.conn(peer)?;
        self.conns.session(conn)?.flights.get(seq)
    }

    /// The holder of a delivery says how far it is.
    pub(super) fn progress(&mut self, now: Now, conn: ConnId, key: &DeliveryKey, step: Stage) {
        let (Some(seq), Some(session)) = (key.seq(), self.conns.session_mut(conn)) else {
            return;
        };
        let (peer, to) = (session.peer, session.name.as_str().to_owned());
        let Some(flight) = session.flights.get_mut(seq) else {
            return;
        };
        if !flight.way.step(&step, now.wall_ms) {
            return;
        }
        let (sender, id) = (flight.sender, flight.id.clone());
        if let Stage::Held { why } = &step
            && !why.is_empty()
        {
            self.outbox.now(Output::Count(Count::Held {
                from: self.registry.name(sender),
                to: to.clone(),
                id: id.clone(),
                reason: why.clone(),
            }));
        }
        self.tell_sender(now, (seq, peer), sender, &id, (to, step));
    }

    /// A connection ends: what it knew of deliveries that it held is kept.
    pub(super) fn keep_ways(&mut self, session: &mut super::conn::Session) {
        if let Some(peer) = self.registry.get_mut(session.peer) {
            peer.delivered = peer.delivered.max(session.cursor);
        }
        let peer = session.peer;
        self.registry.keep_presence(peer, session.presence.take());
        for flight in session.flights.take_all() {
            let message = (flight.sender, &flight.id);
            self.recent.record(message, peer, flight.way, None);
        }
    }
}
