//! Frames: what comes from the broker, and what goes to it.

use peerbus_wire::{
    Ack, Address, ClientFrame, Delivery, DeliveryKey, How, Kind, PeerName, PeersFrame, Receipt,
    Received, Secret, Stage, VerifyError, control_type, readable,
};

use super::inbox::{Arrival, End, print_of};
use super::mutation::SessionMutation;
use super::{
    Action, CONTROL_MAX, Inbound, Key, PeerSession, Phase, Rejected, SessionEvent, Unsent,
};
use peerbus_core::Now;
use peerbus_wire::body_of;

/// Why groups are not joined at a broker that does not say why.
pub(super) const NO_GROUPS: &str = "this broker knows no groups";

/// Why a message is not shown.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    #[error("{}", VerifyError::Mismatch)]
    Mismatch,
    #[error("{0}")]
    Form(String),
}

/// So long ago it was, in milliseconds.
pub(super) fn age(now: Now, at_ms: u64) -> u32 {
    u32::try_from(now.boot_ms.saturating_sub(at_ms)).unwrap_or(u32::MAX)
}

impl PeerSession {
    /// A text message came from the broker.
    pub fn handle_text(&mut self, now: Now, text: &[u8]) {
        self.handle_alive(now);
        match (self.phase, Received::parse(text)) {
            (Phase::Registering { .. }, Received::Peers(frame)) => self.online(now, &frame),
            (Phase::Online { .. }, Received::Peers(frame)) => {
                self.regrouped(&frame);
                match self.queries.answer(frame) {
                    Some(Some(reply)) => self.replies.push_back(reply),
                    // Nobody waits for it any more.
                    Some(None) => {}
                    None => self.counters.ignored += 1,
                }
            }
            (Phase::Online { ext, .. }, Received::Deliver(delivery)) => {
                self.deliver(now, *delivery, ext);
            }
            (Phase::Online { ext: true, .. }, Received::Receipts(receipts)) => {
                for receipt in receipts {
                    self.receipt(receipt);
                }
            }
            (Phase::Online { ext: true, .. }, Received::Recall(recall)) => {
                let reason = Some(recall.reason);
                let key = self.inbox.recall(&recall.key);
                let lapsed = key.map(|key| SessionEvent::Lapsed { key, reason });
                self.events.extend(lapsed);
            }
            (Phase::Online { ext: true, .. }, Received::Renamed(answer)) => self.renamed(answer),
            (Phase::Online { ext: true, .. }, Received::Retired(_)) => self.retired(now),
            // A socket that dials a free port of this machine can meet itself.
            (Phase::Registering { .. }, Received::Unknown)
                if control_type(text).as_deref() == Some("register") =>
            {
                let why = "the connection leads back to this process: no broker listens there";
                self.hang_up(now, why.into());
            }
            _ => self.counters.ignored += 1,
        }
    }

    /// The broker answered, maybe about groups: what was joined or left stays so over connections, and
    /// that something was not joined which nobody waits for is told.
    fn regrouped(&mut self, frame: &PeersFrame) {
        let Some((join, leave, awaited)) = self.queries.regroups() else {
            return;
        };
        if frame.groups.is_some() && frame.reason.is_none() {
            let groups = &mut self.config.groups;
            groups.retain(|name| !join.contains(name) && !leave.contains(name));
            groups.extend(join.iter().filter(|name| !leave.contains(name)).cloned());
        } else if !awaited {
            let why = frame.reason.clone();
            let why = why.unwrap_or_else(|| NO_GROUPS.into());
            self.events.push_back(SessionEvent::NotJoined { why });
        }
    }

    /// Everything that was taken with [`PeerSession::poll_transmit`] is flushed to the socket.
    pub fn handle_flushed(&mut self) {
        if matches!(self.phase, Phase::Online { ext: false, .. }) {
            for id in self.outbox.written() {
                self.settle(id, Ok(None));
            }
        }
    }

    /// The next frame for the broker. Each is to be sent, in this order.
    pub fn poll_transmit(&mut self) -> Option<ClientFrame> {
        if let Some(frame) = self.control.pop_front() {
            return Some(frame);
        }
        let Phase::Online { ext, .. } = self.phase else {
            return None;
        };
        if std::mem::take(&mut self.presence_changed)
            && ext
            && let Some(presence) = &self.config.presence
        {
            return Some(ClientFrame::Presence(presence.clone()));
        }
        if let Some(record) = self.audits.pop_front() {
            return Some(ClientFrame::Audit(record));
        }
        if ext && let Some(frame) = self.naming.next() {
            return Some(frame);
        }
        if let Some(frames) = self.queries.next() {
            self.control.extend(frames);
            return self.control.pop_front();
        }
        loop {
            let secret = &self.credentials.as_ref()?.secret;
            let (name, domain) = (&self.config.name, self.domain.as_ref());
            match self.outbox.next(name, domain, secret)? {
                Ok(carried) => return Some(ClientFrame::Envelope(carried)),
                Err((id, refusal)) => self.settle(id, Err(Unsent::Refused(refusal))),
            }
        }
    }

    /// The secret as the credentials have it now; `None` when they cannot be read, or did not
    /// change.
    pub fn handle_secret(&mut self, now: Now, secret: Option<Secret>) {
        let read = self.wants_read();
        if let (Some(credentials), Some(secret)) = (&mut self.credentials, secret) {
            credentials.secret = secret;
        }
        if let Some(delivery) = self.unverified.take()
            && let Phase::Online { ext, .. } = self.phase
        {
            let verdict = self.verify(&delivery);
            self.settle_delivery(now, delivery, verdict, ext);
        }
        self.may_read_again(now, read);
    }

    fn deliver(&mut self, now: Now, delivery: Delivery, ext: bool) {
        let verdict = self.verify(&delivery);
        if matches!(verdict, Err(Unfit::Mismatch)) {
            self.unverified = Some(delivery);
            return self.actions.push_back(Action::Reread);
        }
        self.settle_delivery(now, delivery, verdict, ext);
    }

    fn settle_delivery(
        &mut self,
        now: Now,
        delivery: Delivery,
        verdict: Result<Inbound, Unfit>,
        ext: bool,
    ) {
        let inbound = match verdict {
            Ok(inbound) => inbound,
            Err(unfit) => {
                let reason = unfit.to_string();
                let envelope = delivery.envelope.envelope;
                self.rejected = Some(Rejected {
                    from: envelope.from,
                    id: envelope.id,
                    reason: reason.clone(),
                });
                return self.reject(delivery.key, reason, ext);
            }
        };
        let key = delivery.key.clone();
        let print = print_of(&delivery.envelope.envelope.hmac);
        match self.inbox.arrive(delivery.key, print, inbound) {
            Arrival::New(_) if self.mutations.broken(SessionMutation::AckUnread) => {
                self.ack_delivery(key, None, 0);
            }
            Arrival::New(before) => self.say_again(now, key, before.filter(|_| ext)),
            Arrival::Held(said, leased) => {
                self.counters.duplicates += 1;
                self.say_again(now, key, said.filter(|_| ext));
                self.events
                    .extend(leased.map(|inbound| SessionEvent::Message(*inbound)));
            }
            Arrival::Ended(end, at_ms) => {
                self.counters.duplicates += 1;
                self.say_end(key, end, at_ms.map_or(0, |at_ms| age(now, at_ms)));
            }
            Arrival::Reused => self.reject(key, "id reused for another message".into(), ext),
        }
    }

    /// The broker may have lost how far a message is, as the host said.
    fn say_again(&mut self, now: Now, key: DeliveryKey, said: Option<(Stage, u64)>) {
        self.control
            .extend(said.map(|(stage, at_ms)| ClientFrame::Progress {
                key,
                stage,
                age_ms: age(now, at_ms),
            }));
    }

    /// What is not shown: v1 has no word for it, and is to drop it.
    fn reject(&mut self, key: DeliveryKey, reason: String, ext: bool) {
        self.counters.rejected += 1;
        self.decline(key, reason, 0, ext);
    }

    pub(super) fn decline(&mut self, key: DeliveryKey, reason: String, age_ms: u32, ext: bool) {
        if ext {
            self.control.push_back(ClientFrame::Reject {
                key,
                reason,
                age_ms,
            });
        } else {
            self.ack_delivery(key, None, 0);
        }
    }

    /// The broker is told that the host is done with a message, since so long.
    pub(super) fn say_end(&mut self, key: DeliveryKey, end: End, age_ms: u32) {
        match end {
            End::Acked(how) => self.ack_delivery(key, how, age_ms),
            End::Refused(reason) => self.decline(key, reason, age_ms, self.speaks_ext()),
        }
    }

    /// Checks the signature, then the rules of form, then that the message is for this peer.
    fn verify(&self, delivery: &Delivery) -> Result<Inbound, Unfit> {
        let credentials = self.credentials.as_ref();
        let secret = credentials.map(|credentials| &credentials.secret);
        let secret = secret.ok_or_else(|| Unfit::Form("no secret to verify with".into()))?;
        let envelope = &delivery.envelope.envelope;
        if !self.mutations.broken(SessionMutation::SkipVerify) {
            secret.verify(envelope).map_err(|error| match error {
                VerifyError::Mismatch => Unfit::Mismatch,
                other => Unfit::Form(other.to_string()),
            })?;
        }
        let carried = delivery
            .envelope
            .carry()
            .map_err(|refusal| Unfit::Form(refusal.reason))?;
        let alias = delivery.remarks.alias.as_ref();
        let (kind, to) = match &carried.to {
            Address::All => (Kind::Broadcast, None),
            Address::Group(_) | Address::One(_) => (Kind::Msg, None),
            Address::Peer(to) if to.key() == self.config.name.key() => (Kind::Msg, None),
            // The broker says that the name leads here.
            Address::Peer(to) if alias.is_some_and(|alias| alias.key() == to.key()) => {
                (Kind::Msg, self.old_name(to))
            }
            Address::Peer(to) => {
                let name = &self.config.name;
                let why = format!("addressed to {to}, delivered to {name}");
                return Err(Unfit::Form(why));
            }
        };
        let group = match &carried.to {
            Address::Group(group) | Address::One(group) => Some(group.as_str().into()),
            _ => None,
        };
        let within_ms = delivery.remarks.within_ms;
        let one = matches!(carried.to, Address::One(_)) || group.is_some() && within_ms > 0;
        let token = delivery.remarks.token.as_ref();
        Ok(Inbound {
            key: Key::of(&carried.from.key(), &carried.id),
            id: carried.id.as_str().into(),
            from: carried.from.as_str().into(),
            source: envelope.source.clone(),
            kind,
            ts: envelope.ts.clone(),
            body: readable(body_of(&carried.text)).into_owned(),
            again: delivery.remarks.again,
            to,
            group,
            one,
            token: token.map(|token| token.as_str().into()),
            approves: delivery.remarks.approves && token.is_some(),
            age_ms: delivery.remarks.age_ms,
            within_ms,
        })
    }

    /// What this peer was called by who wrote to `to`, if that is not its name or its address.
    fn old_name(&self, to: &PeerName) -> Option<String> {
        let here = to
            .address()
            .filter(|(_, domain)| self.domain.as_ref() == Some(domain));
        let name = here.map_or_else(|| to.clone(), |(name, _)| name);
        (name.key() != self.config.name.key()).then(|| name.as_str().into())
    }

    pub(super) fn ack_delivery(&mut self, key: DeliveryKey, how: Option<How>, age_ms: u32) {
        let how = how.filter(|_| self.speaks_ext());
        let age_ms = if self.speaks_ext() { age_ms } else { 0 };
        let Phase::Online { ext, .. } = self.phase else {
            return;
        };
        if !ext && self.control.len() >= CONTROL_MAX {
            // What it acked comes again on the next connection, and is acked again then.
            let is_ack = |frame: &ClientFrame| matches!(frame, ClientFrame::Ack(_));
            if let Some(oldest) = self.control.iter().position(is_ack) {
                self.control.remove(oldest);
            }
        }
        self.control
            .push_back(ClientFrame::Ack(Ack { key, how, age_ms }));
    }

    fn receipt(&mut self, receipt: Receipt) {
        if let Some(key) = receipt.key.clone() {
            self.queries.collect(&receipt);
            if self.notices.arrive(key.clone(), receipt) {
                self.ack_delivery(key, None, 0);
            }
            return;
        }
        let outcome = match &receipt.stage {
            Stage::Accepted(accepted) => Ok(Some(*accepted)),
            Stage::Refused(refusal) => Err(Unsent::Refused(refusal.clone())),
            _ => {
                if !self.queries.collect(&receipt) {
                    self.notices.push(passing(receipt));
                }
                return;
            }
        };
        self.queries.collect(&receipt);
        if let Some((told, draft)) = self.outbox.settle(&receipt.id) {
            if outcome.is_ok() {
                self.inbox.answered(&draft);
            }
            match told {
                false => self.settle(receipt.id, outcome),
                true => self.notices.push(passing(receipt)),
            }
        }
    }
}

/// A statement that the broker does not keep.
fn passing(receipt: Receipt) -> SessionEvent {
    let id = None;
    SessionEvent::Notice { receipt, id }
}
