//! What peers say was done to their sessions: written into the audit chain, so many of each
//! connection.

use peerbus_wire::AuditRecord;

use super::mutation::BrokerMutation;
use super::{Broker, Caller, CommitNeed};
use crate::store::PeerId;

/// Records of one connection that are written within [`SPAN_MS`]. More are counted.
const RECORDS_MAX: u32 = 60;
const SPAN_MS: u64 = 60_000;

/// How many records a connection gave.
#[derive(Debug, Default)]
pub(super) struct Budget {
    since_ms: u64,
    taken: u32,
    excess: u64,
}

impl Budget {
    /// Whether one more is written now.
    pub(super) fn take(&mut self, now_ms: u64, room: bool) -> bool {
        let fits = room && self.taken < RECORDS_MAX;
        if self.taken == 0 && self.excess == 0 {
            self.since_ms = now_ms;
        }
        if fits {
            self.taken += 1;
        } else {
            self.excess += 1;
        }
        fits
    }

    pub(super) fn is_over(&self, now_ms: u64) -> bool {
        now_ms >= self.since_ms.saturating_add(SPAN_MS)
    }

    /// Begins anew. Gives how many were counted only.
    pub(super) fn end(&mut self) -> u64 {
        std::mem::take(self).excess
    }
}

impl Broker {
    /// A peer says what was done to its session.
    pub(super) fn audited(&mut self, now_ms: u64, caller: Caller, record: &AuditRecord) {
        let session = self.conns.session_mut(caller.conn);
        let Some(session) = session.filter(|_| !self.stopping) else {
            return;
        };
        let name = session.name.as_str().to_owned();
        let before = match session.audits.is_over(now_ms) {
            true => session.audits.end(),
            false => 0,
        };
        let written = session.audits.take(now_ms, !self.full)
            || self.mutations.broken(BrokerMutation::AuditAll);
        self.write_excess(caller.peer, &name, before);
        if written {
            self.log.remark(caller.peer, &name, record);
            self.outbox.want(CommitNeed::Soon);
        }
    }

    /// Writes down what was counted only, once its time is over.
    pub(super) fn end_budgets(&mut self, now_ms: u64) {
        self.end_joins(now_ms);
        let over = self.conns.sessions_mut();
        let over = over.filter(|(_, session)| session.audits.is_over(now_ms));
        let due: Vec<_> = over
            .map(|(_, s)| (s.peer, s.name.clone(), s.audits.end()))
            .collect();
        for (peer, name, excess) in due {
            self.write_excess(peer, name.as_str(), excess);
        }
    }

    /// A connection ends: what was counted only is written down.
    pub(super) fn end_budget(&mut self, session: &mut super::Session) {
        let excess = session.audits.end();
        self.write_excess(session.peer, session.name.as_str(), excess);
    }

    fn write_excess(&mut self, peer: PeerId, name: &str, records: u64) {
        if records > 0 && !self.mutations.broken(BrokerMutation::HideExcess) {
            self.log.excess(peer, name, records);
            self.outbox.want(CommitNeed::Soon);
        }
    }
}
