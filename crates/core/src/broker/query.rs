//! What a client may ask: who is there, what it was not told yet.

use peerbus_wire::limits::PEERS_ENTRIES_MAX;
use peerbus_wire::{BrokerFrame, DeliveryKey, PeerEntry, PeersFrame};

use super::ack::notice_receipt;
use super::registry::Peer;
use super::{Broker, ConnId, Need, Output};
use crate::Now;
use crate::store::{StoreError, Txn};

/// Notices that are sent before some of them are acked.
const NOTICES_BATCH: usize = 512;

/// The number in the key of a notice.
pub(super) fn notice_number(key: &DeliveryKey) -> Option<u64> {
    key.as_str().strip_prefix('n')?.parse().ok()
}

impl Broker {
    /// Answers `peers`, once everything before it is committed.
    pub(super) fn answer_peers<T: Txn + ?Sized>(
        &mut self,
        now: Now,
        conn: ConnId,
        txn: &mut T,
    ) -> Result<(), StoreError> {
        let ext = self.conns.session(conn).is_some_and(|s| s.ext);
        let (peers, omitted) = if ext {
            let (entries, omitted) = self.entries(now, txn)?;
            (Some(entries), omitted)
        } else {
            (None, 0)
        };
        let names = self.online_names();
        let frame = PeersFrame {
            names,
            ext: None,
            window: None,
            peers,
            omitted,
        };
        self.outbox
            .barrier(Output::Send(conn, BrokerFrame::Peers(frame)));
        Ok(())
    }

    /// Names of connected peers, sorted.
    pub(super) fn online_names(&self) -> Vec<String> {
        let mut names: Vec<_> = self
            .conns
            .sessions()
            .map(|(_, s)| s.name.as_str().to_owned())
            .collect();
        names.sort_unstable();
        names
    }

    fn entries<T: Txn + ?Sized>(
        &mut self,
        now: Now,
        txn: &mut T,
    ) -> Result<(Vec<PeerEntry>, u32), StoreError> {
        let rank = |peer: &Peer| (peer.conn.is_none(), u64::MAX - peer.row.last_seen_ms);
        let mut known: Vec<_> = self.registry.iter().map(|(id, p)| (rank(p), id)).collect();
        known.sort_unstable();
        let omitted = known.len().saturating_sub(PEERS_ENTRIES_MAX);
        known.truncate(PEERS_ENTRIES_MAX);
        let mut entries = Vec::with_capacity(known.len());
        for (_, id) in known {
            let unacked = Some(self.owed(id, txn)?);
            let Some(peer) = self.registry.get(id) else {
                continue;
            };
            let session = peer.conn.and_then(|conn| self.conns.session(conn));
            let away_ms = now.wall_ms.saturating_sub(peer.row.last_seen_ms);
            entries.push(PeerEntry {
                name: peer.row.name.clone(),
                online: session.is_some(),
                unacked,
                away_s: if session.is_some() {
                    0
                } else {
                    away_ms / 1_000
                },
                presence: match session {
                    Some(session) => session.presence.clone(),
                    None => peer.presence.clone(),
                },
            });
        }
        Ok((entries, u32::try_from(omitted).unwrap_or(u32::MAX)))
    }

    /// Sends the next statements that were kept for a peer while it was away.
    pub(super) fn send_notices<T: Txn + ?Sized>(
        &mut self,
        conn: ConnId,
        txn: &mut T,
    ) -> Result<(), StoreError> {
        let Some(session) = self.conns.session_mut(conn) else {
            return Ok(());
        };
        let notices = txn.notices(session.peer, session.notice_cursor, NOTICES_BATCH)?;
        let Some(last) = notices.last() else {
            return Ok(());
        };
        session.notice_cursor = last.number;
        session.notices_out = notices.len();
        let receipts = notices.into_iter().map(notice_receipt).collect();
        for frame in BrokerFrame::receipts(receipts) {
            // Behind the handshake ack, which waits for the commit.
            self.outbox.waiting(Output::Send(conn, frame), Need::Soon);
        }
        Ok(())
    }

    /// A sender has taken note.
    pub(super) fn ack_notice<T: Txn + ?Sized>(
        &mut self,
        conn: ConnId,
        number: u64,
        txn: &mut T,
    ) -> Result<(), StoreError> {
        let Some(session) = self.conns.session_mut(conn) else {
            return Ok(());
        };
        let (peer, batched) = (session.peer, number <= session.notice_cursor);
        if !txn.delete_notice(peer, number)? {
            return Ok(());
        }
        self.outbox.want(Need::Soon);
        if batched {
            session.notices_out = session.notices_out.saturating_sub(1);
            if session.notices_out == 0 {
                return self.send_notices(conn, txn);
            }
        }
        Ok(())
    }
}
