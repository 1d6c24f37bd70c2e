//! Other domains: who is reached through a bridge, what a bridge brings, and what it has forwarded.
//!
//! What a bridge has forwarded is owed still, in a queue beside the bridge's own: as long as the other
//! broker remembers it, which its epoch tells, it is not delivered to the bridge again.

use peerbus_wire::limits::{FORWARDED_MAX, FRAME_BYTES_MAX};
use peerbus_wire::{
    Address, BrokerFrame, Carried, CloseReason, DeliveryKey, EXT, Forwarded, Mark, MessageId,
    PeerName, Refusal, RefusalCode, Register, Seq, Stage, recipient_of,
};

use super::ack::End;
use super::conn::Bridge;
use super::mutation::BrokerMutation;
use super::registry::Peer;
use super::{Broker, Caller, CommitNeed, Cx};
use crate::Now;
use crate::grant::{Grant, Right};
use crate::store::{
    ANSWERS, DeliveryHistory, LeaseRow, Lessee, MessageHead, NOBODY, PeerId, PeerRow, Queued,
    Result, Txn,
};

impl Broker {
    /// Whether a connection may be what it says of itself: a bridge, or a peer with this name.
    pub(super) fn check_address(
        &self,
        grant: &Grant,
        name: &PeerName,
        register: &Register,
    ) -> Result<(), CloseReason> {
        let no = |why: &str| Err(CloseReason::NoBridge { why: why.into() });
        let Some(own) = &self.config.domain else {
            return match register.bridge {
                Some(_) => no("this broker has no domain: start it with --domain"),
                None => Ok(()),
            };
        };
        if register.bridge.is_none() {
            return self.check_bare(name);
        }
        match name.bridged() {
            None => no("its name must be bridge@ and the other domain"),
            Some(other) if other == *own => no("this broker itself has that domain"),
            Some(_) if register.ext < EXT || register.ephemeral => {
                no("it must speak the extension, and stay")
            }
            Some(_) if !grant.rights.has(Right::Bridge) => no("its token lacks the right `bridge`"),
            Some(_) => Ok(()),
        }
    }

    /// Whether a name looks like an address, and nobody had it before this broker had a domain.
    pub(super) fn check_bare(&self, name: &PeerName) -> Result<(), CloseReason> {
        let key = name.key();
        let known = self.registry.find(&key).is_some() || self.registry.aliases.contains_key(&key);
        let odd = name.as_str().contains('@') && (!known || name.bridged().is_some());
        match self.config.domain.is_some() && odd {
            true => Err(CloseReason::InvalidName(peerbus_wire::NameError::Address)),
            false => Ok(()),
        }
    }

    /// The queue of a bridge, or of what it has forwarded.
    pub(super) fn is_abroad(&self, peer: PeerId) -> bool {
        self.registry.is_forwarded(peer) || self.is_bridge(peer) || self.registry.was_bridge(peer)
    }

    pub(super) fn is_bridge(&self, peer: PeerId) -> bool {
        self.config.domain.is_some() && self.registry.get(peer).is_some_and(Peer::bridges)
    }

    /// Whom mail for an address with a domain is owed to, when nobody here has it for a name.
    pub(super) fn elsewhere(&mut self, cx: &mut Cx<'_>, name: &PeerName) -> Result<Option<PeerId>> {
        let (Some(own), Some((local, domain))) = (&self.config.domain, name.address()) else {
            return Ok(None);
        };
        if domain != *own {
            let bridge = domain.bridge();
            return Ok(bridge.and_then(|bridge| self.registry.find(&bridge.key())));
        }
        let key = local.key();
        match self.registry.find(&key) {
            Some(peer) => Ok(Some(peer)),
            None => self.old_name(cx, &key),
        }
    }

    /// Why nobody is found under a name.
    pub(super) fn nobody(&self, name: &PeerName) -> String {
        let other = name
            .address()
            .filter(|(_, domain)| self.config.domain.as_ref().is_some_and(|own| own != domain));
        let Some((_, domain)) = other else {
            return format!("nobody here is called {name}, or not any more");
        };
        let joined: Vec<_> = self.registry.bridges().map(|it| it.to_string()).collect();
        let joined = match joined.is_empty() {
            true => "no other domain has been joined yet".to_owned(),
            false => format!("joined are {}", joined.join(", ")),
        };
        format!(
            "the domain {domain} was never joined to this broker, so {name} cannot be reached; {joined}"
        )
    }

    /// Whether a message may go between domains as it does.
    pub(super) fn check_way(
        &self,
        caller: Caller,
        name: &PeerName,
        recipient: PeerId,
    ) -> Result<(), Refusal> {
        if self.config.domain.is_none() {
            return Ok(());
        }
        let no = |reason: String| Err(RefusalCode::Forbidden.because(reason));
        let comes = self.is_bridge(caller.peer);
        let goes = self.is_bridge(recipient);
        let v1 = self.session_of(recipient).is_some_and(|it| !it.ext);
        if comes && goes {
            return no(format!(
                "{name} is in a third domain; what comes from one is not passed on to another"
            ));
        }
        if goes && !caller.ext {
            return no(format!(
                "{name} is in another domain; a client of version 1 cannot write to one"
            ));
        }
        if comes && v1 {
            return no(only_v1(name));
        }
        Ok(())
    }

    /// The name that a message's sender has here: of what goes to another domain, what stands before
    /// the own domain, which must be said.
    pub(super) fn sender_here(&self, carried: &Carried) -> Result<PeerName, Refusal> {
        let signed = &carried.from;
        let (Some(own), Address::Peer(to)) = (&self.config.domain, &carried.to) else {
            return Ok(signed.clone());
        };
        let abroad = to.address().is_some_and(|(_, domain)| domain != *own);
        let said = signed.address().filter(|(_, domain)| domain == own);
        match said {
            Some((local, _)) if abroad => Ok(local),
            _ if abroad && self.registry.resolve(&to.key()).is_none() => Err(RefusalCode::From
                .because(format!(
                    "{to} is in another domain, where nobody knows {signed}; sign as {signed}@{own}"
                ))),
            _ => Ok(signed.clone()),
        }
    }

    /// Whether what a bridge brings is from its domain.
    pub(super) fn check_brought(bridge: &Bridge, carried: &Carried) -> Result<(), Refusal> {
        let domain = carried.from.address().map(|(_, domain)| domain);
        if domain.as_ref() == Some(&bridge.domain) {
            return Ok(());
        }
        Err(RefusalCode::From.because(format!(
            "from is {} but this is the bridge to {}, which speaks for nobody else",
            carried.from, bridge.domain
        )))
    }

    /// A bridge brings a message, and says how far it is.
    pub(super) fn take(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        (mark, again): (&Mark, bool),
        envelope: Result<Carried, (Option<MessageId>, Refusal)>,
    ) -> Result {
        let session = self.conns.session_mut(caller.conn);
        let Some(bridge) = session.and_then(|session| session.bridge.as_mut()) else {
            return Ok(());
        };
        bridge.refused &= !again;
        let behind = bridge.refused && !self.mutations.broken(BrokerMutation::TakeBehind);
        let (id, refusal) = match envelope {
            Ok(Carried { id, .. }) | Err((Some(id), _)) if behind => {
                let why = "one before it was refused; bring that again first, with `again`";
                (Some(id), RefusalCode::Invalid.because(why))
            }
            Ok(carried) => return self.route(cx, caller, &carried, Some(mark)),
            Err(refused) => refused,
        };
        self.refuse(cx.now, caller, id, refusal);
        Ok(())
    }

    /// Keeps what a bridge says of how far it is, in the transaction that accepts its message.
    pub(super) fn keep_mark(&mut self, peer: PeerId, mark: Option<&Mark>) {
        if let Some(mark) = mark
            && !self.mutations.broken(BrokerMutation::ForgetMark)
        {
            self.registry.mark(peer, mark.clone());
            self.outbox.want(CommitNeed::Soon);
        }
    }

    /// What came from another domain before its recipient came with version 1 ends: gives the rest.
    pub(super) fn without_foreign(
        &mut self,
        cx: &mut Cx<'_>,
        peer: PeerId,
        run: Vec<Queued>,
    ) -> Result<Vec<Queued>> {
        if run
            .iter()
            .all(|message| !self.is_bridge(message.head.sender))
        {
            return Ok(run);
        }
        let mut rest = Vec::new();
        for message in run {
            if !self.is_bridge(message.head.sender) {
                rest.push(message);
                continue;
            }
            let Ok(name) = PeerName::parse(&self.registry.name(peer)) else {
                continue;
            };
            let (history, end) = (DeliveryHistory::default(), only_v1(&name));
            self.finish(cx, (peer, message.head), history, End::Dead(&end))?;
        }
        Ok(rest)
    }

    /// How a recipient is called where its sender is told of a message: by the address that the sender
    /// wrote to, when it is in another domain.
    pub(super) fn called(
        &self,
        txn: &mut dyn Txn,
        pair: (PeerId, PeerId),
        seq: Seq,
    ) -> Result<String> {
        let lease = self.leases.get(seq);
        let to = match (pair.0, lease.map(|row| (&row.to, row.holder))) {
            (NOBODY, Some((Lessee::One(group), _))) => return Ok(group.to_string()),
            (NOBODY, Some((Lessee::Peer(to), _))) => *to,
            (ANSWERS, Some((_, holder))) => holder,
            (to, _) => to,
        };
        if !self.is_abroad(to) {
            return Ok(self.registry.name(to));
        }
        let queued = txn.delivery(pair, seq)?;
        Ok(queued.map_or_else(String::new, |it| recipient_of(&it.envelope).to_owned()))
    }

    /// The queue in which a delivery is: its holder's own, that of requests that were read, or that of what
    /// a bridge has forwarded.
    pub(super) fn queue_of(&self, txn: &mut dyn Txn, holder: PeerId, seq: Seq) -> Result<PeerId> {
        let row = self.leases.get(seq).filter(|row| row.holder == holder);
        if row.is_some_and(|row| row.work().is_some()) {
            return Ok(ANSWERS);
        }
        match self.registry.forwarded_by(holder).map(|row| row.id) {
            Some(queue) if txn.pending_for(seq)?.contains(&queue) => Ok(queue),
            _ => Ok(holder),
        }
    }

    /// A bridge says how far a message is in its domain.
    pub(super) fn said_abroad(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        key: &DeliveryKey,
        step: Stage,
    ) -> Result {
        let Some(seq) = key.seq() else { return Ok(()) };
        match &step {
            Stage::Forwarded => return self.forward(cx, caller, seq),
            Stage::Acked(how) => {
                return self.finish_named(cx, caller, key, End::Acked(how.as_ref()));
            }
            Stage::Dead { why } | Stage::Declined { why } => {
                return self.finish_named(cx, caller, key, End::Dead(why));
            }
            Stage::Expired { why } | Stage::Unanswered { why } => {
                return self.finish_named(cx, caller, key, End::Expired(why));
            }
            Stage::Working { said } => return self.said_working(cx, (caller.peer, seq), said),
            _ => {}
        }
        let beside = self.registry.forwarded_by(caller.peer).map(|row| row.id);
        let (Some(queue), Some(head)) = (beside, cx.txn.message(seq)?) else {
            return Ok(());
        };
        let pair = (queue, head.sender);
        let Some(message) = cx.txn.delivery(pair, seq)? else {
            return Ok(());
        };
        let known = self.recent.get((seq, queue));
        let last = known.and_then(|known| known.steps().last());
        if last.is_some_and(|(last, _)| *last == step) {
            return Ok(());
        }
        self.note_abroad(cx.now, (&message, queue), step);
        Ok(())
    }

    /// What a bridge says of a message that its domain has is remembered, and its sender told.
    fn note_abroad(&mut self, now: Now, (message, queue): (&Queued, PeerId), step: Stage) {
        let mut history = DeliveryHistory::default();
        history.step(&step, now.wall_ms);
        self.recent.record((message.head.seq, queue), history);
        let to = recipient_of(&message.envelope).to_owned();
        self.tell_sender(now, (&message.head, queue), (to, step));
    }

    /// The broker of the other domain has a message on disk.
    fn forward(&mut self, cx: &mut Cx<'_>, caller: Caller, seq: Seq) -> Result {
        let Some(session) = self.conns.session_mut(caller.conn) else {
            return Ok(());
        };
        let epoch = session.bridge.as_ref().map(|bridge| bridge.epoch.clone());
        let (Some(epoch), Some(flight)) = (epoch, session.land(seq)) else {
            return Ok(());
        };
        let (own, sender) = (caller.peer, flight.head.sender);
        self.registry.dirty.insert(own);
        let Some(message) = cx.txn.delivery((own, sender), seq)? else {
            return Ok(());
        };
        cx.txn.delete_delivery((own, sender), seq)?;
        self.settled(own);
        if self.mutations.broken(BrokerMutation::ForwardLoses) {
            return Ok(());
        }
        let queue = self.queue_beside(cx, own, epoch)?;
        cx.txn
            .insert_delivery((queue, sender), seq, message.steady_ms)?;
        self.owed.pass((own, queue), sender, message.head.bytes);
        self.log.pass(seq, own, queue);
        self.outbox.want(CommitNeed::Soon);
        self.note_abroad(cx.now, (&message, queue), Stage::Forwarded);
        Ok(())
    }

    /// The queue of what a bridge has forwarded, made if there is none.
    fn queue_beside(&mut self, cx: &mut Cx<'_>, own: PeerId, epoch: Mark) -> Result<PeerId> {
        if let Some(row) = self.registry.forwarded_by(own) {
            return Ok(row.id);
        }
        let id = PeerId(self.head.next_peer);
        self.head.next_peer += 1;
        let name = self.registry.name(own);
        let row = PeerRow::forwarded(id, name, epoch, cx.at);
        cx.txn.put_peer(&row)?;
        self.registry.put_forwarded(row);
        Ok(id)
    }

    /// A bridge has come. What it had forwarded to a broker that does not remember it (another epoch)
    /// is owed by it again, requests that were read there included.
    pub(super) fn bridge_came(&mut self, cx: &mut Cx<'_>, own: PeerId, bridge: &Bridge) -> Result {
        let beside = self.registry.forwarded_by(own);
        let stale = beside.is_some_and(|row| row.mark.as_ref() != Some(&bridge.epoch));
        if !stale || bridge.knows_nothing() || self.mutations.broken(BrokerMutation::KeepForwarded)
        {
            return Ok(());
        }
        self.take_back(cx, own)?;
        for row in self.read_by(own) {
            self.move_lease(cx, row, own)?;
        }
        Ok(())
    }

    /// The requests that a bridge has forwarded, and that were read there.
    fn read_by(&self, bridge: PeerId) -> Vec<LeaseRow> {
        let read = self.leases.held(bridge).filter(|row| row.work().is_some());
        read.cloned().collect()
    }

    /// What a bridge has forwarded is owed to it again; gives the queue that is gone, and what was in it.
    pub(super) fn take_back(
        &mut self,
        cx: &mut Cx<'_>,
        own: PeerId,
    ) -> Result<Option<(PeerId, Vec<Seq>)>> {
        let Some(queue) = self.registry.take_forwarded(own) else {
            return Ok(None);
        };
        let moved = self.readdress(cx, queue, own)?;
        self.owed.pass_all(queue, own);
        cx.txn.delete_peer(queue)?;
        self.log.forget(queue);
        Ok(Some((queue, moved)))
    }

    /// Tells a bridge what it has forwarded that has not ended.
    pub(super) fn answer_forwarded(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        after: Option<&DeliveryKey>,
    ) -> Result {
        let last = match after.and_then(DeliveryKey::seq) {
            Some(seq) => cx.txn.message(seq)?.map(|head| (head.sender, seq)),
            None => None,
        };
        let place = |head: &MessageHead| (head.sender, head.seq);
        let (mut heads, mut until) = (Vec::new(), None);
        if let Some(queue) = self.registry.forwarded_by(caller.peer).map(|row| row.id) {
            for (sender, first) in cx.txn.queue_heads(queue)? {
                let from = match last {
                    Some((of, _)) if of > sender => continue,
                    Some((of, seq)) if of == sender => Seq(seq.0 + 1),
                    _ => first,
                };
                let (pair, room) = ((queue, sender), FORWARDED_MAX - heads.len());
                let end = Seq(u64::MAX);
                let (run, next) = cx.txn.read_run(pair, from, end, room, FRAME_BYTES_MAX)?;
                heads.extend(run.into_iter().map(|message| message.head));
                if next.is_some() || heads.len() == FORWARDED_MAX {
                    // The rest is for the next answer.
                    until = heads.last().map(place);
                    break;
                }
            }
        }
        // What was read there has not ended, and is in no queue of the bridge's.
        let read = self.read_by(caller.peer).into_iter().map(|row| row.head);
        heads.extend(read.filter(|head| {
            let is_next = last.is_none_or(|last| place(head) > last);
            is_next && until.is_none_or(|until| place(head) < until)
        }));
        heads.sort_unstable_by_key(place);
        let messages = heads.into_iter().take(FORWARDED_MAX);
        let messages = messages.map(|MessageHead { seq, id, .. }| Forwarded { key: seq.key(), id });
        let frame = BrokerFrame::Forwarded(messages.collect());
        self.outbox.barrier(caller.conn, frame);
        Ok(())
    }
}

fn only_v1(name: &PeerName) -> String {
    format!("{name} speaks version 1 of the protocol, which knows no other domains")
}
