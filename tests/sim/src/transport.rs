//! What the network does to bytes, and what its two ends make of it.

use peerbus_core::broker::{BrokerInput, ConnId};
use peerbus_wire::ClientFrame;

use crate::client::Client;
use crate::failure::Verdict;
use crate::net::{Down, Up};
use crate::oracle::ProcId;
use crate::world::{Event, World};

impl World {
    fn delay(&mut self) -> u64 {
        let most = if self.healing { 1 } else { self.plan.delay_ms };
        self.now_ms + self.rng.range(0, most)
    }

    fn put_up(&mut self, proc: ProcId, item: Up) {
        let at_ms = self.delay();
        let Some(conn) = self.procs[proc].link else {
            return;
        };
        let arrives = self
            .net
            .get(conn)
            .and_then(|link| link.up.push(at_ms, item));
        if let Some(at_ms) = arrives {
            self.at(at_ms, Event::Up(conn));
        }
    }

    fn put_down(&mut self, conn: ConnId, item: Down) {
        let at_ms = self.delay();
        let arrives = self
            .net
            .get(conn)
            .and_then(|link| link.down.push(at_ms, item));
        if let Some(at_ms) = arrives {
            self.at(at_ms, Event::Down(conn));
        }
    }

    pub(crate) fn send_up(&mut self, proc: ProcId, text: String) {
        self.trace.note(self.now_ms, "client", proc as u64, &text);
        self.put_up(proc, Up::Text(text));
    }

    pub(crate) fn binary_up(&mut self, proc: ProcId) {
        self.put_up(proc, Up::Binary);
    }

    pub(crate) fn ping_up(&mut self, proc: ProcId) {
        self.put_up(proc, Up::Ping);
    }

    /// The client leaves a connection.
    pub(crate) fn hang_up(&mut self, proc: ProcId, goodbye: bool) {
        self.trace.note(self.now_ms, "hangup", proc as u64, "");
        self.put_up(proc, if goodbye { Up::Goodbye } else { Up::Cut });
        let Some(conn) = self.procs[proc].link.take() else {
            return;
        };
        if let Some(link) = self.net.get(conn) {
            link.down.shut = true;
        }
    }

    pub(crate) fn send_down(&mut self, conn: ConnId, text: &str) {
        self.trace.note(self.now_ms, "broker", conn.0, text);
        let mut text = text.to_owned();
        if !self.healing && self.rng.chance(self.plan.alter) {
            self.oracle.altered(&text);
            text = text.replacen(r#""odd":""#, r#""odd":"!"#, 1);
        }
        self.put_down(conn, Down::Text(text.into()));
    }

    pub(crate) fn ping_down(&mut self, conn: ConnId) {
        self.trace.note(self.now_ms, "ping", conn.0, "");
        self.put_down(conn, Down::Ping);
    }

    /// The broker's shell closes a connection, and tells the core when that is done.
    pub(crate) fn close_down(&mut self, conn: ConnId, code: u16, text: String) {
        self.trace.note(self.now_ms, "close", conn.0, &text);
        self.put_down(conn, Down::Close(code, text));
        let delay_ms = self.rng.range(0, 5);
        self.after(delay_ms, Event::Closed(conn));
    }

    /// Something arrives at the broker.
    pub(crate) fn up(&mut self, conn: ConnId) {
        loop {
            let now_ms = self.now_ms;
            let Some(item) = self.net.get(conn).and_then(|link| link.up.pop(now_ms)) else {
                return;
            };
            match item {
                Up::Text(text) => {
                    self.machine.tell(BrokerInput::Frame(
                        conn,
                        ClientFrame::parse(text.as_bytes()),
                    ));
                }
                Up::Binary => self
                    .machine
                    .tell(BrokerInput::Frame(conn, ClientFrame::Binary)),
                Up::Ping => self.put_down(conn, Down::Pong),
                Up::Pong => self.machine.tell(BrokerInput::Pong(conn)),
                Up::Goodbye => self.broker_end_closes(conn, true),
                Up::Cut => self.broker_end_closes(conn, false),
            }
        }
    }

    /// The broker's end of a connection is over.
    fn broker_end_closes(&mut self, conn: ConnId, goodbye: bool) {
        let Some(link) = self.net.get(conn) else {
            return;
        };
        if link.up.shut {
            return;
        }
        link.up.shut = true;
        self.machine.tell(BrokerInput::Closed { conn, goodbye });
        self.put_down(conn, Down::Cut);
        self.net.sweep();
    }

    pub(crate) fn closed(&mut self, conn: ConnId) {
        self.broker_end_closes(conn, false);
    }

    /// Something arrives at the client.
    pub(crate) fn down(&mut self, conn: ConnId) -> Verdict {
        loop {
            let now_ms = self.now_ms;
            let Some(proc) = self.net.get(conn).map(|link| link.proc) else {
                return Ok(());
            };
            let frozen_ms = self.procs[proc].frozen_ms;
            if frozen_ms > now_ms {
                self.at(frozen_ms, Event::Down(conn));
                return Ok(());
            }
            if !self.procs[proc]
                .client
                .as_ref()
                .is_some_and(Client::wants_read)
            {
                self.after(20, Event::Down(conn));
                return Ok(());
            }
            let Some(item) = self.net.get(conn).and_then(|link| link.down.pop(now_ms)) else {
                return Ok(());
            };
            match item {
                Down::Text(text) => self.with(proc, |client, ctx| client.text(ctx, &text))?,
                Down::Ping => self.put_up(proc, Up::Pong),
                Down::Pong => self.with(proc, Client::alive)?,
                Down::Close(code, text) => self.client_end_closes(conn, Some((code, text)))?,
                Down::Cut => self.client_end_closes(conn, None)?,
            }
        }
    }

    /// The client's end of a connection is over.
    fn client_end_closes(&mut self, conn: ConnId, close: Option<(u16, String)>) -> Verdict {
        let Some(proc) = self.net.get(conn).map(|link| link.proc) else {
            return Ok(());
        };
        self.trace.note(
            self.now_ms,
            "ended",
            proc as u64,
            close.as_ref().map_or("", |c| &c.1),
        );
        if self.procs[proc].link == Some(conn) {
            self.put_up(proc, Up::Cut);
            self.procs[proc].link = None;
            if let Some(link) = self.net.get(conn) {
                link.down.shut = true;
            }
            self.with(proc, |client, ctx| client.ended(ctx, close))?;
        }
        self.net.sweep();
        Ok(())
    }

    pub(crate) fn lost(&mut self, conn: ConnId) -> Verdict {
        self.client_end_closes(conn, None)
    }

    /// A dial ends.
    pub(crate) fn dialed(&mut self, proc: ProcId) -> Verdict {
        if self.procs[proc].client.is_none() || self.procs[proc].link.is_some() {
            return Ok(());
        }
        if !self.machine.is_up() || !self.healing && self.rng.chance(20) {
            return self.with(proc, Client::unreachable);
        }
        let conn = self.net.open(proc);
        self.trace.note(self.now_ms, "open", conn.0, "");
        self.procs[proc].link = Some(conn);
        self.machine.tell(BrokerInput::Opened(conn));
        self.with(proc, Client::connected)
    }
}
