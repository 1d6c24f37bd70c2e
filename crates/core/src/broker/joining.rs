//! A machine asks to be let in by an invitation: what came of it goes into the audit chain, and to the
//! machine once it is there.

use peerbus_wire::{BrokerFrame, CloseReason, JoinGrant, JoinRefusal, TokenName};

use super::conn::Conn;
use super::{Broker, BrokerOutput, CommitNeed, ConnId};

/// A try to join, and its outcome.
#[derive(Debug, Clone)]
pub struct JoinTry {
    /// The invitation; `None`: no one is known.
    pub name: Option<TokenName>,
    /// The machine's address, or `unix`; empty: not known.
    pub from: String,
    /// The secret and names for the machine, or why it is not let in.
    pub outcome: Result<JoinGrant, JoinRefusal>,
}

impl Broker {
    /// The connection's first frame was [`peerbus_wire::ClientFrame::Join`].
    pub(super) fn joining(&mut self, now_ms: u64, conn: ConnId, tried: JoinTry) {
        let JoinTry {
            name,
            from,
            outcome,
        } = tried;
        self.end_joins(now_ms);
        // A machine that is let in is written down whatever others try, and may ask again and again.
        let is_in = outcome.is_ok();
        let budget = self.conns.joins.entry((name.clone(), is_in)).or_default();
        if budget.take(now_ms, is_in || !self.full) {
            let word = outcome.as_ref().err().map_or("joined", |why| why.word());
            self.log
                .join(name.as_ref().map(TokenName::as_str), word, &from);
            self.outbox.want(CommitNeed::Soon);
        }
        // It may have gone, or taken too long.
        if !matches!(self.conns.all.get(&conn), Some(Conn::Greeting)) {
            return;
        }
        match outcome {
            Ok(grant) => {
                let answer = BrokerOutput::Send(conn, BrokerFrame::Joined(grant));
                self.outbox.waiting(answer, CommitNeed::Now);
                // Its peers register on connections of their own.
                self.conns.all.insert(conn, Conn::Closing);
                let end = BrokerOutput::Close(conn, CloseReason::Joined);
                self.outbox.waiting(end, CommitNeed::Now);
            }
            Err(refusal) => self.deny(conn, CloseReason::NotJoined(refusal)),
        }
    }

    /// Writes down how many more tried than were written down, once the time of these is over.
    pub(super) fn end_joins(&mut self, now_ms: u64) {
        let mut tries = 0;
        self.conns.joins.retain(|_, budget| {
            let over = budget.is_over(now_ms);
            tries += if over { budget.end() } else { 0 };
            !over
        });
        if tries > 0 {
            self.log.more_joins(tries);
            self.outbox.want(CommitNeed::Soon);
        }
    }
}
