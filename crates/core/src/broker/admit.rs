//! A connection becomes a peer's, and stops being it.

use std::collections::BTreeMap;

use peerbus_wire::limits::{
    WINDOW_BYTES_DEFAULT, WINDOW_BYTES_MAX, WINDOW_MESSAGES_DEFAULT, WINDOW_MESSAGES_MAX,
    WINDOW_V1_BYTES, WINDOW_V1_MESSAGES,
};
use peerbus_wire::{
    BrokerFrame, CloseReason, EXT, EXT_AUDIT, PeersFrame, Presence, Register, Seq, Window,
    from_rfc3339,
};

use serde_json::Value;

use super::audited::Budget;
use super::conn::{Bridge, Conn, Contender, Session};
use super::flights::Flights;
use super::leases::NAME_ENDED;
use super::line::Line;
use super::mutation::BrokerMutation;
use super::shares::Shares;
use super::{Broker, BrokerOutput, BusEvent, CommitNeed, ConnId, Cx};
use crate::Now;
use crate::store::{PeerId, PeerKind, PeerRow, Result};

impl Broker {
    /// Gives `conn` the name; a live holder loses it.
    pub(super) fn admit(&mut self, cx: &mut Cx<'_>, conn: ConnId, newcomer: Contender) -> Result {
        if let Err(reason) = self.make_room(cx, &newcomer)? {
            self.deny(conn, reason);
            return Ok(());
        }
        let known = self.registry.find(&newcomer.name.key());
        let takeover = known.is_some_and(|peer| self.evict(cx.now, peer));
        let known = known.and_then(|peer| self.registry.get_mut(peer));
        let again = known.and_then(|known| known.row.delivered.take());
        let again = again.unwrap_or_default();
        let peer = self.peer_for(cx, &newcomer)?;
        self.log.register(peer, newcomer.name.as_str());
        if takeover {
            self.log.take_over(peer);
        }
        self.outbox.event(BusEvent::Registered {
            name: newcomer.name.as_str().to_owned(),
            token: newcomer.grant.token,
            takeover,
        });

        let level = newcomer.register.ext.min(EXT_AUDIT);
        let ext = level >= EXT;
        let window = window(ext, &newcomer.register);
        let bridge = Bridge::of(&newcomer);
        // Between domains messages are numbered in the order in which they were accepted.
        let shares = self.shares(window).filter(|_| ext && bridge.is_none());
        let lost = takeover && self.mutations.broken(BrokerMutation::TakeoverLoses);
        self.registry.set_conn(peer, Some(conn));
        self.owed.claim(peer, newcomer.grant.token);
        self.conns.all.insert(
            conn,
            Conn::Live(Box::new(Session {
                peer,
                name: newcomer.name,
                renamed: false,
                grant: newcomer.grant,
                ext,
                level,
                instance: newcomer.register.instance,
                window,
                presence: None,
                idle: false,
                activity_since: None,
                activity_before: 0,
                greeted: false,
                cursor: Seq(0),
                again,
                line: Line::new(lost),
                flights: Flights::new(window, shares),
                exemption_set: false,
                notice_cursor: 0,
                notices_out: 0,
                audits: Budget::default(),
                bridge: bridge.clone(),
            })),
        );
        if let Some(bridge) = &bridge {
            self.bridge_came(cx, peer, bridge)?;
        }
        if let Some(presence) = newcomer.register.presence.filter(|_| ext) {
            self.set_presence(cx, conn, presence)?;
        }
        if let Some(session) = self.conns.session(conn) {
            let frame = self.handshake_ack(session);
            self.outbox.greet(conn, frame);
        }
        self.registry.dirty.insert(peer);
        if ext {
            self.send_notices(cx, conn)?;
        }
        // A holder that comes back while its name is contested has answered.
        self.holder_answered(peer);
        self.holder_came(cx, peer, ext)
    }

    fn shares(&self, window: Window) -> Option<Shares> {
        let shares = Shares::of(window);
        let shares = match self.mutations.broken(BrokerMutation::KeepNothing) {
            true => shares.without_kept(),
            false => shares,
        };
        (!self.mutations.broken(BrokerMutation::IgnoreShare)).then_some(shares)
    }

    fn handshake_ack(&self, session: &Session) -> BrokerFrame {
        let mut frame = PeersFrame::default();
        if !session.ext {
            frame.names = self.online_names(&session.grant);
            return BrokerFrame::Peers(frame);
        }
        frame.names = vec![session.name.as_str().to_owned()];
        (frame.ext, frame.window) = (Some(session.level), Some(session.window));
        frame.domain = self.config.domain.clone();
        if session.bridge.is_some() {
            let known = self.registry.get(session.peer);
            frame.mark = known.and_then(|known| known.row.mark.clone());
            frame.epoch = self.config.epoch.clone();
        }
        BrokerFrame::Peers(frame)
    }

    /// The peer of a name, made if it is new, with its row written.
    fn peer_for(&mut self, cx: &mut Cx<'_>, newcomer: &Contender) -> Result<PeerId> {
        let known = self.registry.find(&newcomer.name.key());
        // Whoever registers an old name has it back.
        self.drop_alias(cx, &newcomer.name.key())?;
        let row = known.and_then(|id| Some(&self.registry.get(id)?.row));
        let mark = row.and_then(|row| row.mark.clone());
        // Those of one token are not another's.
        let same = row.filter(|row| row.owner == Some(newcomer.grant.token));
        let groups = same.map(|row| row.groups.clone());
        // A command under an agent's name is no agent, and leaves the name an agent's.
        let program = newcomer.program();
        let program = program.or_else(|| same?.program.clone());
        let id = known.unwrap_or_else(|| {
            let id = PeerId(self.head.next_peer);
            self.head.next_peer += 1;
            id
        });
        let row = PeerRow {
            id,
            kind: PeerKind::Peer,
            name: newcomer.name.as_str().to_owned(),
            owner: Some(newcomer.grant.token),
            generated: newcomer.register.generated,
            ephemeral: newcomer.register.ephemeral,
            online: true,
            last_seen: cx.at,
            delivered: None,
            mark,
            groups: groups.unwrap_or_default(),
            program,
        };
        cx.txn.put_peer(&row)?;
        self.registry.put(row);
        Ok(id)
    }

    /// Cuts the live connection of a peer.
    fn evict(&mut self, now: Now, peer: PeerId) -> bool {
        let Some(old) = self.registry.conn(peer) else {
            return false;
        };
        if let Some(Conn::Live(mut session)) = self.conns.all.remove(&old) {
            self.end_budget(&mut session);
            self.keep_histories(&mut session);
        }
        self.conns.all.insert(old, Conn::Closing);
        self.outbox.forget(old);
        self.outbox
            .now(BrokerOutput::Close(old, CloseReason::TakenOver));
        self.registry.set_conn(peer, None);
        if let Some(known) = self.registry.get_mut(peer) {
            known.taken_over_ms = Some(now.mono_ms);
        }
        true
    }

    /// A connection is gone.
    pub(super) fn closed(&mut self, cx: &mut Cx<'_>, conn: ConnId, goodbye: bool) -> Result {
        self.outbox.forget(conn);
        match self.conns.all.remove(&conn) {
            Some(Conn::Contending(contender)) => {
                self.end_contest(&contender.name, conn);
                Ok(())
            }
            // It counts as connected until the broker is back.
            Some(Conn::Live(session)) if self.stopping => {
                self.registry.set_conn(session.peer, None);
                if let Some(peer) = self.registry.get_mut(session.peer) {
                    peer.grace_until = cx.now.mono_ms + self.config.grace_ms;
                }
                Ok(())
            }
            Some(Conn::Live(mut session)) => self.left(cx, &mut session, goodbye),
            _ => Ok(()),
        }
    }

    pub(super) fn left(&mut self, cx: &mut Cx<'_>, session: &mut Session, goodbye: bool) -> Result {
        let id = session.peer;
        self.end_budget(session);
        self.registry.set_conn(id, None);
        let name = session.name.as_str().to_owned();
        self.outbox.event(BusEvent::Left { name });
        let ephemeral = self.registry.get(id).is_some_and(|peer| peer.row.ephemeral);
        if self.mutations.broken(BrokerMutation::ForgetOnClose) && !ephemeral {
            for (sender, seq) in session.flights.iter() {
                cx.txn.delete_delivery((id, sender), seq)?;
            }
        }
        self.keep_histories(session);
        let grace_ms = self.config.grace_ms;
        let Some(peer) = self.registry.get_mut(id) else {
            return Ok(());
        };
        peer.grace_until = if goodbye {
            0
        } else {
            cx.now.mono_ms + grace_ms
        };
        peer.row.online = false;
        peer.row.last_seen = cx.at;
        self.holder_left(cx, id, goodbye);
        let Some(peer) = self.registry.get_mut(id) else {
            return Ok(());
        };
        let contender = peer.contender.take();
        // One that broke may come back and send again what it got no receipt for.
        if peer.row.ephemeral && goodbye && contender.is_none() {
            return self.forget_ephemeral(cx, id);
        }
        cx.txn.put_peer(&peer.row)?;
        self.outbox.want(CommitNeed::Soon);
        match contender {
            Some(newcomer) => self.contest_over(cx, newcomer),
            None => Ok(()),
        }
    }

    /// Closes every connection. Nothing is delivered from here on; what was is written down, and
    /// the time.
    pub(super) fn shut_down(&mut self, cx: &mut Cx<'_>) -> Result {
        self.stopping = true;
        self.write_time();
        self.end_budgets(u64::MAX);
        for (_, session) in self.conns.sessions() {
            if let Some(peer) = self.registry.get_mut(session.peer) {
                peer.row.delivered = Some(session.delivered());
                cx.txn.put_peer(&peer.row)?;
                self.outbox.want(CommitNeed::Now);
            }
        }
        for (conn, state) in &self.conns.all {
            if !matches!(state, Conn::Closing) {
                let close = BrokerOutput::Close(*conn, CloseReason::GoingAway);
                self.outbox.waiting(close, CommitNeed::Now);
            }
        }
        Ok(())
    }

    /// Replaces a connection's description of itself, and notes since when it does what it says.
    pub(super) fn set_presence(
        &mut self,
        cx: &mut Cx<'_>,
        conn: ConnId,
        presence: Presence,
    ) -> Result {
        let Some(session) = self.conns.session_mut(conn) else {
            return Ok(());
        };
        let now = said(&presence);
        let does = activity(&now);
        if does != session.presence.as_ref().and_then(|it| activity(&said(it))) {
            session.activity_since = does.map(|_| cx.now.mono_ms);
            // One that comes back tells since when, as the broker may have been another one then.
            let since = now["since"].as_str().filter(|_| session.presence.is_none());
            let since = since.and_then(from_rfc3339).unwrap_or(cx.now.wall_ms);
            session.activity_before = cx.now.wall_ms.saturating_sub(since);
        }
        let was_idle = std::mem::replace(&mut session.idle, is_idle(&now));
        let peer = session.peer;
        let free = session.idle && !was_idle && session.greeted;
        let changed = session.presence.as_ref() != Some(&presence);
        session.presence = Some(presence);
        if let Some(known) = self.registry.get_mut(peer).filter(|_| changed) {
            let name = known.row.name.to_string();
            self.outbox.event(BusEvent::Presence { name });
            let program = program(&now);
            if program.is_some() && known.row.program != program {
                known.row.program = program;
                cx.txn.put_peer(&known.row)?;
                self.outbox.want(CommitNeed::Soon);
            }
        }
        match free {
            true => self.offer_leases(cx, peer),
            false => Ok(()),
        }
    }

    /// The operator frees a name.
    pub(super) fn release_name(&mut self, cx: &mut Cx<'_>, id: PeerId) -> Result {
        self.leave_leases(cx, id, NAME_ENDED)?;
        let Some(known) = self.registry.get(id) else {
            return Ok(());
        };
        let mut row = known.row.clone();
        row.owner = None;
        cx.txn.put_peer(&row)?;
        self.registry.put(row);
        self.log.release(id);
        self.outbox.want(CommitNeed::Now);
        Ok(())
    }
}

/// The window of a connection.
fn window(ext: bool, register: &Register) -> Window {
    if !ext {
        return Window {
            messages: WINDOW_V1_MESSAGES,
            bytes: WINDOW_V1_BYTES,
        };
    }
    let default = Window {
        messages: WINDOW_MESSAGES_DEFAULT,
        bytes: WINDOW_BYTES_DEFAULT,
    };
    let asked = register.window.unwrap_or(default);
    Window {
        messages: asked.messages.clamp(1, WINDOW_MESSAGES_MAX),
        bytes: asked.bytes.clamp(1, WINDOW_BYTES_MAX),
    }
}

/// The members of a presence.
pub(super) fn said(presence: &Presence) -> Value {
    serde_json::from_str(presence.as_str()).unwrap_or_default()
}

/// What a peer says that it does. Any word counts: what it means is for those who read it.
pub(super) fn activity(said: &Value) -> Option<String> {
    Some(said.get("activity")?.as_str()?.to_owned())
}

/// It says that it does nothing, and that it can be woken.
fn is_idle(said: &Value) -> bool {
    let wakes = said.get("wake").and_then(Value::as_array);
    said.get("activity").and_then(Value::as_str) == Some("idle")
        && wakes.is_some_and(|paths| !paths.is_empty())
}

impl Contender {
    /// What program it says that it is.
    pub(super) fn program(&self) -> Option<Presence> {
        let presence = self.register.presence.as_ref();
        presence.and_then(|it| program(&said(it)))
    }
}

/// What program a peer says that it is.
pub(super) fn program(said: &Value) -> Option<Presence> {
    let kept = |key: &&str| said.get(key).is_some_and(Value::is_string);
    let members = ["client", "version", "adapter"].into_iter().filter(kept);
    let members: BTreeMap<_, _> = members.map(|key| (key, &said[key])).collect();
    Presence::parse(&serde_json::to_string(&members).ok()?).filter(|_| !members.is_empty())
}
