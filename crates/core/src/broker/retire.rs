//! A name ends for good: its mail goes to a successor, or its senders are told.

use peerbus_wire::{BrokerFrame, CloseReason, NameAnswer, PeerName};

use super::conn::Conn;
use super::expire::{LEFT, SLICE, SLICE_BYTES};
use super::mutation::Mutation;
use super::{Broker, BusEvent, Caller, ConnId, Cx, Need, Output};
use crate::Now;
use crate::audit::Event;
use crate::store::{Ending, PeerId, Queued, StoreError, Txn};

/// What the operator wants done.
#[derive(Debug, Clone)]
pub enum Command {
    /// Free a name: it belongs to no token until somebody registers it.
    Release(PeerName),
    /// End a name for good.
    Retire {
        /// The name.
        name: PeerName,
        /// Who gets its mail; its senders are told that it expired when there is nobody.
        successor: Option<PeerName>,
    },
}

/// Why something was not done about a name. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// There is no such name.
    #[error("{0}")]
    Unknown(String),
    /// It, or the other one, cannot be used so.
    #[error("{0}")]
    Unfit(String),
}

impl Broker {
    /// Does what the operator wants.
    ///
    /// # Errors
    ///
    /// Only when storage failed.
    pub fn operate(
        &mut self,
        now: Now,
        command: &Command,
        txn: &mut dyn Txn,
    ) -> Result<Result<(), Denied>, StoreError> {
        let cx = &mut self.cx(now, txn);
        let (Command::Release(name) | Command::Retire { name, .. }) = command;
        let Some(peer) = self.registry.find(&name.key()) else {
            return Ok(Err(self.unknown(name)));
        };
        match command {
            Command::Release(_) => self.release_name(cx, peer).map(Ok),
            Command::Retire { successor, .. } => {
                let successor = match self.successor(peer, successor.as_ref(), false) {
                    Ok(successor) => successor,
                    Err(denied) => return Ok(Err(denied)),
                };
                if let Some(conn) = self.registry.conn(peer) {
                    self.close_ended(conn);
                }
                self.end_name(cx, peer, successor).map(Ok)
            }
        }
    }

    fn unknown(&self, name: &PeerName) -> Denied {
        match self.registry.alias(&name.key()) {
            Some(alias) => {
                let holder = self.registry.name(alias.peer);
                Denied::Unknown(format!(
                    "{name} is an old name of {holder}; say {holder} if that one is meant"
                ))
            }
            None => Denied::Unknown(format!(
                "no peer named {name} has ever registered here, or it was forgotten"
            )),
        }
    }

    /// A peer ends its own name.
    pub(super) fn retire(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        successor: Option<&str>,
    ) -> Result<(), StoreError> {
        let Caller { conn, peer, .. } = caller;
        let name = self.registry.name(peer);
        let successor = match successor.map(PeerName::parse).transpose() {
            Ok(successor) => self.successor(peer, successor.as_ref(), true),
            Err(error) => Err(Denied::Unfit(error.to_string())),
        };
        let refused = successor.as_ref().err().map(Denied::to_string);
        let answer = BrokerFrame::Retired(NameAnswer { name, refused });
        let Ok(successor) = successor else {
            self.outbox.barrier(Output::Send(conn, answer));
            return Ok(());
        };
        self.outbox.waiting(Output::Send(conn, answer), Need::Now);
        self.close_ended(conn);
        self.end_name(cx, peer, successor)
    }

    /// Who gets the mail of `peer`; with `own`, only somebody of the same token.
    fn successor(
        &self,
        peer: PeerId,
        successor: Option<&PeerName>,
        own: bool,
    ) -> Result<Option<PeerId>, Denied> {
        let Some(name) = successor else {
            return Ok(None);
        };
        let known = self.registry.resolve(&name.key());
        let Some((successor, row)) = known.and_then(|id| Some((id, &self.registry.get(id)?.row)))
        else {
            return Err(Denied::Unknown(format!(
                "no peer named {name} has ever registered here, so it cannot be the successor"
            )));
        };
        let owner = self.registry.get(peer).and_then(|peer| peer.row.owner);
        if successor == peer {
            Err(Denied::Unfit("a name cannot be its own successor".into()))
        } else if row.ephemeral {
            let why = format!("{name} is temporary; a successor must be one that stays");
            Err(Denied::Unfit(why))
        } else if self.is_abroad(successor) {
            let why = format!(
                "{name} is a bridge to another domain; a successor must be a peer of this one"
            );
            Err(Denied::Unfit(why))
        } else if own && row.owner != owner {
            let why = format!("{name} belongs to another token; a successor must be of the same");
            Err(Denied::Unfit(why))
        } else {
            Ok(Some(successor))
        }
    }

    /// The connection of a name that ends is closed, after what it was to be told.
    fn close_ended(&mut self, conn: ConnId) {
        if let Some(Conn::Live(mut session)) = self.conns.remove(conn) {
            self.end_budget(&mut session);
            self.keep_histories(&mut session);
            self.registry.set_conn(session.peer, None);
            let name = session.name.as_str().to_owned();
            self.outbox.now(Output::Event(BusEvent::Left { name }));
        }
        self.conns.insert(conn, Conn::Closing);
        self.outbox
            .waiting(Output::Close(conn, CloseReason::NameEnded), Need::Now);
    }

    /// Ends a name that is not connected (any more). Its queue is dealt with slice by slice.
    fn end_name(
        &mut self,
        cx: &mut Cx<'_>,
        peer: PeerId,
        successor: Option<PeerId>,
    ) -> Result<(), StoreError> {
        let newcomer = self.registry.get_mut(peer).and_then(|p| p.contender.take());
        if let Some(newcomer) = newcomer {
            self.deny(newcomer, CloseReason::NameEnded);
        }
        self.end_holder(cx, peer)?;
        self.end_forwarded(cx, peer, successor.map_or(Ending::Expire, Ending::Move))?;
        self.pass_aliases(cx, peer, successor)?;
        if let Some(row) = successor.and_then(|to| self.registry.pass_groups(peer, to)) {
            cx.txn.put_peer(row)?;
        }
        let ending = successor.map_or(Ending::Expire, Ending::Move);
        for row in self.registry.without_successor(peer, ending) {
            cx.txn.put_peer(&row)?;
        }
        self.keep_left(cx.now, peer);
        let Some((name, row)) = self.registry.end(peer, ending) else {
            return Ok(());
        };
        cx.txn.put_peer(&row)?;
        self.log.push(&Event::Retire { peer, successor });
        self.outbox.now(Output::Event(BusEvent::Retired {
            name: name.as_str().to_owned(),
            successor: successor.map(|successor| self.registry.name(successor)),
        }));
        self.outbox.want(Need::Now);
        if let Some(successor) = successor {
            self.add_alias(cx, &name, successor, false)?;
            // It may be in more groups now.
            self.offer_jobs(cx, successor)?;
        }
        self.sweep.pass_now(cx.now);
        Ok(())
    }

    /// Deals with one slice of the queues of names that have ended. Says whether there may be more.
    pub(super) fn settle_ended(&mut self, cx: &mut Cx<'_>) -> Result<bool, StoreError> {
        let Some((peer, ending, ephemeral)) = self.registry.first_ended() else {
            return Ok(false);
        };
        let queued = cx.txn.read_queue(peer, SLICE, SLICE_BYTES)?;
        if queued.is_empty() {
            cx.txn.delete_peer(peer)?;
            self.registry.forget_ended(peer);
            self.log.push(&Event::Forget { peer });
            self.outbox.want(Need::Soon);
            return Ok(true);
        }
        match ending {
            Ending::Move(successor) if self.registry.get(successor).is_some() => {
                self.move_mail(cx, peer, successor, queued)?;
            }
            _ => {
                let name = self.registry.name(peer);
                let reason = match ephemeral {
                    true => LEFT.to_owned(),
                    false => format!("{name} ended for good"),
                };
                for message in queued {
                    self.expire_ended(cx, peer, message, &reason)?;
                }
            }
        }
        Ok(true)
    }

    fn expire_ended(
        &mut self,
        cx: &mut Cx<'_>,
        peer: PeerId,
        message: Queued,
        reason: &str,
    ) -> Result<(), StoreError> {
        if self.mutations.broken(Mutation::RetireSilent) {
            cx.txn
                .delete_delivery((peer, message.sender), message.seq)?;
            let (seq, recipient) = (message.seq, peer);
            self.not_owed((peer, message.sender), message.envelope.len() as u64);
            self.log.push(&Event::Expire { seq, recipient });
            self.outbox.want(Need::Soon);
            return Ok(());
        }
        self.expire(cx, peer, message.into(), reason)
    }

    /// Owes a slice of mail to the successor instead. Its order among itself stays; the successor
    /// gets it although it may have got newer mail.
    fn move_mail(
        &mut self,
        cx: &mut Cx<'_>,
        peer: PeerId,
        successor: PeerId,
        queued: Vec<Queued>,
    ) -> Result<(), StoreError> {
        let again = self.registry.ended_delivered(peer);
        let conn = self.registry.conn(successor);
        for message in queued {
            let Queued {
                seq,
                sender,
                steady_ms,
                ..
            } = message;
            if cx.txn.has_delivery((successor, sender), seq)? {
                let (name, successor) = (self.registry.name(peer), self.registry.name(successor));
                let reason = format!("{name} ended for good; {successor} got the message itself");
                self.expire_ended(cx, peer, message, &reason)?;
                continue;
            }
            cx.txn.delete_delivery((peer, sender), seq)?;
            cx.txn
                .insert_delivery((successor, sender), seq, steady_ms)?;
            let (from, to) = (peer, successor);
            self.owed.pass(from, to, message.envelope.len() as u64);
            self.log.push(&Event::Move { seq, from, to });
            let payer = self.payer(sender);
            if let Some(session) = conn.and_then(|conn| self.conns.session_mut(conn)) {
                session.line.inherit((sender, payer), seq, &session.flights);
            }
            let known = self.registry.get_mut(successor);
            if let Some(pending) = known.and_then(|known| known.pending.as_mut()) {
                *pending += 1;
            }
        }
        // Not to be delivered before the commit, or two would have it if that is lost.
        self.expiring = true;
        self.outbox.want(Need::Soon);
        // More than this may be said to come again, but nothing that does is said to be new.
        match conn.and_then(|conn| self.conns.session_mut(conn)) {
            Some(session) => session.again.merge(&again),
            None => {
                if let Some(known) = self.registry.get_mut(successor) {
                    known.row.delivered.get_or_insert_default().merge(&again);
                    cx.txn.put_peer(&known.row)?;
                }
            }
        }
        self.registry.mark_dirty(successor);
        Ok(())
    }
}
