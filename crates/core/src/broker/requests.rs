//! Requests: messages that are owed until they have a result.
//!
//! A request is a lease. Its holder reads it, says that it works at it, and ends it by an answer, which
//! commits together with that end.

use peerbus_wire::limits::WITHIN_MS_MAX;
use peerbus_wire::{
    Address, Carried, Conversation, How, MessageId, Refusal, RefusalCode, Seq, Stage, body_of,
    escape,
};

use super::ack::End;
use super::groups::Recipients;
use super::leases::WHY_CHARS;
use super::mutation::BrokerMutation;
use super::retire::Denied;
use super::{Broker, BusEvent, Caller, CommitNeed, Cx};
use crate::Now;
use crate::store::{
    ANSWERS, DeliveryHistory, FATE_BYTES, LeaseRow, Lessee, MessageHead, NOBODY, PeerId,
    RequestRow, Result, Txn, Work,
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
pub(super) struct EndsRequest {
    row: LeaseRow,
    /// What it wants did not succeed.
    failed: bool,
    /// Whoever asked has left for good: the answer is for nobody who has that name now.
    pub(super) gone: bool,
}

/// Boxed: most messages end none.
pub(super) type Ends = Box<EndsRequest>;

impl Broker {
    /// Whether what a sender says of a request can be so.
    #[inline]
    pub(super) fn check_request(caller: Caller, carried: &Carried) -> Result<(), Refusal> {
        let Some(within_ms) = carried.within_ms.filter(|_| caller.ext) else {
            return Ok(());
        };
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

    /// What a message is besides mail: for one member of a group, or a request.
    pub(super) fn lease_of(
        cx: &Cx<'_>,
        caller: Caller,
        carried: &Carried,
        peer: Option<PeerId>,
    ) -> Option<Box<LeaseRow>> {
        let within_ms = carried.within_ms.filter(|_| caller.ext);
        let to = match &carried.to {
            Address::One(group) => Lessee::One(group.clone()),
            Address::Group(group) if within_ms.is_some() => Lessee::One(group.clone()),
            Address::Peer(_) if within_ms.is_some() => Lessee::Peer(peer?),
            _ => return None,
        };
        let mut row = LeaseRow::new(Seq(0), caller.token, to);
        row.request = within_ms.map(|within_ms| RequestRow {
            until_ms: cx.at.steady_ms + within_ms.min(WITHIN_MS_MAX),
            work: None,
        });
        Some(Box::new(row))
    }

    /// To whom a request to one peer is owed: to that if it has a place for it, or to nobody yet.
    pub(super) fn one_peer(
        &self,
        cx: &Cx<'_>,
        caller: Caller,
        carried: &Carried,
        peer: PeerId,
    ) -> Result<Recipients, Refusal> {
        let Some(row) = Self::lease_of(cx, caller, carried, Some(peer)) else {
            return Ok(vec![peer].into());
        };
        let before = |row: &LeaseRow| row.to == Lessee::Peer(peer) && row.owner == caller.token;
        let place = self.has_place(peer, &caller.token) && !self.leases.waiting().any(before);
        let first = if place { peer } else { NOBODY };
        self.leased(row, first)
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
        let (seq, pair) = (head.seq, (recipient, head.sender));
        let to = self.called(cx.txn, pair, seq)?;
        let Some(waiting) = cx.txn.delivery(pair, seq)? else {
            return Ok(());
        };
        cx.txn.delete_delivery(pair, seq)?;
        let owed = (ANSWERS, head.sender);
        cx.txn.insert_delivery(owed, seq, waiting.steady_ms)?;
        self.settled(recipient);
        self.owed
            .pass((recipient, ANSWERS), head.sender, head.bytes);
        self.log.read(seq, recipient, how);
        self.outbox.event(BusEvent::Acked);
        self.outbox.want(CommitNeed::Soon);
        let stage = Stage::Acked(how.cloned());
        let way = self.recent.take_with((seq, recipient), history);
        self.ended(cx.now, FATE_BYTES + stage.bytes() as u64 + way.bytes());
        self.keep_fate((seq, row.holder), &to, &stage, (way, cx.now.wall_ms));
        self.tell_sender(cx.now, (head, row.holder), (to, stage));
        if let Some(request) = &mut row.request {
            request.work = Some(Work {
                process: self.process(row.holder),
                said: None,
            });
        }
        cx.txn.put_lease(&row)?;
        self.put_lease(cx, row);
        Ok(())
    }

    /// Its holder says how far it is. Says whether it was such a request.
    pub(super) fn said_working(
        &mut self,
        cx: &mut Cx<'_>,
        (holder, seq): (PeerId, Seq),
        said: &str,
    ) -> Result<bool> {
        let row = self.leases.get(seq).filter(|row| row.holder == holder);
        let Some(mut row) = row.filter(|row| row.work().is_some()).cloned() else {
            return Ok(false);
        };
        let Some(waiting) = self.waiting_lease(cx, &row)? else {
            return Ok(false);
        };
        let pair = (ANSWERS, waiting.head.sender);
        let to = self.called(cx.txn, pair, seq)?;
        let work = row.request.as_mut().and_then(|it| it.work.as_mut());
        if let Some(work) = work {
            work.said = Some((said.to_owned(), cx.now.wall_ms));
        }
        cx.txn.put_lease(&row)?;
        self.outbox.want(CommitNeed::Soon);
        let said = said.to_owned();
        self.put_lease(cx, row);
        self.tell_sender(
            cx.now,
            (&waiting.head, holder),
            (to, Stage::Working { said }),
        );
        Ok(true)
    }

    /// The holder of a request that was read is in a turn, or waits for its user.
    pub(super) fn is_at_work(&self, row: &LeaseRow) -> bool {
        let presence = self.session_of(row.holder);
        let presence = presence.and_then(|session| session.presence.as_ref());
        let does = presence.and_then(super::admit::activity);
        row.work().is_some() && does.is_some_and(|does| does == "busy" || does == "waiting")
    }

    /// The time for its result is over.
    pub(super) fn is_over(&self, cx: &Cx<'_>, row: &LeaseRow) -> bool {
        let request = row.request.as_ref();
        request.is_some_and(|request| request.until_ms <= cx.at.steady_ms)
            && !self.mutations.broken(BrokerMutation::WaitForEver)
    }

    /// The request that a message ends: its sender holds that, and answers whoever asked.
    pub(super) fn ends(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        carried: &Carried,
    ) -> Result<Option<Ends>> {
        let Address::Peer(to) = &carried.to else {
            return Ok(None);
        };
        let holds = || self.leases.held(caller.peer).next().is_some();
        let asks = carried.within_ms.is_some() && caller.ext;
        if self.leases.is_empty() || !holds() || asks {
            return Ok(None);
        }
        let talk = Conversation::of(body_of(&carried.text));
        let Some(id) = talk.reply_to else {
            return Ok(None);
        };
        let asker = match self.registry.resolve(&to.key()) {
            None => self.elsewhere(cx, to)?,
            known => known,
        };
        let known = match asker {
            Some(asker) => cx.txn.find_message(asker, &id)?.map(|head| head.seq),
            None => None,
        };
        let asked = match known {
            None => self.asked_by_gone(cx, caller.peer, &id)?,
            known => known,
        };
        let gone = known.is_none();
        let row = asked.and_then(|seq| self.leases.get(seq));
        let row = row.filter(|row| row.request.is_some() && row.holder == caller.peer);
        Ok(row.map(|row| {
            let (row, failed) = (row.clone(), talk.failed);
            Box::new(EndsRequest { row, failed, gone })
        }))
    }

    /// The request of this id that a peer holds and whose asker has left for good.
    fn asked_by_gone(
        &self,
        cx: &mut Cx<'_>,
        holder: PeerId,
        id: &MessageId,
    ) -> Result<Option<Seq>> {
        for seq in self.leases.of(holder) {
            let head = cx.txn.message(seq)?;
            let gone = head.filter(|it| it.id == *id && self.registry.get(it.sender).is_none());
            if gone.is_some() {
                return Ok(Some(seq));
            }
        }
        Ok(None)
    }

    /// A request ends by an answer, which was accepted this moment. Where it could not be queued
    /// (`kept`) its asker is told until it takes note.
    pub(super) fn end_by_answer(
        &mut self,
        cx: &mut Cx<'_>,
        ends: EndsRequest,
        (reply, kept): (&MessageId, bool),
    ) -> Result {
        let EndsRequest { row, failed, .. } = ends;
        let end = match failed {
            true => End::Failed(reply),
            false => End::Done(reply),
        };
        let head = cx.txn.message(row.seq)?;
        let to = match &head {
            Some(head) => self.called(cx.txn, (row.queue(), head.sender), row.seq)?,
            None => String::new(),
        };
        self.end_request(cx, &row, end)?;
        match head.filter(|_| kept) {
            Some(head) => self.notify(cx, (&head, row.holder), to, end),
            None => Ok(()),
        }
    }

    /// A request ends, with its last words to its asker, and to a holder that did not say so itself.
    pub(super) fn end_request(&mut self, cx: &mut Cx<'_>, row: &LeaseRow, end: End<'_>) -> Result {
        let Some(waiting) = self.waiting_lease(cx, row)? else {
            return Ok(());
        };
        if let End::Withdrawn = end {
            self.recall(row.holder, row, "its asker took it back");
        }
        let queue = match row.work() {
            Some(_) => ANSWERS,
            None => self.queue_of(cx.txn, (row.holder, waiting.head.sender), row.seq)?,
        };
        let mut history = self.land(row.holder, row.seq);
        if let Some((said, at_ms)) = row.work().and_then(|work| work.said.clone()) {
            history.step(&Stage::Working { said }, at_ms);
        }
        self.finish(cx, (queue, waiting.head), history, end)
    }

    /// A request ends without a result; `why` other than that its time is over.
    pub(super) fn unanswered(
        &mut self,
        cx: &mut Cx<'_>,
        row: &LeaseRow,
        why: Option<&str>,
    ) -> Result {
        let why = why.unwrap_or("its time is over");
        let holder = self.registry.name(row.holder);
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
        self.recall(row.holder, row, why);
        self.end_request(cx, row, End::Unanswered(&format!("{why}; {last}")))
    }

    /// What a peer that is forgotten has read and not answered will have no answer.
    pub(super) fn leave_requests(&mut self, cx: &mut Cx<'_>, peer: PeerId, why: &str) -> Result {
        let waits = |row: &&LeaseRow| row.to == Lessee::Peer(peer);
        let waiting = self.leases.waiting().filter(waits);
        let held = self.leases.held(peer).filter(|row| row.work().is_some());
        let left: Vec<_> = waiting.chain(held.filter(waits)).cloned().collect();
        for row in left {
            self.unanswered(cx, &row, Some(why))?;
        }
        Ok(())
    }

    /// The operator takes a request back.
    pub(super) fn withdraw_for(&mut self, cx: &mut Cx<'_>, seq: Seq) -> Result<Result<(), Denied>> {
        let row = self.leases.get(seq).filter(|row| row.request.is_some());
        let Some(row) = row.cloned() else {
            return Ok(Err(Denied::Unknown(
                "no such request is open: it has ended, or there was none".into(),
            )));
        };
        self.end_request(cx, &row, End::Withdrawn).map(Ok)
    }

    /// The requests that have no result, the oldest first: at most 1,000.
    ///
    /// # Errors
    ///
    /// Only when storage failed.
    pub fn open_requests(&self, now: Now, txn: &mut dyn Txn) -> Result<Vec<OpenRequest>> {
        let steady_ms = self.stamp(now).steady_ms;
        let mut all = Vec::new();
        for row in self.leases.rows().take(REQUESTS_MAX) {
            let (Some(request), Some(head)) = (&row.request, txn.message(row.seq)?) else {
                continue;
            };
            let queue = (row.queue(), head.sender);
            let to = match row.group() {
                Some(group) => group.to_string(),
                None => self.called(txn, queue, row.seq)?,
            };
            all.push(OpenRequest {
                seq: row.seq,
                from: self.registry.name(head.sender),
                to,
                holder: Some(self.registry.name(row.holder)).filter(|name| !name.is_empty()),
                accepted_ms: head.accepted_ms,
                id: head.id,
                read: row.work().is_some(),
                said: row.work().and_then(|work| work.said.clone()),
                left_ms: request.until_ms.saturating_sub(steady_ms),
            });
        }
        Ok(all)
    }

    /// Its asker takes a request back.
    pub(super) fn withdraw(&mut self, cx: &mut Cx<'_>, caller: Caller, id: &MessageId) -> Result {
        let head = cx.txn.find_message(caller.peer, id)?;
        let row = head.and_then(|head| self.leases.get(head.seq));
        if let Some(row) = row.filter(|row| row.request.is_some()).cloned() {
            self.end_request(cx, &row, End::Withdrawn)?;
        }
        self.answer_status(cx, caller, std::slice::from_ref(id))
    }

    /// A request that a bridge holds has ended in its domain without an answer.
    pub(super) fn ended_abroad(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        seq: Seq,
        end: End<'_>,
    ) -> Result {
        let row = self.leases.get(seq);
        let row = row.filter(|row| row.request.is_some() && row.holder == caller.peer);
        match row.cloned() {
            Some(row) => self.end_request(cx, &row, end),
            None => Ok(()),
        }
    }

    /// What is owed to one peer is owed to another one instead: so is a request for it alone.
    pub(super) fn lease_passed(
        &mut self,
        cx: &mut Cx<'_>,
        (from, to): (PeerId, PeerId),
        seq: Seq,
    ) -> Result {
        let row = self.leases.get(seq).cloned();
        let Some(mut row) = row.filter(|row| row.to == Lessee::Peer(from)) else {
            return Ok(());
        };
        row.to = Lessee::Peer(to);
        row.again = true;
        row.give(to);
        cx.txn.put_lease(&row)?;
        self.put_lease(cx, row);
        Ok(())
    }

    /// Who gets the mail of a name that ended owes what that owed, and gets what waited for it.
    pub(super) fn succeed_in_requests(
        &mut self,
        cx: &mut Cx<'_>,
        peer: PeerId,
        successor: PeerId,
    ) -> Result {
        let own = |row: &&LeaseRow| row.to == Lessee::Peer(peer);
        let waiting: Vec<_> = self.leases.waiting().filter(own).cloned().collect();
        let read = self.leases.held(peer).filter(|row| row.work().is_some());
        for mut row in read.filter(own).cloned().collect::<Vec<_>>() {
            row.to = Lessee::Peer(successor);
            self.move_lease(cx, row, successor)?;
        }
        for mut row in waiting {
            row.to = Lessee::Peer(successor);
            cx.txn.put_lease(&row)?;
            self.put_lease(cx, row);
        }
        self.offer_waiting(cx, successor)
    }
}
