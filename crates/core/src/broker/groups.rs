//! Groups: who is in one, and to whom mail for one is owed.
//!
//! A group is a token's own: peers of another one neither see it nor write to it.

use std::collections::{BTreeMap, BTreeSet};

use peerbus_wire::limits::{ENTRY_GROUPS_BYTES_MAX, GROUPS_MAX};
use peerbus_wire::{BrokerFrame, GroupName, PeersFrame, Refusal, RefusalCode};

use super::ack::End;
use super::mutation::BrokerMutation;
use super::registry::{Peer, Registry};
use super::{Broker, Caller, CommitNeed, Cx};
use crate::TokenHash;
use crate::store::{LeaseRow, MessageHead, PeerId, PeerRow, Result};

/// Groups of one token.
const OF_TOKEN_MAX: usize = 10_000;

/// Groups that a refusal names.
const NAMED_MAX: usize = 20;

/// Whom a message is owed to.
#[derive(Debug)]
pub(super) enum Recipients {
    One(PeerId),
    Many {
        owed: Vec<PeerId>,
        /// Members of the group that have no room for it.
        full: Vec<PeerId>,
    },
    /// One peer at a time: its first holder, and what is kept of it.
    Lease(PeerId, Box<LeaseRow>),
}

impl Recipients {
    pub(super) const NONE: Self = Self::Many {
        owed: Vec::new(),
        full: Vec::new(),
    };

    pub(super) fn owed(&self) -> &[PeerId] {
        match self {
            Self::One(peer) | Self::Lease(peer, _) => std::slice::from_ref(peer),
            Self::Many { owed, .. } => owed,
        }
    }
}

impl Broker {
    /// A peer joins groups and leaves groups: all of them, or none.
    pub(super) fn regroup(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        (join, leave): (Vec<GroupName>, &[GroupName]),
    ) -> Result {
        let Some(known) = self.registry.get(caller.peer) else {
            return Ok(());
        };
        let mut row = known.row.clone();
        row.groups.extend(join);
        row.groups.retain(|name| !leave.contains(name));
        let reason = self.check_groups(caller, known, &row.groups).err();
        let now = if reason.is_none() { &row } else { &known.row };
        let (groups, changed) = (&now.groups, now.groups != known.row.groups);
        let frame = PeersFrame {
            names: vec![row.name.clone()],
            groups: Some(groups.iter().cloned().collect()),
            reason,
            ..PeersFrame::default()
        };
        if changed {
            cx.txn.put_peer(&row)?;
            self.outbox.want(CommitNeed::Soon);
            self.registry.put(row);
            // Others may have what it holds for these.
            let left = |row: &LeaseRow| row.group().is_some_and(|group| leave.contains(group));
            self.leases.late(caller.peer, cx.now.mono_ms, left);
            self.offer_leases(cx, caller.peer)?;
        }
        self.outbox.barrier(caller.conn, BrokerFrame::Peers(frame));
        Ok(())
    }

    /// Why a peer cannot be in these from now on.
    fn check_groups(
        &self,
        caller: Caller,
        known: &Peer,
        groups: &BTreeSet<GroupName>,
    ) -> Result<(), String> {
        if known.row.owner != Some(caller.token) {
            return Err(
                "the name of this peer was freed: connect again to have it, and to join".into(),
            );
        }
        let new: Vec<_> = groups.difference(&known.row.groups).collect();
        if new.is_empty() {
            return Ok(());
        }
        if known.row.ephemeral || known.bridges() {
            return Err(
                "a temporary peer is in no group: register under a name to join one".into(),
            );
        }
        if groups.len() > GROUPS_MAX {
            return Err(format!(
                "a peer is in at most {GROUPS_MAX} groups, and this would be in {}: leave some",
                groups.len()
            ));
        }
        let none = BTreeMap::new();
        let all = self.registry.groups.get(&known.row.owner).unwrap_or(&none);
        let fresh = new.iter().filter(|name| !all.contains_key(**name));
        if all.len() + fresh.count() > OF_TOKEN_MAX {
            return Err(format!(
                "peers of this token are in {} groups, and {OF_TOKEN_MAX} is the most: join one \
                 of those, or leave some",
                all.len()
            ));
        }
        Ok(())
    }

    /// Whom a message of a sender's for a group is owed to: each member but the sender. One whose name
    /// was made up is a member while it is registered.
    pub(super) fn members(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        group: &GroupName,
        bytes: u64,
    ) -> Result<Result<Recipients, Refusal>> {
        let now_ms = cx.now.mono_ms;
        let all: Vec<_> = self
            .registry
            .of_token(Some(caller.token))
            .filter(|(id, peer)| *id != caller.peer && peer.is_in(group, now_ms))
            .filter(|(_, peer)| self.speaks_ext(peer))
            .map(|(id, _)| id)
            .collect();
        if all.is_empty() {
            return Ok(Err(
                RefusalCode::UnknownRecipient.because(self.nobody_in(caller.token, group))
            ));
        }
        let (mut owed, full) = self.with_room(cx, all, (caller.token, bytes))?;
        if owed.is_empty() {
            return Ok(Err(RefusalCode::QueueFull.because(format!(
                "the queue of every member of {group} is full; send again when one has read some"
            ))));
        }
        if self.mutations.broken(BrokerMutation::SkipMember) {
            owed.pop();
        }
        Ok(Ok(Recipients::Many { owed, full }))
    }

    /// Which of these have room for a message of so many bytes, sent with this token, and which have not.
    pub(super) fn with_room(
        &mut self,
        cx: &mut Cx<'_>,
        peers: Vec<PeerId>,
        of: (TokenHash, u64),
    ) -> Result<(Vec<PeerId>, Vec<PeerId>)> {
        let (mut owed, mut full) = (Vec::new(), Vec::new());
        for peer in peers {
            match self.full_for(cx, peer, of, false)? {
                None => owed.push(peer),
                Some(_) => full.push(peer),
            }
        }
        Ok((owed, full))
    }

    /// It is no client of version 1, as far as that is known.
    fn speaks_ext(&self, peer: &Peer) -> bool {
        let session = peer.conn.and_then(|conn| self.conns.session(conn));
        session.is_none_or(|session| session.ext)
    }

    fn nobody_in(&self, owner: TokenHash, group: &GroupName) -> String {
        let all = self.registry.groups.get(&Some(owner)).into_iter();
        let all = all.flat_map(BTreeMap::keys);
        let named = all.clone().take(NAMED_MAX).map(ToString::to_string);
        let named: Vec<_> = named.collect();
        let there_are = match all.count() - named.len() {
            _ if named.is_empty() => "it has no groups".to_owned(),
            0 => format!("its groups are {}", named.join(", ")),
            more => format!("its groups are {} and {more} more", named.join(", ")),
        };
        format!("nobody else of this token is in {group} now; {there_are}")
    }

    /// The sender of a message for a group is told who has no room for it, until it takes note.
    pub(super) fn tell_full(
        &mut self,
        cx: &mut Cx<'_>,
        head: &MessageHead,
        full: &[PeerId],
    ) -> Result {
        for &member in full {
            let to = self.registry.name(member);
            let reason = format!("the queue of {to} is full; it did not get this one");
            self.notify(cx, (head, member), to, End::Expired(&reason))?;
        }
        Ok(())
    }
}

impl Peer {
    /// It is a member: always, or while it is registered if its name was made up.
    pub(super) fn is_in(&self, group: &GroupName, now_ms: u64) -> bool {
        self.row.groups.contains(group) && (!self.row.generated || self.is_registered(now_ms))
    }

    /// It is connected, or its connection broke a moment ago.
    pub(super) fn is_registered(&self, now_ms: u64) -> bool {
        self.conn.is_some() || now_ms < self.grace_until
    }

    /// Its groups, as far as an entry of a `peers` answer has room for them.
    pub(super) fn groups_shown(&self) -> Vec<GroupName> {
        let mut room = ENTRY_GROUPS_BYTES_MAX - r#""groups":[],"#.len();
        let fits = |group: &&GroupName| {
            let left = room.checked_sub(group.as_str().len() + 3);
            room = left.unwrap_or(0);
            left.is_some()
        };
        self.row.groups.iter().take_while(fits).cloned().collect()
    }
}

impl Registry {
    /// A row is taken in, or given up: so many more peers are in its groups.
    pub(super) fn count_groups(&mut self, row: &PeerRow, more: isize) {
        for group in &row.groups {
            let of_token = self.groups.entry(row.owner).or_default();
            let size = of_token.entry(group.clone()).or_default();
            *size = size.saturating_add_signed(more);
            if *size == 0 {
                of_token.remove(group);
            }
            if of_token.is_empty() {
                self.groups.remove(&row.owner);
            }
        }
    }

    /// The peers of a token that stay when they leave.
    pub(super) fn of_token(
        &self,
        token: Option<TokenHash>,
    ) -> impl Iterator<Item = (PeerId, &Peer)> {
        let owned = token.and_then(|token| self.owned.get(&token));
        let ids = owned.into_iter().flat_map(|owned| &owned.lasting);
        ids.filter_map(|id| Some((*id, self.get(*id)?)))
    }

    /// Who gets the mail of a name that ended is in its groups from then on, if it has the same token;
    /// gives its row, which is to be written.
    pub(super) fn pass_groups(&mut self, from: PeerId, to: PeerId) -> Option<&PeerRow> {
        let PeerRow { owner, groups, .. } = &self.peers.get(&from)?.row;
        let may = |heir: &&Peer| !heir.row.ephemeral && heir.row.owner == *owner;
        let heir = self.get(to).filter(may)?;
        let room = GROUPS_MAX.saturating_sub(heir.row.groups.len());
        let mut row = heir.row.clone();
        let new = groups.difference(&heir.row.groups).take(room);
        row.groups.extend(new.cloned());
        if row.groups == heir.row.groups {
            return None;
        }
        self.put(row);
        Some(&self.peers.get(&to)?.row)
    }
}
