//! Who is there.

use peerbus_wire::limits::PEERS_ENTRIES_MAX;
use peerbus_wire::{BrokerFrame, PeerEntry, PeersFrame};

use super::registry::Peer;
use super::{Broker, Caller, Cx, Output};
use crate::store::StoreError;

impl Broker {
    /// Answers `peers`, once everything before it is committed.
    pub(super) fn answer_peers(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
    ) -> Result<(), StoreError> {
        let (peers, omitted) = if caller.ext {
            let (entries, omitted) = self.entries(cx)?;
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
            .barrier(Output::Send(caller.conn, BrokerFrame::Peers(frame)));
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

    fn entries(&mut self, cx: &mut Cx<'_>) -> Result<(Vec<PeerEntry>, u32), StoreError> {
        let rank = |peer: &Peer| (peer.conn.is_none(), u64::MAX - peer.row.last_seen.steady_ms);
        let mut known: Vec<_> = self.registry.iter().map(|(id, p)| (rank(p), id)).collect();
        known.sort_unstable();
        let omitted = known.len().saturating_sub(PEERS_ENTRIES_MAX);
        known.truncate(PEERS_ENTRIES_MAX);
        let mut entries = Vec::with_capacity(known.len());
        for (_, id) in known {
            let unacked = Some(self.pending(cx, id)?);
            let Some(peer) = self.registry.get(id) else {
                continue;
            };
            let session = peer.conn.and_then(|conn| self.conns.session(conn));
            let away_ms = cx.now.wall_ms.saturating_sub(peer.row.last_seen.wall_ms);
            entries.push(PeerEntry {
                name: peer.row.name.clone(),
                online: session.is_some(),
                unacked,
                away_s: if session.is_some() {
                    0
                } else {
                    away_ms / 1_000
                },
                activity_s: session
                    .and_then(|session| session.activity_since)
                    .map(|since| cx.now.mono_ms.saturating_sub(since) / 1_000),
                presence: match session {
                    Some(session) => session.presence.clone(),
                    None => peer.presence.clone(),
                },
            });
        }
        Ok((entries, u32::try_from(omitted).unwrap_or(u32::MAX)))
    }
}
