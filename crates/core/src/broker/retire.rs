//! A name ends for good: its mail goes to a successor, or its senders are told.

use peerbus_wire::{BrokerFrame, CloseReason, NameAnswer, PeerName, Seq};

use super::conn::Conn;
use super::expire::SLICE;
use super::mutation::Mutation;
use super::{Broker, ConnId, Count, Need, Output};
use crate::Now;
use crate::audit::Event;
use crate::store::{Ending, MessageHead, PeerId, Queued, StoreError, Txn};

/// Bytes of mail that one slice reads.
const SLICE_BYTES: usize = 4 * 1_048_576;

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
    pub fn operate<T: Txn + ?Sized>(
        &mut self,
        now: Now,
        command: &Command,
        txn: &mut T,
    ) -> Result<Result<(), Denied>, StoreError> {
        let (Command::Release(name) | Command::Retire { name, .. }) = command;
        let Some(peer) = self.registry.find(&name.key()) else {
            return Ok(Err(self.unknown(name)));
        };
        match command {
            Command::Release(_) => self.release_name(peer, txn).map(Ok),
            Command::Retire { successor, .. } => {
                let heir = match self.heir(peer, successor.as_ref(), false) {
                    Ok(heir) => heir,
                    Err(denied) => return Ok(Err(denied)),
                };
                if let Some(conn) = self.registry.conn(peer) {
                    self.close_ended(conn);
                }
                self.end_name(now, peer, heir, txn).map(Ok)
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
    pub(super) fn retire<T: Txn + ?Sized>(
        &mut self,
        now: Now,
        conn: ConnId,
        successor: Option<&str>,
        txn: &mut T,
    ) -> Result<(), StoreError> {
        let Some(session) = self.conns.session(conn) else {
            return Ok(());
        };
        let (peer, name) = (session.peer, session.name.as_str().to_owned());
        let heir = match successor.map(PeerName::parse).transpose() {
            Ok(successor) => self.heir(peer, successor.as_ref(), true),
            Err(error) => Err(Denied::Unfit(error.to_string())),
        };
        let refused = heir.as_ref().err().map(Denied::to_string);
        let answer = BrokerFrame::Retired(NameAnswer { name, refused });
        let Ok(heir) = heir else {
            self.outbox.barrier(Output::Send(conn, answer));
            return Ok(());
        };
        self.outbox.waiting(Output::Send(conn, answer), Need::Now);
        self.close_ended(conn);
        self.end_name(now, peer, heir, txn)
    }

    /// Who gets the mail of `peer`; with `own`, only somebody of the same token.
    fn heir(
        &self,
        peer: PeerId,
        successor: Option<&PeerName>,
        own: bool,
    ) -> Result<Option<PeerId>, Denied> {
        let Some(name) = successor else {
            return Ok(None);
        };
        let known = self.registry.resolve(&name.key());
        let Some((heir, row)) = known.and_then(|id| Some((id, &self.registry.get(id)?.row))) else {
            return Err(Denied::Unknown(format!(
                "no peer named {name} has ever registered here, so it cannot be the successor"
            )));
        };
        let owner = self.registry.get(peer).and_then(|peer| peer.row.owner);
        if heir == peer {
            Err(Denied::Unfit("a name cannot be its own successor".into()))
        } else if row.ephemeral {
            let why = format!("{name} is temporary; a successor must be one that stays");
            Err(Denied::Unfit(why))
        } else if own && row.owner != owner {
            let why = format!("{name} belongs to another token; a successor must be of the same");
            Err(Denied::Unfit(why))
        } else {
            Ok(Some(heir))
        }
    }

    /// The connection of a name that ends is closed, after what it was to be told.
    fn close_ended(&mut self, conn: ConnId) {
        if let Some(Conn::Live(mut session)) = self.conns.remove(conn) {
            self.keep_ways(&mut session);
            self.registry.set_conn(session.peer, None);
            let name = session.name.as_str().to_owned();
            self.outbox.now(Output::Count(Count::Left { name }));
        }
        self.conns.insert(conn, Conn::Closing);
        self.outbox
            .waiting(Output::Close(conn, CloseReason::NameEnded), Need::Now);
    }

    /// Ends a name that is not connected (any more). Its queue is dealt with slice by slice.
    fn end_name<T: Txn + ?Sized>(
        &mut self,
        now: Now,
        peer: PeerId,
        heir: Option<PeerId>,
        txn: &mut T,
    ) -> Result<(), StoreError> {
        let newcomer = self.registry.get_mut(peer).and_then(|p| p.contender.take());
        if let Some(newcomer) = newcomer {
            self.deny(newcomer, CloseReason::NameEnded);
        }
        self.pass_aliases(peer, heir, txn)?;
        let ending = heir.map_or(Ending::Expire, Ending::Move);
        for row in self.registry.heirless(peer, ending) {
            txn.put_peer(&row)?;
        }
        let Some((name, row)) = self.registry.end(peer, ending) else {
            return Ok(());
        };
        txn.put_peer(&row)?;
        let successor = heir.map(|heir| self.registry.name(heir));
        self.log.push(&Event::Retire { peer, heir });
        self.outbox.now(Output::Count(Count::Retired {
            name: name.as_str().to_owned(),
            successor,
        }));
        self.outbox.want(Need::Now);
        if let Some(heir) = heir {
            self.add_alias(now, &name, heir, false, txn)?;
        }
        self.sweep.next_ms = now.mono_ms;
        Ok(())
    }

    /// Deals with one slice of the queues of names that have ended. Says whether there may be more.
    pub(super) fn settle_ended<T: Txn + ?Sized>(
        &mut self,
        now: Now,
        txn: &mut T,
    ) -> Result<bool, StoreError> {
        let Some((peer, ending)) = self.registry.first_ended() else {
            return Ok(false);
        };
        let queued = txn.read_queue(peer, Seq(0), SLICE, SLICE_BYTES)?;
        if queued.is_empty() {
            txn.delete_peer(peer)?;
            self.registry.forget_ended(peer);
            self.log.push(&Event::Forget { peer });
            self.outbox.want(Need::Soon);
            return Ok(true);
        }
        match ending {
            Ending::Move(heir) if self.registry.get(heir).is_some() => {
                self.move_mail(now, peer, heir, &queued, txn)?;
            }
            _ => {
                let name = self.registry.name(peer);
                let reason = format!("{name} ended for good");
                for message in &queued {
                    self.expire_ended(now, peer, message, &reason, txn)?;
                }
            }
        }
        Ok(true)
    }

    fn expire_ended<T: Txn + ?Sized>(
        &mut self,
        now: Now,
        peer: PeerId,
        message: &Queued,
        reason: &str,
        txn: &mut T,
    ) -> Result<(), StoreError> {
        if self.mutations.broken(Mutation::RetireSilent) {
            txn.delete_debt(peer, message.seq)?;
            let (seq, recipient) = (message.seq, peer);
            self.log.push(&Event::Expire { seq, recipient });
            self.outbox.want(Need::Soon);
            return Ok(());
        }
        let head = MessageHead {
            seq: message.seq,
            sender: message.sender,
            id: message.id.clone(),
            recipients: 1,
            accepted_ms: message.accepted_ms,
        };
        self.expire(now, peer, &head, reason, txn)
    }

    /// Owes a slice of mail to the successor instead. Its order among itself stays; the successor
    /// gets it although it may have got newer mail.
    fn move_mail<T: Txn + ?Sized>(
        &mut self,
        now: Now,
        peer: PeerId,
        heir: PeerId,
        queued: &[Queued],
        txn: &mut T,
    ) -> Result<(), StoreError> {
        let mut first = None;
        let mut moved = 0;
        for message in queued {
            let seq = message.seq;
            if txn.has_debt(heir, seq)? {
                let (name, heir) = (self.registry.name(peer), self.registry.name(heir));
                let reason = format!("{name} ended for good; {heir} got the message itself");
                self.expire_ended(now, peer, message, &reason, txn)?;
                continue;
            }
            txn.delete_debt(peer, seq)?;
            txn.insert_debt(heir, seq)?;
            let (from, to) = (peer, heir);
            self.log.push(&Event::Move { seq, from, to });
            first.get_or_insert(seq);
            moved += 1;
        }
        // Not to be delivered before the commit, or two would have it if that is lost.
        self.expiring = true;
        self.outbox.want(Need::Soon);
        let Some(first) = first else {
            return Ok(());
        };
        let again = self.registry.ended_delivered(peer);
        let last_debt = txn.last_debt(heir)?;
        let Some(known) = self.registry.get_mut(heir) else {
            return Ok(());
        };
        known.last_debt = last_debt;
        if let Some(owed) = &mut known.owed {
            *owed += moved;
        }
        match known.conn.and_then(|conn| self.conns.session_mut(conn)) {
            Some(session) => session.go_back(first, again),
            // More than this may be said to come again, but nothing that does is said to be new.
            None => known.delivered = known.delivered.max(again),
        }
        self.registry.mark_dirty(heir);
        Ok(())
    }
}
