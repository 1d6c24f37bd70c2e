//! What a client may ask: who is there, what became of its messages, what it was not told yet.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use peerbus_wire::limits::PEERS_ENTRIES_MAX;
use peerbus_wire::{
    BrokerFrame, DeliveryKey, MessageId, PeerEntry, PeersFrame, Receipt, Seq, State,
};

use super::ack::notice_receipt;
use super::registry::Peer;
use super::{Broker, ConnId, Need, Output};
use crate::Now;
use crate::store::{MessageHead, PeerId, StoreError, Txn};

/// Notices that are sent before some of them are acked.
const NOTICES_BATCH: usize = 512;

/// States that are remembered for `status`, of however many messages.
const RECENT_MAX: usize = 32_768;

/// States remembered of one message.
const RECENT_STATES_MAX: usize = 64;

/// The number in the key of a notice.
pub(super) fn notice_number(key: &DeliveryKey) -> Option<u64> {
    key.as_str().strip_prefix('n')?.parse().ok()
}

/// Final states of messages that were settled lately. Lost with the process.
#[derive(Debug, Default)]
pub(super) struct Recent {
    states: BTreeMap<(PeerId, MessageId), Vec<State>>,
    order: VecDeque<(PeerId, MessageId)>,
    count: usize,
}

impl Recent {
    pub(super) fn record(&mut self, sender: PeerId, id: &MessageId, state: State) {
        let key = (sender, id.clone());
        let states = match self.states.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                self.order.push_back(entry.key().clone());
                entry.insert(Vec::new())
            }
        };
        if states.len() < RECENT_STATES_MAX {
            states.push(state);
            self.count += 1;
        }
        while self.count > RECENT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.count -= self.states.remove(&oldest).map_or(0, |states| states.len());
        }
    }

    fn of(&self, sender: PeerId, id: &MessageId) -> &[State] {
        self.states
            .get(&(sender, id.clone()))
            .map_or(&[], Vec::as_slice)
    }
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
                presence: session.and_then(|s| s.presence.clone()),
            });
        }
        Ok((entries, u32::try_from(omitted).unwrap_or(u32::MAX)))
    }

    /// Says what became of a sender's own messages.
    pub(super) fn answer_status<T: Txn + ?Sized>(
        &mut self,
        conn: ConnId,
        ids: &[MessageId],
        txn: &mut T,
    ) -> Result<(), StoreError> {
        let Some(sender) = self.conns.session(conn).map(|s| s.peer) else {
            return Ok(());
        };
        let mut receipts = Vec::new();
        for id in ids {
            let states = match txn.find_message(sender, id)? {
                Some(head) => self.states(&head, txn)?,
                None => vec![State::Unknown],
            };
            receipts.extend(states.into_iter().map(|state| Receipt {
                id: id.clone(),
                state,
                key: None,
                at_ms: None,
            }));
        }
        for frame in BrokerFrame::receipts(receipts) {
            self.outbox.barrier(Output::Send(conn, frame));
        }
        Ok(())
    }

    fn states<T: Txn + ?Sized>(
        &self,
        head: &MessageHead,
        txn: &mut T,
    ) -> Result<Vec<State>, StoreError> {
        let owed = txn.owed_to(head.seq)?;
        let here = |peer: &PeerId| self.registry.conn(*peer).is_some();
        let online = owed.iter().filter(|peer| here(peer)).count();
        let mut states = vec![State::Accepted {
            recipients: head.recipients,
            online: u32::try_from(online).unwrap_or(u32::MAX),
            duplicate: false,
        }];
        for peer in owed.into_iter().take(RECENT_STATES_MAX) {
            let to = self.registry.name(peer);
            let held = self.holds(peer, head.seq);
            states.push(if held {
                State::Delivered { to }
            } else {
                State::Queued { to }
            });
        }
        states.extend_from_slice(self.recent.of(head.sender, &head.id));
        Ok(states)
    }

    fn holds(&self, peer: PeerId, seq: Seq) -> bool {
        let session = self
            .registry
            .conn(peer)
            .and_then(|conn| self.conns.session(conn));
        session.is_some_and(|s| s.flights.holds(seq))
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
