//! Notices: statements that are kept until their sender has acked them.

use peerbus_wire::{BrokerFrame, DeliveryKey, Receipt};

use super::ack::End;
use super::{Broker, BrokerOutput, Caller, CommitNeed, ConnId, Cx};
use crate::store::{MessageHead, Notice, PeerId, Result};

/// Notices that are sent before some of them are acked.
const NOTICES_BATCH: usize = 512;

/// A notice as its sender gets it.
fn receipt(notice: Notice) -> Receipt {
    Receipt {
        id: notice.id,
        at_ms: Some(notice.at.wall_ms),
        key: DeliveryKey::parse(&format!("n{}", notice.number)),
        to: Some(notice.to),
        stage: notice.stage,
    }
}

impl Broker {
    /// Writes the next notice: how the delivery of a message to a recipient, of this name, ended if it
    /// was not acked. Says it if the sender is here; one whose sender is forgotten is dropped.
    pub(super) fn notify(
        &mut self,
        cx: &mut Cx<'_>,
        (head, recipient): (&MessageHead, PeerId),
        to: String,
        end: End<'_>,
    ) -> Result {
        let Some(sender) = self.registry.get(head.sender) else {
            return Ok(());
        };
        let conn = sender.conn;
        let notice = Notice {
            number: self.head.next_notice,
            sender: head.sender,
            id: head.id.clone(),
            to,
            stage: end.stage(),
            at: cx.at,
        };
        self.head.next_notice += 1;
        cx.txn.insert_notice(&notice)?;
        self.outbox.want(CommitNeed::Soon);
        if let Some(conn) = conn
            && self.conns.session(conn).is_some_and(|s| s.ext)
        {
            self.outbox
                .later(conn, (head.seq, recipient), receipt(notice));
        }
        Ok(())
    }

    /// Sends the next notices that were kept for a peer while it was away.
    pub(super) fn send_notices(&mut self, cx: &mut Cx<'_>, conn: ConnId) -> Result {
        let Some(session) = self.conns.session_mut(conn) else {
            return Ok(());
        };
        let notices = cx
            .txn
            .notices(session.peer, session.notice_cursor, NOTICES_BATCH)?;
        let Some(last) = notices.last() else {
            return Ok(());
        };
        session.notice_cursor = last.number;
        session.notices_out = notices.len();
        let receipts = notices.into_iter().map(receipt).collect();
        for frame in BrokerFrame::receipts(receipts) {
            // Behind the handshake ack, which waits for the commit.
            self.outbox
                .waiting(BrokerOutput::Send(conn, frame), CommitNeed::Soon);
        }
        Ok(())
    }

    /// A sender has taken note.
    pub(super) fn ack_notice(&mut self, cx: &mut Cx<'_>, caller: Caller, number: u64) -> Result {
        let Some(session) = self.conns.session_mut(caller.conn) else {
            return Ok(());
        };
        if !cx.txn.delete_notice(caller.peer, number)? {
            return Ok(());
        }
        self.outbox.want(CommitNeed::Soon);
        if number <= session.notice_cursor {
            session.notices_out = session.notices_out.saturating_sub(1);
            if session.notices_out == 0 {
                return self.send_notices(cx, caller.conn);
            }
        }
        Ok(())
    }
}
