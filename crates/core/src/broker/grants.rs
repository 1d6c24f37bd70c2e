//! What tokens admit to, and what it takes of names and connections.

use std::sync::Arc;

use peerbus_wire::{CloseReason, PeerName};

use super::conn::{Conn, Contender};
use super::mutation::BrokerMutation;
use super::{Broker, BrokerOutput, BusEvent, CommitNeed, ConnId, Cx};
use crate::grant::Grant;
use crate::store::{PeerId, Result};
use crate::{Now, TokenHash};

/// A wall clock that was set is noticed within this long.
const LOOK_MS: u64 = 60_000;

/// The tokens that admit connections.
#[derive(Debug)]
pub(super) struct Grants {
    all: Vec<Arc<Grant>>,
    /// When to look next whose time is over (monotonic).
    due_ms: Option<u64>,
}

impl Grants {
    pub(super) fn new(all: Vec<Grant>, now: Now) -> Self {
        let mut grants = Self {
            all: all.into_iter().map(Arc::new).collect(),
            due_ms: None,
        };
        grants.plan(now);
        grants
    }

    pub(super) fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }

    fn plan(&mut self, now: Now) {
        let ends = self.all.iter().filter_map(|grant| grant.expires_ms);
        let next = ends.filter(|end_ms| *end_ms > now.wall_ms).min();
        self.due_ms = next.map(|end_ms| now.mono_ms + (end_ms - now.wall_ms).min(LOOK_MS));
    }

    /// A token that admits, by a hash that is no secret to whoever asks.
    pub(super) fn get(&self, token: &TokenHash) -> Option<&Grant> {
        let grant = self.all.iter().find(|grant| grant.token == *token);
        grant.map(|grant| &**grant)
    }

    /// The token that has this name for itself, if another one asks for it.
    fn keeper(&self, grant: &Grant, name: &str) -> Option<&Grant> {
        if grant.keeps(name) {
            return None;
        }
        let keeper = self.all.iter().find(|other| other.keeps(name));
        keeper.map(|keeper| &**keeper)
    }

    /// Whether a token may have a name.
    pub(super) fn may_have(&self, grant: &Grant, name: &PeerName) -> Result<(), CloseReason> {
        if !grant.allows(name) {
            let allowed = grant.allowed();
            return Err(CloseReason::NameForbidden { allowed });
        }
        match self.keeper(grant, name.as_str()) {
            Some(keeper) => Err(CloseReason::NameKept {
                token: keeper.name.as_str().to_owned(),
            }),
            None => Ok(()),
        }
    }

    /// Whether a name is kept for a token, and not for this one.
    pub(super) fn is_kept_from(&self, token: Option<&TokenHash>, name: &str) -> bool {
        match token.and_then(|token| self.get(token)) {
            Some(grant) => self.keeper(grant, name).is_some(),
            None => self.all.iter().any(|other| other.keeps(name)),
        }
    }

    /// Every token is compared, so that the time says nothing about which one nearly matched.
    fn find(&self, token: &TokenHash) -> Option<&Arc<Grant>> {
        let matching = self.all.iter().filter(|grant| grant.token.matches(token));
        matching.fold(None, |found, grant| found.or(Some(grant)))
    }
}

impl Broker {
    /// What a token admits to, if it is one.
    pub(super) fn grant_of(&self, token: &TokenHash) -> Option<Arc<Grant>> {
        self.grants.find(token).cloned()
    }

    /// Takes other tokens. Connections of those that are gone are closed, and those whose name
    /// their token may not have any more.
    pub(super) fn set_grants(&mut self, cx: &mut Cx<'_>, grants: Vec<Grant>) -> Result {
        self.grants = Grants::new(grants, cx.now);
        self.close_unfit(cx)
    }

    /// Closes the connections of tokens whose time is over.
    pub(super) fn end_expired(&mut self, cx: &mut Cx<'_>) -> Result {
        self.grants.plan(cx.now);
        self.close_unfit(cx)
    }

    fn close_unfit(&mut self, cx: &mut Cx<'_>) -> Result {
        let grants = &self.grants;
        // Whoever may stay goes by what is said of its token now.
        let judge = |held: &mut Arc<Grant>, name: &PeerName| {
            let grant = grants.find(&held.token).ok_or(CloseReason::TokenRevoked)?;
            if grant.is_expired(cx.now.wall_ms) {
                return Err(CloseReason::TokenExpired);
            }
            grants.may_have(grant, name)?;
            *held = Arc::clone(grant);
            Ok(())
        };
        let named = self.conns.named_mut();
        let unfit = named.filter_map(|(conn, held, name)| Some((conn, judge(held, name).err()?)));
        for (conn, reason) in unfit.collect::<Vec<_>>() {
            self.turn_out(cx, conn, reason)?;
        }
        Ok(())
    }

    /// Closes a connection whose token does not admit it any more, after what it was to be told.
    fn turn_out(&mut self, cx: &mut Cx<'_>, conn: ConnId, reason: CloseReason) -> Result {
        match self.conns.all.remove(&conn) {
            // Nobody comes back from there.
            Some(Conn::Live(mut session)) => self.left(cx, &mut session, true)?,
            Some(Conn::Contending(contender)) => {
                self.end_contest(&contender.name, conn);
            }
            _ => {}
        }
        self.conns.all.insert(conn, Conn::Closing);
        self.outbox.event(BusEvent::Denied {
            reason: reason.clone(),
        });
        self.outbox
            .waiting(BrokerOutput::Close(conn, reason), CommitNeed::Now);
        Ok(())
    }

    /// Sees to it that a newcomer finds room: for its connection, and for its name among those of
    /// its token, which may lose its oldest one for it that has no mail.
    pub(super) fn make_room(
        &mut self,
        cx: &mut Cx<'_>,
        newcomer: &Contender,
    ) -> Result<Result<(), CloseReason>> {
        let Grant { token, quotas, .. } = &*newcomer.grant;
        let ephemeral = newcomer.register.ephemeral;
        let known = self.registry.find(&newcomer.name.key());
        let known = known.and_then(|peer| self.registry.get(peer));
        let row = known.map(|known| &known.row);
        let has = row.is_some_and(|row| {
            let own = row.owner.is_some_and(|owner| owner.matches(token));
            own && (ephemeral || !row.ephemeral)
        });
        if known.is_none_or(|known| known.conn.is_none())
            && let Some(max) = quotas.connections
        {
            let sessions = self.conns.sessions();
            let open = sessions.filter(|(_, session)| session.grant.token == *token);
            if open.count() >= max {
                return Ok(Err(CloseReason::TokenConnections));
            }
        }
        if has {
            return Ok(Ok(()));
        }
        let owned = self.registry.owned.get(token);
        let owned = owned.map_or((0, 0), |o| (o.lasting.len(), o.ephemeral.len()));
        if ephemeral {
            // Those that are connected are bounded by that.
            if owned.1 >= self.config.ephemeral_max
                && let Some(oldest) = self.oldest_ephemeral(token)
            {
                self.forget_ephemeral(cx, oldest)?;
            }
            return Ok(Ok(()));
        }
        let full = self.registry.lasting >= self.config.peers_max;
        if owned.0 < quotas.names && !full {
            return Ok(Ok(()));
        }
        if self.lose_oldest(cx, &newcomer.grant)? {
            return Ok(Ok(()));
        }
        Ok(Err(match full {
            true => CloseReason::Full,
            false => CloseReason::TokenNames,
        }))
    }

    /// The temporary peer of a token that is away for longest.
    fn oldest_ephemeral(&self, token: &TokenHash) -> Option<PeerId> {
        let owned = self.registry.owned.get(token)?.ephemeral.iter();
        let away = owned.filter_map(|id| Some((*id, self.registry.get(*id)?)));
        let away = away.filter(|(_, peer)| peer.conn.is_none() && peer.contender.is_none());
        let oldest = away.min_by_key(|(id, peer)| (peer.row.last_seen.steady_ms, *id));
        oldest.map(|(id, _)| id)
    }

    /// Forgets the name of a token that is away for longest and has no mail. Says whether there was
    /// one.
    fn lose_oldest(&mut self, cx: &mut Cx<'_>, grant: &Grant) -> Result<bool> {
        let others = self.mutations.broken(BrokerMutation::ForgetOthers);
        let away: Vec<_> = match self.registry.owned.get(&grant.token) {
            _ if others => self.registry.iter().map(|(id, _)| id).collect(),
            Some(owned) => owned.lasting.iter().copied().collect(),
            None => Vec::new(),
        };
        let seen = |id: PeerId| {
            let peer = self.registry.get(id)?;
            // One whose connection broke a moment ago comes back.
            let here = peer.conn.is_some() || peer.contender.is_some();
            let here = here || cx.now.mono_ms < peer.grace_until && !others;
            let own = peer.row.owner == Some(grant.token);
            (!here && own != others).then_some((peer.row.last_seen.steady_ms, id))
        };
        let mut away: Vec<_> = away.into_iter().filter_map(seen).collect();
        away.sort_unstable();
        for (_, peer) in away {
            // What a bridge has brought and forwarded its row tells.
            let keeps = self.is_bridge(peer)
                || self.has_mail(cx, peer)?
                || !cx.txn.notices(peer, 0, 1)?.is_empty();
            if keeps && !others && !self.mutations.broken(BrokerMutation::ForgetMail) {
                continue;
            }
            let (name, token) = (self.registry.name(peer), grant.name.clone());
            self.outbox.event(BusEvent::Forgotten { name, token });
            self.forget(cx, peer)?;
            return Ok(true);
        }
        Ok(false)
    }
}
