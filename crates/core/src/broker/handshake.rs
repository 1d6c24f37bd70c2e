//! From a first frame to a registration, and who may take a name over.

use peerbus_wire::{
    ClientFrame, CloseReason, EXT, MessageId, PROTOCOL_VERSION, PeerName, Receipt, Refusal, Stage,
    escape,
};

use super::conn::{Conn, Contender};
use super::{Broker, BrokerOutput, BusEvent, Caller, ConnId, Cx, Reason};
use crate::store::{PeerId, Result};
use crate::{Now, TokenHash};

/// Two v1 clients that share a name take it from each other; more than once in this time the
/// newcomer waits, so that they do not spin.
const TAKEOVER_PAUSE_MS: u64 = 1_000;

/// What happens to a newcomer whose name is held.
enum Verdict {
    /// The name is free, or the holder gives way at once.
    Admit,
    /// The holder is pinged.
    Ask,
    /// The newcomer waits until this time (monotonic).
    Wait(u64),
    /// The holder stays.
    Refuse,
}

impl Broker {
    /// Takes the first frame of a connection. The checks come in v1's order.
    pub(super) fn handshake(
        &mut self,
        cx: &mut Cx<'_>,
        conn: ConnId,
        frame: ClientFrame,
    ) -> Result {
        let contender = match self.check_register(cx.now, frame) {
            Ok(contender) => contender,
            Err(reason) => {
                self.deny(conn, reason);
                return Ok(());
            }
        };
        self.reclaim(cx, &contender)?;
        self.decide(cx, conn, contender)
    }

    /// Who may have the name gets it, waits for it or does without.
    fn decide(&mut self, cx: &mut Cx<'_>, conn: ConnId, contender: Contender) -> Result {
        let holder = self.registry.find(&contender.name.key());
        match holder.map_or(Verdict::Admit, |peer| self.judge(cx.now, peer, &contender)) {
            Verdict::Admit => self.admit(cx, conn, contender),
            Verdict::Refuse => {
                let told = contender.register.instance.is_some();
                let reason = match holder.filter(|_| told) {
                    Some(peer) => self.held_by(peer),
                    None => CloseReason::NameInUse,
                };
                self.deny(conn, reason);
                Ok(())
            }
            Verdict::Ask => {
                if let Some(holder) = holder.and_then(|peer| self.registry.conn(peer)) {
                    self.outbox.now(BrokerOutput::Ping(holder));
                }
                let until = cx.now.mono_ms + self.config.takeover_ms;
                self.contend(until, conn, contender, true);
                Ok(())
            }
            Verdict::Wait(until) => {
                self.contend(until, conn, contender, false);
                Ok(())
            }
        }
    }

    fn check_register(&self, now: Now, frame: ClientFrame) -> Result<Contender, CloseReason> {
        let register = match frame {
            ClientFrame::Register(register) => register,
            ClientFrame::Binary => return Err(CloseReason::HandshakeNotText),
            ClientFrame::Malformed => return Err(CloseReason::HandshakeMalformed),
            _ => return Err(CloseReason::FirstFrameNotRegister),
        };
        if register.protocol_version != PROTOCOL_VERSION {
            return Err(CloseReason::UnsupportedVersion);
        }
        if register.name.is_empty() {
            return Err(CloseReason::EmptyName);
        }
        let token = register.token.as_ref().ok_or(CloseReason::InvalidToken)?;
        let grant = self.grant_of(&TokenHash::of(token));
        let grant = grant.ok_or(CloseReason::InvalidToken)?;
        if grant.is_expired(now.wall_ms) {
            return Err(CloseReason::TokenExpired);
        }
        let mut name = PeerName::parse(&register.name).map_err(CloseReason::InvalidName)?;
        let renaming = register.renaming.as_deref().filter(|_| register.ext >= EXT);
        let instance = register.instance.as_ref();
        if let Some(new) = renaming.and_then(|new| self.renamed_from(&name, new, instance)) {
            name = new;
        }
        self.check_address(&grant, &name, &register)?;
        let contender = Contender {
            name,
            grant,
            register,
            holder_may_answer: true,
        };
        self.check_name(&contender)?;
        Ok(contender)
    }

    /// Whether its token may have the name, as names stand now.
    fn check_name(&self, contender: &Contender) -> Result<(), CloseReason> {
        let Contender {
            name,
            grant,
            register,
            ..
        } = contender;
        self.grants.may_have(grant, name)?;
        self.check_alias(contender)?;
        let known = self.registry.find(&name.key());
        let row = known.and_then(|id| Some(&self.registry.get(id)?.row));
        let others = |owner: TokenHash| !owner.matches(&grant.token);
        match row {
            Some(row) if row.owner.is_some_and(others) => Err(CloseReason::NameClaimed),
            Some(row) if register.ephemeral && !row.ephemeral => Err(CloseReason::NameKnown),
            _ => Ok(()),
        }
    }

    fn judge(&self, now: Now, peer: PeerId, newcomer: &Contender) -> Verdict {
        let Some(known) = self.registry.get(peer) else {
            return Verdict::Admit;
        };
        let Some(holder) = known.conn.and_then(|conn| self.conns.session(conn)) else {
            return Verdict::Admit;
        };
        let resumes =
            newcomer.register.instance.is_some() && holder.instance == newcomer.register.instance;
        if known.contender.is_some() && !resumes {
            return Verdict::Refuse;
        }
        match (&holder.instance, &newcomer.register.instance) {
            (None, None) => match known.taken_over_ms {
                Some(last) if now.mono_ms < last + TAKEOVER_PAUSE_MS => {
                    Verdict::Wait(last + TAKEOVER_PAUSE_MS)
                }
                _ => Verdict::Admit,
            },
            (Some(_), None) => Verdict::Refuse,
            (Some(_), Some(_)) if !resumes => Verdict::Ask,
            (_, Some(_)) => Verdict::Admit,
        }
    }

    fn contend(&mut self, until_ms: u64, conn: ConnId, mut contender: Contender, answer: bool) {
        contender.holder_may_answer = answer;
        if let Some(peer) = self.registry.find(&contender.name.key())
            && let Some(peer) = self.registry.get_mut(peer)
        {
            peer.contender = Some(conn);
        }
        self.conns
            .all
            .insert(conn, Conn::Contending(Box::new(contender)));
        self.conns.set_timer(until_ms, Reason::Takeover, conn);
    }

    /// The holder of a name gave a sign of life.
    pub(super) fn holder_answered(&mut self, peer: PeerId) {
        let Some(newcomer) = self.registry.get(peer).and_then(|p| p.contender) else {
            return;
        };
        if let Some(Conn::Contending(contender)) = self.conns.all.get(&newcomer)
            && contender.holder_may_answer
        {
            let (name, reason) = (contender.name.clone(), self.held_by(peer));
            self.end_contest(&name, newcomer);
            self.deny(newcomer, reason);
        }
    }

    /// Says who holds a name, in the holder's words.
    fn held_by(&self, peer: PeerId) -> CloseReason {
        let holder = self.session_of(peer);
        let presence: serde_json::Value = holder
            .and_then(|session| session.presence.as_ref())
            .and_then(|presence| serde_json::from_str(presence.as_str()).ok())
            .unwrap_or_default();
        let member = |name: &str| presence.get(name).and_then(|v| v.as_str());
        let by = match (member("client"), member("project")) {
            (Some(client), Some(project)) => format!("{client} in {project}"),
            (Some(one), None) | (None, Some(one)) => one.to_owned(),
            (None, None) => "another live session".to_owned(),
        };
        CloseReason::NameHeld {
            by: escape(&by, 60),
        }
    }

    /// The time of a contest is up, or the holder is gone: the newcomer gets the name.
    pub(super) fn contest_over(&mut self, cx: &mut Cx<'_>, conn: ConnId) -> Result {
        if !matches!(self.conns.all.get(&conn), Some(Conn::Contending(_))) {
            return Ok(());
        }
        let Some(Conn::Contending(contender)) = self.conns.all.remove(&conn) else {
            return Ok(());
        };
        if let Err(reason) = self.check_name(&contender) {
            self.end_contest(&contender.name, conn);
            self.deny(conn, reason);
            return Ok(());
        }
        // The holder may have left the name, and another one have it.
        match self.end_contest(&contender.name, conn) {
            true => self.admit(cx, conn, *contender),
            false => self.decide(cx, conn, *contender),
        }
    }

    /// The contest of this newcomer for a name is over. False: there is none with who has the name.
    pub(super) fn end_contest(&mut self, name: &PeerName, newcomer: ConnId) -> bool {
        let holder = self.registry.find(&name.key());
        let holder = holder.and_then(|peer| self.registry.get_mut(peer));
        holder.is_some_and(|holder| holder.contender.take_if(|it| *it == newcomer).is_some())
    }

    /// Closes a connection that is not registered.
    pub(super) fn deny(&mut self, conn: ConnId, reason: CloseReason) {
        self.conns.all.insert(conn, Conn::Closing);
        self.outbox.event(BusEvent::Denied {
            reason: reason.clone(),
        });
        self.outbox.now(BrokerOutput::Close(conn, reason));
    }

    /// Tells a sender that its message was not taken; a v1 sender cannot be told.
    pub(super) fn refuse(
        &mut self,
        now: Now,
        caller: Caller,
        id: Option<MessageId>,
        refusal: Refusal,
    ) {
        let from = self.registry.name(caller.peer);
        let told = caller.ext && id.is_some();
        let reason = refusal.reason.clone();
        let session = self.conns.session_mut(caller.conn);
        if let Some(bridge) = session.and_then(|session| session.bridge.as_mut()) {
            bridge.refused = true;
        }
        self.outbox.event(BusEvent::Refused { from, reason, told });
        if let Some(id) = id
            && told
        {
            let at_ms = Some(now.wall_ms);
            let receipt = Receipt::new(id, Stage::Refused(refusal));
            self.outbox
                .answer(caller.conn, Receipt { at_ms, ..receipt });
        }
    }
}
