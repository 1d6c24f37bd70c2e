//! An envelope is accepted, or refused to the sender's face.

use peerbus_wire::{
    Accepted, Address, Carried, DeliverFrame, Receipt, Refusal, RefusalCode, Seq, Stage,
};

use super::conn::Session;
use super::mutation::Mutation;
use super::registry::Alias;
use super::{Broker, ConnId, Count, Output};
use crate::Now;
use crate::audit::Event;
use crate::store::{Inserted, NewMessage, PeerId, StoreError, Txn};

/// Messages that may be owed to an ephemeral peer: they go when it goes.
const EPHEMERAL_QUEUE_MAX: u64 = 4_096;

impl Broker {
    /// Accepts an envelope for everyone it is owed to.
    pub(super) fn route<T: Txn + ?Sized>(
        &mut self,
        now: Now,
        conn: ConnId,
        carried: &Carried,
        txn: &mut T,
    ) -> Result<(), StoreError> {
        let Some(session) = self.conns.session(conn) else {
            return Ok(());
        };
        let sender = session.peer;
        if let Err(refusal) = self.check_from(session, carried) {
            // A resend must get its receipt again even if somebody else has the old name now.
            if txn.find_message(sender, &carried.id)?.is_none() {
                self.refuse(now, conn, Some(carried.id.clone()), refusal);
                return Ok(());
            }
        }
        let recipients = match self.recipients(now, sender, &carried.to, txn)? {
            Ok(recipients) => recipients,
            Err(refusal) => {
                // A resend must get its receipt again even if the recipient has gone since.
                if txn.find_message(sender, &carried.id)?.is_none() {
                    self.refuse(now, conn, Some(carried.id.clone()), refusal);
                    return Ok(());
                }
                Vec::new()
            }
        };
        let here = |peer: &&PeerId| self.registry.conn(**peer).is_some();
        let online = count(recipients.iter().filter(here).count());
        match self.store_message(now, sender, carried, &recipients, txn)? {
            Inserted::New => {}
            Inserted::Known {
                same: true,
                recipients,
                ..
            } => {
                self.outbox.now(Output::Count(Count::Duplicate));
                let accepted = Accepted {
                    recipients,
                    online: online.min(recipients),
                    duplicate: true,
                };
                self.receipt(conn, carried, accepted, None);
                return Ok(());
            }
            Inserted::Known { same: false, .. } => {
                self.refuse(now, conn, Some(carried.id.clone()), id_reused(carried));
                return Ok(());
            }
        }
        let recipients_count = count(recipients.len());
        self.outbox.now(Output::Count(Count::Accepted {
            recipients: recipients_count,
        }));
        let accepted = Accepted {
            recipients: recipients_count,
            online,
            duplicate: false,
        };
        self.receipt(conn, carried, accepted, Some(now.wall_ms));
        let seq = Seq(self.head.next_seq - 1);
        self.owe(now, seq, sender, carried, &recipients, txn)
    }

    /// Writes the message, with its audit event, under the next number.
    fn store_message<T: Txn + ?Sized>(
        &mut self,
        now: Now,
        sender: PeerId,
        carried: &Carried,
        recipients: &[PeerId],
        txn: &mut T,
    ) -> Result<Inserted, StoreError> {
        let (id, recipients) = (&carried.id, count(recipients.len()));
        let seq = Seq(self.head.next_seq);
        let accepted_ms = now.wall_ms;
        let envelope = &carried.text;
        let message = NewMessage {
            seq,
            sender,
            id,
            envelope,
            recipients,
            accepted_ms,
        };
        let inserted = txn.insert_message(&message)?;
        if inserted == Inserted::New {
            self.head.next_seq += 1;
            self.sweep.rescan |= recipients == 0;
            if !self.mutations.broken(Mutation::SkipAudit) {
                self.log.push(&Event::Accept {
                    seq,
                    sender,
                    id,
                    recipients,
                });
            }
        }
        Ok(inserted)
    }

    fn check_from(&self, session: &Session, carried: &Carried) -> Result<(), Refusal> {
        let name = &session.name;
        if carried.from == *name || self.mutations.broken(Mutation::TrustFrom) {
            return Ok(());
        }
        // What was signed before a rename and was not receipted comes again as it was.
        let old = self.registry.alias(&carried.from.key());
        let own = |old: &Alias| old.own && old.peer == session.peer && old.name == carried.from;
        if old.is_some_and(own) {
            return Ok(());
        }
        Err(Refusal {
            code: RefusalCode::From,
            reason: format!(
                "from is {} but this connection is registered as {name}; sign as {name}",
                carried.from
            ),
        })
    }

    /// Whom a message is owed to.
    fn recipients<T: Txn + ?Sized>(
        &mut self,
        now: Now,
        sender: PeerId,
        to: &Address,
        txn: &mut T,
    ) -> Result<Result<Vec<PeerId>, Refusal>, StoreError> {
        let name = match to {
            Address::All => return self.everyone(now, sender, txn).map(Ok),
            Address::Peer(name) => name,
        };
        let key = name.key();
        let known = match self.registry.find(&key) {
            Some(peer) => Some(peer),
            None => self.old_name(now, &key, txn)?,
        };
        let Some(peer) = known else {
            if self.mutations.broken(Mutation::AcceptUnknown) {
                return Ok(Ok(Vec::new()));
            }
            return Ok(Err(Refusal {
                code: RefusalCode::UnknownRecipient,
                reason: format!(
                    "no peer named {name} has ever registered here; ask for the list of peers"
                ),
            }));
        };
        if self.has_queue_room(peer, txn)? {
            return Ok(Ok(vec![peer]));
        }
        Ok(Err(Refusal {
            code: RefusalCode::QueueFull,
            reason: format!(
                "the queue of {name} is full ({} messages); send again when it has read some",
                self.queue_max(peer)
            ),
        }))
    }

    /// Every peer that is registered now, or was until its connection broke a moment ago.
    fn everyone<T: Txn + ?Sized>(
        &mut self,
        now: Now,
        sender: PeerId,
        txn: &mut T,
    ) -> Result<Vec<PeerId>, StoreError> {
        let here = |(id, peer): (PeerId, &super::registry::Peer)| {
            let registered = peer.conn.is_some() || now.mono_ms < peer.grace_until;
            (registered && id != sender && !peer.row.ephemeral).then_some(id)
        };
        let candidates: Vec<_> = self.registry.iter().filter_map(here).collect();
        let mut recipients = Vec::with_capacity(candidates.len());
        for peer in candidates {
            if self.has_queue_room(peer, txn)? {
                recipients.push(peer);
            }
        }
        Ok(recipients)
    }

    fn queue_max(&self, peer: PeerId) -> u64 {
        let ephemeral = self.registry.get(peer).is_some_and(|p| p.row.ephemeral);
        if ephemeral {
            EPHEMERAL_QUEUE_MAX
        } else {
            self.config.queue_max
        }
    }

    fn has_queue_room<T: Txn + ?Sized>(
        &mut self,
        peer: PeerId,
        txn: &mut T,
    ) -> Result<bool, StoreError> {
        let max = self.queue_max(peer);
        Ok(self.owed(peer, txn)? < max)
    }

    /// How many messages are owed to a peer; counted once, then kept.
    pub(super) fn owed<T: Txn + ?Sized>(
        &mut self,
        peer: PeerId,
        txn: &mut T,
    ) -> Result<u64, StoreError> {
        let Some(known) = self.registry.get_mut(peer) else {
            return Ok(0);
        };
        if let Some(owed) = known.owed {
            return Ok(owed);
        }
        let owed = txn.count_queue(peer)?;
        known.owed = Some(owed);
        Ok(owed)
    }

    fn owe<T: Txn + ?Sized>(
        &mut self,
        now: Now,
        seq: Seq,
        sender: PeerId,
        carried: &Carried,
        recipients: &[PeerId],
        txn: &mut T,
    ) -> Result<(), StoreError> {
        let mut shared = None;
        for &recipient in recipients {
            txn.insert_debt(recipient, seq)?;
            let Some(peer) = self.registry.get_mut(recipient) else {
                continue;
            };
            let before = peer.last_debt.replace(seq);
            if let Some(owed) = &mut peer.owed {
                *owed += 1;
            }
            let Some(conn) = peer.conn else { continue };
            let to_old_name = match &carried.to {
                Address::Peer(to) => !to.as_str().eq_ignore_ascii_case(&peer.row.name),
                Address::All => false,
            };
            let frame = match to_old_name {
                true => self.frame_for(conn, seq, &carried.text),
                false => None,
            };
            let frame = match &frame {
                Some(frame) => frame,
                None => shared.get_or_insert_with(|| self.deliver_frame(seq, &carried.text)),
            };
            let live = super::deliver::Fresh {
                seq,
                sender,
                id: &carried.id,
                frame,
            };
            self.deliver_fresh(now, conn, before.unwrap_or_default(), &live);
        }
        Ok(())
    }

    /// The frame in which a message is delivered, to whomever.
    pub(super) fn deliver_frame(&self, seq: Seq, envelope: &str) -> DeliverFrame {
        if self.mutations.broken(Mutation::AlterEnvelope) {
            return DeliverFrame::new(seq, &envelope.replace(r#""body":"#, r#""body":  "#));
        }
        DeliverFrame::new(seq, envelope)
    }

    fn receipt(&mut self, conn: ConnId, carried: &Carried, accepted: Accepted, at_ms: Option<u64>) {
        if self.conns.session(conn).is_some_and(|s| s.ext) {
            let receipt = Receipt::new(carried.id.clone(), Stage::Accepted(accepted));
            self.outbox.answer(conn, Receipt { at_ms, ..receipt });
        } else {
            self.outbox.want(super::Need::Now);
        }
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn id_reused(carried: &Carried) -> Refusal {
    Refusal {
        code: RefusalCode::IdReused,
        reason: format!(
            "id {} was used before for another message; give every message an id of its own",
            carried.id
        ),
    }
}
