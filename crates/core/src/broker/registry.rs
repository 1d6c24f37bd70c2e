//! The peers that are known.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use peerbus_wire::{GroupName, NameKey, PeerName, Presence};

use super::ConnId;
use crate::store::{AliasRow, PeerId, PeerKind, PeerRow};
use crate::{Delivered, Stamp, TokenHash};

/// A known peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) row: PeerRow,
    pub(super) key: NameKey,
    /// Its live connection.
    pub(super) conn: Option<ConnId>,
    /// Its last one, which may be gone.
    pub(super) last: Option<ConnId>,
    /// The connection that wants the name from the live one.
    pub(super) contender: Option<ConnId>,
    /// It counts as registered for a broadcast until then (monotonic).
    pub(super) grace_until: u64,
    /// When its connection last changed hands (monotonic).
    pub(super) taken_over_ms: Option<u64>,
    /// How many messages are owed to it; `None` until it was counted.
    pub(super) pending: Option<u64>,
    /// How it described itself last, while it is away.
    pub(super) presence: Option<Presence>,
    /// When it was given a message for one member of a group last, by the count of those.
    pub(super) served: u64,
}

impl Peer {
    /// It has the name of a bridge.
    pub(super) fn bridges(&self) -> bool {
        self.key.as_str().starts_with("bridge@")
    }
}

/// The peers of one token.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Owned {
    /// Those that stay.
    pub(super) lasting: BTreeSet<PeerId>,
    /// Those that are forgotten when they leave.
    pub(super) ephemeral: BTreeSet<PeerId>,
}

/// Peers that are away and whose last presence is kept.
const PRESENCES_MAX: usize = 1_024;

/// Every known peer, by number and by name.
#[derive(Debug, Default)]
pub(super) struct Registry {
    /// Boxed: a node of the map has room for more than it holds.
    pub(super) peers: BTreeMap<PeerId, Box<Peer>>,
    names: BTreeMap<NameKey, PeerId>,
    pub(super) aliases: BTreeMap<NameKey, AliasRow>,
    /// Names that have ended and whose mail has not yet.
    pub(super) ended: BTreeMap<PeerId, PeerRow>,
    /// What each bridge has forwarded.
    pub(super) forwarded: BTreeMap<NameKey, PeerRow>,
    /// Every group that has a member, of each token, and how many it has.
    pub(super) groups: BTreeMap<Option<TokenHash>, BTreeMap<GroupName, usize>>,
    /// Bridges whose marks this transaction has changed.
    pub(super) marked: BTreeSet<PeerId>,
    /// The peers of each token.
    pub(super) owned: BTreeMap<TokenHash, Owned>,
    /// How many peers stay when they leave.
    pub(super) lasting: usize,
    /// Peers that may have room for mail that waits.
    pub(super) dirty: BTreeSet<PeerId>,
    pub(super) online: usize,
    /// Those whose last presence is kept, longest away first.
    away: VecDeque<PeerId>,
}

impl Owned {
    pub(super) fn has(&self, peer: PeerId) -> bool {
        self.lasting.contains(&peer) || self.ephemeral.contains(&peer)
    }

    fn kind(&mut self, ephemeral: bool) -> &mut BTreeSet<PeerId> {
        match ephemeral {
            true => &mut self.ephemeral,
            false => &mut self.lasting,
        }
    }
}

impl Registry {
    /// Takes the rows of a store. Whoever was connected when the broker stopped counts as seen
    /// `now`: the row's time is that of its registration. `all` is what may have been delivered so far.
    pub(super) fn new(
        rows: Vec<PeerRow>,
        aliases: Vec<AliasRow>,
        grace_until: u64,
        now: Stamp,
        all: &Delivered,
    ) -> Self {
        let mut registry = Self::default();
        for mut row in rows {
            // It was connected when the broker ended without a stop: it may have got everything.
            row.delivered.get_or_insert_with(|| all.clone());
            match row.kind {
                PeerKind::Ended => {
                    registry.ended.insert(row.id, row);
                }
                PeerKind::Forwarded => registry.put_forwarded(row),
                PeerKind::Peer => {
                    let grace = if row.online { grace_until } else { 0 };
                    if row.online {
                        row.last_seen = now;
                    }
                    registry.insert(row, grace);
                }
            }
        }
        for row in aliases {
            if let Ok(name) = PeerName::parse(&row.name)
                && registry.peers.contains_key(&row.peer)
            {
                registry.aliases.insert(name.key(), row);
            }
        }
        registry
    }

    /// Adds a peer. A row whose name breaks today's rules is left in the store, unreachable.
    pub(super) fn insert(&mut self, row: PeerRow, grace_until: u64) {
        let Ok(name) = PeerName::parse(&row.name) else {
            return;
        };
        let key = name.key();
        self.names.insert(key.clone(), row.id);
        self.count(&row);
        let id = row.id;
        let peer = Peer {
            row,
            key,
            conn: None,
            last: None,
            contender: None,
            grace_until,
            taken_over_ms: None,
            pending: None,
            presence: None,
            served: 0,
        };
        self.peers.insert(id, Box::new(peer));
    }

    pub(super) fn remove(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.remove(&id) {
            self.names.remove(&peer.key);
            self.uncount(&peer.row);
        }
        self.dirty.remove(&id);
        self.away.retain(|away| *away != id);
    }

    /// Takes the row of a peer, new or known under the same name.
    pub(super) fn put(&mut self, row: PeerRow) {
        let Some(peer) = self.peers.get_mut(&row.id) else {
            return self.insert(row, 0);
        };
        let old = std::mem::replace(&mut peer.row, row.clone());
        self.uncount(&old);
        self.count(&row);
    }

    fn count(&mut self, row: &PeerRow) {
        self.count_groups(row, 1);
        self.lasting += usize::from(!row.ephemeral);
        if let Some(owner) = row.owner {
            let owned = self.owned.entry(owner).or_default();
            owned.kind(row.ephemeral).insert(row.id);
        }
    }

    fn uncount(&mut self, row: &PeerRow) {
        self.count_groups(row, -1);
        self.lasting -= usize::from(!row.ephemeral);
        let Some(owner) = row.owner else { return };
        if let Some(owned) = self.owned.get_mut(&owner) {
            owned.kind(row.ephemeral).remove(&row.id);
            if *owned == Owned::default() {
                self.owned.remove(&owner);
            }
        }
    }

    pub(super) fn find(&self, key: &NameKey) -> Option<PeerId> {
        self.names.get(key).copied()
    }

    pub(super) fn get(&self, id: PeerId) -> Option<&Peer> {
        self.peers.get(&id).map(|peer| &**peer)
    }

    pub(super) fn get_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.peers.get_mut(&id).map(|peer| &mut **peer)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PeerId, &Peer)> {
        self.peers.iter().map(|(id, peer)| (*id, &**peer))
    }

    /// The name to show for a peer; empty for one that was forgotten.
    pub(super) fn name(&self, id: PeerId) -> String {
        self.row(id).map(|row| row.name.clone()).unwrap_or_default()
    }

    /// The row of a peer, or of a name that has ended.
    pub(super) fn row(&self, id: PeerId) -> Option<&PeerRow> {
        let known = self.peers.get(&id).map(|peer| &peer.row);
        known.or_else(|| self.ended.get(&id))
    }

    /// Whom mail for a name is owed to.
    pub(super) fn resolve(&self, key: &NameKey) -> Option<PeerId> {
        self.find(key)
            .or_else(|| self.aliases.get(key).map(|alias| alias.peer))
    }

    pub(super) fn aliases_of(&self, peer: PeerId) -> Vec<NameKey> {
        let leading = self.aliases.iter().filter(|(_, alias)| alias.peer == peer);
        leading.map(|(key, _)| key.clone()).collect()
    }

    /// The old name of a peer that was not used for longest, when there are `max` of them, or of its
    /// token when that has as many as it may have names.
    pub(super) fn oldest_alias(
        &self,
        peer: PeerId,
        max: usize,
        names_max: usize,
    ) -> Option<NameKey> {
        let owner = self.get(peer).and_then(|peer| peer.row.owner);
        let owned = owner.and_then(|owner| self.owned.get(&owner));
        let of_token = |alias: &AliasRow| owned.is_some_and(|owned| owned.has(alias.peer));
        let of_peer = self.oldest_of(max, |alias| alias.peer == peer);
        of_peer.or_else(|| self.oldest_of(names_max, of_token))
    }

    fn oldest_of(&self, max: usize, of: impl Fn(&AliasRow) -> bool) -> Option<NameKey> {
        let all = self.aliases.iter().filter(|(_, alias)| of(alias));
        let mut all: Vec<_> = all.map(|(key, alias)| (alias.used_ms, key)).collect();
        all.sort_unstable();
        let oldest = all.first().filter(|_| all.len() >= max)?;
        Some(oldest.1.clone())
    }

    /// Whether each old name leads to a peer that is known.
    pub(super) fn aliases_lead(&self) -> bool {
        let mut aliases = self.aliases.values();
        aliases.all(|alias| self.peers.contains_key(&alias.peer))
    }

    /// Old names for which no mail came since `before_ms`.
    pub(super) fn unused_aliases(&self, before_ms: u64, limit: usize) -> Vec<NameKey> {
        let unused = self
            .aliases
            .iter()
            .filter(|(_, alias)| alias.used_ms < before_ms);
        unused.take(limit).map(|(key, _)| key.clone()).collect()
    }

    /// Gives a peer another name; gives its row, which is to be written.
    pub(super) fn rename(&mut self, id: PeerId, name: &PeerName) -> Option<&mut PeerRow> {
        let peer = self.peers.get_mut(&id)?;
        self.names.remove(&peer.key);
        peer.key = name.key();
        self.names.insert(peer.key.clone(), id);
        name.as_str().clone_into(&mut peer.row.name);
        Some(&mut peer.row)
    }

    /// Takes a peer that is not connected out of those that have a name; gives the name, and its
    /// row, which is to be written.
    pub(super) fn end(&mut self, id: PeerId, at: Stamp) -> Option<(PeerName, PeerRow)> {
        let peer = self.peers.get(&id)?;
        let name = PeerName::parse(&peer.row.name).ok()?;
        let mut row = peer.row.clone();
        (row.kind, row.online, row.last_seen) = (PeerKind::Ended, false, at);
        row.owner = row.owner.filter(|_| row.ephemeral);
        self.remove(id);
        self.ended.insert(id, row.clone());
        Some((name, row))
    }

    /// The live connection of a peer.
    pub(super) fn conn(&self, id: PeerId) -> Option<ConnId> {
        self.peers.get(&id)?.conn
    }

    /// Ties a peer to its live connection, or to none.
    pub(super) fn set_conn(&mut self, id: PeerId, conn: Option<ConnId>) {
        if let Some(peer) = self.peers.get_mut(&id) {
            self.online -= usize::from(peer.conn.is_some());
            self.online += usize::from(conn.is_some());
            peer.conn = conn;
            peer.last = conn.or(peer.last);
        }
    }

    /// Keeps how a peer that leaves described itself. Of the token that has most of them the one that
    /// left longest before goes.
    pub(super) fn keep_presence(&mut self, id: PeerId, presence: Option<Presence>) {
        self.away.retain(|away| *away != id);
        if let Some(peer) = self.peers.get_mut(&id) {
            if presence.is_some() {
                self.away.push_back(id);
            }
            peer.presence = presence;
        }
        if self.away.len() <= PRESENCES_MAX {
            return;
        }
        let owner = |id: &PeerId| self.peers.get(id).and_then(|peer| peer.row.owner);
        let mut owners = BTreeMap::<_, Vec<_>>::new();
        for (at, id) in self.away.iter().enumerate() {
            owners.entry(owner(id)).or_default().push(at);
        }
        let most = owners.into_values().max_by_key(Vec::len);
        if let Some(oldest) = most.and_then(|of| self.away.remove(*of.first()?))
            && let Some(peer) = self.peers.get_mut(&oldest)
        {
            peer.presence = None;
        }
    }
}
