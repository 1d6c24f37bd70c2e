//! The broker's decisions.
//!
//! Drive it like this, inside an open transaction: hand in what has arrived, one [`BrokerInput`] at a
//! time, with [`Broker::handle`]; then [`Broker::flush`] once; then take every output that may
//! leave at once with [`Broker::poll_output`]. When [`Broker::need`] says so, [`Broker::seal`],
//! commit, say [`Broker::committed`], and take the outputs that waited for the commit. Call
//! `handle` with [`BrokerInput::Tick`] when [`Broker::poll_timeout`] is due. A [`StoreError`](crate::store::StoreError) means that
//! memory may be ahead of the disk: roll back and stop.

mod ack;
mod admit;
mod audited;
mod check;
mod config;
mod conn;
mod deliver;
mod domain;
mod event;
mod expire;
mod flights;
mod forwarded;
mod grants;
mod groups;
mod handshake;
mod history;
mod joining;
mod leases;
mod left;
mod line;
mod mutation;
mod naming;
mod notice;
mod outbox;
mod owed;
mod query;
mod registry;
mod requests;
mod retain;
mod retire;
mod route;
mod shares;
mod status;

use peerbus_wire::{BrokerFrame, ClientFrame, CloseReason, EXT_AUDIT, Seq, TokenName};

pub use self::config::BrokerConfig;
pub use self::event::BusEvent;
pub use self::joining::JoinTry;
pub use self::mutation::BrokerMutation;
pub use self::query::DomainRoute;
pub use self::requests::OpenRequest;
pub use self::retire::{Command, Denied};
pub use self::status::MessageHistory;

use self::ack::End;
use self::conn::{Caller, Conn, Conns, Session};
use self::grants::Grants;
use self::history::Recent;
use self::leases::Leases;
use self::left::Left;
use self::outbox::Outbox;
use self::owed::Owed;
use self::registry::Registry;
use self::retain::Sweep;
use crate::audit::{AuditLog, ChainHead};
use crate::grant::Grant;
use crate::store::{Fate, Loaded, Result, Txn};
use crate::time::Steady;
use crate::{Delivered, Now, Stamp};

/// Names a connection. The shell makes them; one is never used twice in the life of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// What the broker is told.
#[derive(Debug, Clone)]
pub enum BrokerInput {
    /// A connection was opened.
    Opened(ConnId),
    /// It sent a message.
    Frame(ConnId, ClientFrame),
    /// Its first frame was [`ClientFrame::Join`], and this came of it.
    Join(ConnId, JoinTry),
    /// It answered an [`BrokerOutput::Ping`].
    Pong(ConnId),
    /// It is gone, whoever ended it. Also expected after an [`BrokerOutput::Close`].
    Closed {
        /// The connection.
        conn: ConnId,
        /// The client said goodbye with a close frame (and the broker did not close it).
        goodbye: bool,
    },
    /// The disk has room for so many bytes. To be said at the start, each second in which something
    /// comes, and each second while the disk is nearly full.
    Space {
        /// Bytes that can still be written.
        free: u64,
        /// Bytes that the disk has in all.
        total: u64,
    },
    /// A deadline has come.
    Tick,
    /// These tokens admit connections from now on, and no others. Who is connected by another one
    /// is closed.
    Grants(Vec<Grant>),
    /// The operator wants this done. [`Broker::operate`] says what came of it as well.
    Operate(Command),
    /// The process is about to stop: every connection is closed, and whoever was connected still
    /// counts as such when the broker is back.
    Shutdown,
}

/// What the broker wants done.
#[derive(Debug, Clone)]
pub enum BrokerOutput {
    /// Send this frame. Frames of one connection keep their order, but those that wait for a
    /// commit may be overtaken by those that do not.
    Send(ConnId, BrokerFrame),
    /// Ping the connection, and report its pong.
    Ping(ConnId),
    /// Send what was sent before this, then close. Nothing follows for the connection.
    Close(ConnId, CloseReason),
    /// Something happened that is counted, and perhaps logged.
    Event(BusEvent),
}

/// Whether a commit is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommitNeed {
    /// Nothing was written.
    #[default]
    None,
    /// Something was written that can wait [`ACK_COMMIT_MS`] for company.
    Soon,
    /// Outputs wait for it.
    Now,
}

/// How long a transaction that holds only acks may wait for other writes, in milliseconds.
pub const ACK_COMMIT_MS: u64 = 10;

/// Why the broker wants to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A connection has not registered.
    Handshake,
    /// The holder of a contested name has not answered.
    Takeover,
    /// A v1 connection sits on unacked deliveries.
    Exemption,
    /// What waits was not looked through to the end.
    Line,
    /// A token's time is over.
    Expiry,
    /// The time of a lease is over.
    Lease,
    /// Expiry and retention have work.
    Sweep,
}

/// What an input is handled with.
struct Cx<'t> {
    /// The moment.
    now: Now,
    /// The moment, to be written down.
    at: Stamp,
    /// Since when it is as the frame says, wall clock.
    since_ms: u64,
    /// The open transaction.
    txn: &'t mut dyn Txn,
}

/// The broker. See the module's documentation for how to drive it.
#[derive(Debug)]
pub struct Broker {
    config: BrokerConfig,
    grants: Grants,
    /// What tokens are called that are in none of those.
    revoked: TokenName,
    registry: Registry,
    conns: Conns,
    outbox: Outbox,
    owed: Owed,
    leases: Leases,
    left: Left,
    steady: Steady,
    log: AuditLog,
    head: ChainHead,
    /// Everything up to this number is on disk.
    durable: Seq,
    /// The open transaction expires mail: what came after it is not delivered before the commit,
    /// or it would come first if the commit is lost.
    expiring: bool,
    sweep: Sweep,
    recent: Recent,
    /// How deliveries ended in the transaction under way,
    fates: Vec<Fate>,
    /// and bytes of their messages.
    fates_bytes: u64,
    stopping: bool,
    /// Somebody wants to know of each message and each step.
    watched: bool,
    /// The disk is nearly full.
    full: bool,
    mutations: crate::Mutations<BrokerMutation>,
}

impl Broker {
    /// Builds the broker from what the store holds.
    #[must_use]
    pub fn new(mut config: BrokerConfig, loaded: Loaded, now: Now) -> Self {
        let head = loaded
            .head
            .unwrap_or_else(|| ChainHead::new(&config.audit_key));
        let grace_until = now.mono_ms + config.grace_ms;
        let durable = Seq(head.next_seq - 1);
        let steady = Steady::resume(loaded.sealed, now);
        let registry = Registry::new(
            loaded.peers,
            loaded.aliases,
            grace_until,
            steady.stamp(now),
            &Delivered {
                to: durable,
                ..Delivered::default()
            },
        );
        Self {
            left: Left::new(registry.ended.values()),
            registry,
            conns: Conns::default(),
            outbox: Outbox::default(),
            owed: Owed::new(loaded.owed),
            leases: Leases::new(loaded.leases, grace_until, now.mono_ms + config.patience_ms),
            steady,
            log: AuditLog::default(),
            durable,
            expiring: false,
            sweep: Sweep::new(now.mono_ms + config.sweep_ms, loaded.sealed),
            recent: Recent::default(),
            fates: Vec::new(),
            fates_bytes: 0,
            stopping: false,
            watched: false,
            full: false,
            mutations: Default::default(),
            head,
            grants: Grants::new(std::mem::take(&mut config.grants), now),
            revoked: TokenName::revoked(),
            config,
        }
    }

    /// Takes one input.
    ///
    /// # Errors
    ///
    /// Only when storage failed; a bad input is answered by an output.
    pub fn handle(&mut self, now: Now, input: BrokerInput, txn: &mut dyn Txn) -> Result {
        let cx = &mut self.cx(now, txn);
        match input {
            BrokerInput::Opened(conn) => self.opened(now, conn),
            BrokerInput::Frame(conn, frame) => self.frame(cx, conn, frame)?,
            BrokerInput::Join(conn, tried) => self.joining(now.mono_ms, conn, tried),
            BrokerInput::Pong(conn) => {
                if let Some(peer) = self.conns.session(conn).map(|s| s.peer) {
                    self.holder_answered(peer);
                }
            }
            BrokerInput::Closed { conn, goodbye } => self.closed(cx, conn, goodbye)?,
            BrokerInput::Space { free, total } => self.note_space(now, free, total),
            BrokerInput::Tick => self.tick(cx)?,
            BrokerInput::Grants(grants) => self.set_grants(cx, grants)?,
            BrokerInput::Operate(command) => self.operate(now, &command, cx.txn).map(drop)?,
            BrokerInput::Shutdown => self.shut_down(cx)?,
        }
        Ok(())
    }

    /// Delivers what has room after the inputs so far. Call once per batch of inputs, before
    /// outputs are taken.
    ///
    /// # Errors
    ///
    /// Only when storage failed.
    pub fn flush(&mut self, now: Now, txn: &mut dyn Txn) -> Result {
        let cx = &mut self.cx(now, txn);
        while let Some(peer) = self.registry.dirty.pop_first() {
            self.pump(cx, peer)?;
        }
        Ok(())
    }

    /// Whether a commit is wanted.
    #[must_use]
    pub fn need(&self) -> CommitNeed {
        self.outbox.need()
    }

    /// Writes the audit block of the transaction, and what it adds up to. Call right before the commit.
    ///
    /// # Errors
    ///
    /// Only when storage failed.
    pub fn seal(&mut self, now: Now, txn: &mut dyn Txn) -> Result {
        let at = self.stamp(now);
        self.write_fates(at.steady_ms, txn)?;
        self.owed.write(txn)?;
        self.registry.write_marks(txn)?;
        if self.log.is_empty() && !self.sweep.block_due {
            return Ok(());
        }
        self.sweep.sealed(at);
        let block = self.log.seal(&self.config.audit_key, &mut self.head, at);
        txn.append_audit(&block, &self.head)
    }

    /// The commit succeeded: the outputs that waited for it may leave.
    pub fn committed(&mut self) {
        self.durable = Seq(self.head.next_seq - 1);
        self.expiring = false;
        for conn in self.outbox.committed() {
            if let Some(session) = self.conns.session_mut(conn) {
                session.greeted = true;
            }
        }
    }

    /// The next output that may leave now.
    pub fn poll_output(&mut self) -> Option<BrokerOutput> {
        self.outbox.poll()
    }

    /// When, on the monotonic clock, the broker wants [`BrokerInput::Tick`], and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(u64, Reason)> {
        let sweep = Some((self.sweep.due_ms(), Reason::Sweep));
        let expiry = self.grants.due_ms().map(|due_ms| (due_ms, Reason::Expiry));
        let lease = self.leases.next_due().filter(|_| !self.stopping);
        let lease = lease.map(|(due_ms, _)| (due_ms, Reason::Lease));
        let conn = self.conns.timers.first().map(|(at, why, _)| (*at, *why));
        let timers = [sweep, expiry, lease, conn];
        timers.into_iter().flatten().min()
    }

    /// Says whether each message and each step is to be told, as [`BusEvent::Taken`] and
    /// [`BusEvent::Step`].
    pub fn watch(&mut self, watched: bool) {
        self.watched = watched;
    }

    /// How many peers are connected.
    #[must_use]
    pub fn registered(&self) -> usize {
        self.registry.online
    }

    /// Whether something is known that an end of the process would take away: what recipients that
    /// have left said of mail that is still under way.
    #[must_use]
    pub fn remembers(&self) -> bool {
        self.recent.has_steps()
    }

    fn stamp(&self, now: Now) -> Stamp {
        self.steady.stamp(now)
    }

    fn cx<'t>(&self, now: Now, txn: &'t mut dyn Txn) -> Cx<'t> {
        let (at, since_ms) = (self.stamp(now), now.wall_ms);
        Cx {
            now,
            at,
            since_ms,
            txn,
        }
    }

    fn opened(&mut self, now: Now, conn: ConnId) {
        if self.stopping || self.conns.all.len() >= self.config.connections_max {
            let reason = match self.stopping {
                true => CloseReason::GoingAway,
                false => CloseReason::Full,
            };
            self.conns.all.insert(conn, Conn::Closing);
            self.outbox.now(BrokerOutput::Close(conn, reason));
            return;
        }
        let deadline = now.mono_ms + self.config.handshake_ms;
        self.conns.all.insert(conn, Conn::Greeting);
        self.conns.set_timer(deadline, Reason::Handshake, conn);
    }

    fn frame(&mut self, cx: &mut Cx<'_>, conn: ConnId, frame: ClientFrame) -> Result {
        match self.conns.all.get(&conn) {
            Some(Conn::Greeting) => self.handshake(cx, conn, frame),
            Some(Conn::Live(session)) => {
                let caller = Caller {
                    conn,
                    peer: session.peer,
                    ext: session.ext,
                    audits: session.level >= EXT_AUDIT,
                    bridges: session.bridge.is_some(),
                    token: session.grant.token,
                };
                self.holder_answered(caller.peer);
                self.live_frame(cx, caller, frame)
            }
            Some(Conn::Contending(_) | Conn::Closing) | None => {
                self.outbox.event(BusEvent::Ignored);
                Ok(())
            }
        }
    }

    fn live_frame(&mut self, cx: &mut Cx<'_>, caller: Caller, frame: ClientFrame) -> Result {
        match frame {
            ClientFrame::Envelope(carried) => self.route(cx, caller, &carried, None)?,
            ClientFrame::Refused { id, refusal } => self.refuse(cx.now, caller, id, refusal),
            ClientFrame::Ack(ack) => {
                self.date(cx, caller, (&ack.key, ack.age_ms))?;
                self.ack(cx, caller, &ack)?;
            }
            ClientFrame::PeersOf(domain) if caller.ext => {
                self.answer_peers_of(cx, caller, domain)?;
            }
            ClientFrame::Regroup { join, leave } if caller.ext => {
                self.regroup(cx, caller, (join, &leave))?;
            }
            // For version 1 each is a barrier, whatever stands in it.
            ClientFrame::Peers | ClientFrame::PeersOf(_) | ClientFrame::Regroup { .. } => {
                self.answer_peers(cx, caller)?;
            }
            ClientFrame::Roster(peers) if caller.bridges => {
                self.keep_roster(cx.now, caller, peers);
            }
            ClientFrame::Presence(it) if caller.ext => self.set_presence(cx, caller.conn, it)?,
            ClientFrame::Reject {
                key,
                reason,
                age_ms,
            } if caller.ext => {
                self.date(cx, caller, (&key, age_ms))?;
                self.finish_named(cx, caller, &key, End::Dead(&reason))?;
            }
            ClientFrame::Release { key, .. } if caller.ext => self.release(cx, caller, &key)?,
            ClientFrame::Progress { key, stage, age_ms } if caller.ext => {
                self.date(cx, caller, (&key, age_ms))?;
                self.progress(cx, caller, &key, stage)?;
            }
            ClientFrame::Rename { name } if caller.ext => self.rename(cx, caller, &name)?,
            ClientFrame::Retire { successor } if caller.ext => {
                self.retire(cx, caller, successor.as_deref())?;
            }
            ClientFrame::Audit(record) if caller.audits => {
                self.audited(cx.now.mono_ms, caller, &record);
            }
            ClientFrame::Take {
                mark,
                again,
                envelope,
            } if caller.bridges => self.take(cx, caller, (&mark, again), envelope)?,
            ClientFrame::Forwarded { after } if caller.bridges => {
                self.answer_forwarded(cx, caller, after.as_ref())?;
            }
            ClientFrame::Withdraw { id } if caller.ext => self.withdraw(cx, caller, &id)?,
            ClientFrame::Status { ids } if caller.ext => self.answer_status(cx, caller, &ids)?,
            _ => self.outbox.event(BusEvent::Ignored),
        }
        Ok(())
    }

    fn tick(&mut self, cx: &mut Cx<'_>) -> Result {
        while let Some((reason, conn)) = self.conns.due(cx.now.mono_ms) {
            match reason {
                Reason::Handshake => {
                    if matches!(self.conns.all.get(&conn), Some(Conn::Greeting)) {
                        self.deny(conn, CloseReason::HandshakeTimeout);
                    }
                }
                Reason::Takeover => self.contest_over(cx, conn)?,
                Reason::Exemption => self.exempt(cx.now, conn),
                Reason::Line => {
                    let peer = self.conns.session(conn).map(|session| session.peer);
                    self.registry.dirty.extend(peer);
                }
                Reason::Sweep | Reason::Expiry | Reason::Lease => {}
            }
        }
        self.tick_leases(cx)?;
        let expiry = self.grants.due_ms();
        if expiry.is_some_and(|due_ms| due_ms <= cx.now.mono_ms) {
            self.end_expired(cx)?;
        }
        if cx.now.mono_ms >= self.sweep.due_ms() {
            self.sweep(cx)?;
        }
        Ok(())
    }
}
