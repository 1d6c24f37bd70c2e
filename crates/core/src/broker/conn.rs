//! The table of connections and their deadlines.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use peerbus_wire::bridge::UNKNOWN;
use peerbus_wire::{
    Domain, Instance, Mark, PeerEntry, PeerName, Presence, Register, Seq, TokenName, Window,
};

use super::audited::Budget;
use super::flights::{Flight, Flights};
use super::line::Line;
use super::{Broker, ConnId, Reason};
use crate::grant::Grant;
use crate::store::PeerId;
use crate::{Delivered, TokenHash};

/// The registered connection that a frame came on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller {
    pub(super) conn: ConnId,
    pub(super) peer: PeerId,
    /// It speaks `ext`.
    pub(super) ext: bool,
    /// It speaks `ext` with audit records.
    pub(super) audits: bool,
    /// It bridges to another domain.
    pub(super) bridges: bool,
    /// It registered with this token.
    pub(super) token: TokenHash,
}

/// What a connection is doing.
#[derive(Debug)]
pub(super) enum Conn {
    /// It has not registered.
    Greeting,
    /// It waits for the holder of its name to answer or to be silent.
    Contending(Box<Contender>),
    /// It is registered.
    Live(Box<Session>),
    /// It was told to close.
    Closing,
}

/// A valid registration.
#[derive(Debug)]
pub(super) struct Contender {
    pub(super) name: PeerName,
    pub(super) grant: Arc<Grant>,
    pub(super) register: Register,
    /// An answer of the holder ends the contest for the holder; if not, the newcomer only waits.
    pub(super) holder_may_answer: bool,
}

/// What a registered connection bridges to.
#[derive(Debug, Clone)]
pub(super) struct Bridge {
    /// The other domain.
    pub(super) domain: Domain,
    /// The epoch of its broker.
    pub(super) epoch: Mark,
    /// What it brought was refused, and what it had under way behind that is, too.
    pub(super) refused: bool,
    /// The peers over there as it last told, and when, on the monotonic clock.
    pub(super) roster: Option<(Arc<[PeerEntry]>, u64)>,
}

impl Bridge {
    /// It does not know the epoch of the other broker (yet).
    pub(super) fn knows_nothing(&self) -> bool {
        self.epoch.as_str() == UNKNOWN
    }

    /// That which a valid registration asks for.
    pub(super) fn of(newcomer: &Contender) -> Option<Box<Self>> {
        Some(Box::new(Self {
            epoch: newcomer.register.bridge.clone()?,
            domain: newcomer.name.bridged()?,
            refused: false,
            roster: None,
        }))
    }
}

/// A registered connection.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) peer: PeerId,
    /// The name as this connection spelled it.
    pub(super) name: PeerName,
    /// It was renamed, and may not have been told when mail comes: from then on that says to which name it went.
    pub(super) renamed: bool,
    pub(super) grant: Arc<Grant>,
    pub(super) ext: bool,
    /// The level of it that was agreed on.
    pub(super) level: u32,
    pub(super) instance: Option<Instance>,
    pub(super) window: Window,
    pub(super) presence: Option<Presence>,
    /// It says that it does nothing, and that it can be woken.
    pub(super) idle: bool,
    /// When `activity` in it last changed (monotonic); `None` while there is none in it.
    pub(super) activity_since: Option<u64>,
    /// For so long it had been so before, in milliseconds.
    pub(super) activity_before: u64,
    /// The handshake ack has left.
    pub(super) greeted: bool,
    /// The highest message delivered on this connection.
    pub(super) cursor: Seq,
    /// What was delivered on earlier connections of the peer, or under names that ended.
    pub(super) again: Delivered,
    /// What waits.
    pub(super) line: Line,
    pub(super) flights: Flights,
    /// The deadline of the next exemption is set.
    pub(super) exemption_set: bool,
    /// The last notice sent on this connection, and how many of them are not acked.
    pub(super) notice_cursor: u64,
    pub(super) notices_out: usize,
    pub(super) audits: Budget,
    /// It bridges to another domain, as few connections do.
    pub(super) bridge: Option<Box<Bridge>>,
}

impl Session {
    /// A delivery is not on its way any more.
    pub(super) fn land(&mut self, seq: Seq) -> Option<Flight> {
        let flight = self.flights.remove(seq)?;
        self.line.weigh(flight.head.sender, &self.flights);
        Some(flight)
    }

    /// What was delivered on this connection and before it.
    pub(super) fn delivered(&self) -> Delivered {
        let mut delivered = self.again.clone();
        if self.line.loaded {
            delivered.merge(&self.line.passed(self.cursor));
            // Of the other senders nothing is left.
            delivered.except.retain(|sender, _| self.line.has(*sender));
        }
        delivered
    }
}

/// Every open connection, by id, and the deadlines that belong to connections.
#[derive(Debug, Default)]
pub(super) struct Conns {
    pub(super) all: BTreeMap<ConnId, Conn>,
    pub(super) timers: BTreeSet<(u64, Reason, ConnId)>,
    /// How many tries to be let in are written down, by each invitation and by none, and apart from these how
    /// often a machine was let in: nobody's tries hide that, or those by another one's code.
    pub(super) joins: BTreeMap<(Option<TokenName>, bool), Budget>,
}

impl Conns {
    pub(super) fn session(&self, id: ConnId) -> Option<&Session> {
        match self.all.get(&id) {
            Some(Conn::Live(session)) => Some(session),
            _ => None,
        }
    }

    pub(super) fn session_mut(&mut self, id: ConnId) -> Option<&mut Session> {
        match self.all.get_mut(&id) {
            Some(Conn::Live(session)) => Some(session),
            _ => None,
        }
    }

    pub(super) fn sessions(&self) -> impl Iterator<Item = (ConnId, &Session)> {
        self.all.iter().filter_map(|(id, conn)| match conn {
            Conn::Live(session) => Some((*id, &**session)),
            _ => None,
        })
    }

    pub(super) fn sessions_mut(&mut self) -> impl Iterator<Item = (ConnId, &mut Session)> {
        self.all.iter_mut().filter_map(|(id, conn)| match conn {
            Conn::Live(session) => Some((*id, &mut **session)),
            _ => None,
        })
    }

    /// Those who have a name or wait for it, with what their token admits to.
    pub(super) fn named_mut(
        &mut self,
    ) -> impl Iterator<Item = (ConnId, &mut Arc<Grant>, &PeerName)> {
        self.all.iter_mut().filter_map(|(id, conn)| match conn {
            Conn::Live(session) => Some((*id, &mut session.grant, &session.name)),
            Conn::Contending(newcomer) => Some((*id, &mut newcomer.grant, &newcomer.name)),
            Conn::Greeting | Conn::Closing => None,
        })
    }

    pub(super) fn set_timer(&mut self, at_ms: u64, reason: Reason, conn: ConnId) {
        self.timers.insert((at_ms, reason, conn));
    }

    pub(super) fn has_timer(&self, reason: Reason, conn: ConnId) -> bool {
        let mut timers = self.timers.iter();
        timers.any(|(_, of, whose)| (*of, *whose) == (reason, conn))
    }

    /// Takes one deadline that has come.
    pub(super) fn due(&mut self, mono_ms: u64) -> Option<(Reason, ConnId)> {
        let (at, reason, conn) = *self.timers.first()?;
        if at > mono_ms {
            return None;
        }
        self.timers.pop_first();
        Some((reason, conn))
    }
}

impl Broker {
    /// What is known of a peer's live connection.
    pub(super) fn session_of(&self, peer: PeerId) -> Option<&Session> {
        self.conns.session(self.registry.conn(peer)?)
    }

    pub(super) fn session_of_mut(&mut self, peer: PeerId) -> Option<&mut Session> {
        self.conns.session_mut(self.registry.conn(peer)?)
    }
}
