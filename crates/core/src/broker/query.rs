//! The answers to `peers`.

use std::collections::BTreeMap;
use std::sync::Arc;

use peerbus_wire::limits::PEERS_ENTRIES_MAX;
use peerbus_wire::{BrokerFrame, Domain, PeerEntry, PeerName, PeersFrame, Presence, TokenName};

use super::conn::Session;
use super::registry::Peer;
use super::{Broker, Caller, ConnId, Cx};
use crate::Now;
use crate::grant::{Grant, Right};
use crate::store::{PeerId, Result, Txn};

/// Most old names of a peer that the operator is told.
const OLD_NAMES_MAX: usize = 8;

/// How mail gets to another domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainRoute {
    /// The domain.
    pub domain: Domain,
    /// Its bridge is connected.
    pub online: bool,
    /// Messages for it that it does not have yet.
    pub waiting: u64,
    /// What its bridge says of itself.
    pub presence: Option<Presence>,
}

/// What a token may know of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sight {
    Nothing,
    /// Its name, and whether it is here: what one who sends must know.
    Name,
    All,
}

impl Sight {
    /// Of peers of other tokens.
    fn of_others(grant: &Grant) -> Self {
        match grant.rights {
            rights if rights.has(Right::Observe) => Self::All,
            rights if rights.has(Right::Send) || rights.has(Right::Broadcast) => Self::Name,
            _ => Self::Nothing,
        }
    }
}

impl Broker {
    fn sight(&self, grant: &Grant, peer: PeerId) -> Sight {
        let owned = self.registry.owned.get(&grant.token);
        match owned.is_some_and(|owned| owned.has(peer)) {
            true => Sight::All,
            false => Sight::of_others(grant),
        }
    }

    /// Answers `peers`, once everything before it is committed.
    pub(super) fn answer_peers(&mut self, cx: &mut Cx<'_>, caller: Caller) -> Result {
        let Some(session) = self.conns.session(caller.conn) else {
            return Ok(());
        };
        let grant = Arc::clone(&session.grant);
        let mut frame = PeersFrame::default();
        if caller.ext {
            let sight = |broker: &Self, peer: PeerId| broker.sight(&grant, peer);
            let (entries, omitted) = self.entries(cx, sight)?;
            (frame.peers, frame.omitted) = (Some(entries), omitted);
        }
        frame.names = self.online_names(&grant);
        self.outbox.barrier(caller.conn, BrokerFrame::Peers(frame));
        Ok(())
    }

    /// Answers who is in a domain, once everything before it is committed.
    pub(super) fn answer_peers_of(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        domain: Domain,
    ) -> Result {
        let Some(session) = self.conns.session(caller.conn) else {
            return Ok(());
        };
        let (grant, bridges) = (Arc::clone(&session.grant), session.bridge.is_some());
        let mut frame = PeersFrame::default();
        if self.config.domain.as_ref() == Some(&domain) {
            let sight = |broker: &Self, peer: PeerId| match broker.is_abroad(peer) {
                true => Sight::Nothing,
                false if bridges => Sight::All,
                false => broker.sight(&grant, peer),
            };
            let (entries, omitted) = self.entries(cx, sight)?;
            (frame.peers, frame.omitted) = (Some(entries), omitted);
        } else {
            let told = self.roster(&domain);
            frame.age_ms = told.map(|(_, at)| cx.now.mono_ms.saturating_sub(*at));
            let all = told.map_or(&[][..], |(peers, _)| peers);
            let mut shown = all.to_vec();
            match Sight::of_others(&grant) {
                Sight::All => {}
                Sight::Name => shown.iter_mut().for_each(|peer| peer.presence = None),
                Sight::Nothing => shown.clear(),
            }
            frame.peers = Some(shown);
        }
        frame.domain = Some(domain);
        self.outbox.barrier(caller.conn, BrokerFrame::Peers(frame));
        Ok(())
    }

    /// Who is in another domain, as its bridge last told, and when.
    fn roster(&self, domain: &Domain) -> Option<&(Arc<[PeerEntry]>, u64)> {
        let bridge = self.registry.find(&domain.bridge()?.key())?;
        self.session_of(bridge)?.bridge.as_ref()?.roster.as_ref()
    }

    /// A bridge tells who is in its domain. Of what is no peer's name there nothing is kept.
    pub(super) fn keep_roster(&mut self, now: Now, caller: Caller, peers: Vec<PeerEntry>) {
        let session = self.conns.session_mut(caller.conn);
        let Some(bridge) = session.and_then(|session| session.bridge.as_mut()) else {
            return;
        };
        let told = |peer: PeerEntry| {
            let name = PeerName::parse(&peer.name).ok()?;
            (!name.as_str().contains('@')).then(|| PeerEntry {
                name: peer.name,
                online: peer.online,
                presence: peer.presence,
                ..PeerEntry::default()
            })
        };
        let peers = peers.into_iter().filter_map(told).collect();
        bridge.roster = Some((peers, now.mono_ms));
    }

    /// The peers as the operator sees them: all of each.
    ///
    /// # Errors
    ///
    /// Only when storage failed.
    pub fn all_peers(&mut self, now: Now, txn: &mut dyn Txn) -> Result<BrokerFrame> {
        let all = |_: &Self, _: PeerId| Sight::All;
        let (mut entries, omitted) = self.entries(&mut self.cx(now, txn), all)?;
        let mut old = BTreeMap::<_, Vec<String>>::new();
        // Mail of a name that ended may lead to it, too.
        for alias in self.registry.aliases.values().filter(|alias| alias.own) {
            let names = old.entry(alias.peer).or_default();
            names.extend((names.len() < OLD_NAMES_MAX).then(|| alias.name.clone()));
        }
        for entry in &mut entries {
            entry.token = self.token_of(entry);
            let name = PeerName::parse(&entry.name).ok();
            let peer = name.and_then(|name| self.registry.find(&name.key()));
            entry.old = peer.and_then(|peer| old.remove(&peer)).unwrap_or_default();
        }
        Ok(BrokerFrame::Peers(PeersFrame {
            names: self.names(|_| true),
            peers: Some(entries),
            omitted,
            ..PeersFrame::default()
        }))
    }

    /// The present name of the peer that gets mail for a name, and its old ones; `None`: there is none.
    #[must_use]
    pub fn names_of(&self, name: &PeerName) -> Option<(String, Vec<String>)> {
        let peer = self.registry.resolve(&name.key())?;
        let owner = self.registry.get(peer)?.row.owner.as_ref();
        let is_own = self.registry.find(&name.key()) == Some(peer);
        let leads = is_own || !self.grants.is_kept_from(owner, name.as_str());
        let old = self.registry.aliases.values().filter(|it| it.peer == peer);
        leads.then(|| {
            (
                self.registry.name(peer),
                old.map(|it| it.name.clone()).collect(),
            )
        })
    }

    /// The last connection of a peer; `None`: it had none since this broker began.
    #[must_use]
    pub fn connection(&self, name: &str) -> Option<ConnId> {
        let name = PeerName::parse(name).ok()?;
        let peer = self.registry.find(&name.key())?;
        self.registry.get(peer)?.last
    }

    fn token_of(&self, entry: &PeerEntry) -> Option<TokenName> {
        let name = PeerName::parse(&entry.name).ok()?;
        let peer = self.registry.get(self.registry.find(&name.key())?)?;
        let grant = self.grants.get(&peer.row.owner?);
        Some(grant.map_or(&self.revoked, |grant| &grant.name).clone())
    }

    /// The domains that were joined, in order of their names.
    ///
    /// # Errors
    ///
    /// Only when storage failed.
    pub fn joined(&mut self, now: Now, txn: &mut dyn Txn) -> Result<Vec<DomainRoute>> {
        let cx = &mut self.cx(now, txn);
        let mut domains: Vec<_> = self.registry.bridges().collect();
        domains.sort();
        let mut all = Vec::new();
        for domain in domains {
            let name = domain.bridge();
            let Some(bridge) = name.and_then(|name| self.registry.find(&name.key())) else {
                continue;
            };
            let waiting = self.pending(cx, bridge)?;
            let session = self.session_of(bridge);
            all.push(DomainRoute {
                domain,
                online: session.is_some(),
                waiting,
                presence: session.and_then(|session| session.presence.clone()),
            });
        }
        Ok(all)
    }

    /// Names of the connected peers of which a token may know, sorted.
    pub(super) fn online_names(&self, grant: &Grant) -> Vec<String> {
        self.names(|s| s.bridge.is_none() && self.sight(grant, s.peer) != Sight::Nothing)
    }

    fn names(&self, shown: impl Fn(&Session) -> bool) -> Vec<String> {
        let shown = self.conns.sessions().filter(|(_, session)| shown(session));
        let mut names: Vec<_> = shown.map(|(_, s)| s.name.as_str().to_owned()).collect();
        names.sort_unstable();
        names
    }

    fn entries(
        &mut self,
        cx: &mut Cx<'_>,
        sight_of: impl Fn(&Self, PeerId) -> Sight,
    ) -> Result<(Vec<PeerEntry>, u32)> {
        // Of those that are only named it must not show who was here last.
        let seen_ms = |peer: &Peer, sight| match sight {
            Sight::All => peer.row.last_seen.steady_ms,
            _ => 0,
        };
        let known = self.registry.iter().filter_map(|(id, peer)| {
            let sight = sight_of(self, id);
            let rank = (peer.conn.is_none(), u64::MAX - seen_ms(peer, sight));
            (sight != Sight::Nothing).then_some((rank, id, sight))
        });
        let mut known: Vec<_> = known.collect();
        known.sort_unstable();
        let omitted = known.len().saturating_sub(PEERS_ENTRIES_MAX);
        // Those of each token in turn: who shows less leaves out the end.
        let mut turns = BTreeMap::<_, usize>::new();
        let turn = |(rank, id, sight)| {
            let owner = self.registry.get(id).and_then(|peer| peer.row.owner);
            let turn = turns.entry(owner).or_default();
            *turn += 1;
            (*turn, rank, id, sight)
        };
        let mut known: Vec<_> = known.into_iter().map(turn).collect();
        known.sort_unstable();
        known.truncate(PEERS_ENTRIES_MAX);
        let mut entries = Vec::with_capacity(known.len());
        for (.., id, sight) in known {
            let unacked = Some(self.pending(cx, id)?);
            let Some(peer) = self.registry.get(id) else {
                continue;
            };
            if sight == Sight::Name {
                entries.push(PeerEntry {
                    name: peer.row.name.clone(),
                    online: peer.conn.is_some(),
                    ..PeerEntry::default()
                });
                continue;
            }
            let session = peer.conn.and_then(|conn| self.conns.session(conn));
            let away_ms = cx.now.wall_ms.saturating_sub(peer.row.last_seen.wall_ms);
            entries.push(PeerEntry {
                name: peer.row.name.clone(),
                online: session.is_some(),
                unacked,
                away_s: Some(match session {
                    Some(_) => 0,
                    None => away_ms / 1_000,
                }),
                activity_s: session.and_then(|session| {
                    let here_ms = cx.now.mono_ms.saturating_sub(session.activity_since?);
                    Some(here_ms.saturating_add(session.activity_before) / 1_000)
                }),
                owes: Some(self.leases.owed_by(id)).filter(|owes| *owes > 0),
                groups: peer.groups_shown(),
                presence: match session {
                    Some(session) => session.presence.clone(),
                    None => peer
                        .presence
                        .as_ref()
                        .or(peer.row.program.as_ref())
                        .cloned(),
                },
                stopped: false,
                token: None,
                old: Vec::new(),
            });
        }
        Ok((entries, u32::try_from(omitted).unwrap_or(u32::MAX)))
    }
}
