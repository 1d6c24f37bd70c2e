//! What the broker is told, and what must follow from it.

use peerbus_core::TokenHash;
use peerbus_core::broker::{BrokerInput, ConnId};
use peerbus_core::store::{ANSWERS, PeerId, PeerKind, PeerRow};
use peerbus_wire::{
    Ack, Address, AuditRecord, Carried, ClientFrame, DeliveryKey, EXT_AUDIT, GroupName,
    RefusalCode, Seq, recipient_of,
};

use super::{End, Oracle};
use crate::disk::Write;
use crate::failure::{Verdict, ensure};

/// What must become of an envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expect {
    Accepted,
    Duplicate,
    Refused(RefusalCode),
    /// It answers one who may have left a moment ago: this comes of it, or its sender hears so.
    Late(Box<Expect>),
}

impl Oracle {
    /// The broker is about to handle this.
    pub fn input(&mut self, now_ms: u64, input: &BrokerInput) {
        match input {
            BrokerInput::Opened(conn) => {
                self.conn(*conn);
            }
            BrokerInput::Closed { conn, goodbye } => {
                let Some(model) = self.conns.remove(conn) else {
                    return;
                };
                if let Some(peer) = model.peer
                    && !model.closed
                    && !model.evicted
                    && !goodbye
                {
                    self.grace.insert(peer, now_ms + self.rules.grace_ms);
                }
            }
            BrokerInput::Frame(conn, frame) => {
                self.handling = Some(*conn);
                self.frame(now_ms, *conn, frame);
            }
            // None of ours is between the two.
            BrokerInput::Space { free, .. } => {
                self.full = *free == 0;
                // What ended gives way to new mail.
                self.rules.history &= !self.full;
            }
            BrokerInput::Pong(_)
            | BrokerInput::Join(..)
            | BrokerInput::Tick
            | BrokerInput::Grants(_)
            | BrokerInput::Operate(_)
            | BrokerInput::Shutdown => {}
        }
    }

    fn frame(&mut self, now_ms: u64, conn: ConnId, frame: &ClientFrame) {
        let model = self.conn(conn);
        if model.evicted {
            return;
        }
        if model.closed {
            self.after_close(now_ms, conn, frame);
            return;
        }
        let Some(peer) = model.peer else {
            if let ClientFrame::Register(register) = frame
                && model.claim.is_none()
            {
                model.claim = Some(register.clone());
            }
            return;
        };
        match frame {
            ClientFrame::Ack(ack) => {
                if let Some(seq) = self.done(conn, peer, &ack.key, End::Acked) {
                    self.claims.insert((peer, seq), ack.how.clone());
                }
            }
            ClientFrame::Reject { key, .. } if model.ext => {
                self.done(conn, peer, key, End::Dead);
                self.about_request(peer, frame);
            }
            ClientFrame::Withdraw { .. } if model.ext => self.about_request(peer, frame),
            ClientFrame::Release { key, .. } if model.ext => {
                if let Some(seq) = model.named(key) {
                    model.flights.remove(&seq);
                    self.released.insert((peer, seq));
                }
            }
            ClientFrame::Envelope(carried) => self.envelope(now_ms, conn, peer, carried),
            ClientFrame::Regroup { join, leave } if model.ext => {
                let before = std::mem::take(&mut model.unconfirmed);
                model.barriers.push_back(before);
                self.regroup(peer, join, leave);
            }
            ClientFrame::Peers | ClientFrame::Regroup { .. } => {
                let before = std::mem::take(&mut model.unconfirmed);
                model.barriers.push_back(before);
            }
            ClientFrame::Audit(record) => self.audit(now_ms, conn, peer, record),
            ClientFrame::Refused {
                id: Some(id),
                refusal,
            } if model.ext => {
                model
                    .awaiting
                    .push((id.clone(), Expect::Refused(refusal.code)));
            }
            _ => {}
        }
    }

    fn envelope(&mut self, now_ms: u64, conn: ConnId, peer: PeerId, carried: &Carried) {
        let mut expect = self.expect(now_ms, conn, peer, carried);
        if let Expect::Refused(
            RefusalCode::UnknownRecipient | RefusalCode::QueueFull | RefusalCode::Quota,
        ) = expect
            && self.answers(peer, carried).is_some()
        {
            // It is kept under the request.
            expect = Expect::Accepted;
        }
        // Who has left is looked at before the queue of who has the name now.
        let queued = [
            Expect::Accepted,
            Expect::Refused(RefusalCode::QueueFull),
            Expect::Refused(RefusalCode::Quota),
        ];
        let late = self.answers(peer, carried).is_none() && self.answers_another(carried);
        if late && queued.contains(&expect) {
            expect = Expect::Late(Box::new(expect));
        } else if expect == Expect::Accepted {
            self.answers_request(peer, carried);
        }
        self.comes_late_if_refused(&expect, carried);
        let model = self.conn(conn);
        if matches!(expect, Expect::Accepted | Expect::Duplicate) {
            model.unconfirmed.push(carried.id.clone());
        }
        if model.ext {
            model.awaiting.push((carried.id.clone(), expect));
        }
    }

    fn audit(&mut self, now_ms: u64, conn: ConnId, peer: PeerId, record: &AuditRecord) {
        let claim = self.conn(conn).claim.as_ref();
        let level = claim.map_or(0, |claim| claim.ext);
        match self.full {
            _ if level < EXT_AUDIT => {}
            true => self.audits.counted(peer),
            false => self.audits.given(now_ms, conn, peer, record),
        }
    }

    /// Not read any more, or, while the broker stops, still heeded.
    fn after_close(&mut self, now_ms: u64, conn: ConnId, frame: &ClientFrame) {
        let model = self.conn(conn);
        let peer = model.peer;
        let done = match frame {
            ClientFrame::Ack(Ack { key, how, .. }) => Some((key, End::Acked, how.clone())),
            ClientFrame::Reject { key, .. } => Some((key, End::Dead, None)),
            _ => None,
        };
        if let (Some((key, end, how)), Some(peer)) = (done, model.peer)
            && let Some(seq) = model.named(key)
        {
            self.causes.insert((peer, seq), end);
            self.claims.insert((peer, seq), how);
        }
        let Some(peer) = peer else { return };
        match frame {
            ClientFrame::Envelope(carried) => {
                let expect = self.expect(now_ms, conn, peer, carried);
                self.comes_late_if_refused(&expect, carried);
                self.answers_request(peer, carried);
            }
            frame => self.about_request(peer, frame),
        }
    }

    /// Gives the message whose delivery ends by it, if one does.
    fn done(&mut self, conn: ConnId, peer: PeerId, key: &DeliveryKey, end: End) -> Option<Seq> {
        let seq = self.conn(conn).named(key)?;
        self.conn(conn).flights.remove(&seq);
        let owed = self.view.debts.contains(&(peer, seq));
        if owed {
            self.causes.insert((peer, seq), end);
            self.acked.insert((peer, seq), self.commits + 1);
        }
        owed.then_some(seq)
    }

    fn expect(&self, now_ms: u64, conn: ConnId, sender: PeerId, carried: &Carried) -> Expect {
        let claim = self.conns.get(&conn).and_then(|model| model.claim.as_ref());
        let name = claim.map(|claim| claim.name.as_str()).unwrap_or_default();
        if let Some(seq) = self.view.ids.get(&(sender, carried.id.clone())) {
            let same = self
                .view
                .messages
                .get(seq)
                .is_some_and(|m| m.envelope == carried.text);
            return if same {
                Expect::Duplicate
            } else {
                Expect::Refused(RefusalCode::IdReused)
            };
        }
        if carried.from.as_str() != name
            && !self.view.was_called(Some(sender), carried.from.as_str())
        {
            return Expect::Refused(RefusalCode::From);
        }
        if carried.to == Address::All && self.wants(conn, carried) {
            return Expect::Refused(RefusalCode::Invalid);
        }
        if self.full && self.conns.get(&conn).is_some_and(|model| model.ext) {
            return Expect::Refused(RefusalCode::DiskFull);
        }
        let bytes = carried.text.len() as u64;
        let copies = match &carried.to {
            Address::All => self.reach(now_ms, sender, bytes).len() as u64,
            Address::Group(group) | Address::One(group) => {
                let members = self.members(now_ms, sender, group);
                if members.is_empty() {
                    return Expect::Refused(RefusalCode::UnknownRecipient);
                }
                let one = matches!(carried.to, Address::One(_)) || self.wants(conn, carried);
                match (one, self.with_room(members, sender, bytes).len()) {
                    (_, 0) => return Expect::Refused(RefusalCode::QueueFull),
                    (true, _) => 1,
                    (_, copies) => copies as u64,
                }
            }
            Address::Peer(to) => match self.view.resolve(to.as_str()) {
                None => return Expect::Refused(RefusalCode::UnknownRecipient),
                Some(to) if !self.has_room(to, sender, carried) => {
                    return Expect::Refused(RefusalCode::QueueFull);
                }
                Some(_) => 1,
            },
        };
        if copies > 0 && self.sent_like(sender) + copies * bytes > self.rules.owed_by_max {
            return Expect::Refused(RefusalCode::Quota);
        }
        Expect::Accepted
    }

    /// It is a request.
    fn wants(&self, conn: ConnId, carried: &Carried) -> bool {
        let ext = self.conns.get(&conn).is_some_and(|model| model.ext);
        ext && carried.within_ms.is_some()
    }

    /// The text of what temporary peers said to each other goes when that ends, and no other one does.
    fn fleeting(&self, peer: PeerId, seq: Seq, writes: &[Write]) -> Verdict {
        let lease = self.view.leases.get(&seq).filter(|_| peer == ANSWERS);
        let peer = lease.map_or(peer, |row| row.holder);
        let temporary = |id: PeerId| self.view.peers.get(&id).is_none_or(|row| row.ephemeral);
        let sender = self
            .view
            .messages
            .get(&seq)
            .map(|message| message.head.sender);
        let dead = writes
            .iter()
            .any(|write| matches!(write, Write::Dead(_, of) if *of == seq));
        let gone = writes
            .iter()
            .any(|write| matches!(write, Write::TextGone(of) if *of == seq));
        let both = temporary(peer) && sender.is_some_and(temporary) && !dead;
        ensure(gone == both, "history", || {
            format!(
                "the text of message {}: gone {gone}, of temporary peers {both}",
                seq.0
            )
        })
    }

    /// The writes of the input that was just handled (or of `flush`).
    ///
    /// # Errors
    ///
    /// When they break a promise.
    pub fn writes(
        &mut self,
        now_ms: u64,
        input: Option<&BrokerInput>,
        writes: Vec<Write>,
    ) -> Verdict {
        let conn = self.handling.take();
        let before = self.expected_reach(now_ms, &writes);
        let full = self.without_room(now_ms, &writes);
        let steady_ms = self.clock.steady_ms(now_ms);
        for write in &writes {
            match write {
                Write::Message { head, envelope } => {
                    self.since.insert(head.seq, steady_ms);
                    self.stored(conn, head, envelope)?;
                }
                Write::Owed(_, seq, since_ms) => self.dated(self.since(*seq), *since_ms)?,
                Write::Audit(block) => self.dated(steady_ms, block.at.steady_ms)?,
                Write::Notice(notice) => self.dated(steady_ms, notice.at.steady_ms)?,
                Write::Peer(row) if self.regroups(row) => {}
                Write::Peer(row) if row.kind != PeerKind::Peer => {
                    if self.online.remove(&row.id) {
                        self.last_online.insert(row.id, steady_ms);
                    }
                    self.grace.remove(&row.id);
                    for model in self.conns.values_mut() {
                        model.evicted |= model.peer == Some(row.id);
                    }
                }
                Write::Peer(row) => {
                    self.names.insert(row.id, row.name.clone());
                    let all = self.all_names.entry(row.id).or_default();
                    all.insert(row.name.to_ascii_lowercase());
                    // A row that says what was delivered is not of one that has just registered.
                    let stays = row.online && row.delivered.is_some();
                    if !stays && !matches!(input, Some(BrokerInput::Operate(_))) {
                        self.moved(row.id, row.online, steady_ms, conn);
                        self.renamed(row, conn);
                    }
                }
                Write::PeerGone(peer) => {
                    self.forgotten(conn, *peer)?;
                    self.online.remove(peer);
                    self.grace.remove(peer);
                }
                Write::Settled(peer, seq) => match self.heir(*peer, *seq, &writes) {
                    Some(heir) => {
                        self.passes(*peer, heir, *seq);
                        self.moving.push((*peer, heir, *seq));
                    }
                    None => {
                        self.fleeting(*peer, *seq, &writes)?;
                        self.settling(now_ms, (*peer, *seq), &writes)?;
                    }
                },
                Write::NoticeGone(sender, number) => self.notice_gone(*sender, *number)?,
                Write::LeaseGone(seq) => self.lease_gone(*seq),
                _ => {}
            }
            self.view.apply(write);
        }
        self.answer_taken(&writes)?;
        self.check_reach(before, full, &writes)?;
        self.lease_given(now_ms, &writes)?;
        self.check_leases(now_ms, matches!(input, Some(BrokerInput::Tick)))?;
        self.regrouped()?;
        if matches!(input, Some(BrokerInput::Tick)) {
            self.nothing_late(now_ms)?;
        }
        self.open.extend(writes);
        Ok(())
    }

    fn notice_gone(&self, sender: PeerId, number: u64) -> Verdict {
        let told = |name: &String| self.hosts.told.contains(&(name.clone(), number));
        let name = self.name_of(sender);
        ensure(self.any_name(sender, told), "notice", || {
            format!("statement {number} was dropped before {name} was told")
        })
    }

    /// Who is owed `seq` from now on instead of `peer`, whose name has ended.
    fn heir(&self, peer: PeerId, seq: Seq, writes: &[Write]) -> Option<PeerId> {
        if let Some(holder) = self.next_holder(peer, seq, writes) {
            return Some(holder);
        }
        let row = self.view.peers.get(&peer)?;
        let heir = match row.kind {
            PeerKind::Peer => return None,
            // Its name leads to the heir; a bridge has back what it had forwarded.
            PeerKind::Ended | PeerKind::Forwarded => self.view.resolve(&row.name)?,
        };
        let owed = |write: &Write| matches!(write, Write::Owed(to, owed, _) if (*to, *owed) == (heir, seq));
        writes.iter().any(owed).then_some(heir)
    }

    /// A name is being forgotten: for one that is to stay, only another one of its own token is a
    /// reason, and in no case one that has mail.
    fn forgotten(&self, conn: Option<ConnId>, peer: PeerId) -> Verdict {
        let Some(row) = self.view.peers.get(&peer) else {
            return Ok(());
        };
        let owed = self.view.owed_between(peer, Seq(0), Seq(u64::MAX)).next();
        ensure(owed.is_none(), "I12", || {
            format!("{} was forgotten, and mail waits for it", row.name)
        })?;
        if row.ephemeral || row.generated || row.kind != PeerKind::Peer {
            return Ok(());
        }
        let mut notices = self.view.notices.range((peer, 0)..=(peer, u64::MAX));
        ensure(notices.next().is_none(), "I12", || {
            format!("{} was forgotten, and statements wait for it", row.name)
        })?;
        let claim = conn.and_then(|conn| self.conns.get(&conn)?.claim.as_ref());
        let token = claim.and_then(|claim| claim.token.as_ref());
        // One that the operator released is anybody's.
        let own = |token| row.owner.is_none_or(|owner| owner == TokenHash::of(token));
        let own = token.is_none_or(own);
        ensure(own, "I12", || {
            format!("{} was forgotten for a name of another token", row.name)
        })
    }

    /// A connection goes by the name of its peer's row.
    fn renamed(&mut self, row: &PeerRow, conn: Option<ConnId>) {
        let model = conn.and_then(|conn| self.conns.get_mut(&conn));
        if let Some(model) = model.filter(|model| model.peer == Some(row.id))
            && let Some(claim) = &mut model.claim
        {
            claim.name.clone_from(&row.name);
        }
    }

    fn moved(&mut self, peer: PeerId, online: bool, steady_ms: u64, conn: Option<ConnId>) {
        if online {
            self.online.insert(peer);
            self.grace.remove(&peer);
            for (other, model) in &mut self.conns {
                model.evicted |= model.peer == Some(peer) && Some(*other) != conn;
            }
            if let Some(conn) = conn
                && let Some(model) = self.conns.get_mut(&conn)
                && model.claim.is_some()
                && model.peer.is_none()
            {
                model.peer = Some(peer);
            }
        } else if self.online.remove(&peer) {
            self.last_online.insert(peer, steady_ms);
        }
    }

    /// Whom a broadcast or a message for a group must reach, if one was stored just now.
    fn expected_reach(&self, now_ms: u64, writes: &[Write]) -> Option<Vec<PeerId>> {
        let (sender, envelope) = writes.iter().find_map(|write| match write {
            Write::Message { head, envelope } => Some((head.sender, envelope)),
            _ => None,
        })?;
        if writes.iter().any(|write| matches!(write, Write::Lease(_))) {
            return None;
        }
        let bytes = envelope.len() as u64;
        if envelope.contains(r#","kind":"broadcast","#) {
            return Some(self.reach(now_ms, sender, bytes));
        }
        let to = recipient_of(envelope).strip_prefix('#')?;
        let members = self.members(now_ms, sender, &GroupName::parse(to).ok()?);
        Some(self.with_room(members, sender, bytes))
    }

    /// It is registered, or its connection broke a moment ago.
    pub(super) fn is_here(&self, now_ms: u64, peer: PeerId) -> bool {
        self.online.contains(&peer) || self.grace.get(&peer).is_some_and(|until| now_ms < *until)
    }

    /// Whom a broadcast of so many bytes reaches now.
    fn reach(&self, now_ms: u64, sender: PeerId, bytes: u64) -> Vec<PeerId> {
        let peers = self.view.peers.values();
        let here =
            |row: &&PeerRow| row.id != sender && !row.ephemeral && self.is_here(now_ms, row.id);
        let reached = peers.filter(here).map(|row| row.id).collect();
        self.with_room(reached, sender, bytes)
    }

    fn check_reach(
        &self,
        expected: Option<Vec<PeerId>>,
        full: Vec<PeerId>,
        writes: &[Write],
    ) -> Verdict {
        self.full_are_told(full, writes)?;
        let Some(expected) = expected else {
            return Ok(());
        };
        let owed = writes.iter().filter_map(|write| match write {
            Write::Owed(peer, ..) => Some(*peer),
            _ => None,
        });
        let mut owed: Vec<_> = owed.collect();
        owed.sort_unstable();
        ensure(owed == expected, "broadcast", || {
            format!("a message for many reached {owed:?}, and was for {expected:?}")
        })
    }
}
