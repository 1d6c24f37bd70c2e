//! A name ends for good: its mail goes to a successor at once, or its senders are told.

use peerbus_wire::{BrokerFrame, CloseReason, NameAnswer, PeerName, Seq};

use super::conn::Conn;
use super::expire::{LEFT, SLICE};
use super::leases::NAME_ENDED;
use super::owed::HANDED_MAX;
use super::{Broker, BrokerOutput, BusEvent, Caller, CommitNeed, ConnId, Cx};
use crate::store::{PeerId, Result, Txn};
use crate::{Delivered, Now};

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
    /// Take a request back in its asker's name.
    Withdraw(Seq),
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
    ) -> Result<Result<(), Denied>> {
        let cx = &mut self.cx(now, txn);
        let name = match command {
            Command::Release(name) | Command::Retire { name, .. } => name,
            Command::Withdraw(seq) => return self.withdraw_for(cx, *seq),
        };
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
            Command::Withdraw(_) => Ok(Ok(())),
        }
    }

    fn unknown(&self, name: &PeerName) -> Denied {
        match self.registry.aliases.get(&name.key()) {
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
    ) -> Result {
        let Caller {
            conn, peer, token, ..
        } = caller;
        let name = self.registry.name(peer);
        let successor = match successor.map(PeerName::parse).transpose() {
            Ok(successor) => self.successor(peer, successor.as_ref(), true),
            Err(error) => Err(Denied::Unfit(error.to_string())),
        };
        let waiting = self.pending(cx, peer)?;
        let successor = match successor {
            Ok(Some(_)) if !self.owed.hand_over(cx.now.mono_ms, token, waiting) => {
                let later = match waiting > HANDED_MAX {
                    true => "",
                    false => "try again in a minute, or ",
                };
                Err(Denied::Unfit(format!(
                    "{waiting} messages wait for {name}, and peers of one token hand over at most \
                     {HANDED_MAX} within a minute; {later}have the broker's operator end the name"
                )))
            }
            other => other,
        };
        let refused = successor.as_ref().err().map(Denied::to_string);
        let answer = BrokerFrame::Retired(NameAnswer { name, refused });
        let Ok(successor) = successor else {
            self.outbox.barrier(conn, answer);
            return Ok(());
        };
        self.outbox
            .waiting(BrokerOutput::Send(conn, answer), CommitNeed::Now);
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
        Err(Denied::Unfit(if successor == peer {
            "a name cannot be its own successor".into()
        } else if row.ephemeral {
            format!("{name} is temporary; a successor must be one that stays")
        } else if self.is_abroad(successor) {
            format!("{name} is a bridge to another domain; a successor must be a peer of this one")
        } else if own && row.owner != owner {
            format!("{name} belongs to another token; a successor must be of the same")
        } else {
            return Ok(Some(successor));
        }))
    }

    /// The connection of a name that ends is closed, after what it was to be told.
    fn close_ended(&mut self, conn: ConnId) {
        if let Some(Conn::Live(mut session)) = self.conns.all.remove(&conn) {
            self.end_budget(&mut session);
            self.keep_histories(&mut session);
            self.registry.set_conn(session.peer, None);
            let name = session.name.as_str().to_owned();
            self.outbox.event(BusEvent::Left { name });
        }
        self.conns.all.insert(conn, Conn::Closing);
        self.outbox.waiting(
            BrokerOutput::Close(conn, CloseReason::NameEnded),
            CommitNeed::Now,
        );
    }

    /// Ends a name that is not connected (any more). Without a successor its mail expires slice by slice.
    fn end_name(&mut self, cx: &mut Cx<'_>, peer: PeerId, successor: Option<PeerId>) -> Result {
        let newcomer = self.registry.get_mut(peer).and_then(|p| p.contender.take());
        if let Some(newcomer) = newcomer {
            self.deny(newcomer, CloseReason::NameEnded);
        }
        // First: a member more may want what others rejected.
        if let Some(row) = successor.and_then(|to| self.registry.pass_groups(peer, to)) {
            cx.txn.put_peer(row)?;
        }
        self.leave_leases(cx, peer, NAME_ENDED)?;
        if let Some((queue, forwarded)) = self.take_back(cx, peer)? {
            for seq in forwarded {
                self.recent.pass((seq, queue), peer);
            }
        }
        match successor {
            Some(successor) => self.succeed_in_requests(cx, peer, successor)?,
            None => self.leave_requests(cx, peer, NAME_ENDED)?,
        }
        self.pass_aliases(cx, peer, successor)?;
        let Some((name, row)) = self.registry.end(peer, cx.at) else {
            return Ok(());
        };
        self.keep_left(cx, &row)?;
        self.log.retire(peer, successor);
        self.outbox.event(BusEvent::Retired {
            name: name.as_str().to_owned(),
            successor: successor.map(|successor| self.registry.name(successor)),
        });
        self.outbox.want(CommitNeed::Now);
        if let Some(successor) = successor {
            self.add_alias(cx, &name, successor, false)?;
            self.succeed(cx, (peer, row.delivered.unwrap_or_default()), successor)?;
            // It may be in more groups now.
            self.offer_leases(cx, successor)?;
        }
        self.sweep.pass_now(cx.now);
        Ok(())
    }

    /// Expires one slice of the queues of names that have ended, and settles those before it that have no
    /// mail, a slice of them. Says whether there may be more.
    pub(super) fn settle_ended(&mut self, cx: &mut Cx<'_>) -> Result<bool> {
        for _ in 0..SLICE {
            let Some((&peer, row)) = self.registry.ended.first_key_value() else {
                return Ok(false);
            };
            let reason = match row.ephemeral {
                true => LEFT.to_owned(),
                false => format!("{} ended for good", row.name),
            };
            if self.expire_queue(cx, peer, &reason)? {
                break;
            }
            let row = self.registry.ended.remove(&peer);
            if !row.is_some_and(|row| self.left.has(&row)) {
                cx.txn.delete_peer(peer)?;
            }
            self.log.forget(peer);
            self.outbox.want(CommitNeed::Soon);
        }
        Ok(true)
    }

    /// What a name that has ended was owed its successor is owed instead: in the old order, although it
    /// may have got newer mail.
    fn succeed(
        &mut self,
        cx: &mut Cx<'_>,
        (peer, mut delivered): (PeerId, Delivered),
        successor: PeerId,
    ) -> Result {
        if self.readdress(cx, peer, successor)?.is_empty() {
            delivered = Delivered::default();
        }
        // More than this may be said to come again, but nothing that does is said to be new.
        match self.session_of_mut(successor) {
            Some(session) => session.again.merge(&delivered),
            None => {
                if let Some(known) = self.registry.get_mut(successor) {
                    let all = known.row.delivered.get_or_insert_default();
                    all.merge(&delivered);
                    cx.txn.put_peer(&known.row)?;
                }
            }
        }
        // What both were owed.
        let (name, to) = (self.registry.name(peer), self.registry.name(successor));
        let reason = format!("{name} ended for good; {to} got the message itself");
        while self.expire_queue(cx, peer, &reason)? {}
        self.owed.pass_all(peer, successor);
        Ok(())
    }

    /// Owes to `to` what is owed to `from`, but for what `to` is owed itself; gives the messages.
    pub(super) fn readdress(
        &mut self,
        cx: &mut Cx<'_>,
        from: PeerId,
        to: PeerId,
    ) -> Result<Vec<Seq>> {
        // Shares that are counted while mail moves would count some of it twice.
        if self.owed.shares.contains_key(&to) {
            self.count_shares(cx, from)?;
        } else {
            self.owed.shares.remove(&from);
        }
        let moved = cx.txn.move_queue(from, to)?;
        for &(sender, seq) in &moved {
            self.passed((from, to), sender, seq);
        }
        self.outbox.want(CommitNeed::Soon);
        Ok(moved.into_iter().map(|(_, seq)| seq).collect())
    }

    /// A message of this sender is owed to another peer instead.
    pub(super) fn passed(&mut self, (from, to): (PeerId, PeerId), sender: PeerId, seq: Seq) {
        self.log.pass(seq, from, to);
        let payer = self.payer(sender);
        if let Some(session) = self.session_of_mut(to) {
            session.line.inherit((sender, payer), seq, &session.flights);
        }
        if let Some(known) = self.registry.get_mut(to) {
            known.pending = known.pending.map(|pending| pending + 1);
            self.registry.dirty.insert(to);
        }
        // Not to be delivered before the commit, or two would have it if that is lost.
        self.expiring = true;
    }
}
