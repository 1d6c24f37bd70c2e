//! What the host wants.

use peerbus_wire::{AuditRecord, ClientFrame, Domain, GroupName, How, MessageId, Presence, Stage};

use super::mutation::SessionMutation;
use super::{
    AUDITS_MAX, Draft, Key, NoticeId, Overloaded, PeerSession, Phase, QueryId, SessionEvent, Unsent,
};
use crate::Now;

impl PeerSession {
    /// Sends a message. Its [`Reply::Sent`] comes when its fate is known, at `deadline_ms` (on the
    /// monotonic clock) at the latest, and never later than five minutes from now, after which an
    /// unconfirmed message is not sent again.
    ///
    /// # Errors
    ///
    /// When too many messages wait already; nothing was changed.
    pub fn send(&mut self, now: Now, draft: Draft, deadline_ms: u64) -> Result<(), Overloaded> {
        if self.is_over() {
            self.settle(draft.id, Err(Unsent::NeverLeft));
            return Ok(());
        }
        self.outbox.push(draft, now.mono_ms, deadline_ms)
    }

    /// Asks who is there. Answered by [`Reply::Answered`], at `deadline_ms` at the latest.
    ///
    /// # Errors
    ///
    /// When too many queries wait already.
    pub fn query_peers(&mut self, deadline_ms: u64) -> Result<QueryId, Overloaded> {
        self.query_peers_of(None, deadline_ms)
    }

    /// Likewise, who is in a domain: that of the broker, or another, as far as its bridge told.
    ///
    /// # Errors
    ///
    /// As for [`PeerSession::query_peers`].
    pub fn query_peers_of(
        &mut self,
        domain: Option<Domain>,
        deadline_ms: u64,
    ) -> Result<QueryId, Overloaded> {
        let query = self.queries.ask_peers(domain, deadline_ms)?;
        if self.is_over() {
            self.replies.extend(self.queries.close());
        }
        Ok(query)
    }

    /// Joins groups and leaves groups, all of them or none. Answered like [`PeerSession::query_peers`], with
    /// the groups of which this peer is a member then. Of each list what is beyond
    /// [`peerbus_wire::limits::GROUPS_MAX`] is left out.
    ///
    /// # Errors
    ///
    /// As for [`PeerSession::query_peers`].
    pub fn regroup(
        &mut self,
        (mut join, mut leave): (Vec<GroupName>, Vec<GroupName>),
        deadline_ms: u64,
    ) -> Result<QueryId, Overloaded> {
        join.truncate(peerbus_wire::limits::GROUPS_MAX);
        leave.truncate(peerbus_wire::limits::GROUPS_MAX);
        let query = self.queries.ask_regroup(join, leave, deadline_ms)?;
        if self.is_over() {
            self.replies.extend(self.queries.close());
        }
        Ok(query)
    }

    /// Asks what became of messages that were sent under this name. Answered by
    /// [`Reply::Answered`], at `deadline_ms` at the latest. `ids` are at most
    /// [`peerbus_wire::limits::STATUS_IDS_MAX`]; those beyond are left out. Statements about them
    /// that come while the answer is under way go into the answer, not to the events.
    ///
    /// # Errors
    ///
    /// When too many queries wait already.
    pub fn query_statuses(
        &mut self,
        mut ids: Vec<MessageId>,
        deadline_ms: u64,
    ) -> Result<QueryId, Overloaded> {
        ids.truncate(peerbus_wire::limits::STATUS_IDS_MAX);
        let query = self.queries.ask_statuses(ids, deadline_ms)?;
        if self.is_over() {
            self.replies.extend(self.queries.close());
        } else if matches!(self.phase, Phase::Online { ext: false, .. }) {
            self.replies.extend(self.queries.refuse_statuses());
        }
        Ok(query)
    }

    /// The next event for the host. A message that it took is held until it is acked or refused.
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        if let Some(registered) = self.registered.take() {
            return Some(registered);
        }
        if let Some(unjoined) = self.unjoined.take() {
            return Some(unjoined);
        }
        if let Some(event) = self.notices.take() {
            if self.mutations.broken(SessionMutation::AckUntold)
                && let SessionEvent::Notice { id: Some(id), .. } = event
            {
                self.ack_notice(id);
            }
            return Some(event);
        }
        if let Some((key, news)) = self.jobs.pop_front() {
            return Some(SessionEvent::Job { key, news });
        }
        self.inbox.take().map(SessionEvent::Message)
    }

    /// The statement was told to the agent or the person it is for: the broker need not keep it.
    /// Repeating it does no harm.
    pub fn ack_notice(&mut self, id: NoticeId) {
        if let Some(key) = self.notices.told(id) {
            self.ack_delivery(key, None);
        }
    }

    /// The host is done with a message that it took: the broker is told, now or when it delivers
    /// the message again. Once for each message; a later `seen` upgrades a `pushed` ack if that has
    /// to be resent.
    pub fn ack(&mut self, now: Now, key: Key, how: How) {
        let read = self.wants_read();
        for delivery in self.inbox.consume(key, Some(how.clone())) {
            self.ack_delivery(delivery, Some(how.clone()));
        }
        self.may_read_again(now, read);
    }

    /// As [`PeerSession::ack`], but nothing is claimed of the message.
    pub fn ack_silently(&mut self, now: Now, key: Key) {
        let read = self.wants_read();
        for delivery in self.inbox.consume(key, None) {
            self.ack_delivery(delivery, None);
        }
        self.may_read_again(now, read);
    }

    /// The host gives a message back that it took: another member of its group gets it. `again`: it may
    /// have been shown here. To a broker without the extension nothing was given that can go back.
    pub fn give_back(&mut self, now: Now, key: Key, again: bool) {
        let read = self.wants_read();
        for key in self.inbox.give_back(key) {
            if self.speaks_ext() {
                self.control.push_back(ClientFrame::Release { key, again });
            }
        }
        self.may_read_again(now, read);
    }

    /// Tells the sender how far a message is that the host took: no ack. A broker without the
    /// extension is not told.
    pub fn progress(&mut self, key: Key, stage: &Stage) {
        if !self.speaks_ext() {
            return;
        }
        let Some(key) = self.inbox.deliveries(key).first().cloned() else {
            return;
        };
        let stage = stage.clone();
        self.control.push_back(ClientFrame::Progress { key, stage });
    }

    /// The recipient does not want a message that the host took: it is not owed any more, and its
    /// sender is told why. A broker without the extension is told that it was consumed.
    pub fn refuse(&mut self, now: Now, key: Key, reason: &str) {
        let read = self.wants_read();
        for key in self.inbox.refuse(key, reason) {
            let ext = self.speaks_ext();
            self.decline(key, reason.to_owned(), ext);
        }
        self.may_read_again(now, read);
    }

    /// Describes this peer anew.
    pub fn set_presence(&mut self, presence: Presence) {
        if self.config.presence.as_ref() != Some(&presence) {
            self.config.presence = Some(presence);
            self.presence_changed = true;
        }
    }

    /// Has the broker write down what was done to this session, if it can: best effort. As long as
    /// it is away so many records wait, and further ones are lost.
    pub fn audit(&mut self, record: AuditRecord) {
        if self.takes_audits && !self.is_over() && self.audits.len() < AUDITS_MAX {
            self.audits.push_back(record);
        }
    }

    /// What was not heard while nothing was read is not silence.
    pub(super) fn may_read_again(&mut self, now: Now, could_read: bool) {
        if !could_read && self.wants_read() {
            self.handle_alive(now);
        }
    }
}
