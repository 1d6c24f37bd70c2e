//! Identifiers other than names.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::limits::{
    DELIVERY_KEY_BYTES_MAX, ID_BYTES_MAX, INSTANCE_BYTES_MAX, TOKEN_BYTES_MAX, TOKEN_NAME_BYTES_MAX,
};
use crate::name::PeerName;

/// The id that a sender gives a message: 1-128 of `[A-Za-z0-9._:-]`. Unique per sender.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct MessageId(Arc<str>);

impl MessageId {
    /// Checks `text` against the rule for ids.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let ok = |b: u8| b.is_ascii_alphanumeric() || b"._:-".contains(&b);
        match text.len() {
            0 => Err(IdError::Empty),
            bytes if bytes > ID_BYTES_MAX => Err(IdError::TooLong { bytes }),
            _ if !text.bytes().all(ok) => Err(IdError::Character),
            _ => Ok(Self(text.into())),
        }
    }

    /// The id as it is on the wire.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<MessageId> for String {
    fn from(id: MessageId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for MessageId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        Self::parse(&text)
    }
}

/// Least characters of a part of an id by which it is understood.
const PART_CHARS_MIN: usize = 4;
/// Characters of an id's end that are shown. The beginning is its time: ids of one minute share it.
const SHORT_CHARS: usize = 8;
/// Ids of at least so many hex digits and hyphens are made by chance: a part tells one of them from
/// others. Other ids are chosen, and `job-1` is no part of `job-10`.
const CHANCE_CHARS_MIN: usize = 32;

/// A message's id as it is shown: its last eight characters, or all of one that was not made by chance.
///
/// ```
/// use peerbus_wire::short_id;
/// assert_eq!(short_id("01a2106bb3a37537b43068a3f6af7622"), "f6af7622");
/// assert_eq!(short_id("job-10"), "job-10");
/// ```
#[must_use]
pub fn short_id(id: &str) -> &str {
    match is_by_chance(id) {
        true => &id[id.len() - SHORT_CHARS..],
        false => id,
    }
}

/// Whether a text can be a part of an id: at least four hex digits, and fewer than an id has.
#[must_use]
pub fn is_id_part(text: &str) -> bool {
    (PART_CHARS_MIN..CHANCE_CHARS_MIN).contains(&text.len()) && is_hex(text)
}

/// Whether a text names the message of this id: by the id, its beginning or its end. Several messages
/// may be named so; the one whose id the text is comes first, unless others than its sender's are.
#[must_use]
pub fn names_id(text: &str, id: &str) -> bool {
    let is_part = || id.starts_with(text) || id.ends_with(text);
    text == id || is_id_part(text) && is_by_chance(id) && is_part()
}

/// Whether an id looks like one that a computer drew: nobody is called so.
#[must_use]
pub fn is_by_chance(id: &str) -> bool {
    id.len() >= CHANCE_CHARS_MIN && is_hex(id)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

/// Why a text is no message id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text is empty.
    #[error("empty id; 1 to 128 of A-Z a-z 0-9 . _ : - are allowed")]
    Empty,
    /// The text is longer than [`ID_BYTES_MAX`].
    #[error("id has {bytes} bytes; at most 128 of A-Z a-z 0-9 . _ : - are allowed")]
    TooLong {
        /// Length that was found, in bytes.
        bytes: usize,
    },
    /// A character outside the alphabet.
    #[error("id contains a character outside A-Z a-z 0-9 . _ : -")]
    Character,
}

/// The broker's number of an accepted message: positive, strictly increasing in accept order,
/// never used twice in the life of a database.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Seq(pub u64);

impl Seq {
    /// The delivery key under which this message is delivered on every `ext` connection.
    #[must_use]
    pub fn key(self) -> DeliveryKey {
        DeliveryKey(self.0.to_string().into())
    }
}

/// Names a delivery in an ack. Opaque to clients; on an `ext` connection the decimal [`Seq`], on a
/// v1 connection the id, or `id|recipient` for a copy of a broadcast.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DeliveryKey(Arc<str>);

impl DeliveryKey {
    /// Takes a key as received.
    ///
    /// Returns `None` when it is empty or longer than [`DELIVERY_KEY_BYTES_MAX`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        (!text.is_empty() && text.len() <= DELIVERY_KEY_BYTES_MAX).then(|| Self(text.into()))
    }

    /// The key of version 1, of a copy of a broadcast with its recipient. What was asked for with
    /// `number` has it behind `#`, which stands in no id and no name.
    #[must_use]
    pub fn v1(id: &MessageId, recipient: Option<&PeerName>, number: Option<Seq>) -> Self {
        let recipient = recipient.map_or(String::new(), |name| format!("|{name}"));
        let number = number.map_or(String::new(), |seq| format!("#{}", seq.0));
        Self(format!("{id}{recipient}{number}").into())
    }

    /// The key on a v1 connection of a delivery whose frame has no room for a longer one.
    #[must_use]
    pub fn short(number: Seq) -> Self {
        Self(format!("#{}", number.0).into())
    }

    /// The key as it is on the wire.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads the key as one of our broker's.
    #[must_use]
    pub fn seq(&self) -> Option<Seq> {
        let digits = !self.0.starts_with(['0', '+']);
        if digits {
            self.0.parse().ok().map(Seq)
        } else {
            None
        }
    }
}

/// What tells two processes with the same name apart: 128 random bits, a credential.
///
/// `Debug` never shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Instance(Arc<str>);

impl Instance {
    /// Takes an instance of 1-64 printable ASCII characters.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let ok = (1..=INSTANCE_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_graphic());
        ok.then(|| Self(text.into()))
    }

    /// Makes an instance of 128 bits of entropy, as 32 lower-case hex digits.
    #[must_use]
    pub fn from_entropy(bits: u128) -> Self {
        Self(format!("{bits:032x}").into())
    }

    /// The instance as it is on the wire.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Instance(…)")
    }
}

/// How a broker calls a bearer token: 1-32 of `[A-Za-z0-9._-]`, the first alphanumeric. No secret.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TokenName(Arc<str>);

impl TokenName {
    /// Checks `text` against the rule for names of tokens.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let ok = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        let fits = (1..=TOKEN_NAME_BYTES_MAX).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.bytes().all(ok);
        fits.then(|| Self(text.into()))
    }

    /// What a token is called that admits nobody any more.
    #[must_use]
    pub fn revoked() -> Self {
        Self("revoked".into())
    }

    /// The name as it is on the wire.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TokenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A bearer token as a client presents it. `Debug` never shows it; erased when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Zeroizing<String>);

impl Token {
    /// Takes a token of at most [`TOKEN_BYTES_MAX`] bytes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() <= TOKEN_BYTES_MAX).then(|| Self(Zeroizing::new(text.to_owned())))
    }

    /// The token as it is on the wire.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_named_by_either_end_and_one_that_was_chosen_only_whole() {
        let id = "01a2106bb3a37537b43068a3f6af7622";
        for part in ["01a2", "01a2106b", "f6af7622", "7622", id] {
            assert!(names_id(part, id), "{part}");
        }
        for other in ["", "01a", "622", "b3a3", "01A2", "f6af7623", "xa2106bb"] {
            assert!(!names_id(other, id), "{other}");
        }
        let longer = format!("{id}0");
        assert!(!names_id(id, &longer), "a whole id is no part");
        for chosen in ["cafe1", "job-10", "0123456789abcdef0123456789abcde"] {
            assert_eq!(short_id(chosen), chosen);
            assert!(names_id(chosen, chosen) && !names_id(&chosen[..4], chosen));
        }
        let uuid = "01a2106b-b3a3-7537-b430-68a3f6af7622";
        assert_eq!((short_id(id), short_id(uuid)), ("f6af7622", "f6af7622"));
        assert!(names_id("01a2106b-b3a3", uuid));
    }

    #[test]
    fn ids_follow_the_rule() {
        assert!(MessageId::parse("01HV:a.b_c-d").is_ok());
        assert_eq!(MessageId::parse(""), Err(IdError::Empty));
        assert_eq!(MessageId::parse("a|b"), Err(IdError::Character));
        assert_eq!(
            MessageId::parse(&"x".repeat(129)),
            Err(IdError::TooLong { bytes: 129 })
        );
    }

    #[test]
    fn a_key_is_a_seq_only_in_its_own_spelling() {
        assert_eq!(Seq(17).key().seq(), Some(Seq(17)));
        for other in ["017", "+17", "17 ", "id|bob", "99999999999999999999999"] {
            assert_eq!(DeliveryKey::parse(other).unwrap().seq(), None, "{other}");
        }
    }

    #[test]
    fn credentials_do_not_show_in_debug() {
        let shown = format!(
            "{:?}{:?}",
            Token::parse("hush").unwrap(),
            Instance::from_entropy(7)
        );
        assert!(!shown.contains("hush") && !shown.contains('7'), "{shown}");
    }
}
