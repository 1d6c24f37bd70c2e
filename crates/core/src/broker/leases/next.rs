//! Whose turn it is.

use super::super::mutation::BrokerMutation;
use super::super::registry::Peer;
use super::super::{Broker, Cx};
use crate::store::{LeaseRow, Lessee, PeerId, Result};
use crate::{Now, TokenHash};

/// Leases of groups that one member has at a time; fewer if its window is smaller. The others wait for
/// whoever is done with one.
pub(super) const HELD_MAX: usize = 16;

/// Requests to one peer that have no result,
const OWN_MAX: usize = 64;
/// and those of one token among them. The others wait for one of these.
const OWN_OF_TOKEN_MAX: usize = 16;

/// Which of those who had a lease may get it again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Had {
    All,
    /// Those who are idle and can be woken.
    Idle,
    Nobody,
}

impl Broker {
    /// Who gets a lease next. Of a group the member who is idle and can be woken, or else has least to
    /// read; of several the one that was given none for longest. Whoever had it comes last, and has it next
    /// only if `may` says so.
    pub(super) fn next_holder(
        &mut self,
        cx: &mut Cx<'_>,
        row: &LeaseRow,
        may: Had,
    ) -> Result<Option<PeerId>> {
        if let Lessee::Peer(peer) = row.to {
            return Ok(Some(peer).filter(|peer| self.could_have(*peer, row, may)));
        }
        let members = self.registry.of_token(Some(row.owner));
        let here = members.filter_map(|member| self.turn(row, may, member));
        let here: Vec<_> = here.collect();
        let mut ranked = Vec::with_capacity(here.len());
        for (had, busy, served, id) in here {
            ranked.push((had, busy, self.pending(cx, id)?, served, id));
        }
        ranked.sort_unstable();
        for (.., id) in ranked {
            let of = (row.owner, row.head.bytes);
            if self.full_for(cx, id, of, false)?.is_none() {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// When it is the turn of a member, the least first; `None`: it cannot have the lease.
    fn turn(
        &self,
        row: &LeaseRow,
        may: Had,
        (id, peer): (PeerId, &Peer),
    ) -> Option<(bool, bool, u64, PeerId)> {
        let rejected =
            row.rejected.contains(&id) && !self.mutations.broken(BrokerMutation::GiveToRejected);
        let member = row.is_for(id, peer.row.owner, &peer.row.groups);
        if !member || [row.head.sender, row.holder].contains(&id) || rejected {
            return None;
        }
        let session = self.session_of(id).filter(|session| session.ext)?;
        let wakes = session.idle != self.mutations.broken(BrokerMutation::BusyFirst);
        let had = row.had.contains(&id);
        let out = match may {
            Had::All => false,
            Had::Idle => had && !wakes,
            Had::Nobody => had,
        };
        (!out && self.has_room(id)).then_some((had, !wakes, peer.served, id))
    }

    /// Whether it can be a peer's turn with a lease that nobody has, or that its holder does not come to.
    pub(super) fn could_have(&self, peer: PeerId, row: &LeaseRow, may: Had) -> bool {
        match (&row.to, self.registry.get(peer)) {
            (_, None) => false,
            (Lessee::Peer(to), _) => *to == peer && self.has_place(peer, &row.owner),
            (_, Some(known)) => self.turn(row, may, (peer, known)).is_some(),
        }
    }

    /// Whether a member who is here may have one more lease of a group.
    pub(super) fn has_room(&self, peer: PeerId) -> bool {
        let session = self.session_of(peer);
        let most = session.map_or(0, |session| session.flights.most().min(HELD_MAX));
        let of_groups = self.leases.held(peer).filter(|row| row.group().is_some());
        of_groups.take(most).count() < most
    }

    /// Whether a peer may have one more request of this token's that is for it alone. What is under way to
    /// another domain counts there.
    fn has_place(&self, peer: PeerId, token: &TokenHash) -> bool {
        let own = || self.leases.held(peer).filter(|row| row.group().is_none());
        let mut of_token = own().filter(|row| row.owner == *token);
        self.is_bridge(peer)
            || own().nth(OWN_MAX - 1).is_none() && of_token.nth(OWN_OF_TOKEN_MAX - 1).is_none()
    }

    /// Whether somebody is left, here or not, who may have it and did not reject it.
    pub(super) fn is_wanted(&self, now: Now, row: &LeaseRow) -> bool {
        let wants = |(id, peer): (PeerId, &Peer)| {
            let member = row.group().is_some_and(|it| peer.is_in(it, now.mono_ms));
            member && id != row.head.sender && !row.rejected.contains(&id)
        };
        self.registry.of_token(Some(row.owner)).any(wants)
    }
}
