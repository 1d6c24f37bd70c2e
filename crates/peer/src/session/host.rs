//! What the host wants.

use peerbus_wire::limits::{GROUPS_MAX, STATUS_IDS_MAX};
use peerbus_wire::{AuditRecord, ClientFrame, Presence, Stage};

use super::inbox::End;
use super::mutation::SessionMutation;
use super::{
    AUDITS_MAX, Draft, Key, NoticeId, Overloaded, PeerSession, Phase, QueryFailure, QueryId,
    Question, SessionEvent, Unsent,
};
use peerbus_core::Now;

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

    /// Asks the broker something. Answered by [`Reply::Answered`], at `deadline_ms` at the latest.
    ///
    /// # Errors
    ///
    /// When too many queries wait already, or a change of name.
    pub fn ask(&mut self, mut question: Question, deadline_ms: u64) -> Result<QueryId, Overloaded> {
        match &mut question {
            Question::Peers(_) | Question::Name(_) => {}
            Question::Regroup(join, leave) => {
                join.truncate(GROUPS_MAX);
                leave.truncate(GROUPS_MAX);
            }
            Question::Statuses(ids) => ids.truncate(STATUS_IDS_MAX),
        }
        let asked = match question {
            Question::Name(name) => {
                let question = Question::Name(name.clone());
                let query = self.queries.query(question, deadline_ms);
                self.naming.ask(name, query)
            }
            question => self.queries.ask(question, deadline_ms),
        };
        if self.is_over() {
            self.fail(QueryFailure::Closed);
        } else if matches!(self.phase, Phase::Online { ext: false, .. }) {
            self.fail(QueryFailure::NotSupported);
        }
        asked
    }

    /// There will be no answers any more, or none that need the extension.
    pub(super) fn fail(&mut self, failure: QueryFailure) {
        self.replies.extend(self.queries.fail(&failure));
        self.replies.extend(self.naming.fail(failure));
    }

    /// The next event for the host. A message that it took is held until it is acked or refused.
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        if let Some(event) = self.notices.take() {
            if self.mutations.broken(SessionMutation::AckUntold)
                && let SessionEvent::Notice { id: Some(id), .. } = event
            {
                self.ack_notice(id);
            }
            return Some(event);
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

    /// A message that the host took is so far.
    ///
    /// - [`Stage::Acked`]: the host is done with it. The broker is told, now or when it delivers the
    ///   message again; a later `seen` upgrades a `pushed` ack if that has to be resent.
    /// - [`Stage::Dead`]: the recipient does not want it. It is not owed any more, and its sender is told
    ///   why. A broker without the extension is told that it was consumed.
    /// - Any other: the sender is told, and the message stays owed. A broker without the extension is not
    ///   told.
    ///
    /// A message ends once: repeating it does no harm.
    pub fn reached(&mut self, now: Now, key: Key, stage: Stage) {
        let end = match stage {
            Stage::Acked(how) => End::Acked(how),
            Stage::Dead { why } => End::Refused(why),
            stage => {
                let delivery = self.inbox.deliveries(key).first().cloned();
                if let Some(key) = delivery.filter(|_| self.speaks_ext()) {
                    self.control.push_back(ClientFrame::Progress { key, stage });
                }
                return;
            }
        };
        let read = self.wants_read();
        for delivery in self.inbox.end(key, end.clone()) {
            self.say_end(delivery, end.clone());
        }
        self.may_read_again(now, read);
    }

    /// The host gives back a message for one member of a group: another one gets it. `again`: it may
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
