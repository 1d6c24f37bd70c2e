//! An envelope is accepted, or refused to the sender's face.

use std::sync::Arc;

use peerbus_wire::{
    Accepted, Address, Carried, Conversation, DeliverFrame, Mark, Receipt, Refusal, RefusalCode,
    Seq, Stage, recipient_of,
};

use super::ack::End;
use super::conn::Session;
use super::deliver::{Framed, alias, is_urgent};
use super::groups::Recipients;
use super::mutation::BrokerMutation;
use super::{Broker, BrokerOutput, BusEvent, Caller, CommitNeed, Cx};
use crate::Now;
use crate::grant::Right;
use crate::store::{
    AliasRow, FATE_BYTES, Fate, Inserted, LeaseRow, Lessee, MessageHead, PeerId, Result,
};
use peerbus_wire::body_of;

/// Messages that may be owed to an ephemeral peer: they go when it goes.
const EPHEMERAL_QUEUE_MAX: u64 = 4_096;

impl Broker {
    /// Accepts an envelope for everyone it is owed to.
    pub(super) fn route(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        carried: &Carried,
        mark: Option<&Mark>,
    ) -> Result {
        let sender = caller.peer;
        if let Err(refusal) = self.check_said(caller, carried) {
            // A resend must get its receipt again even if somebody else has the old name now, or the
            // disk is full.
            if cx.txn.find_message(sender, &carried.id)?.is_none() {
                self.refuse(cx.now, caller, Some(carried.id.clone()), refusal);
                return Ok(());
            }
        }
        let ends = match self.leases.all.is_empty() {
            true => None,
            false => self.ends(cx, caller, carried)?,
        };
        let mut recipients = match self.check_right(caller, &carried.to) {
            Ok(()) if ends.is_some_and(|ends| ends.gone) => {
                Err(RefusalCode::UnknownRecipient.because("whoever asked has left"))
            }
            Ok(()) => self.recipients(cx, caller, carried)?,
            Err(refusal) => Err(refusal),
        };
        let refusal = match &recipients {
            Ok(all) => self.check_quota(caller, carried, all.owed()).err(),
            Err(refusal) => Some(refusal.clone()),
        };
        let kept = ends.is_some() && refusal.is_some();
        let mut lost = None;
        if let Some(refusal) = refusal {
            let known = cx.txn.find_message(sender, &carried.id)?.is_some();
            // A resend must get its receipt again even if the recipient has gone since, or a
            // quota is used up. What was taken must not come again for ever, before all that follows.
            if !known && mark.is_none() && !kept {
                self.refuse(cx.now, caller, Some(carried.id.clone()), refusal);
                return Ok(());
            }
            lost = Some(refusal.reason).filter(|_| !known && !kept);
            recipients = Ok(Recipients::NONE);
        }
        let whom = recipients.unwrap_or(Recipients::NONE);
        let owed = whom.owed();
        let here = |peer: &&PeerId| self.registry.conn(**peer).is_some();
        let online = count(owed.iter().filter(here).count());
        let (head, inserted) = self.store_message(cx, sender, carried, owed)?;
        let (recipients, duplicate) = match inserted {
            Inserted::New => (head.recipients, false),
            Inserted::Known {
                same, recipients, ..
            } if same => (recipients, true),
            Inserted::Known { .. } => {
                self.refuse_reused(cx.now, caller, carried);
                return Ok(());
            }
        };
        self.keep_mark(sender, mark);
        let online = online.min(recipients);
        let accepted = Accepted {
            recipients,
            online,
            duplicate,
        };
        self.receipt(caller, carried, accepted, cx.now.wall_ms);
        if duplicate {
            self.outbox.event(BusEvent::Duplicate);
            return Ok(());
        }
        self.outbox.event(BusEvent::Accepted { recipients });
        if let Some(reason) = lost {
            // Its bridge is told why it reaches nobody, until it takes note.
            let to = recipient_of(&carried.text).to_owned();
            self.notify(cx, (&head, PeerId(0)), to, End::Dead(&reason))?;
        }
        self.owe(cx, caller, (&head, carried), whom)?;
        match ends.filter(|_| !self.mutations.broken(BrokerMutation::IgnoreAnswer)) {
            Some(ends) => self.end_by_answer(cx, ends, (&carried.id, kept)),
            None => Ok(()),
        }
    }

    /// A message is owed to each of these from now on, and its sender told who has no room for it.
    fn owe(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        (head, carried): (&MessageHead, &Carried),
        recipients: Recipients,
    ) -> Result {
        let (seq, sender, bytes) = (head.seq, head.sender, head.bytes);
        self.tell_taken(head, carried);
        for &recipient in recipients.owed() {
            self.owed.add((recipient, sender), caller.token, bytes);
            if let Address::Group(_) | Address::One(_) = carried.to {
                self.log.owe(seq, recipient);
            }
        }
        match &recipients {
            Recipients::One(_) => {}
            Recipients::Many { full, .. } => self.tell_full(cx, head, full)?,
            Recipients::Lease(holder, row) => self.give(cx, LeaseRow::clone(row), *holder)?,
        }
        self.enqueue(cx, (head, carried), recipients.owed())
    }

    /// Tells whoever watches the broker of a message.
    fn tell_taken(&mut self, head: &MessageHead, carried: &Carried) {
        if self.watched {
            let taken = BusEvent::Taken {
                seq: head.seq,
                id: carried.id.clone(),
                from: carried.from.as_str().to_owned(),
                recipients: head.recipients,
                at_ms: head.accepted_ms,
                envelope: Arc::clone(&carried.text),
            };
            self.outbox
                .waiting(BrokerOutput::Event(taken), CommitNeed::Soon);
        }
    }

    /// Writes the message, with its audit event, under the next number.
    fn store_message(
        &mut self,
        cx: &mut Cx<'_>,
        sender: PeerId,
        carried: &Carried,
        recipients: &[PeerId],
    ) -> Result<(MessageHead, Inserted)> {
        let head = self.head_of(cx, sender, carried, count(recipients.len()));
        let inserted = cx.txn.insert_message(&head, &carried.text)?;
        if inserted == Inserted::New {
            self.head.next_seq += 1;
            if head.recipients == 0 {
                self.fates.push(Fate::of_nobody(head.seq, head.accepted_ms));
                self.ended(cx.now, head.bytes + FATE_BYTES);
            }
            if !self.mutations.broken(BrokerMutation::SkipAudit) {
                self.log.accept(&head, &carried.hash);
            }
        }
        Ok((head, inserted))
    }

    /// The head of a message that is the next.
    pub(super) fn head_of(
        &self,
        cx: &Cx<'_>,
        sender: PeerId,
        carried: &Carried,
        recipients: u32,
    ) -> MessageHead {
        MessageHead {
            seq: Seq(self.head.next_seq),
            sender,
            id: carried.id.clone(),
            recipients,
            accepted_ms: cx.now.wall_ms,
            bytes: carried.text.len() as u64,
        }
    }

    /// Whether a sender may say what it says, of itself and of a result that it wants, and there is space.
    fn check_said(&self, caller: Caller, carried: &Carried) -> Result<(), Refusal> {
        self.check_from(caller, carried)?;
        if let Some(within_ms) = caller.asks(carried) {
            Self::check_request(carried, within_ms)?;
        }
        self.check_space(caller)
    }

    fn check_from(&self, caller: Caller, carried: &Carried) -> Result<(), Refusal> {
        let Some(session) = self.conns.session(caller.conn) else {
            return Ok(());
        };
        let own = self.config.domain.is_none() && carried.from == session.name;
        if own || self.mutations.broken(BrokerMutation::TrustFrom) {
            return Ok(());
        }
        if let Some(bridge) = &session.bridge {
            return Self::check_brought(bridge, carried);
        }
        let (name, from) = (&session.name, self.sender_here(carried)?);
        if from == *name {
            return Ok(());
        }
        // What was signed before a rename and was not receipted comes again as it was.
        let old = self.registry.aliases.get(&from.key());
        let own = |old: &AliasRow| {
            let own = old.own && old.peer == caller.peer && old.name == from.as_str();
            own && self.grants.may_have(&session.grant, &from).is_ok()
        };
        if old.is_some_and(own) {
            return Ok(());
        }
        Err(RefusalCode::From.because(format!(
            "from is {} but this connection is registered as {name}; sign as {name}",
            carried.from
        )))
    }

    /// Whether the sender's token may send so.
    fn check_right(&self, caller: Caller, to: &Address) -> Result<(), Refusal> {
        let (right, whom) = match to {
            Address::All => (Right::Broadcast, "to all"),
            Address::Peer(_) => (Right::Send, "to a peer"),
            Address::Group(_) | Address::One(_) => (Right::Send, "to a group"),
        };
        let Some(session) = self.conns.session(caller.conn) else {
            return Ok(());
        };
        let brings = session.bridge.is_some() && right == Right::Send;
        if brings || session.grant.rights.has(right) {
            return Ok(());
        }
        Err(RefusalCode::Forbidden.because(format!(
            "the token {} may not send {whom}; the broker's operator can give it the right \
                 `{}`",
            session.grant.name,
            right.as_str()
        )))
    }

    /// Whom a message is owed to.
    fn recipients(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        carried: &Carried,
    ) -> Result<Result<Recipients, Refusal>> {
        let bytes = carried.text.len() as u64;
        let name = match &carried.to {
            Address::All => return Ok(Ok(self.everyone(cx, caller, bytes)?)),
            Address::Group(group) | Address::One(group) => {
                let all = matches!(carried.to, Address::Group(_)) && caller.asks(carried).is_none();
                return match self.members(cx, caller, group, bytes)? {
                    Ok(_) if !all => self.leased(cx, caller, carried, Lessee::One(group.clone())),
                    members => Ok(members),
                };
            }
            Address::Peer(name) => name,
        };
        let key = name.key();
        let known = match self.registry.find(&key) {
            Some(peer) => Some(peer),
            None => match self.old_name(cx, &key)? {
                Some(peer) => Some(peer),
                None => self.elsewhere(cx, name)?,
            },
        };
        let Some(peer) = known else {
            if self.mutations.broken(BrokerMutation::AcceptUnknown) {
                return Ok(Ok(Recipients::NONE));
            }
            return Ok(Err(RefusalCode::UnknownRecipient.because(self.nobody(name))));
        };
        if let Err(refusal) = self.check_way(caller, name, peer) {
            return Ok(Err(refusal));
        }
        if let Err(refusal) = self.check_answer(cx, carried, peer)? {
            return Ok(Err(refusal));
        }
        let of = (caller.token, bytes);
        let mut full = self.full_for(cx, peer, of, false)?;
        if full.is_some() && answers(cx, carried, peer)? {
            full = self.full_for(cx, peer, of, true)?;
        }
        let Some(full) = full else {
            return match caller.asks(carried) {
                None => Ok(Ok(Recipients::One(peer))),
                Some(_) => self.leased(cx, caller, carried, Lessee::Peer(peer)),
            };
        };
        Ok(Err(RefusalCode::QueueFull.because(format!(
            "the queue of {name} is full ({full}); send again when it has read some"
        ))))
    }

    /// Every peer that is registered now, or was until its connection broke a moment ago.
    fn everyone(&mut self, cx: &mut Cx<'_>, caller: Caller, bytes: u64) -> Result<Recipients> {
        let sender = caller.peer;
        let here = |(id, peer): (PeerId, &super::registry::Peer)| {
            let registered = peer.is_registered(cx.now.mono_ms);
            (registered && id != sender && !peer.row.ephemeral && !peer.bridges()).then_some(id)
        };
        let all = self.registry.iter().filter_map(here).collect();
        let (owed, _) = self.with_room(cx, all, (caller.token, bytes))?;
        Ok(Recipients::Many { owed, full: vec![] })
    }

    pub(super) fn queue_max(&self, peer: PeerId) -> u64 {
        let ephemeral = self.registry.get(peer).is_some_and(|p| p.row.ephemeral);
        if ephemeral {
            EPHEMERAL_QUEUE_MAX
        } else {
            self.config.queue_max
        }
    }

    /// How many messages are owed to a peer; counted once, then kept.
    pub(super) fn pending(&mut self, cx: &mut Cx<'_>, peer: PeerId) -> Result<u64> {
        let Some(known) = self.registry.get_mut(peer) else {
            return Ok(0);
        };
        if let Some(pending) = known.pending {
            return Ok(pending);
        }
        let pending = cx.txn.count_queue(peer)?;
        known.pending = Some(pending);
        Ok(pending)
    }

    /// Something is owed to a peer, or it owes an answer.
    pub(super) fn has_mail(&mut self, cx: &mut Cx<'_>, peer: PeerId) -> Result<bool> {
        Ok(self.leases.held(peer).next().is_some() || self.pending(cx, peer)? > 0)
    }

    fn enqueue(
        &mut self,
        cx: &mut Cx<'_>,
        (head, carried): (&MessageHead, &Carried),
        recipients: &[PeerId],
    ) -> Result {
        let (seq, sender) = (head.seq, head.sender);
        // They differ in whether the token is named, and in nothing else.
        let (mut shared, mut foreign) = (None, None);
        let urgent = std::cell::OnceCell::new();
        for &recipient in recipients {
            cx.txn
                .insert_delivery((recipient, sender), seq, cx.at.steady_ms)?;
            let Some(peer) = self.registry.get_mut(recipient) else {
                continue;
            };
            if let Some(pending) = &mut peer.pending {
                *pending += 1;
            }
            let Some(conn) = peer.conn else { continue };
            let names_it = |session: &Session| match &carried.to {
                Address::Peer(to) => alias(session, to.as_str()).is_some(),
                Address::All | Address::Group(_) | Address::One(_) => false,
            };
            let session = self.conns.session(conn);
            let own = match session {
                Some(session)
                    if names_it(session) || !session.ext || carried.within_ms.is_some() =>
                {
                    let accepted = (head, cx.at.steady_ms);
                    Some(self.frame_for(session, accepted, cx.at, &carried.text))
                }
                _ => None,
            };
            let framed: &Framed = match &own {
                Some(own) => own,
                None => {
                    let remarks =
                        session.map(|session| self.foreign(session, sender, &carried.text));
                    let remarks = remarks.unwrap_or_default();
                    let text = &carried.text;
                    match remarks.token {
                        Some(_) => foreign.get_or_insert_with(|| {
                            (DeliverFrame::for_one(seq, text, &remarks), None)
                        }),
                        None => shared.get_or_insert_with(|| (DeliverFrame::new(seq, text), None)),
                    }
                }
            };
            let urgent = || *urgent.get_or_init(|| is_urgent(&carried.text));
            self.deliver_fresh(cx.now, conn, (head, framed), urgent);
        }
        Ok(())
    }

    /// The id was used for another message. To a broker a domain is one sender: of what a bridge brought
    /// another peer may have used it.
    fn refuse_reused(&mut self, now: Now, caller: Caller, carried: &Carried) {
        let id = &carried.id;
        let reason = if self.is_bridge(caller.peer) {
            format!("another message of its domain had the id {id}; send it again under another id")
        } else {
            format!(
                "id {id} was used before for another message; give every message an id of its own"
            )
        };
        let refusal = RefusalCode::IdReused.because(reason);
        self.refuse(now, caller, Some(id.clone()), refusal);
    }

    fn receipt(&mut self, caller: Caller, carried: &Carried, accepted: Accepted, now_ms: u64) {
        if caller.ext {
            let mut receipt = Receipt::new(carried.id.clone(), Stage::Accepted(accepted));
            receipt.at_ms = Some(now_ms).filter(|_| !accepted.duplicate);
            self.outbox.answer(caller.conn, receipt);
        } else {
            self.outbox.want(CommitNeed::Now);
        }
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Whether it answers a message of this peer's that is known.
fn answers(cx: &mut Cx<'_>, carried: &Carried, peer: PeerId) -> Result<bool> {
    Ok(match Conversation::of(body_of(&carried.text)).reply_to {
        Some(id) => cx.txn.find_message(peer, &id)?.is_some(),
        None => false,
    })
}
