//! Other names: a live peer takes another one, and its old ones go on leading to it.

use peerbus_wire::{BrokerFrame, CloseReason, EXT, Instance, NameAnswer, NameKey, PeerName};

use super::conn::Contender;
use super::leases::NAME_ENDED;
use super::{Broker, BusEvent, Caller, CommitNeed, ConnId, Cx};
use crate::TokenHash;
use crate::store::{AliasRow, PeerId, Result};

/// Old names that lead to one peer. One more, and the one that was not used for longest goes.
const ALIASES_MAX: usize = 64;

/// The use of an old name is written down when the last one that was is older than this.
const USE_MS: u64 = 86_400_000;

/// Old names that expire in one slice.
const SLICE: usize = 256;

impl Broker {
    /// A peer wants to go by another name: its queue, what it holds and its owner stay.
    pub(super) fn rename(&mut self, cx: &mut Cx<'_>, caller: Caller, wanted: &str) -> Result {
        let Caller { conn, peer, .. } = caller;
        let Some(old) = self.conns.session(conn).map(|s| s.name.clone()) else {
            return Ok(());
        };
        let (new, refused) = match self.free_name(cx, peer, &old, wanted)? {
            Ok(new) => (new, None),
            Err(why) => (old.clone(), Some(why)),
        };
        if new != old {
            self.go_by(cx, conn, &old, &new)?;
        }
        let name = new.as_str().to_owned();
        let answer = BrokerFrame::Renamed(NameAnswer { name, refused });
        self.outbox.barrier(conn, answer);
        Ok(())
    }

    /// Sees to it that nobody has the name any more, or says why `peer` cannot have it.
    fn free_name(
        &mut self,
        cx: &mut Cx<'_>,
        peer: PeerId,
        old: &PeerName,
        wanted: &str,
    ) -> Result<Result<PeerName, String>> {
        let name = match PeerName::parse(wanted) {
            Ok(name) => name,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let Some(own) = self.registry.get(peer) else {
            return Ok(Err("this peer is not known any more".into()));
        };
        if name == *old {
            return Ok(Ok(name));
        }
        if name.key() == old.key() {
            return Ok(Err(format!(
                "{name} is {old} in another case, which is the same name; register as {name} to \
                 change that"
            )));
        }
        if own.row.ephemeral {
            return Ok(Err("a temporary peer keeps its name until it leaves".into()));
        }
        let owner = own.row.owner;
        let session = self.session_of(peer);
        let may = session.map_or(Ok(()), |session| {
            self.grants.may_have(&session.grant, &name)
        });
        if let Err(refused) = may {
            return Ok(Err(refused.text()));
        }
        if let Err(refused) = self.check_bare(&name) {
            return Ok(Err(refused.text()));
        }
        if let Some(alias) = self.registry.aliases.get(&name.key()) {
            let leads_to = self.registry.get(alias.peer);
            let owner = leads_to.and_then(|known| known.row.owner.as_ref());
            if alias.peer == peer || self.grants.is_kept_from(owner, name.as_str()) {
                self.drop_alias(cx, &name.key())?;
                return Ok(Ok(name));
            }
            let holder = self.registry.name(alias.peer);
            return Ok(Err(format!(
                "{name} is an old name of {holder}, to whom mail for it goes; choose another name"
            )));
        }
        let Some(holder) = self.registry.find(&name.key()) else {
            return Ok(Ok(name));
        };
        if let Some(why) = self.why_kept(cx, holder, owner, &name)? {
            return Ok(Err(why));
        }
        self.forget(cx, holder)?;
        Ok(Ok(name))
    }

    /// Why a known peer cannot be forgotten to make room for another one.
    fn why_kept(
        &mut self,
        cx: &mut Cx<'_>,
        holder: PeerId,
        owner: Option<TokenHash>,
        name: &PeerName,
    ) -> Result<Option<String>> {
        let Some(known) = self.registry.get(holder) else {
            return Ok(None);
        };
        let others = |mine: TokenHash| known.row.owner.is_some_and(|theirs| !theirs.matches(&mine));
        if owner.is_none_or(others) {
            return Ok(Some(format!("{name} belongs to another token")));
        }
        // One whose connection broke a moment ago comes back.
        let back_soon = cx.now.mono_ms < known.grace_until;
        if known.conn.is_some() || known.contender.is_some() || back_soon {
            return Ok(Some(format!("{name} is in use by another session")));
        }
        let pending = self.pending(cx, holder)?;
        if pending > 0 {
            return Ok(Some(format!(
                "{pending} messages wait for {name}; register as {name} to take them, or retire it"
            )));
        }
        if self.has_mail(cx, holder)? {
            let owes = self.leases.owed_by(holder);
            return Ok(Some(format!(
                "{name} owes {owes} answers; register as {name} to give them, or retire it"
            )));
        }
        if !cx.txn.notices(holder, 0, 1)?.is_empty() {
            return Ok(Some(format!(
                "{name} was not told yet what became of messages that it sent; register as {name} \
                 to be told"
            )));
        }
        Ok(None)
    }

    /// Changes the name of a connected peer; `old` leads to it from now on.
    fn go_by(&mut self, cx: &mut Cx<'_>, conn: ConnId, old: &PeerName, new: &PeerName) -> Result {
        let Some(session) = self.conns.session_mut(conn) else {
            return Ok(());
        };
        session.name = new.clone();
        session.renamed = true;
        let peer = session.peer;
        self.outbox.event(BusEvent::Renamed {
            from: old.as_str().to_owned(),
            to: new.as_str().to_owned(),
        });
        if let Some(known) = self.registry.get_mut(peer) {
            // Somebody chose it.
            known.row.generated = false;
        }
        self.change_name(cx, peer, old, new)
    }

    fn change_name(
        &mut self,
        cx: &mut Cx<'_>,
        peer: PeerId,
        old: &PeerName,
        new: &PeerName,
    ) -> Result {
        if let Some(row) = self.registry.rename(peer, new) {
            cx.txn.put_peer(row)?;
        }
        // Whoever waits for the old name waits for who has that.
        if let Some(known) = self.registry.get_mut(peer) {
            known.contender = None;
        }
        self.log.rename(peer, new.as_str());
        self.outbox.want(CommitNeed::Now);
        self.add_alias(cx, old, peer, true)
    }

    /// From now on mail for `name` goes to `peer`.
    pub(super) fn add_alias(
        &mut self,
        cx: &mut Cx<'_>,
        name: &PeerName,
        peer: PeerId,
        own: bool,
    ) -> Result {
        let owner = self.registry.get(peer).and_then(|peer| peer.row.owner);
        let grant = owner.and_then(|owner| self.grant_of(&owner));
        // A token may have as many old names as names.
        let max = grant.map_or(usize::MAX, |grant| grant.quotas.names);
        while let Some(oldest) = self.registry.oldest_alias(peer, ALIASES_MAX, max) {
            self.drop_alias(cx, &oldest)?;
        }
        let alias = AliasRow {
            name: name.as_str().to_owned(),
            peer,
            own,
            used_ms: cx.at.steady_ms,
        };
        self.put_alias(cx, name.key(), alias)
    }

    fn put_alias(&mut self, cx: &mut Cx<'_>, key: NameKey, alias: AliasRow) -> Result {
        cx.txn.put_alias(&alias)?;
        self.registry.aliases.insert(key, alias);
        Ok(())
    }

    pub(super) fn drop_alias(&mut self, cx: &mut Cx<'_>, key: &NameKey) -> Result {
        if let Some(alias) = self.registry.aliases.remove(key) {
            cx.txn.delete_alias(&alias.name)?;
            self.outbox.want(CommitNeed::Soon);
        }
        Ok(())
    }

    /// What led to `peer` leads to `successor` from now on, or nowhere.
    pub(super) fn pass_aliases(
        &mut self,
        cx: &mut Cx<'_>,
        peer: PeerId,
        successor: Option<PeerId>,
    ) -> Result {
        for key in self.registry.aliases_of(peer) {
            match (self.registry.aliases.get(&key).cloned(), successor) {
                (Some(alias), Some(peer)) => {
                    let own = false;
                    self.put_alias(cx, key, AliasRow { peer, own, ..alias })?;
                }
                _ => self.drop_alias(cx, &key)?,
            }
        }
        Ok(())
    }

    /// To whom an old name leads, for which mail came.
    pub(super) fn old_name(&mut self, cx: &mut Cx<'_>, key: &NameKey) -> Result<Option<PeerId>> {
        let Some(alias) = self.registry.aliases.get(key).cloned() else {
            return Ok(None);
        };
        let peer = alias.peer;
        let owner = self.registry.get(peer).and_then(|peer| peer.row.owner);
        if self.grants.is_kept_from(owner.as_ref(), &alias.name) {
            return Ok(None);
        }
        if cx.at.steady_ms.saturating_sub(alias.used_ms) >= USE_MS {
            let used_ms = cx.at.steady_ms;
            self.put_alias(cx, key.clone(), AliasRow { used_ms, ..alias })?;
            // The mail may be refused.
            self.outbox.want(CommitNeed::Soon);
        }
        Ok(Some(peer))
    }

    /// Drops old names that were not used for long. Says whether there may be more.
    pub(super) fn expire_aliases(&mut self, cx: &mut Cx<'_>) -> Result<bool> {
        let before = cx.at.steady_ms.saturating_sub(self.config.alias_ms);
        let old = self.registry.unused_aliases(before, SLICE);
        for key in &old {
            self.drop_alias(cx, key)?;
        }
        Ok(old.len() == SLICE)
    }

    /// Whether a name that is asked for leads to somebody else: who may have it back, then.
    pub(super) fn check_alias(&self, newcomer: &Contender) -> Result<(), CloseReason> {
        let Contender {
            name,
            grant,
            register,
            ..
        } = newcomer;
        let alias = self.registry.aliases.get(&name.key());
        let Some(leads_to) = alias.and_then(|alias| self.registry.get(alias.peer)) else {
            return Ok(());
        };
        let mine = |owner: TokenHash| owner.matches(&grant.token);
        if !leads_to.row.owner.is_none_or(mine) {
            // It leads nowhere once it is kept for somebody else.
            let owner = leads_to.row.owner.as_ref();
            return match self.grants.is_kept_from(owner, name.as_str()) {
                true => Ok(()),
                false => Err(CloseReason::NameClaimed),
            };
        }
        if register.ephemeral {
            return Err(CloseReason::NameKnown);
        }
        // As a command: mail for the old name would not reach the agent any more. Version 1 tells no program.
        let is_program = register.ext < EXT || newcomer.program().is_some();
        match leads_to.row.program.is_none() || is_program {
            true => Ok(()),
            false => Err(CloseReason::NameLeads {
                to: leads_to.row.name.clone(),
            }),
        }
    }

    /// A peer that was renamed and has left goes by its old name again, with its queue, when that
    /// is registered: a restarted process knows no other. While the peer is here, or may come back
    /// any moment, its old name is for whoever wants it; and what says no program that it is, as a
    /// command, is not one that did.
    pub(super) fn reclaim(&mut self, cx: &mut Cx<'_>, newcomer: &Contender) -> Result {
        let (name, token) = (&newcomer.name, &newcomer.grant.token);
        let alias = self.registry.aliases.get(&name.key());
        let Some(peer) = alias.filter(|alias| alias.own).map(|alias| alias.peer) else {
            return Ok(());
        };
        let Some(known) = self.registry.get(peer) else {
            return Ok(());
        };
        let Ok(current) = PeerName::parse(&known.row.name) else {
            return Ok(());
        };
        let others = known.row.owner.is_some_and(|owner| !owner.matches(token));
        let another = known.row.program.is_some() && newcomer.program().is_none();
        if others || another || known.conn.is_some() || cx.now.mono_ms < known.grace_until {
            return Ok(());
        }
        self.drop_alias(cx, &name.key())?;
        self.change_name(cx, peer, &current, name)
    }

    /// The name of a peer that was renamed from `old` to `wanted`, which its process may not know.
    /// None while another process than `instance` goes by it: nobody would let that one's name go
    /// for one that still knows its old one.
    pub(super) fn renamed_from(
        &self,
        old: &PeerName,
        wanted: &str,
        instance: Option<&Instance>,
    ) -> Option<PeerName> {
        let wanted = PeerName::parse(wanted).ok()?;
        let peer = self.registry.aliases.get(&old.key())?.peer;
        let holder = self.session_of(peer);
        let is_mine = holder.is_none_or(|holder| holder.instance.as_ref() == instance);
        (is_mine && self.registry.find(&wanted.key()) == Some(peer)).then_some(wanted)
    }

    /// Forgets a peer that is owed nothing.
    pub(super) fn forget(&mut self, cx: &mut Cx<'_>, peer: PeerId) -> Result {
        self.leave_requests(cx, peer, NAME_ENDED)?;
        self.pass_aliases(cx, peer, None)?;
        if let Some((_, row)) = self.registry.end(peer, cx.at) {
            self.registry.ended.remove(&peer);
            self.keep_left(cx, &row)?;
        }
        self.log.forget(peer);
        self.outbox.want(CommitNeed::Soon);
        Ok(())
    }
}
