//! Whose turn it is.

use peerbus_wire::Presence;

use super::super::mutation::BrokerMutation;
use super::super::registry::Peer;
use super::super::{Broker, Cx};
use crate::Now;
use crate::store::{JobRow, PeerId, Result};

/// Jobs that one member has at a time; fewer if its window is smaller. The others wait for whoever is done
/// with one.
const HELD_MAX: usize = 16;

/// Which of those who had a job may get it again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Had {
    All,
    /// Those who are idle and can be woken.
    Idle,
    Nobody,
}

impl Broker {
    /// The member who gets a job next: one who is idle and can be woken, or else has least to read; of
    /// several the one that was given none for longest. Whoever had it comes last, and has it next only
    /// if `may` says so.
    pub(super) fn next_holder(
        &mut self,
        cx: &mut Cx<'_>,
        row: &JobRow,
        (sender, bytes): (PeerId, u64),
        may: Had,
    ) -> Result<Option<PeerId>> {
        let members = self.registry.of_token(Some(row.owner));
        let members = members.filter(|(id, peer)| {
            let out = [sender, row.holder].contains(id)
                || row.rejected.contains(id)
                    && !self.mutations.broken(BrokerMutation::GiveToRejected);
            peer.row.groups.contains(&row.group) && !out
        });
        let mut here = Vec::new();
        for (id, peer) in members {
            let session = peer.conn.and_then(|conn| self.conns.session(conn));
            if let Some(session) = session.filter(|session| session.ext) {
                let wakes = session.presence.as_ref().is_some_and(is_idle);
                let wakes = wakes != self.mutations.broken(BrokerMutation::BusyFirst);
                let had = row.had.contains(&id);
                let out = match may {
                    Had::All => false,
                    Had::Idle => had && !wakes,
                    Had::Nobody => had,
                };
                if !out && self.has_job_room(id) {
                    here.push((had, !wakes, peer.served, id));
                }
            }
        }
        let mut ranked = Vec::with_capacity(here.len());
        for (had, busy, served, id) in here {
            ranked.push((had, busy, self.pending(cx, id)?, served, id));
        }
        ranked.sort_unstable();
        let of = (self.owed.token(sender).unwrap_or(row.owner), bytes);
        for (.., id) in ranked {
            if self.full_for(cx, id, of, false)?.is_none() {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Whether a member who is here may have one more job.
    pub(super) fn has_job_room(&self, peer: PeerId) -> bool {
        let session = self.session_of(peer);
        let most = session.map_or(0, |session| session.flights.most().min(HELD_MAX));
        self.jobs.count(peer, most) < most
    }

    /// Whether a member is left, here or not, who did not reject it.
    pub(super) fn is_wanted(&self, now: Now, row: &JobRow, sender: PeerId) -> bool {
        let wants = |(id, peer): (PeerId, &Peer)| {
            peer.is_in(&row.group, now.mono_ms) && id != sender && !row.rejected.contains(&id)
        };
        self.registry.of_token(Some(row.owner)).any(wants)
    }
}

/// It says that it does nothing, and that it can be woken.
fn is_idle(presence: &Presence) -> bool {
    let said = serde_json::from_str::<serde_json::Value>(presence.as_str()).unwrap_or_default();
    let wakes = said.get("wake").and_then(|wake| wake.as_array());
    said.get("activity").and_then(|does| does.as_str()) == Some("idle")
        && wakes.is_some_and(|paths| !paths.is_empty())
}
