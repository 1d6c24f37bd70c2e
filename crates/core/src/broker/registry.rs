//! The peers that are known.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use peerbus_wire::{GroupName, Mark, NameKey, PeerName, Presence};

use super::ConnId;
use crate::store::{AliasRow, Ending, PeerId, PeerRow};
use crate::{Delivered, Stamp, TokenHash};

/// A known peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) row: PeerRow,
    pub(super) key: NameKey,
    /// Its live connection.
    pub(super) conn: Option<ConnId>,
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

/// An old name of a peer.
#[derive(Debug, Clone)]
pub(super) struct Alias {
    pub(super) name: PeerName,
    /// To whom it leads.
    pub(super) peer: PeerId,
    /// That peer had the name itself.
    pub(super) own: bool,
    /// When mail last came for it, about, wall clock.
    pub(super) used_ms: u64,
}

/// A name that has ended and whose queue is not dealt with yet.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) row: PeerRow,
    pub(super) ending: Ending,
}

/// The peers of one token.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Owned {
    /// Those that stay.
    pub(super) lasting: BTreeSet<PeerId>,
    /// Those that are forgotten when they leave.
    pub(super) ephemeral: BTreeSet<PeerId>,
    /// Old names that lead to them.
    aliases: ByUse,
}

/// Old names, those that were not used for longest first.
type ByUse = BTreeSet<(u64, NameKey)>;

/// Peers that are away and whose last presence is kept.
const PRESENCES_MAX: usize = 1_024;

/// What stands behind the name of one that has ended: no name of a peer has a space.
const ENDED: &str = " ended ";

/// Every known peer, by number and by name.
#[derive(Debug, Default)]
pub(super) struct Registry {
    /// Boxed: a node of the map has room for more than it holds.
    pub(super) peers: BTreeMap<PeerId, Box<Peer>>,
    names: BTreeMap<NameKey, PeerId>,
    aliases: BTreeMap<NameKey, Alias>,
    /// The same, by whom they lead to.
    leading_to: BTreeMap<PeerId, ByUse>,
    pub(super) ended: BTreeMap<PeerId, Ended>,
    /// What each bridge has forwarded, and the epoch of the broker that remembers it.
    pub(super) forwarded: BTreeMap<NameKey, (PeerRow, Mark)>,
    /// Every group that has a member, by token, and how many it has.
    pub(super) groups: BTreeMap<(Option<TokenHash>, GroupName), usize>,
    /// Bridges whose marks this transaction has changed.
    pub(super) marked: BTreeSet<PeerId>,
    owned: BTreeMap<TokenHash, Owned>,
    /// How many peers stay when they leave.
    lasting: usize,
    /// Peers that may have room for mail that waits.
    dirty: BTreeSet<PeerId>,
    online: usize,
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
            if let Some(ending) = row.ending {
                let ended = Ended { row, ending };
                registry.ended.insert(ended.row.id, ended);
                continue;
            }
            if row.forwarded_by().is_some() {
                registry.put_forwarded(row);
                continue;
            }
            let grace = if row.online { grace_until } else { 0 };
            if row.online {
                row.last_seen = now;
            }
            registry.insert(row, grace);
        }
        for AliasRow {
            name,
            peer,
            own,
            used_ms,
        } in aliases
        {
            if let Ok(name) = PeerName::parse(&name)
                && registry.peers.contains_key(&peer)
            {
                let key = name.key();
                registry.set_alias(
                    key,
                    Alias {
                        name,
                        peer,
                        own,
                        used_ms,
                    },
                );
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

    /// Takes a peer from its owner; gives its row, which is to be written.
    pub(super) fn disown(&mut self, id: PeerId) -> Option<&PeerRow> {
        let owner = None;
        let row = PeerRow {
            owner,
            ..self.peers.get(&id)?.row.clone()
        };
        self.put(row);
        Some(&self.peers.get(&id)?.row)
    }

    fn count(&mut self, row: &PeerRow) {
        self.count_groups(row);
        self.lasting += usize::from(!row.ephemeral);
        if let Some(owner) = row.owner {
            let owned = self.owned.entry(owner).or_default();
            owned.kind(row.ephemeral).insert(row.id);
            let lead = self.leading_to.get(&row.id).into_iter().flatten();
            owned.aliases.extend(lead.cloned());
        }
    }

    fn uncount(&mut self, row: &PeerRow) {
        self.uncount_groups(row);
        self.lasting -= usize::from(!row.ephemeral);
        let Some(owner) = row.owner else { return };
        if let Some(owned) = self.owned.get_mut(&owner) {
            owned.kind(row.ephemeral).remove(&row.id);
            for alias in self.leading_to.get(&row.id).into_iter().flatten() {
                owned.aliases.remove(alias);
            }
            if *owned == Owned::default() {
                self.owned.remove(&owner);
            }
        }
    }

    /// How many peers stay when they leave.
    pub(super) fn lasting(&self) -> usize {
        self.lasting
    }

    /// The peers of a token.
    pub(super) fn owned(&self, token: &TokenHash) -> Option<&Owned> {
        self.owned.get(token)
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

    /// Whether a peer is temporary, or was and has left.
    pub(super) fn is_temporary(&self, id: PeerId) -> bool {
        let known = self.peers.get(&id).map(|peer| &peer.row);
        let row = known.or_else(|| Some(&self.ended.get(&id)?.row));
        row.is_none_or(|row| row.ephemeral)
    }

    /// The name to show for a peer; empty for one that was forgotten.
    pub(super) fn name(&self, id: PeerId) -> String {
        if let Some(peer) = self.peers.get(&id) {
            return peer.row.name.clone();
        }
        let ended = self.ended.get(&id).map(|ended| ended.row.name.as_str());
        let name = ended.and_then(|name| name.split(' ').next());
        name.unwrap_or_default().to_owned()
    }

    /// Whom mail for a name is owed to.
    pub(super) fn resolve(&self, key: &NameKey) -> Option<PeerId> {
        self.find(key)
            .or_else(|| self.aliases.get(key).map(|alias| alias.peer))
    }

    pub(super) fn alias(&self, key: &NameKey) -> Option<&Alias> {
        self.aliases.get(key)
    }

    pub(super) fn set_alias(&mut self, key: NameKey, alias: Alias) {
        self.remove_alias(&key);
        let (peer, by_use) = (alias.peer, (alias.used_ms, key.clone()));
        if let Some(owned) = self.owned_of(peer) {
            owned.aliases.insert(by_use.clone());
        }
        self.leading_to.entry(peer).or_default().insert(by_use);
        self.aliases.insert(key, alias);
    }

    pub(super) fn remove_alias(&mut self, key: &NameKey) -> Option<Alias> {
        let alias = self.aliases.remove(key)?;
        let by_use = (alias.used_ms, key.clone());
        if let Some(owned) = self.owned_of(alias.peer) {
            owned.aliases.remove(&by_use);
        }
        if let Some(lead) = self.leading_to.get_mut(&alias.peer) {
            lead.remove(&by_use);
            if lead.is_empty() {
                self.leading_to.remove(&alias.peer);
            }
        }
        Some(alias)
    }

    /// What is counted for the token of a peer.
    fn owned_of(&mut self, peer: PeerId) -> Option<&mut Owned> {
        let owner = self.peers.get(&peer)?.row.owner?;
        self.owned.get_mut(&owner)
    }

    pub(super) fn aliases_of(&self, peer: PeerId) -> Vec<NameKey> {
        let lead = self.leading_to.get(&peer).into_iter().flatten();
        lead.map(|(_, key)| key.clone()).collect()
    }

    /// The old name of a peer that was not used for longest, when there are `max` of them, or of its
    /// token when that has as many as it may have names.
    pub(super) fn oldest_alias(
        &self,
        peer: PeerId,
        max: usize,
        names_max: usize,
    ) -> Option<NameKey> {
        let owner = self.peers.get(&peer).and_then(|peer| peer.row.owner);
        let of_token = owner.and_then(|owner| Some(&self.owned.get(&owner)?.aliases));
        let full = |(all, max): (Option<&ByUse>, usize)| {
            let oldest = all.filter(|all| all.len() >= max)?.first()?;
            Some(oldest.1.clone())
        };
        let of_peer = self.leading_to.get(&peer);
        full((of_peer, max)).or_else(|| full((of_token, names_max)))
    }

    /// Whether the old names are counted for those to whom they lead.
    pub(super) fn aliases_add_up(&self) -> bool {
        let (mut leading_to, mut by_token) = (BTreeMap::new(), BTreeMap::new());
        for (key, alias) in &self.aliases {
            let by_use = (alias.used_ms, key.clone());
            if let Some(owner) = self.peers.get(&alias.peer).and_then(|peer| peer.row.owner) {
                let aliases: &mut ByUse = by_token.entry(owner).or_default();
                aliases.insert(by_use.clone());
            }
            let lead: &mut ByUse = leading_to.entry(alias.peer).or_default();
            lead.insert(by_use);
        }
        let owned = self
            .owned
            .iter()
            .filter(|(_, owned)| !owned.aliases.is_empty());
        let owned = owned.map(|(token, owned)| (*token, owned.aliases.clone()));
        leading_to == self.leading_to && owned.eq(by_token)
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
    pub(super) fn end(&mut self, id: PeerId, ending: Ending) -> Option<(PeerName, PeerRow)> {
        let peer = self.peers.get(&id)?;
        let name = PeerName::parse(&peer.row.name).ok()?;
        let mut row = peer.row.clone();
        row.name = format!("{name}{ENDED}{}", id.0);
        (row.owner, row.online, row.ending) = (None, false, Some(ending));
        self.remove(id);
        let ended = Ended {
            row: row.clone(),
            ending,
        };
        self.ended.insert(id, ended);
        Some((name, row))
    }

    /// The mail that was to go to `peer` ends so from now on; gives the rows that are to be written.
    pub(super) fn without_successor(&mut self, peer: PeerId, ending: Ending) -> Vec<PeerRow> {
        let mut rows = Vec::new();
        for ended in self.ended.values_mut() {
            if ended.ending == Ending::Move(peer) {
                ended.ending = ending;
                ended.row.ending = Some(ending);
                rows.push(ended.row.clone());
            }
        }
        rows
    }

    /// A name that has ended, what happens to its mail, and whether it was temporary.
    pub(super) fn first_ended(&self) -> Option<(PeerId, Ending, bool)> {
        let (id, ended) = self.ended.first_key_value()?;
        Some((*id, ended.ending, ended.row.ephemeral))
    }

    /// Mail of a name that ended is still to go to `peer`.
    pub(super) fn inherits(&self, peer: PeerId) -> bool {
        let to = |ended: &Ended| ended.ending == Ending::Move(peer);
        self.ended.values().any(to)
    }

    pub(super) fn ended_delivered(&self, id: PeerId) -> Delivered {
        let ended = self.ended.get(&id);
        ended
            .and_then(|ended| ended.row.delivered.clone())
            .unwrap_or_default()
    }

    pub(super) fn forget_ended(&mut self, id: PeerId) {
        if let Some(ended) = self.ended.remove(&id)
            && let Ending::Move(successor) = ended.ending
        {
            self.mark_dirty(successor);
        }
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
        }
    }

    /// Keeps how a peer that leaves described itself. Those that left long before go.
    pub(super) fn keep_presence(&mut self, id: PeerId, presence: Option<Presence>) {
        self.away.retain(|away| *away != id);
        if let Some(peer) = self.peers.get_mut(&id) {
            if presence.is_some() {
                self.away.push_back(id);
            }
            peer.presence = presence;
        }
        if self.away.len() > PRESENCES_MAX
            && let Some(oldest) = self.away.pop_front()
            && let Some(peer) = self.peers.get_mut(&oldest)
        {
            peer.presence = None;
        }
    }

    pub(super) fn online(&self) -> usize {
        self.online
    }

    pub(super) fn mark_dirty(&mut self, id: PeerId) {
        self.dirty.insert(id);
    }

    pub(super) fn next_dirty(&mut self) -> Option<PeerId> {
        self.dirty.pop_first()
    }

    pub(super) fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }
}
