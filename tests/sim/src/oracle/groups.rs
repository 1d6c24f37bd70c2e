//! Groups, as the model has them.

use std::collections::BTreeSet;

use peerbus_core::TokenHash;
use peerbus_core::store::{PeerId, PeerKind, PeerRow};
use peerbus_wire::{GroupName, recipient_of};

use super::Oracle;
use crate::disk::Write;
use crate::failure::{Verdict, ensure};
use crate::plan::{TOKEN, token};

impl Oracle {
    /// A peer wants to join groups and to leave groups.
    pub(super) fn regroup(&mut self, peer: PeerId, join: &[GroupName], leave: &[GroupName]) {
        let Some(row) = self.view.peers.get(&peer) else {
            return;
        };
        let mut groups: BTreeSet<_> = row.groups.clone();
        // One whose name was freed has to come anew.
        if !row.ephemeral && row.owner.is_some() {
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

    /// Its connection is one of version 1.
    fn speaks_v1(&self, peer: PeerId) -> bool {
        let mut conns = self.conns.values().filter(|model| model.peer == Some(peer));
        conns.any(|model| {
            let v1 = model.claim.as_ref().is_some_and(|claim| claim.ext == 0);
            v1 && !model.evicted && !model.closed
        })
    }

    /// Who is in a group of a sender's token besides the sender.
    pub(super) fn members(&self, now_ms: u64, sender: PeerId, group: &GroupName) -> Vec<PeerId> {
        // Nobody else may send.
        let owner = Some(TokenHash::of(&token(TOKEN)));
        let member = |row: &&PeerRow| {
            row.id != sender
                && !row.ephemeral
                && row.kind == PeerKind::Peer
                && row.owner == owner
                && row.groups.contains(group)
                && (!row.generated || self.is_here(now_ms, row.id))
                && !self.speaks_v1(row.id)
        };
        let peers = self.view.peers.values().filter(member);
        peers.map(|row| row.id).collect()
    }

    /// Members of a group that have no room for a message for it that was stored just now.
    pub(super) fn without_room(&self, now_ms: u64, writes: &[Write]) -> Vec<PeerId> {
        let stored = writes.iter().find_map(|write| match write {
            Write::Message { head, envelope } => Some((head.sender, envelope)),
            _ => None,
        });
        let group = |envelope| GroupName::parse(recipient_of(envelope).strip_prefix('#')?).ok();
        let leased = writes.iter().any(|write| matches!(write, Write::Lease(_)));
        let Some((sender, envelope)) = stored.filter(|_| !leased) else {
            return Vec::new();
        };
        let members = group(envelope).map(|group| self.members(now_ms, sender, &group));
        let mut members = members.unwrap_or_default();
        let token = self.view.tokens.get(&sender);
        members.retain(|peer| self.is_full(*peer, token, envelope.len() as u64));
        members
    }

    /// Its sender is told of each of them.
    pub(super) fn full_are_told(&self, full: Vec<PeerId>, writes: &[Write]) -> Verdict {
        for peer in full {
            let name = self.name_of(peer);
            let told = |write: &Write| matches!(write, Write::Notice(it) if it.to == name);
            ensure(writes.iter().any(told), "broadcast", || {
                format!("{name} has no room, and the sender does not hear of it")
            })?;
        }
        Ok(())
    }
}
