//! The envelope: what a sender signs and a broker carries.

use std::sync::Arc;

use crate::ids::MessageId;
use crate::name::PeerName;
use crate::receipt::Refusal;

/// The nine members of an envelope, decoded the way v1 decodes them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Envelope {
    /// `protocol_version`.
    pub protocol_version: String,
    /// `id`.
    pub id: String,
    /// `from`: who signed it.
    pub from: String,
    /// `to`: a peer's name, or `*`.
    pub to: String,
    /// `ts`: the sender's clock, shown and never used for order or expiry.
    pub ts: String,
    /// `source`: what kind of program sent it.
    pub source: String,
    /// `kind`: `msg` or `broadcast`.
    pub kind: String,
    /// `body`: raw JSON as received, not decoded (an absent body is empty, canonical `null`).
    pub body: Vec<u8>,
    /// `hmac`: the signature as received, hex.
    pub hmac: String,
}

/// An [`Envelope`] together with what its strict readers need to know of its spelling.
#[derive(Debug, Clone)]
pub struct Decoded {
    /// The members.
    pub envelope: Envelope,
    /// The first irregularity that v1 forgives and we refuse.
    pub irregular: Option<Irregular>,
}

/// Spellings that v1's decoder forgives and that let two readers see two envelopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Irregular {
    /// A member of the envelope appears twice.
    DuplicateMember,
    /// A member's name is written in another case.
    MemberCase,
    /// The text is not valid UTF-8, or a string member holds a lone surrogate.
    InvalidUtf8,
}

/// Why bytes are no envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are not one JSON value.
    #[error("not valid JSON (at byte {at})")]
    Syntax {
        /// Offset of the first byte that cannot be read.
        at: usize,
    },
    /// The JSON value is not an object.
    #[error("not a JSON object")]
    NotObject,
    /// A member that must be a string is something else.
    #[error("member {member} must be a string")]
    WrongType {
        /// The member.
        member: &'static str,
    },
}

/// The two kinds of message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `msg`: to one peer.
    Msg,
    /// `broadcast`: to every other peer registered at send time.
    Broadcast,
}

/// Whom a message is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// One peer (`kind` is `msg`).
    Peer(PeerName),
    /// Everyone (`kind` is `broadcast`, `to` is `*`).
    All,
}

/// A message that satisfies every rule of acceptance that needs no state, in the form in which it
/// is carried: its canonical encoding plus its `hmac`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// The sender's id for it.
    pub id: MessageId,
    /// The name it was signed under. Whether the connection has that name is the broker's to check.
    pub from: PeerName,
    /// Whom it is for.
    pub to: Address,
    /// The JSON text: canonical members in order, then `hmac`. At most
    /// [`crate::limits::ENVELOPE_BYTES_MAX`] bytes.
    pub text: Arc<str>,
}

impl Envelope {
    /// Decodes the way v1's reference implementation does: member names without regard to case
    /// (Unicode simple folding), the last one wins, `null` leaves a string as it is, unknown
    /// members ignored, invalid UTF-8 in strings replaced, the body kept byte for byte.
    ///
    /// # Errors
    ///
    /// When the bytes are no JSON object or a string member has another type.
    pub fn decode(bytes: &[u8]) -> Result<Decoded, DecodeError> {
        unimplemented!("{}", bytes.len())
    }
}

impl Decoded {
    /// Checks every rule of acceptance that needs no state and gives the form to carry.
    ///
    /// # Errors
    ///
    /// A refusal that names the member, what was found and the remedy.
    pub fn carry(&self) -> Result<Carried, Refusal> {
        unimplemented!()
    }
}
