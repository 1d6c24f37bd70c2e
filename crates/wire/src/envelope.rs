//! The envelope: what a sender signs and a broker carries.

use std::borrow::Cow;
use std::sync::Arc;

use crate::envelope_hash::EnvelopeHash;
use crate::group::{GroupName, NoGroup};
use crate::ids::MessageId;
use crate::json::{SyntaxError, Type};
use crate::members::{Member, Members};
use crate::name::PeerName;

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

/// The recipient of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// One peer (`kind` is `msg`).
    Peer(PeerName),
    /// Everyone in a group (`kind` is `msg`, `to` is `#` and its name).
    Group(GroupName),
    /// One member of a group, which one the broker chooses (`kind` is `msg`, `to` ends with `!`).
    One(GroupName),
    /// Everyone (`kind` is `broadcast`, `to` is `*`).
    All,
}

impl Address {
    /// Reads the address of a group, or, with a `!` at the end, of one of its members.
    ///
    /// # Errors
    ///
    /// [`NoGroup`] says the whole rule.
    pub fn group(to: &str) -> Result<Self, NoGroup> {
        match to.strip_suffix('!') {
            Some(group) => GroupName::parse(group).map(Self::One),
            None => GroupName::parse(to).map(Self::Group),
        }
    }
}

/// A message that satisfies every rule of acceptance that needs no state, in the form in which it
/// is carried: its canonical encoding plus its `hmac`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// The sender's id for it.
    pub id: MessageId,
    /// The name it was signed under. Whether the connection has that name is the broker's to check.
    pub from: PeerName,
    /// Its recipient.
    pub to: Address,
    /// The JSON text: canonical members in order, then `hmac`. At most
    /// [`crate::limits::ENVELOPE_BYTES_MAX`] bytes.
    pub text: Arc<str>,
    /// The hash of `text`.
    pub hash: EnvelopeHash,
    /// It is a request: a result is wanted within so many milliseconds. Beside what is signed, whose
    /// body says the same.
    pub within_ms: Option<u64>,
}

impl Envelope {
    /// Decodes the way v1's reference implementation does: member names without regard to case
    /// (Unicode simple folding), the last one wins, `null` leaves a string as it is, unknown
    /// members ignored, invalid UTF-8 in strings replaced, the body kept byte for byte. `null` in
    /// place of the object gives the empty envelope.
    ///
    /// # Errors
    ///
    /// When the bytes are no JSON object or a string member has another type.
    pub fn decode(bytes: &[u8]) -> Result<Decoded, DecodeError> {
        let (members, top) = Members::scan(bytes)?;
        if !matches!(top, Type::Object | Type::Null) {
            return Err(DecodeError::NotObject);
        }
        let parts = Parts::of(&members, std::str::from_utf8(bytes).is_ok());
        if let Some(member) = members.mistyped {
            return Err(DecodeError::WrongType { member });
        }
        Ok(parts.into_decoded())
    }
}

/// The members of an envelope, borrowed from the frame where they need no decoding.
pub(crate) struct Parts<'a> {
    /// `protocol_version`, `id`, `from`, `to`, `ts`, `source`, `kind`, `hmac`.
    pub(crate) strings: [Cow<'a, str>; 8],
    pub(crate) body: &'a [u8],
    /// How deep the body nests.
    pub(crate) depth: usize,
    pub(crate) irregular: Option<Irregular>,
}

impl<'a> Parts<'a> {
    /// Members of another type count as absent. `utf8` says that the whole frame is UTF-8.
    pub(crate) fn of(members: &Members<'a>, utf8: bool) -> Self {
        let mut replaced = !utf8;
        let strings = STRINGS.map(|name| {
            let text = members.get(name).and_then(|raw| raw.string());
            text.map_or(Cow::Borrowed(""), |text| {
                replaced |= text.replaced;
                text.text
            })
        });
        let irregular = if members.duplicate {
            Some(Irregular::DuplicateMember)
        } else if members.respelled {
            Some(Irregular::MemberCase)
        } else {
            replaced.then_some(Irregular::InvalidUtf8)
        };
        let body = members.get(Member::Body);
        Self {
            strings,
            body: body.map_or(&[], |raw| raw.text),
            depth: body.map_or(0, |raw| usize::from(raw.depth)),
            irregular,
        }
    }

    fn into_decoded(self) -> Decoded {
        let [protocol_version, id, from, to, ts, source, kind, hmac] =
            self.strings.map(Cow::into_owned);
        let body = self.body.to_vec();
        let envelope = Envelope {
            protocol_version,
            id,
            from,
            to,
            ts,
            source,
            kind,
            body,
            hmac,
        };
        Decoded {
            envelope,
            irregular: self.irregular,
        }
    }
}

const STRINGS: [Member; 8] = [
    Member::ProtocolVersion,
    Member::Id,
    Member::From,
    Member::To,
    Member::Ts,
    Member::Source,
    Member::Kind,
    Member::Hmac,
];

impl From<SyntaxError> for DecodeError {
    fn from(error: SyntaxError) -> Self {
        Self::Syntax { at: error.at }
    }
}
