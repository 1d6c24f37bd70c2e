//! The broker's decisions.
//!
//! Drive it like this: hand in one [`Input`] with [`Broker::handle`] inside an open transaction,
//! then take every output that may leave at once with [`Broker::poll_output`]. When
//! [`Broker::need`] says so, [`Broker::seal`], commit, say [`Broker::committed`], and take the
//! outputs that waited for the commit. Call `handle` with [`Input::Tick`] when
//! [`Broker::poll_timeout`] is due. A [`StoreError`] means that memory may be ahead of the disk:
//! roll back and stop.

use peerbus_wire::{BrokerFrame, ClientFrame, CloseReason};

use crate::{TokenHash, audit::AuditKey};

/// Names a connection. The shell makes them; one is never used twice in the life of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// What the broker is told.
#[derive(Debug, Clone)]
pub enum Input {
    /// A connection was opened.
    Opened(ConnId),
    /// It sent a message.
    Frame(ConnId, ClientFrame),
    /// It answered an [`Output::Ping`].
    Pong(ConnId),
    /// It is gone, whoever ended it. Also expected after an [`Output::Close`].
    Closed {
        /// The connection.
        conn: ConnId,
        /// The client said goodbye with a close frame (and the broker did not close it).
        goodbye: bool,
    },
    /// A deadline has come.
    Tick,
    /// The operator frees a name: it belongs to no token until somebody registers it.
    ReleaseName(String),
}

/// What the broker wants done.
#[derive(Debug, Clone)]
pub enum Output {
    /// Send this frame. Frames of one connection keep their order, but those that wait for a
    /// commit may be overtaken by those that do not.
    Send(ConnId, BrokerFrame),
    /// Ping the connection, and report its pong.
    Ping(ConnId),
    /// Send what was sent before this, then close. Nothing follows for the connection.
    Close(ConnId, CloseReason),
    /// Something to count, and perhaps to log.
    Count(Count),
}

/// What is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Count {
    /// A message was accepted for so many recipients.
    Accepted {
        /// Recipients.
        recipients: u32,
    },
    /// A message came again under its id.
    Duplicate,
    /// A message was refused. A v1 sender is not told, so the operator must be.
    Refused {
        /// The connection's name, neutralised by its rules.
        from: String,
        /// The sentence, neutralised.
        reason: String,
        /// The sender speaks `ext` and was told.
        told: bool,
    },
    /// A delivery was given to a connection.
    Delivered,
    /// A delivery was acked.
    Acked,
    /// A delivery was rejected by its recipient.
    Dead,
    /// A debt expired.
    Expired,
    /// A peer registered.
    Registered {
        /// Its name.
        name: String,
        /// A live connection lost the name to it.
        takeover: bool,
    },
    /// A registered connection ended.
    Left {
        /// Its name.
        name: String,
    },
    /// A registration was refused.
    Denied {
        /// Why.
        reason: CloseReason,
    },
    /// A frame was ignored: malformed, binary, or not negotiated.
    Ignored,
}

/// Whether a commit is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Nothing was written.
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
    Lapse,
    /// Expiry and retention have work.
    Sweep,
}

/// What the broker is made with. Durations are in milliseconds.
#[derive(Debug, Clone)]
pub struct Config {
    /// Hashes of the tokens that admit a connection.
    pub tokens: Vec<TokenHash>,
    /// The key of the audit chain.
    pub audit_key: AuditKey,
    /// Connections that may be open at once.
    pub connections_max: usize,
    /// Names that may be known.
    pub peers_max: usize,
    /// Messages that may be owed to one peer.
    pub queue_max: u64,
    /// Time for a complete `register`.
    pub handshake_ms: u64,
    /// Time for the holder of a contested name to answer a ping.
    pub takeover_ms: u64,
    /// A connection that broke counts as registered for a broadcast this long.
    pub grace_ms: u64,
    /// What a v1 connection has not acked for this long stops counting against its window.
    pub lapse_ms: u64,
    /// Unacked mail expires after this long.
    pub expiry_ms: u64,
    /// Mail for a generated name expires this long after the name was last here.
    pub expiry_generated_ms: u64,
    /// A message that is owed to nobody is kept at least this long, for dedupe.
    pub settled_ms: u64,
    /// Audit blocks, rejected messages and untold notices are kept this long.
    pub retention_ms: u64,
    /// Time between two sweeps.
    pub sweep_ms: u64,
}

impl Config {
    /// The limits of `docs/PROTOCOL.md`.
    #[must_use]
    pub fn new(tokens: Vec<TokenHash>, audit_key: AuditKey) -> Self {
        const SECOND: u64 = 1_000;
        const DAY: u64 = 86_400 * SECOND;
        Self {
            tokens,
            audit_key,
            connections_max: 16_384,
            peers_max: 100_000,
            queue_max: 10_000_000,
            handshake_ms: 10 * SECOND,
            takeover_ms: 2 * SECOND,
            grace_ms: 60 * SECOND,
            lapse_ms: 30 * SECOND,
            expiry_ms: 30 * DAY,
            expiry_generated_ms: 7 * DAY,
            settled_ms: 600 * SECOND,
            retention_ms: 30 * DAY,
            sweep_ms: 60 * SECOND,
        }
    }
}
