//! Requests: messages that are owed until they have a result.
//!
//! A request is a lease. Its holder reads it, says that it works at it, and ends it by an answer, which
//! commits together with that end.

use std::collections::BTreeMap;

use peerbus_wire::{
    Address, Carried, Conversation, How, MessageId, PeerName, Refusal, RefusalCode, Seq, Stage,
    body_of, escape, names_id, sender_of,
};

use super::ack::{Answer, End};
use super::leases::{NAME_ENDED, WHY_CHARS};
use super::mutation::BrokerMutation;
use super::retire::Denied;
use super::{Broker, BusEvent, Caller, Cx};
use crate::Now;
use crate::store::{
    ANSWERS, DeliveryHistory, LeaseRow, Lessee, MessageHead, NOBODY, PeerId, Result, Txn, Work,
};

/// A request that has no result yet, as the operator and its asker see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRequest {
    /// Its number.
    pub seq: Seq,
    /// Its asker's id for it.
    pub id: MessageId,
    /// Who asks; empty when that name is forgotten, as a temporary one is that has left.
    pub from: String,
    /// Whom it is for: a peer, or one of a group.
    pub to: String,
    /// Who has it; `None`: nobody yet.
    pub holder: Option<String>,
    /// When it was accepted, wall clock.
    pub accepted_ms: u64,
    /// Its holder has read it.
    pub read: bool,
    /// What its holder said of it last, and when, wall clock.
    pub said: Option<(String, u64)>,
    /// So many milliseconds a result is still waited for.
    pub left_ms: u64,
}

/// Requests that are listed.
const REQUESTS_MAX: usize = 1_000;

/// A message ends a request.
#[derive(Clone, Copy)]
pub(super) struct EndsRequest {
    seq: Seq,
    /// What it wants did not succeed.
    failed: bool,
    /// Whoever asked has left for good: the answer is for nobody who has that name now.
    pub(super) gone: bool,
}

impl Caller {
    /// So long a result of a message is waited for, if it is a request.
    pub(super) fn asks(self, carried: &Carried) -> Option<u64> {
        carried.within_ms.filter(|_| self.ext)
    }
}

impl Broker {
    /// Whether what a sender says of a request can be so.
    #[cold]
    pub(super) fn check_request(carried: &Carried, within_ms: u64) -> Result<(), Refusal> {
        if let Address::All = carried.to {
            return Err(RefusalCode::Invalid.because(
                "a request is for one peer, or for one of a group, and this is for all; ask one",
            ));
        }
        let said = Conversation::of(body_of(&carried.text)).within_ms;
        if said == Some(within_ms) {
            return Ok(());
        }
        let said = said.map_or("no request".to_owned(), |ms| format!("`within_ms` {ms}"));
        Err(RefusalCode::Invalid.because(format!(
            "the frame says `within_ms` {within_ms} and the body {said}; a request says the same in both"
        )))
    }

    /// The process that speaks for a peer, as far as it can be told apart; `None` for one that is away or
    /// does not say, and for a bridge: the broker of its domain knows who has read what.
    pub(super) fn process(&self, peer: PeerId) -> Option<String> {
        let plain = |session: &&super::conn::Session| session.ext && session.bridge.is_none();
        let session = self.session_of(peer).filter(plain)?;
        let instance = session.instance.as_ref()?;
        let digest = peerbus_wire::EnvelopeHash::of(instance.expose().as_bytes());
        digest.as_str().get(..16).map(str::to_owned)
    }

    /// Its holder has read a request: it is owed an answer from now on.
    pub(super) fn read(
        &mut self,
        cx: &mut Cx<'_>,
        (recipient, head): (PeerId, &MessageHead),
        history: DeliveryHistory,
        (how, mut row): (Option<&How>, LeaseRow),
    ) -> Result {
        let to = self.called(cx.txn, (recipient, head.sender), head.seq)?;
        if !self.requeue(cx, head, (recipient, ANSWERS))? {
            return Ok(());
        }
        self.log.read(head.seq, recipient, how);
        self.outbox.event(BusEvent::Acked);
        // A bridge may have forwarded it.
        let way = self.recent.take_with((head.seq, recipient), history);
        let told = (to, Stage::Acked(how.cloned()));
        self.tell_fate(cx.since(), (head, row.holder), told, way);
        if let Some(request) = &mut row.request {
            request.work = Some(Work {
                process: self.process(row.holder),
                said: None,
            });
        }
        self.put_lease(cx, row)
    }

    /// The holder of a request that was read says how far it is.
    pub(super) fn said_working(
        &mut self,
        cx: &mut Cx<'_>,
        (holder, seq): (PeerId, Seq),
        said: &str,
    ) -> Result {
        let row = self.leases.get(seq).filter(|row| row.holder == holder);
        if let Some(mut row) = row.cloned()
            && let Some(work) = row.request.as_mut().and_then(|it| it.work.as_mut())
        {
            work.said = Some((said.into(), cx.now.wall_ms));
            let to = self.called(cx.txn, (ANSWERS, row.head.sender), seq)?;
            let told = (to, Stage::Working { said: said.into() });
            self.tell_sender(cx.now, (&row.head, holder), told);
            self.put_lease(cx, row)?;
        }
        Ok(())
    }

    /// The holder of a request that was read is in a turn, or waits for its user.
    pub(super) fn is_at_work(&self, row: &LeaseRow) -> bool {
        let presence = self.session_of(row.holder);
        let presence = presence.and_then(|session| session.presence.as_ref());
        let does = presence.and_then(|it| super::admit::activity(&super::admit::said(it)));
        row.work().is_some() && does.is_some_and(|does| does == "busy" || does == "waiting")
    }

    /// So long a result is still waited for.
    pub(super) fn left_ms(&self, cx: &Cx<'_>, row: &LeaseRow) -> Option<u64> {
        let request = row.request.as_ref();
        let request = request.filter(|_| !self.mutations.broken(BrokerMutation::WaitForEver))?;
        Some(request.until_ms.saturating_sub(cx.at.steady_ms))
    }

    /// The request that a message ends: its sender holds that, and answers whoever asked.
    #[inline(never)]
    pub(super) fn ends(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        carried: &Carried,
    ) -> Result<Option<EndsRequest>> {
        let Address::Peer(to) = &carried.to else {
            return Ok(None);
        };
        if caller.asks(carried).is_some() || self.leases.held(caller.peer).next().is_none() {
            return Ok(None);
        }
        let talk = Conversation::of(body_of(&carried.text));
        let asker = match self.registry.resolve(&to.key()) {
            None => self.elsewhere(cx, to)?,
            known => known,
        };
        let meant =
            |row: &&LeaseRow| row.request.is_some() && talk.reply_to.as_ref() == Some(&row.head.id);
        let meant = self.leases.held(caller.peer).filter(meant);
        let (mut ends, mut owner) = (None, None);
        for row in meant {
            if caller.bridges && !self.is_asked(cx.txn, row, &carried.from)? {
                continue;
            }
            let sender = row.head.sender;
            let gone = self.registry.get(sender).is_none();
            let known = asker == Some(sender);
            // Another sender may have chosen the same id: who has left, and who is behind a bridge, goes by
            // name; whoever has that name now is of the same token, or asked later.
            let is_asker = match gone || known && self.is_bridge(sender) {
                true => self.is_signed_by(cx.txn, row, to)?,
                false => known,
            };
            if is_asker && (ends.is_none() || !gone && owner == Some(row.owner)) {
                owner = Some(row.owner);
                ends = Some(EndsRequest {
                    seq: row.head.seq,
                    failed: talk.failed,
                    gone,
                });
            }
        }
        Ok(ends)
    }

    /// Whether a request that a bridge holds is for the peer of this address.
    fn is_asked(&self, txn: &mut dyn Txn, row: &LeaseRow, name: &PeerName) -> Result<bool> {
        let queue = self.queue_of(txn, row.holder, row.head.seq)?;
        let asked = self.called(txn, (queue, row.head.sender), row.head.seq)?;
        Ok(asked.eq_ignore_ascii_case(name.as_str()))
    }

    /// Whether a request is signed with this name, with the own domain or without.
    fn is_signed_by(&self, txn: &mut dyn Txn, row: &LeaseRow, name: &PeerName) -> Result<bool> {
        let (sender, seq) = (row.head.sender, row.head.seq);
        let queue = self.queue_of(txn, row.holder, seq)?;
        let asked = txn.delivery((queue, sender), seq)?;
        let signed = asked.and_then(|it| PeerName::parse(sender_of(&it.envelope)).ok());
        let here = |name: &PeerName| match name.address() {
            Some((local, domain)) if self.config.domain.as_ref() == Some(&domain) => local.key(),
            _ => name.key(),
        };
        Ok(signed.is_some_and(|signed| here(&signed) == here(name)))
    }

    /// A request ends by an answer, which was accepted this moment.
    #[cold]
    pub(super) fn end_by_answer(
        &mut self,
        cx: &mut Cx<'_>,
        EndsRequest { seq, failed, .. }: EndsRequest,
        (reply, kept): (&MessageId, bool),
    ) -> Result {
        let answer = Answer {
            reply,
            failed,
            kept,
        };
        let row = self.leases.get(seq).cloned();
        row.map_or(Ok(()), |row| self.end_owed(cx, &row, End::Answered(answer)))
    }

    /// A lease ends, wherever it is owed.
    pub(super) fn end_owed(&mut self, cx: &mut Cx<'_>, row: &LeaseRow, end: End<'_>) -> Result {
        let queue = self.queue_of(cx.txn, row.holder, row.head.seq)?;
        let history = self.land(row.holder, row.head.seq);
        self.finish(cx, (queue, row.head.clone()), history, end)
    }

    /// A request ends without a result.
    pub(super) fn unanswered(&mut self, cx: &mut Cx<'_>, row: &LeaseRow, why: &str) -> Result {
        let queue = self.queue_of(cx.txn, row.holder, row.head.seq)?;
        let holder = match row.holder {
            NOBODY => String::new(),
            _ => self.called(cx.txn, (queue, row.head.sender), row.head.seq)?,
        };
        let last = match (row.work(), &*holder) {
            (Some(work), _) => match &work.said {
                Some((said, _)) if !said.is_empty() => {
                    format!("{holder} said last: \"{}\"", escape(said, WHY_CHARS))
                }
                _ => format!("{holder} acked it and said nothing more"),
            },
            (None, "") if row.had.is_empty() => "nobody had it".to_owned(),
            (None, "") => "who had it has left".to_owned(),
            (None, _) if row.again => format!("{holder} got it again and has not acked it since"),
            (None, _) => format!("{holder} has not acked it"),
        };
        self.recall(row, why);
        self.end_owed(cx, row, End::Unanswered(&format!("{why}; {last}")))
    }

    /// What a peer that is forgotten has read and not answered will have no answer.
    pub(super) fn leave_requests(&mut self, cx: &mut Cx<'_>, peer: PeerId, why: &str) -> Result {
        let left = self.leases.own(peer);
        let left = left.filter(|row| row.work().is_some() || row.holder == NOBODY);
        for row in left.cloned().collect::<Vec<_>>() {
            self.unanswered(cx, &row, why)?;
        }
        Ok(())
    }

    /// The operator takes a request back.
    pub(super) fn withdraw_for(&mut self, cx: &mut Cx<'_>, seq: Seq) -> Result<Result<(), Denied>> {
        let Some(row) = self.leases.request(seq).cloned() else {
            return Ok(Err(Denied::Unknown(
                "no such request is open: it has ended, or there was none".into(),
            )));
        };
        self.recall(&row, "its asker took it back");
        self.end_owed(cx, &row, End::Withdrawn).map(Ok)
    }

    /// The requests that have no result, or those of them that an id or a part of one names: at most 1,000,
    /// of each token in turn, the oldest of it first. Also whether there are more.
    ///
    /// # Errors
    ///
    /// Only when storage failed.
    pub fn open_requests(
        &self,
        now: Now,
        txn: &mut dyn Txn,
        named: Option<&str>,
    ) -> Result<(Vec<OpenRequest>, bool)> {
        let steady_ms = self.stamp(now).steady_ms;
        let is_named = |id: &MessageId| named.is_none_or(|text| names_id(text, id.as_str()));
        let (mut all, mut requests) = (Vec::new(), Vec::new());
        let mut turns = BTreeMap::<_, usize>::new();
        for row in self.leases.all.values().map(|lease| &lease.row) {
            if let Some(request) = row.request.as_ref().filter(|_| is_named(&row.head.id)) {
                let turn = turns.entry(row.owner).or_default();
                *turn += 1;
                requests.push((*turn, row, request));
            }
        }
        requests.sort_by_key(|(turn, ..)| *turn);
        let more = requests.len() > REQUESTS_MAX;
        for (_, row, request) in requests.into_iter().take(REQUESTS_MAX) {
            let head = &row.head;
            // To the broker the bridge of another domain has it; to people the one there who is asked.
            let queue = self.queue_of(txn, row.holder, head.seq)?;
            let has_it = self.called(txn, (queue, head.sender), head.seq)?;
            let to = row
                .group()
                .map_or_else(|| has_it.clone(), ToString::to_string);
            let holder = Some(has_it).filter(|name| row.holder != NOBODY && !name.is_empty());
            all.push(OpenRequest {
                seq: head.seq,
                from: self.registry.name(head.sender),
                to,
                holder,
                accepted_ms: head.accepted_ms,
                id: head.id.clone(),
                read: row.work().is_some(),
                said: row.work().and_then(|work| work.said.clone()),
                left_ms: request.until_ms.saturating_sub(steady_ms),
            });
        }
        Ok((all, more))
    }

    /// Its asker takes a request back.
    pub(super) fn withdraw(&mut self, cx: &mut Cx<'_>, caller: Caller, id: &MessageId) -> Result {
        if let Some(head) = cx.txn.find_message(caller.peer, id)? {
            let _ended_before = self.withdraw_for(cx, head.seq)?;
        }
        self.answer_status(cx, caller, std::slice::from_ref(id))
    }

    /// Who gets the mail of a name that ended owes what that owed, and gets what waited for it.
    pub(super) fn succeed_in_requests(
        &mut self,
        cx: &mut Cx<'_>,
        peer: PeerId,
        successor: PeerId,
    ) -> Result {
        for mut row in self.leases.own(peer).cloned().collect::<Vec<_>>() {
            row.to = Lessee::Peer(successor);
            match row.holder {
                NOBODY => self.put_lease(cx, row)?,
                _ => {
                    self.tell_recalled(cx, &row, NAME_ENDED);
                    self.move_lease(cx, row, successor)?;
                }
            }
        }
        self.offer_waiting(cx, successor)
    }
}
