//! Whose turn it is.

use peerbus_wire::Seq;

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
        let here = members.filter_map(|member| self.turn(row, sender, may, member));
        let here: Vec<_> = here.collect();
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

    /// When it is the turn of a member, the least first; `None`: it cannot have the job.
    fn turn(
        &self,
        row: &JobRow,
        sender: PeerId,
        may: Had,
        (id, peer): (PeerId, &Peer),
    ) -> Option<(bool, bool, u64, PeerId)> {
        let rejected =
            row.rejected.contains(&id) && !self.mutations.broken(BrokerMutation::GiveToRejected);
        if !peer.row.groups.contains(&row.group) || [sender, row.holder].contains(&id) || rejected {
            return None;
        }
        let session = peer.conn.and_then(|conn| self.conns.session(conn));
        let session = session.filter(|session| session.ext)?;
        let wakes = session.idle != self.mutations.broken(BrokerMutation::BusyFirst);
        let had = row.had.contains(&id);
        let out = match may {
            Had::All => false,
            Had::Idle => had && !wakes,
            Had::Nobody => had,
        };
        (!out && self.has_job_room(id)).then_some((had, !wakes, peer.served, id))
    }

    /// Whether this peer could have a job that nobody has, or that its holder does not come to.
    pub(super) fn could_have(&mut self, cx: &mut Cx<'_>, peer: PeerId, seq: Seq) -> Result<bool> {
        let (Some(job), Some(head)) = (self.jobs.all.get(&seq), cx.txn.message(seq)?) else {
            return Ok(false);
        };
        let (may, sender) = (job.had(cx.now.mono_ms), head.sender);
        let member = self.registry.get(peer).map(|known| (peer, known));
        let turn = member.and_then(|member| self.turn(&job.row, sender, may, member));
        let of = (self.owed.token(sender).unwrap_or(job.row.owner), head.bytes);
        Ok(turn.is_some() && self.full_for(cx, peer, of, false)?.is_none())
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
