//! The invariants that can be seen in memory.

use super::conn::{Conn, Session};
use super::mutation::BrokerMutation;
use super::{Broker, CommitNeed, ConnId};

impl Broker {
    /// Asserts every invariant that memory alone can show. Call between inputs, when outputs are
    /// drained; tests call it after each.
    ///
    /// # Panics
    ///
    /// When an invariant does not hold.
    pub fn check(&self) {
        assert!(self.outbox.is_drained(), "outputs were not drained");
        assert!(self.registry.dirty.is_empty(), "flush was not called");
        let mut live = 0;
        for (conn, session) in self.conns.sessions() {
            live += 1;
            self.check_session(conn, session);
        }
        let online = self.registry.online;
        assert_eq!(live, online, "sessions and registry disagree");
        for (id, peer) in self.registry.iter() {
            let named = self.registry.find(&peer.key);
            assert_eq!(named, Some(id), "a name leads elsewhere");
            let counted = id.0 < self.head.next_peer;
            assert!(counted, "a peer's number was not counted");
            let own = peer.conn.is_none() || self.session_of(id).is_some_and(|s| s.peer == id);
            assert!(own, "a peer's connection is not its own");
            if let Some(newcomer) = peer.contender {
                let contends = matches!(self.conns.all.get(&newcomer), Some(Conn::Contending(_)));
                assert!(contends, "a contest has no newcomer");
            }
        }
        assert!(self.owed.adds_up(), "bytes by peer and by token disagree");
        assert!(self.leases.adds_up(), "leases are counted wrong");
        self.check_owners();
        let durable = self.outbox.need() == CommitNeed::Now || self.durable.0 < self.head.next_seq;
        assert!(durable, "durable is ahead of what was accepted");
    }

    /// The peers of each token are those whose rows say so.
    fn check_owners(&self) {
        let mut lasting = 0;
        for (id, peer) in self.registry.iter() {
            lasting += usize::from(!peer.row.ephemeral);
            if let Some(owner) = peer.row.owner {
                let owned = self.registry.owned.get(&owner);
                let counted = owned.is_some_and(|owned| owned.has(id));
                assert!(counted, "a token's name is not counted");
            }
        }
        assert_eq!(lasting, self.registry.lasting, "names are counted wrong");
        assert!(self.registry.aliases_lead(), "an old name leads to nobody");
    }

    fn check_session(&self, conn: ConnId, session: &Session) {
        let live = self.registry.conn(session.peer);
        assert_eq!(live, Some(conn), "I7: two connections, one name");
        let (messages, bytes) = session.flights.counted();
        let exempt = session.flights.len() - messages;
        let exempt_max = peerbus_wire::limits::EXEMPT_V1_MESSAGES as usize;
        let may = exempt == 0 || !session.ext && exempt <= exempt_max;
        assert!(may, "I5: {exempt} exempt");
        let broken = self.mutations.broken(BrokerMutation::IgnoreWindow);
        let Session {
            window,
            flights,
            line,
            cursor,
            ..
        } = session;
        let fits = messages <= window.messages as usize && bytes <= window.bytes as usize;
        let fits = fits || messages <= 1 || broken;
        assert!(fits, "I5: {messages} messages, {bytes} bytes in flight");
        let shared = flights.keeps_shares() || broken;
        assert!(shared, "I5: a sender holds more than its share");
        let pumped = !line.loaded || self.stopping || self.is_pumped(conn);
        assert!(pumped, "what has room waits: {line:?} {flights:?}");
        let weighed = line.is_weighed(flights);
        assert!(weighed, "who waits is listed by what was in flight before");
        assert!(flights.is_bounded(), "settled deliveries are remembered");
        let ahead = flights.iter().any(|(_, seq)| seq > *cursor);
        assert!(!ahead, "I3: a delivery lies beyond the cursor");
        let known = cursor.0 < self.head.next_seq;
        assert!(known, "the cursor is beyond the last message");
    }
}
