//! The bytes of the peerbus protocol.
//!
//! Everything that turns bytes into types, and types into bytes, lives here: names and ids,
//! the [`Envelope`] with its canonical form and signature, the control frames, the limits.
//! Nothing here does I/O, reads a clock or draws a random number. `docs/PROTOCOL.md` is the
//! specification that this crate implements.

mod audited;
pub mod bridge;
mod canonical;
mod carry;
mod client;
mod close;
mod conversation;
mod domain;
mod entry;
mod envelope;
mod envelope_hash;
mod frame;
mod group;
pub mod hex;
mod ids;
mod json;
pub mod jsonrpc;
mod lenient;
pub mod limits;
mod members;
mod name;
mod received;
mod sign;
mod stage;
mod text;
mod time;
mod unquote;
mod version;
mod writer;

pub use audited::{AuditAction, AuditRecord};
pub use canonical::{Fields, canonical};
pub use carry::{body_of, recipient_of, sender_of};
pub use client::control_type;
pub use close::{CloseReason, JoinRefusal, NAME_FORBIDDEN, NAME_KEPT};
pub use conversation::{Conversation, Priority};
pub use domain::{Domain, Mark, NoDomain};
pub use envelope::{Address, Carried, DecodeError, Decoded, Envelope, Irregular, Kind};
pub use envelope_hash::EnvelopeHash;
pub use frame::{
    Ack, BrokerFrame, ClientFrame, DeliverFrame, Delivery, Forwarded, JoinGrant, JoinRequest,
    NameAnswer, PeerEntry, PeersFrame, Presence, Recall, Received, Register, Remarks, Window,
};
pub use group::{GroupName, NoGroup};
pub use ids::{
    DeliveryKey, IdError, Instance, MessageId, Seq, Token, TokenName, is_by_chance, is_id_part,
    names_id, short_id,
};
pub use lenient::lenient;
pub use name::{NameError, NameKey, PeerName};
pub use sign::{Secret, SecretError, VerifyError};
pub use stage::{Accepted, How, Receipt, Refusal, RefusalCode, Stage};
pub use text::{
    escape, escape_json, escape_line, escape_name, escape_sentence, printable, readable,
    within_json,
};
pub use time::{days, from_rfc3339, rfc3339, utc};
pub use version::is_older;

/// The protocol version that every frame and envelope carries, exactly.
pub const PROTOCOL_VERSION: &str = "v1";

/// The extension level that both sides announce as `ext` before frames beyond v1 may travel.
pub const EXT: u32 = 1;

/// The extension level from which on a broker takes [`ClientFrame::Audit`]; the newest one.
pub const EXT_AUDIT: u32 = 2;
