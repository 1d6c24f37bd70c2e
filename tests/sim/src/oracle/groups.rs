//! Groups, as the model has them.

use std::collections::BTreeSet;

use peerbus_core::TokenHash;
use peerbus_core::store::{PeerId, PeerRow};
use peerbus_wire::GroupName;

use super::Oracle;
use crate::failure::{Verdict, ensure};
use crate::plan::{TOKEN, token};

impl Oracle {
    /// A peer wants to join groups and to leave groups.
    pub(super) fn regroup(&mut self, peer: PeerId, join: &[GroupName], leave: &[GroupName]) {
        let Some(row) = self.view.peers.get(&peer) else {
            return;
        };
        let mut groups: BTreeSet<_> = row.groups.clone();
        if !row.ephemeral {
            groups.extend(join.iter().cloned());
            groups.retain(|group| !leave.contains(group));
        }
        self.regrouping = Some((peer, groups));
    }

    /// Whoever wanted to is in its groups.
    pub(super) fn regrouped(&mut self) -> Verdict {
        let Some((peer, expected)) = self.regrouping.take() else {
            return Ok(());
        };
        let groups = self.view.peers.get(&peer).map(|row| &row.groups);
        ensure(groups == Some(&expected), "group", || {
            format!("{peer:?} is in {groups:?}, and wanted to be in {expected:?}")
        })
    }

    /// Nothing about this peer changes but its groups.
    pub(super) fn regroups(&self, row: &PeerRow) -> bool {
        let old = self.view.peers.get(&row.id);
        old.filter(|old| old.groups != row.groups)
            .is_some_and(|old| {
                let groups = old.groups.clone();
                *old == PeerRow {
                    groups,
                    ..row.clone()
                }
            })
    }

    /// Who is in a group of a sender's token besides the sender.
    pub(super) fn members(&self, now_ms: u64, sender: PeerId, group: &GroupName) -> Vec<PeerId> {
        // Nobody else may send.
        let owner = Some(TokenHash::of(&token(TOKEN)));
        let member = |row: &&PeerRow| {
            row.id != sender
                && !row.ephemeral
                && row.ending.is_none()
                && row.owner == owner
                && row.groups.contains(group)
                && (!row.generated || self.is_here(now_ms, row.id))
        };
        let peers = self.view.peers.values().filter(member);
        peers.map(|row| row.id).collect()
    }
}
