//! What the broker says for metrics and the log.

use std::sync::Arc;

use peerbus_wire::{CloseReason, MessageId, Receipt, Seq, TokenName};

use crate::TokenHash;

/// What happened, for metrics and the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BusEvent {
    /// A message was accepted for so many recipients.
    Accepted {
        /// Recipients.
        recipients: u32,
    },
    /// A message came again under its id.
    Duplicate,
    /// A message was refused. A v1 sender is not told, so the operator must be.
    Refused {
        /// The connection's name, escaped by its rules.
        from: String,
        /// The sentence, escaped.
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
    /// A recipient holds a message back, and says why.
    Held {
        /// Its sender.
        from: String,
        /// Its recipient.
        to: String,
        /// The sender's id for it.
        id: MessageId,
        /// The sentence as it came. Untrusted.
        reason: String,
    },
    /// A delivery expired.
    Expired,
    /// A request ended with a result, or because somebody said so.
    Ended,
    /// A peer says something else of itself.
    Presence {
        /// Its name.
        name: String,
    },
    /// A peer registered.
    Registered {
        /// Its name.
        name: String,
        /// Its token.
        token: TokenHash,
        /// A live connection lost the name to it.
        takeover: bool,
    },
    /// A registered connection ended.
    Left {
        /// Its name.
        name: String,
    },
    /// A peer goes by another name.
    Renamed {
        /// Its name until now.
        from: String,
        /// Its name.
        to: String,
    },
    /// A name ended for good.
    Retired {
        /// The name.
        name: String,
        /// Who gets its mail.
        successor: Option<String>,
    },
    /// A token at its limit of names lost its oldest one without mail.
    Forgotten {
        /// The name.
        name: String,
        /// The token's.
        token: TokenName,
    },
    /// The disk is nearly full, or has room again.
    DiskFull {
        /// Whether it is.
        full: bool,
        /// Bytes that are free.
        free: u64,
    },
    /// A registration was refused.
    Denied {
        /// Why.
        reason: CloseReason,
    },
    /// A message was accepted; said, once that is on disk, while the broker is watched.
    Taken {
        /// Its number.
        seq: Seq,
        /// The sender's id for it.
        id: MessageId,
        /// Who sent it.
        from: String,
        /// How many recipients it is owed to.
        recipients: u32,
        /// When, wall clock.
        at_ms: u64,
        /// The carried envelope text.
        envelope: Arc<str>,
    },
    /// A delivery got further, or ended; said likewise.
    Step {
        /// The message's number.
        seq: Seq,
        /// Who sent it; empty when that name is forgotten.
        from: String,
        /// How far, where and when.
        receipt: Receipt,
    },
    /// A frame was ignored: malformed, binary, or not negotiated.
    Ignored,
}
