//! Questions to the broker, answered in the order in which they were asked; and what became of our own
//! messages, kept until the host takes it or, where the broker keeps it, until it is told.
//!
//! A `peers` frame is answered after everything before it. So a question about messages is a
//! `status` or `withdraw` frame and a `peers` frame behind it, whose answer says that nothing more will
//! come.

use std::collections::{BTreeMap, VecDeque};

use peerbus_wire::limits::{GROUPS_MAX, STATUS_IDS_MAX};
use peerbus_wire::{ClientFrame, DeliveryKey, GroupName, MessageId, PeersFrame, Receipt};

use super::types::{
    Answer, NoticeId, Overloaded, QueryFailure, QueryId, Question, Reply, SessionEvent,
};
use super::{PeerSession, Phase};

/// Most queries that may wait for an answer, those whose callers were told of a time-out included, beside
/// the one by which the own groups are joined.
pub(super) const QUERIES_MAX: usize = 64;
/// Most statements that one answer keeps.
const STATEMENTS_MAX: usize = 16_384;

#[derive(Debug)]
pub(super) struct Query {
    pub(super) id: QueryId,
    question: Question,
    /// What was said of the messages that it asks about.
    statements: Vec<Receipt>,
    deadline_ms: u64,
    /// The caller was answered; only the broker's answer is still to be skipped.
    pub(super) told: bool,
}

/// The queries. The first `sent` of them were sent on this connection.
#[derive(Debug, Default)]
pub(super) struct Queries {
    waiting: VecDeque<Query>,
    sent: usize,
    last: u64,
}

impl Queries {
    pub(super) fn ask(
        &mut self,
        question: Question,
        deadline_ms: u64,
    ) -> Result<QueryId, Overloaded> {
        if self.waiting.len() >= QUERIES_MAX {
            return Err(Overloaded {
                waiting: self.waiting.len(),
                bytes: 0,
            });
        }
        let query = self.query(question, deadline_ms);
        let id = query.id;
        self.waiting.push_back(query);
        Ok(id)
    }

    pub(super) fn query(&mut self, question: Question, deadline_ms: u64) -> Query {
        self.last += 1;
        Query {
            id: QueryId(self.last),
            question,
            statements: Vec::new(),
            deadline_ms,
            told: false,
        }
    }

    /// The broker is asked first to let this peer join groups, whose answer nobody waits for; before
    /// anything else was asked on this connection.
    pub(super) fn joins(&mut self, groups: Vec<GroupName>) {
        debug_assert_eq!(self.sent, 0, "this is the first question");
        let question = Question::Regroup(groups, Vec::new());
        let query = self.query(question, u64::MAX);
        self.waiting.push_front(Query {
            told: true,
            ..query
        });
        self.sent = 1;
    }

    /// The frames of the next query that was not sent.
    pub(super) fn next(&mut self) -> Option<Vec<ClientFrame>> {
        let query = self.waiting.get(self.sent)?;
        self.sent += 1;
        Some(match &query.question {
            Question::Peers(None) => vec![ClientFrame::Peers],
            Question::Peers(Some(domain)) => vec![ClientFrame::PeersOf(domain.clone())],
            Question::Regroup(join, leave) => {
                let (join, leave) = (join.clone(), leave.clone());
                vec![ClientFrame::Regroup { join, leave }]
            }
            Question::Statuses(ids) => {
                vec![ClientFrame::Status { ids: ids.clone() }, ClientFrame::Peers]
            }
            Question::Withdraw(id) => {
                vec![ClientFrame::Withdraw { id: id.clone() }, ClientFrame::Peers]
            }
            Question::Name(name) => vec![ClientFrame::Rename {
                name: name.as_str().into(),
            }],
        })
    }

    /// Keeps a statement for the query that asked for it. Says whether one did.
    pub(super) fn collect(&mut self, receipt: &Receipt) -> bool {
        for query in self.waiting.iter_mut().take(self.sent) {
            if query.messages().contains(&receipt.id) {
                // What was told meanwhile stands in the answer where it belongs.
                query.statements.retain(|known| known != receipt);
                if query.statements.len() < STATEMENTS_MAX {
                    query.statements.push(receipt.clone());
                }
                return true;
            }
        }
        false
    }

    /// Which groups the oldest query joins and leaves, if it does, and whether somebody waits for that.
    pub(super) fn regroups(&self) -> Option<(&[GroupName], &[GroupName], bool)> {
        let query = self.waiting.front().filter(|_| self.sent > 0)?;
        match &query.question {
            Question::Regroup(join, leave) => Some((join, leave, !query.told)),
            _ => None,
        }
    }

    /// The broker answered the oldest query with this. `None`: nothing was asked; otherwise the reply, if
    /// somebody waits for one.
    pub(super) fn answer(&mut self, frame: PeersFrame) -> Option<Option<Reply>> {
        if self.sent == 0 {
            return None;
        }
        self.sent -= 1;
        let mut query = self.waiting.pop_front()?;
        let answer = match query.question {
            Question::Statuses(_) | Question::Withdraw(_) => {
                Answer::Statuses(std::mem::take(&mut query.statements))
            }
            _ => Answer::Peers(Box::new(frame)),
        };
        Some(query.reply(Ok(answer)))
    }

    /// The connection ended: what was not answered is to be asked again.
    pub(super) fn rewind(&mut self) {
        self.sent = 0;
        self.waiting.retain_mut(|query| {
            query.statements.clear();
            !query.told
        });
    }

    /// There will be no answers any more, or, at a broker without the extension, none about messages.
    pub(super) fn fail(&mut self, failure: &QueryFailure) -> Vec<Reply> {
        let all = *failure == QueryFailure::Closed;
        if all {
            self.sent = 0;
        }
        let mut replies = Vec::new();
        self.waiting.retain(|query| {
            let kept = !all && query.messages().is_empty();
            replies.extend(query.reply(Err(failure.clone())).filter(|_| !kept));
            kept
        });
        replies
    }

    pub(super) fn expire(&mut self, now_ms: u64) -> Vec<Reply> {
        let mut replies = Vec::new();
        let mut at = 0;
        self.waiting.retain_mut(|query| {
            let sent = at < self.sent;
            at += 1;
            replies.extend(query.expire(now_ms));
            !query.told || sent
        });
        replies
    }

    pub(super) fn timeout(&self) -> Option<u64> {
        self.waiting.iter().filter_map(Query::due_ms).min()
    }

    pub(super) fn check(&self) {
        assert!(self.sent <= self.waiting.len() && self.waiting.len() <= QUERIES_MAX + 1);
        let unsent = self.waiting.iter().skip(self.sent);
        assert!(
            unsent.into_iter().all(|query| !query.told),
            "told, but still to be sent"
        );
    }
}

impl Query {
    /// The messages that it is about.
    fn messages(&self) -> &[MessageId] {
        match &self.question {
            Question::Statuses(ids) => ids,
            Question::Withdraw(id) => std::slice::from_ref(id),
            _ => &[],
        }
    }

    /// Its answer, if its caller still waits for one.
    pub(super) fn reply(&self, outcome: Result<Answer, QueryFailure>) -> Option<Reply> {
        let query = self.id;
        (!self.told).then_some(Reply::Answered { query, outcome })
    }

    /// When its caller is answered at the latest.
    pub(super) fn due_ms(&self) -> Option<u64> {
        (!self.told).then_some(self.deadline_ms)
    }

    pub(super) fn expire(&mut self, now_ms: u64) -> Option<Reply> {
        let due = self.due_ms().is_some_and(|due_ms| due_ms <= now_ms);
        let reply = self.reply(Err(QueryFailure::TimedOut)).filter(|_| due);
        self.told |= due;
        reply
    }
}

impl PeerSession {
    /// Asks the broker something. Answered by [`Reply::Answered`], at `deadline_ms` at the latest.
    ///
    /// # Errors
    ///
    /// When too many queries wait already, or a change of name.
    pub fn ask(&mut self, mut question: Question, deadline_ms: u64) -> Result<QueryId, Overloaded> {
        match &mut question {
            Question::Peers(_) | Question::Withdraw(_) | Question::Name(_) => {}
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
}

/// Most statements that are kept for the host, or that it took and did not tell. Those that can be asked for again make room for
/// newer ones; those that the broker keeps are then left to the broker.
pub(super) const NOTICES_MAX: usize = 1_024;
/// Most statements that are remembered as told, to recognise one that comes again.
const TOLD_MAX: usize = 4_096;

type Kept = (DeliveryKey, MessageId);

/// Statements for the host.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// Those that the broker told once.
    passing: VecDeque<SessionEvent>,
    /// Those that the broker repeats until they are acked: until the host takes one, what it says.
    kept: BTreeMap<NoticeId, (Kept, Option<Receipt>)>,
    next: u64,
    told: VecDeque<Kept>,
}

impl Notices {
    /// A statement that the broker does not keep.
    pub(super) fn push(&mut self, event: SessionEvent) {
        if self.passing.len() >= NOTICES_MAX {
            self.passing.pop_front();
        }
        self.passing.push_back(event);
    }

    /// A statement that the broker keeps under `key`. `true` when it was told: ack it.
    pub(super) fn arrive(&mut self, key: DeliveryKey, receipt: Receipt) -> bool {
        let notice = (key, receipt.id.clone());
        if self.told.contains(&notice) {
            return true;
        }
        let known = self.kept.values().any(|(kept, _)| *kept == notice);
        if !known && self.kept.len() < NOTICES_MAX {
            self.kept
                .insert(NoticeId(self.next), (notice, Some(receipt)));
            self.next += 1;
        }
        false
    }

    /// The next statement.
    pub(super) fn take(&mut self) -> Option<SessionEvent> {
        if let Some(event) = self.passing.pop_front() {
            return Some(event);
        }
        let mut kept = self.kept.iter_mut();
        kept.find_map(|(id, (_, receipt))| {
            let (id, receipt) = (Some(*id), receipt.take()?);
            Some(SessionEvent::Notice { receipt, id })
        })
    }

    /// The host told it; gives what to ack.
    pub(super) fn told(&mut self, id: NoticeId) -> Option<DeliveryKey> {
        let (notice, _) = self.kept.remove(&id)?;
        if self.told.len() >= TOLD_MAX {
            self.told.pop_front();
        }
        let key = notice.0.clone();
        self.told.push_back(notice);
        Some(key)
    }

    /// The process goes by another name now, for which the broker keeps none of these: what is
    /// left of them is shown all the same.
    pub(super) fn disown(&mut self) {
        self.told.clear();
        for (_, receipt) in std::mem::take(&mut self.kept).into_values() {
            if let Some(receipt) = receipt {
                self.push(SessionEvent::Notice { receipt, id: None });
            }
        }
    }

    pub(super) fn has_event(&self) -> bool {
        // The host takes the oldest first.
        let newest = self.kept.last_key_value();
        !self.passing.is_empty() || newest.is_some_and(|(_, (_, receipt))| receipt.is_some())
    }

    pub(super) fn close(&mut self) {
        self.passing.clear();
        self.kept.clear();
    }

    pub(super) fn check(&self) {
        assert!(self.passing.len() <= NOTICES_MAX);
        assert!(self.kept.len() <= NOTICES_MAX);
        assert!(self.told.len() <= TOLD_MAX);
    }
}

impl PeerSession {
    /// The statement was told to the agent or the person it is for: the broker need not keep it.
    /// Repeating it does no harm.
    pub fn ack_notice(&mut self, id: NoticeId) {
        if let Some(key) = self.notices.told(id) {
            self.ack_delivery(key, None, 0);
        }
    }
}
