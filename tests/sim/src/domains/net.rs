//! Connections between brokers and their clients: in order, until they break.

use peerbus_core::broker::{BrokerInput, ConnId};
use peerbus_peer::bridge::BridgeInput;
use peerbus_wire::{BrokerFrame, ClientFrame, Received};

use super::peer::Peer;
use super::world::{Event, World};
use crate::failure::Verdict;

/// Who is at the far end of a broker's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Peer(usize),
    Bridge(usize),
}

/// A connection between a broker and a client.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) home: usize,
    who: Who,
    /// The broker has closed it.
    closing: bool,
    /// When the last frame arrives, in each direction.
    in_ms: u64,
    out_ms: u64,
}

impl World {
    /// A broker sends a frame.
    pub(super) fn sends(&mut self, home: usize, ConnId(conn): ConnId, frame: &BrokerFrame) {
        let text = frame.encode();
        let received = Received::parse(text.as_bytes());
        self.trace.note(self.now_ms, "to client", conn, &text);
        if let Received::Deliver(delivery) = &received {
            let key = super::oracle::key_of(&delivery.envelope.envelope);
            self.oracle.delivers(home, &key);
        }
        let Some(wire) = self.wires.get_mut(&conn).filter(|wire| !wire.closing) else {
            return;
        };
        let at = wire.out_ms.max(self.now_ms + self.rng.range(0, 3));
        wire.out_ms = at;
        self.at(at, Event::Received(conn, Box::new(received)));
    }

    /// A client sends a frame.
    pub(super) fn client_sends(&mut self, conn: u64, frame: ClientFrame) {
        let text = frame.encode();
        self.trace.note(self.now_ms, "to broker", conn, &text);
        let Some(wire) = self.wires.get_mut(&conn) else {
            return;
        };
        let at = wire.in_ms.max(self.now_ms + self.rng.range(0, 3));
        wire.in_ms = at;
        self.at(at, Event::Frame(conn, Box::new(frame)));
    }

    pub(super) fn frame(&mut self, conn: u64, frame: ClientFrame) {
        if let Some(wire) = self.wires.get(&conn) {
            let home = wire.home;
            self.tell(home, BrokerInput::Frame(ConnId(conn), frame));
        }
    }

    /// A connection breaks; whoever is at its ends hears of it later.
    pub(super) fn sever(&mut self, conn: u64, behind: bool) {
        let Some(wire) = self.wires.get_mut(&conn) else {
            return;
        };
        let (home, who) = (wire.home, wire.who);
        if behind && !wire.closing {
            // What was sent before the close arrives before it.
            wire.closing = true;
            let at = wire.out_ms;
            self.at(at, Event::Cut(who));
            return;
        }
        self.wires.remove(&conn);
        let later = self.rng.range(0, 500);
        self.after(later, Event::Gone(home, conn));
        let later = self.rng.range(0, 500);
        self.after(later, Event::Cut(who));
    }

    fn conn_of(&mut self, who: Who) -> &mut Option<u64> {
        match who {
            Who::Peer(peer) => &mut self.peers[peer].conn,
            Who::Bridge(joint) => &mut self.joints[joint].conn,
        }
    }

    /// A client sees that its connection is gone, if it is.
    pub(super) fn cut_off(&mut self, who: Who) -> Verdict {
        let Some(conn) = *self.conn_of(who) else {
            return Ok(());
        };
        match self.wires.get(&conn) {
            Some(wire) if !wire.closing => return Ok(()),
            Some(_) => {
                let home = self.wires.remove(&conn).map_or(0, |wire| wire.home);
                self.after(0, Event::Gone(home, conn));
            }
            None => {}
        }
        *self.conn_of(who) = None;
        match who {
            Who::Peer(peer) => {
                self.peers[peer].greeted = false;
                let later = self.rng.range(10, 1_000);
                self.after(later, Event::Dial(who));
            }
            Who::Bridge(joint) => self.bridge(joint, BridgeInput::Lost)?,
        }
        Ok(())
    }

    /// A client closes its connection.
    pub(super) fn hang_up(&mut self, who: Who) {
        if let Some(conn) = self.conn_of(who).take()
            && let Some(wire) = self.wires.remove(&conn)
        {
            let later = self.rng.range(0, 300);
            self.after(later, Event::Gone(wire.home, conn));
        }
    }

    pub(super) fn dial(&mut self, who: Who) {
        let (home, wanted) = match who {
            Who::Peer(peer) => (self.peers[peer].home, !self.peers[peer].away),
            Who::Bridge(joint) => (self.joints[joint].home, self.joints[joint].wants.is_some()),
        };
        if !wanted || self.conn_of(who).is_some() {
            return;
        }
        if !self.homes[home].is_up() {
            self.after(500, Event::Dial(who));
            return;
        }
        let register = match who {
            Who::Peer(peer) => {
                let Peer { name, process, .. } = &self.peers[peer];
                super::peer::register(name, *process, 0)
            }
            Who::Bridge(joint) => self.joints[joint].register(&self.homes),
        };
        let conn = self.number();
        let wire = Wire {
            home,
            who,
            closing: false,
            in_ms: 0,
            out_ms: 0,
        };
        self.wires.insert(conn, wire);
        *self.conn_of(who) = Some(conn);
        self.tell(home, BrokerInput::Opened(ConnId(conn)));
        self.client_sends(conn, ClientFrame::Register(register));
    }

    pub(super) fn received(&mut self, conn: u64, received: Received) -> Verdict {
        let Some(wire) = self.wires.get(&conn) else {
            return Ok(());
        };
        match wire.who {
            Who::Peer(peer) => self.peer_received(peer, conn, received),
            Who::Bridge(joint) if self.joints[joint].conn == Some(conn) => {
                self.bridge(joint, BridgeInput::Broker(received))
            }
            Who::Bridge(_) => Ok(()),
        }
    }
}
