//! How far messages got, as it is told.
//!
//! That a message was accepted, for whom it is still pending and how its other deliveries ended, step
//! by step, is read on disk; the rest is what `history.rs` remembers.

use std::collections::{BTreeMap, BTreeSet};

use peerbus_wire::{Accepted, BrokerFrame, DeliveryKey, MessageId, Presence, Receipt, Seq, Stage};

use super::admit::{program, said};
use super::conn::Session;
use super::flights::Flight;
use super::history::RECIPIENTS_MAX;
use super::{Broker, BusEvent, Caller, Cx};
use crate::Now;
use crate::store::{DeliveryHistory, Fate, LeaseRow, MessageHead, PeerId, Result, Txn};

/// What became of a message, for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageHistory {
    /// Its number.
    pub seq: Seq,
    /// Who sent it; empty when that name is forgotten, as a temporary one is that has left.
    pub from: String,
    /// What became of it, in order of time.
    pub receipts: Vec<Receipt>,
}

impl MessageHistory {
    /// What became of a message that is owed to nobody: in order of time.
    #[must_use]
    pub fn ended(head: &MessageHead, fates: &[Fate]) -> Vec<Receipt> {
        let mut told = ends(&head.id, fates);
        told.sort_by_key(|receipt| receipt.at_ms);
        told.insert(0, accepted(head, 0));
        told
    }
}

/// How deliveries ended, and what happened before: of one that went from member to member the last
/// ones. A recipient goes by its last name.
fn ends(id: &MessageId, fates: &[Fate]) -> Vec<Receipt> {
    let mut told = Vec::new();
    for fate in &fates[fates.len().saturating_sub(RECIPIENTS_MAX)..] {
        let last = fates.iter().rfind(|it| it.recipient == fate.recipient);
        let to = &*last.unwrap_or(fate).to;
        tell(id, to, &fate.way, &mut told);
        let stage = Stage::clone(&fate.stage);
        told.push(Receipt::at_one(id.clone(), to, stage, fate.at_ms));
    }
    told
}

/// Adds what happened to a delivery before it ended.
fn tell(id: &MessageId, to: &str, way: &DeliveryHistory, told: &mut Vec<Receipt>) {
    let stages = way.stages();
    told.extend(stages.map(|(stage, at_ms)| Receipt::at_one(id.clone(), to, stage, at_ms)));
}

/// Whether who has a delivery goes on where it was: it says again how far it is.
fn resumes(past: &DeliveryHistory, now: &DeliveryHistory) -> bool {
    let first = now.steps().first();
    first.is_some_and(|(first, _)| past.ends_with(first))
}

impl Cx<'_> {
    /// The moment since when a message is as the frame says.
    pub(super) fn since(&self) -> Now {
        Now {
            wall_ms: self.since_ms,
            ..self.now
        }
    }
}

fn accepted(head: &MessageHead, online: usize) -> Receipt {
    let accepted = Stage::Accepted(Accepted {
        recipients: head.recipients,
        online: u32::try_from(online).unwrap_or(u32::MAX),
        duplicate: false,
    });
    Receipt {
        at_ms: Some(head.accepted_ms),
        ..Receipt::new(head.id.clone(), accepted)
    }
}

impl Broker {
    /// Says what became of a sender's own messages.
    pub(super) fn answer_status(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        ids: &[MessageId],
    ) -> Result {
        let (mut asked, mut heads) = (BTreeSet::new(), Vec::new());
        for id in ids.iter().filter(|id| asked.insert(*id)) {
            heads.push((id, cx.txn.find_message(caller.peer, id)?));
        }
        let known = heads
            .iter()
            .filter_map(|(_, head)| Some(head.as_ref()?.seq));
        let mut fates = self.fates_of(cx.txn, &known.collect::<Vec<_>>())?;
        let mut receipts = Vec::new();
        for (id, head) in heads {
            match head {
                Some(head) => {
                    let fates = fates.remove(&head.seq).unwrap_or_default();
                    receipts.extend(self.receipts(cx.txn, &head, fates)?);
                }
                None => receipts.push(Receipt::new(id.clone(), Stage::Unknown)),
            }
        }
        for frame in BrokerFrame::receipts(receipts) {
            self.outbox.barrier(caller.conn, frame);
        }
        Ok(())
    }

    /// The histories of these messages, of those that are known.
    ///
    /// # Errors
    ///
    /// Only when storage failed.
    pub fn histories_of(&self, seqs: &[Seq], txn: &mut dyn Txn) -> Result<Vec<MessageHistory>> {
        let mut histories = Vec::new();
        let mut fates = self.fates_of(txn, seqs)?;
        for seq in seqs {
            if let Some(head) = txn.message(*seq)? {
                histories.push(MessageHistory {
                    seq: *seq,
                    from: self.registry.name(head.sender),
                    receipts: self.receipts(txn, &head, fates.remove(seq).unwrap_or_default())?,
                });
            }
        }
        Ok(histories)
    }

    /// Deletes a slice of what ended until `until_ms`, or until now, steady clock, as far as nothing
    /// is accepted twice for that. Says until when, and whether there is more.
    ///
    /// # Errors
    ///
    /// Only when storage failed.
    pub fn purge(
        &mut self,
        now: Now,
        until_ms: Option<u64>,
        txn: &mut dyn Txn,
    ) -> Result<(u64, bool)> {
        let steady_ms = self.stamp(now).steady_ms;
        self.write_fates(steady_ms, txn)?;
        let until_ms = until_ms.unwrap_or(steady_ms);
        let more = self.forget_until(until_ms + 1, steady_ms, txn)?;
        Ok((until_ms, more))
    }

    /// The last ends of these messages.
    fn fates_of(&self, txn: &mut dyn Txn, seqs: &[Seq]) -> Result<BTreeMap<Seq, Vec<Fate>>> {
        let mut fates = txn.fates_of(seqs, RECIPIENTS_MAX)?;
        for fate in self.fates.iter().filter(|fate| !fate.is_of_nobody()) {
            fates.entry(fate.seq).and_modify(|of| of.push(fate.clone()));
        }
        Ok(fates)
    }

    /// A message's history: what happened, in order of time, then what is to happen yet.
    fn receipts(
        &self,
        txn: &mut dyn Txn,
        head: &MessageHead,
        mut fates: Vec<Fate>,
    ) -> Result<Vec<Receipt>> {
        let pending = txn.pending_for(head.seq)?;
        let here = |peer: &PeerId| self.registry.conn(*peer).is_some();
        let online = pending.iter().filter(|peer| here(peer)).count();
        fates.drain(..fates.len().saturating_sub(RECIPIENTS_MAX));
        for fate in &mut fates {
            let peer = self.registry.get(fate.recipient).map(|peer| &peer.row);
            if let Some(row) = peer.filter(|_| !self.is_abroad(fate.recipient)) {
                fate.to = row.name.as_str().into();
            }
        }
        let mut told = ends(&head.id, &fates);
        let work = self.leases.get(head.seq).and_then(LeaseRow::work);
        let mut queued = Vec::new();
        let say = |to, stage| Receipt {
            to,
            ..Receipt::new(head.id.clone(), stage)
        };
        let settled = (head.recipients as usize).saturating_sub(pending.len() + fates.len());
        for peer in pending.into_iter().take(RECIPIENTS_MAX) {
            let to = self.called(txn, (peer, head.sender), head.seq)?;
            let past = self.recent.get((head.seq, peer));
            let mut history = past.cloned().unwrap_or_default();
            match self.flight(peer, head.seq) {
                // A bridge has it, and the other domain perhaps not.
                Some(_) if self.is_bridge(peer) => {
                    queued.push(say(Some(to.clone()), Stage::Queued));
                }
                Some(flight) if resumes(&history, &flight.history) => {
                    history.follow(&flight.history);
                }
                // Another session may have it than before.
                Some(flight) => {
                    tell(&head.id, &to, &history, &mut told);
                    history = flight.history.clone();
                }
                None if self.registry.is_forwarded(peer) => {
                    if history.steps().is_empty() {
                        told.push(say(Some(to.clone()), Stage::Forwarded));
                    }
                }
                None => match work.map(|work| work.said.clone()) {
                    Some(Some((said, at_ms))) => {
                        let stage = Stage::Working { said };
                        told.push(Receipt::at_one(head.id.clone(), to.clone(), stage, at_ms));
                    }
                    Some(None) => queued.push(say(Some(to.clone()), Stage::Owed)),
                    None => queued.push(say(Some(to.clone()), Stage::Queued)),
                },
            }
            tell(&head.id, &to, &history, &mut told);
        }
        if settled > 0 {
            let recipients = u32::try_from(settled).unwrap_or(u32::MAX);
            queued.push(say(None, Stage::Settled { recipients }));
        }
        told.sort_by_key(|receipt| receipt.at_ms);
        Ok(std::iter::once(accepted(head, online))
            .chain(told)
            .chain(queued)
            .collect())
    }

    fn flight(&self, peer: PeerId, seq: Seq) -> Option<&Flight> {
        self.session_of(peer)?.flights.get(seq)
    }

    /// The holder of a delivery says since when it is so far. That is before the delivery only where there was an
    /// earlier one, and never before anything else that is known of it.
    pub(super) fn date(
        &self,
        cx: &mut Cx<'_>,
        caller: Caller,
        (key, age_ms): (&DeliveryKey, u32),
    ) -> Result {
        if age_ms == 0 || !caller.ext {
            return Ok(());
        }
        let session = self.conns.session(caller.conn);
        let (Some(seq), Some(session)) = (key.seq(), session) else {
            return Ok(());
        };
        let flight = session.flights.get(seq);
        // A request that was read is not delivered again.
        let read = self.leases.request(seq);
        let read = read.filter(|row| row.holder == caller.peer);
        let head = flight.map(|it| &it.head).or(read.map(|row| &row.head));
        let Some(head) = head else {
            return Ok(());
        };
        let known = self.recent.get((seq, caller.peer));
        let is_first = |flight: &&Flight| !flight.was_delivered(&session.again);
        let delivered = flight.filter(is_first).map(|it| &it.history).or(known);
        let delivered_ms = delivered.and_then(DeliveryHistory::delivered_ms);
        let steps = known.into_iter().chain(flight.map(|it| &it.history));
        let said = steps.filter_map(|it| Some(it.steps().last()?.1)).max();
        let fates = self.fates_of(cx.txn, &[seq])?;
        // Of what one has at a time each end is one of its own.
        let is_leased = self.leases.get(seq).is_some();
        let own = |fate: &&Fate| is_leased || fate.recipient == caller.peer;
        let ended = fates.values().flatten().filter(own);
        let ended = ended.map(|fate| fate.at_ms).max();
        let least = [Some(head.accepted_ms), delivered_ms, said, ended];
        let since_ms = cx.now.wall_ms.saturating_sub(age_ms.into());
        let since_ms = least.into_iter().flatten().fold(since_ms, u64::max);
        cx.since_ms = since_ms.min(cx.now.wall_ms);
        Ok(())
    }

    /// The holder of a delivery says how far it is.
    pub(super) fn progress(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        key: &DeliveryKey,
        step: Stage,
    ) -> Result {
        if caller.bridges {
            return self.said_abroad(cx, caller, key, step);
        }
        if let (Stage::Working { said }, Some(seq)) = (&step, key.seq()) {
            return self.said_working(cx, (caller.peer, seq), said);
        }
        match step.is_progress() {
            true => self.said_here(cx, caller, key, step),
            false => self.outbox.event(BusEvent::Ignored),
        }
        Ok(())
    }

    fn said_here(&mut self, cx: &Cx<'_>, caller: Caller, key: &DeliveryKey, step: Stage) {
        let (Some(seq), Some(session)) = (key.seq(), self.conns.session_mut(caller.conn)) else {
            return;
        };
        let (peer, to) = (caller.peer, session.name.as_str().to_owned());
        let Some(flight) = session.flights.get_mut(seq) else {
            return;
        };
        let now = cx.since();
        let is_first = flight.history.steps().is_empty();
        if !flight.history.step(&step, now.wall_ms) {
            return;
        }
        // Who comes back says again how far its mail is.
        let past = self.recent.get((seq, peer)).filter(|_| is_first);
        let is_told = past.is_some_and(|past| past.ends_with(&step));
        let head = flight.head.clone();
        if let Stage::Held { why } = &step
            && !why.is_empty()
            && !is_told
        {
            self.outbox.event(BusEvent::Held {
                from: self.registry.name(head.sender),
                to: to.clone(),
                id: head.id.clone(),
                reason: why.clone(),
            });
        }
        if matches!(step, Stage::Held { .. }) {
            // Another one may be free.
            let held = |row: &LeaseRow| row.head.seq == seq;
            self.leases.late(peer, now.mono_ms, held);
        }
        if !is_told {
            self.tell_sender(now, (&head, peer), (to, step));
        }
    }

    /// A connection ends: what it knew of deliveries that it held is kept.
    pub(super) fn keep_histories(&mut self, session: &mut Session) {
        if let Some(peer) = self.registry.get_mut(session.peer) {
            peer.row.delivered = Some(session.delivered());
        }
        let peer = session.peer;
        let named = self
            .registry
            .get(peer)
            .and_then(|it| it.row.program.as_ref());
        let kept = |it: &Presence| named.is_none() || program(&said(it)).is_some();
        let presence = session.presence.take().filter(kept);
        self.registry.keep_presence(peer, presence);
        for (seq, flight) in session.flights.take_all() {
            self.recent.record((seq, peer), flight.history);
        }
    }
}
