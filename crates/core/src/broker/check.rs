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
        assert!(!self.registry.has_dirty(), "flush was not called");
        let mut live = 0;
        for (conn, session) in self.conns.sessions() {
            live += 1;
            self.check_session(conn, session);
        }
        assert_eq!(
            live,
            self.registry.online(),
            "sessions and registry disagree"
        );
        for (id, peer) in self.registry.iter() {
            assert_eq!(
                self.registry.find(&peer.key),
                Some(id),
                "a name leads elsewhere"
            );
            assert!(
                id.0 < self.head.next_peer,
                "a peer's number was not counted"
            );
            if let Some(conn) = peer.conn {
                let session = self.conns.session(conn);
                assert!(
                    session.is_some_and(|s| s.peer == id),
                    "a peer's connection is not its own"
                );
            }
            if let Some(newcomer) = peer.contender {
                let contends = matches!(self.conns.get(newcomer), Some(Conn::Contending(_)));
                assert!(contends, "a contest has no newcomer");
            }
        }
        assert!(self.owed.adds_up(), "bytes by peer and by token disagree");
        assert!(self.jobs.adds_up(), "jobs are counted wrong");
        self.check_owners();
        if self.outbox.need() != CommitNeed::Now {
            assert!(
                self.durable.0 < self.head.next_seq,
                "durable is ahead of what was accepted"
            );
        }
    }

    /// The peers of each token are those whose rows say so.
    fn check_owners(&self) {
        let mut lasting = 0;
        for (id, peer) in self.registry.iter() {
            lasting += usize::from(!peer.row.ephemeral);
            if let Some(owner) = peer.row.owner {
                let owned = self.registry.owned(&owner);
                assert!(
                    owned.is_some_and(|owned| owned.has(id)),
                    "a token's name is not counted"
                );
            }
        }
        assert_eq!(lasting, self.registry.lasting(), "names are counted wrong");
        assert!(self.registry.aliases_lead(), "an old name leads to nobody");
    }

    fn check_session(&self, conn: ConnId, session: &Session) {
        assert_eq!(
            self.registry.conn(session.peer),
            Some(conn),
            "I7: two connections, one name"
        );
        let (messages, bytes) = session.flights.counted();
        let exempt = session.flights.len() - messages;
        let exempt_max = peerbus_wire::limits::EXEMPT_V1_MESSAGES as usize;
        assert!(
            exempt == 0 || !session.ext && exempt <= exempt_max,
            "I5: {exempt} exempt"
        );
        let fits =
            messages <= session.window.messages as usize && bytes <= session.window.bytes as usize;
        assert!(
            fits || messages <= 1 || self.mutations.broken(BrokerMutation::IgnoreWindow),
            "I5: {messages} messages, {bytes} bytes in flight"
        );
        assert!(
            session.flights.keeps_shares() || self.mutations.broken(BrokerMutation::IgnoreWindow),
            "I5: a sender holds more than its share"
        );
        let pumped = !session.line.loaded || self.stopping || self.is_pumped(conn);
        assert!(
            pumped,
            "what has room waits: {:?} {:?}",
            session.line, session.flights
        );
        assert!(
            session.line.is_weighed(&session.flights),
            "who waits is listed by what was in flight before"
        );
        assert!(
            session.flights.is_bounded(),
            "settled deliveries are remembered"
        );
        let ahead = session.flights.iter().any(|(_, seq)| seq > session.cursor);
        assert!(!ahead, "I3: a delivery lies beyond the cursor");
        assert!(
            session.cursor.0 < self.head.next_seq,
            "the cursor is beyond the last message"
        );
    }
}
