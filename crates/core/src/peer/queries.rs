//! Questions to the broker, answered in the order in which they were asked.
//!
//! A `peers` frame is answered after everything before it. So a question about statuses is a
//! `status` frame and a `peers` frame behind it, whose answer says that nothing more will come.

use std::collections::VecDeque;

use peerbus_wire::{ClientFrame, Domain, GroupName, MessageId, PeersFrame, Receipt};

use super::types::{Answer, Overloaded, QueryFailure, QueryId, Reply, Roster};

/// Most queries that may wait for an answer, those whose callers were told of a time-out included, beside
/// the one by which the own groups are joined.
pub(super) const QUERIES_MAX: usize = 64;
/// Most statements that one answer keeps.
const STATEMENTS_MAX: usize = 16_384;

#[derive(Debug)]
enum Question {
    /// Who is there; in a domain, if one is named.
    Peers(Option<Domain>),
    /// Groups to join, and groups to leave.
    Regroup(Vec<GroupName>, Vec<GroupName>),
    Statuses {
        ids: Vec<MessageId>,
        statements: Vec<Receipt>,
    },
}

#[derive(Debug)]
struct Query {
    id: QueryId,
    question: Question,
    deadline_ms: u64,
    /// The caller was answered; only the broker's answer is still to be skipped.
    told: bool,
}

/// The queries. The first `sent` of them were sent on this connection.
#[derive(Debug, Default)]
pub(super) struct Queries {
    waiting: VecDeque<Query>,
    sent: usize,
    last: u64,
}

impl Queries {
    /// Asks who is there; in a domain, if one is named.
    pub(super) fn ask_peers(
        &mut self,
        domain: Option<Domain>,
        deadline_ms: u64,
    ) -> Result<QueryId, Overloaded> {
        self.ask(Question::Peers(domain), deadline_ms)
    }

    /// Joins groups and leaves groups.
    pub(super) fn ask_regroup(
        &mut self,
        join: Vec<GroupName>,
        leave: Vec<GroupName>,
        deadline_ms: u64,
    ) -> Result<QueryId, Overloaded> {
        self.ask(Question::Regroup(join, leave), deadline_ms)
    }

    /// Asks what became of messages.
    pub(super) fn ask_statuses(
        &mut self,
        ids: Vec<MessageId>,
        deadline_ms: u64,
    ) -> Result<QueryId, Overloaded> {
        let statements = Vec::new();
        self.ask(Question::Statuses { ids, statements }, deadline_ms)
    }

    fn ask(&mut self, question: Question, deadline_ms: u64) -> Result<QueryId, Overloaded> {
        if self.waiting.len() >= QUERIES_MAX {
            return Err(Overloaded {
                waiting: self.waiting.len(),
                bytes: 0,
            });
        }
        let id = self.number();
        self.waiting.push_back(Query {
            id,
            question,
            deadline_ms,
            told: false,
        });
        Ok(id)
    }

    /// A number for a query.
    pub(super) fn number(&mut self) -> QueryId {
        self.last += 1;
        QueryId(self.last)
    }

    /// The broker is asked first to let this peer join groups, whose answer nobody waits for; before
    /// anything else was asked on this connection.
    pub(super) fn joins(&mut self, groups: Vec<GroupName>) {
        debug_assert_eq!(self.sent, 0, "this is the first question");
        let id = self.number();
        self.waiting.push_front(Query {
            id,
            question: Question::Regroup(groups, Vec::new()),
            deadline_ms: u64::MAX,
            told: true,
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
            Question::Statuses { ids, .. } => {
                vec![ClientFrame::Status { ids: ids.clone() }, ClientFrame::Peers]
            }
        })
    }

    /// Keeps a statement for the query that asked for it. Says whether one did.
    pub(super) fn collect(&mut self, receipt: &Receipt) -> bool {
        for query in self.waiting.iter_mut().take(self.sent) {
            if let Question::Statuses { ids, statements } = &mut query.question
                && ids.contains(&receipt.id)
            {
                // What was told meanwhile stands in the answer where it belongs.
                statements.retain(|known| known != receipt);
                if statements.len() < STATEMENTS_MAX {
                    statements.push(receipt.clone());
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
    pub(super) fn answer(&mut self, frame: PeersFrame, ext: bool) -> Option<Option<Reply>> {
        if self.sent == 0 {
            return None;
        }
        self.sent -= 1;
        let query = self.waiting.pop_front()?;
        if query.told {
            return Some(None);
        }
        let answer = match query.question {
            Question::Peers(_) | Question::Regroup(..) => Answer::Peers(Roster::of(frame, ext)),
            Question::Statuses { statements, .. } => Answer::Statuses(statements),
        };
        Some(Some(Reply::Answered {
            query: query.id,
            outcome: Ok(answer),
        }))
    }

    /// The connection ended: what was not answered is to be asked again.
    pub(super) fn rewind(&mut self) {
        self.sent = 0;
        self.waiting.retain_mut(|query| {
            if let Question::Statuses { statements, .. } = &mut query.question {
                statements.clear();
            }
            !query.told
        });
    }

    /// The broker has no receipts: nothing can be asked about messages.
    pub(super) fn refuse_statuses(&mut self) -> Vec<Reply> {
        let of_peers = |query: &Query| !matches!(query.question, Question::Statuses { .. });
        let (kept, refused) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|query| of_peers(query));
        self.waiting = kept;
        let refused: VecDeque<Query> = refused;
        refused
            .iter()
            .filter_map(|query| query.fail(QueryFailure::NotSupported))
            .collect()
    }

    pub(super) fn expire(&mut self, now_ms: u64) -> Vec<Reply> {
        let mut replies = Vec::new();
        let mut at = 0;
        self.waiting.retain_mut(|query| {
            let sent = at < self.sent;
            at += 1;
            if query.deadline_ms > now_ms {
                return true;
            }
            replies.extend(query.fail(QueryFailure::TimedOut));
            query.told = true;
            sent
        });
        replies
    }

    pub(super) fn timeout(&self) -> Option<u64> {
        let waiting = self.waiting.iter().filter(|query| !query.told);
        waiting.map(|query| query.deadline_ms).min()
    }

    pub(super) fn close(&mut self) -> Vec<Reply> {
        self.sent = 0;
        let all = std::mem::take(&mut self.waiting);
        all.iter()
            .filter_map(|query| query.fail(QueryFailure::Closed))
            .collect()
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
    fn fail(&self, failure: QueryFailure) -> Option<Reply> {
        let reply = Reply::Answered {
            query: self.id,
            outcome: Err(failure),
        };
        (!self.told).then_some(reply)
    }
}

impl Roster {
    fn of(frame: PeersFrame, ext: bool) -> Self {
        let named = |name| peerbus_wire::PeerEntry {
            name,
            online: true,
            unacked: None,
            away_s: Some(0),
            activity_s: None,
            groups: Vec::new(),
            presence: None,
        };
        let peers = match frame.peers {
            Some(peers) => peers,
            None => frame.names.into_iter().map(named).collect(),
        };
        Self {
            peers,
            omitted: frame.omitted,
            age_ms: frame.age_ms,
            groups: frame.groups,
            reason: frame.reason,
            ext,
        }
    }
}
