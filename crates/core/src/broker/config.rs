//! What can be set on a broker.

use peerbus_wire::{Domain, Mark};

use crate::TokenHash;
use crate::audit::AuditKey;
use crate::grant::Grant;

/// What the broker is made with. Durations are in milliseconds.
#[derive(Debug, Clone)]
pub struct BrokerConfig {
    /// The tokens that admit a connection, until [`BrokerInput::Grants`](super::BrokerInput::Grants) brings
    /// others.
    pub grants: Vec<Grant>,
    /// The key of the audit chain.
    pub audit_key: AuditKey,
    /// What the broker is called among others; without it there are no others.
    pub domain: Option<Domain>,
    /// Tells the life of the database apart from others: another one after it was brought back from a
    /// backup. Only bridges are told.
    pub epoch: Option<Mark>,
    /// Connections that may be open at once.
    pub connections_max: usize,
    /// Names that may be known, temporary ones apart.
    pub peers_max: usize,
    /// Temporary names of one token that may be known besides those that are connected.
    pub ephemeral_max: usize,
    /// Messages that may be owed to one peer.
    pub queue_max: u64,
    /// Bytes of envelopes that may be owed to one peer.
    pub owed_to_max: u64,
    /// Bytes of envelopes that were sent with one token and may be owed to anybody; each copy of a
    /// broadcast counts. A grant may say otherwise.
    pub owed_by_max: u64,
    /// Bytes of the disk that new mail leaves free; of a small disk an eighth.
    pub disk_floor: u64,
    /// Time for a complete `register`.
    pub handshake_ms: u64,
    /// Time for the holder of a contested name to answer a ping.
    pub takeover_ms: u64,
    /// A connection that broke counts as registered for a broadcast this long.
    pub grace_ms: u64,
    /// A message for one member of a group goes to another one when it was not acked for this long.
    pub patience_ms: u64,
    /// Time for its holder to give it back, and for one that broke off to come back.
    pub recall_ms: u64,
    /// What a v1 connection has not acked for this long stops counting against its window.
    pub exempt_ms: u64,
    /// Unacked mail expires after this long.
    pub expiry_ms: u64,
    /// Mail for a generated name expires this long after the name was last here.
    pub expiry_generated_ms: u64,
    /// An old name for which no mail comes for this long leads nowhere any more.
    pub alias_ms: u64,
    /// The id of a message is kept at least this long after it ended, and a hash of its text, for
    /// dedupe.
    pub settled_ms: u64,
    /// Bytes that rejected messages take of the disk, about; the oldest go first.
    pub dead_bytes: u64,
    /// Untold notices that are kept: of the last so many that were written.
    pub notices_max: u64,
    /// Audit blocks, rejected messages and untold notices are kept this long.
    pub retention_ms: u64,
    /// Messages are kept this long after they ended, with how each delivery did,
    pub history_ms: u64,
    /// and take about this much of the disk; the oldest go first.
    pub history_bytes: u64,
    /// Time between two sweeps.
    pub sweep_ms: u64,
}

impl BrokerConfig {
    /// The limits of `docs/PROTOCOL.md`, for tokens that admit to what is usual. They are called
    /// `token-1` and so on.
    #[must_use]
    pub fn new(tokens: Vec<TokenHash>, audit_key: AuditKey) -> Self {
        const SECOND: u64 = 1_000;
        const DAY: u64 = 86_400 * SECOND;
        Self {
            grants: Grant::numbered("token", tokens),
            audit_key,
            domain: None,
            epoch: None,
            connections_max: 16_384,
            peers_max: 100_000,
            ephemeral_max: 1_000,
            queue_max: 10_000_000,
            owed_to_max: 1_073_741_824,
            owed_by_max: 4 * 1_073_741_824,
            disk_floor: 64 * 1_048_576,
            handshake_ms: 10 * SECOND,
            takeover_ms: 2 * SECOND,
            grace_ms: 60 * SECOND,
            patience_ms: 600 * SECOND,
            recall_ms: 5 * SECOND,
            exempt_ms: 30 * SECOND,
            expiry_ms: 30 * DAY,
            expiry_generated_ms: 7 * DAY,
            alias_ms: 30 * DAY,
            settled_ms: 600 * SECOND,
            dead_bytes: 256 * 1_048_576,
            notices_max: 500_000,
            retention_ms: 30 * DAY,
            history_ms: 7 * DAY,
            history_bytes: 256 * 1_048_576,
            sweep_ms: 60 * SECOND,
        }
    }
}
