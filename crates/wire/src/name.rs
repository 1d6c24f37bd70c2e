//! Peer names.

use std::fmt;
use std::sync::Arc;

use crate::limits::NAME_BYTES_MAX;

/// Names that nobody may register: they would read as a speaker other than a peer.
const RESERVED: [&str; 7] = [
    "user",
    "human",
    "system",
    "admin",
    "assistant",
    "broker",
    "peerbus",
];

/// A valid peer name: 1-64 characters of `[A-Za-z0-9._@:-]`, the first alphanumeric, not reserved.
///
/// Two names that differ only in ASCII case name the same peer; compare their [`NameKey`]s for
/// identity. Equality of `PeerName` itself is exact.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerName(Arc<str>);

impl PeerName {
    /// Checks `text` against the rules for names.
    ///
    /// # Errors
    ///
    /// Says which rule the name breaks and what was found.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong { bytes: text.len() });
        }
        let odd = |c: char| !(c.is_ascii_alphanumeric() || "._@:-".contains(c));
        if let Some(found) = text.chars().find(|&c| odd(c)) {
            return Err(NameError::Character { found });
        }
        if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return Err(NameError::FirstCharacter);
        }
        if RESERVED.iter().any(|r| r.eq_ignore_ascii_case(text)) {
            return Err(NameError::Reserved);
        }
        Ok(Self(text.into()))
    }

    /// The name as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The identity of the name: its ASCII lower case.
    #[must_use]
    pub fn key(&self) -> NameKey {
        NameKey(self.0.to_ascii_lowercase().into())
    }
}

impl fmt::Debug for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A [`PeerName`] in ASCII lower case: what makes two names the same peer.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NameKey(Arc<str>);

impl NameKey {
    /// The lower-case text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a text is no peer name. The message states the whole rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text is empty.
    #[error("empty peer name")]
    Empty,
    /// The text is longer than [`NAME_BYTES_MAX`].
    #[error("peer name has {bytes} bytes; at most 64 of A-Z a-z 0-9 . _ @ : - are allowed")]
    TooLong {
        /// Length that was found, in bytes.
        bytes: usize,
    },
    /// A character outside the alphabet.
    #[error(
        "peer name contains U+{:04X}; only A-Z a-z 0-9 . _ @ : - are allowed (1 to 64 of them)",
        u32::from(*found)
    )]
    Character {
        /// The first such character.
        found: char,
    },
    /// The first character is not alphanumeric.
    #[error("peer name must begin with a letter or a digit")]
    FirstCharacter,
    /// The name is reserved.
    #[error("peer name is reserved (user, human, system, admin, assistant, broker, peerbus are)")]
    Reserved,
    /// It looks like the address of a peer at another broker; only a broker with a domain minds.
    #[error("peer name looks like an address in a domain; choose one without @")]
    Address,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rule() {
        for good in ["a", "wild-wasp-3kx", "A.b_c@d:e-f", "0", &"n".repeat(64)] {
            assert!(PeerName::parse(good).is_ok(), "{good}");
        }
        let cases = [
            ("", NameError::Empty),
            (&"n".repeat(65) as &str, NameError::TooLong { bytes: 65 }),
            ("a b", NameError::Character { found: ' ' }),
            ("a*", NameError::Character { found: '*' }),
            ("a\u{202e}b", NameError::Character { found: '\u{202e}' }),
            ("-a", NameError::FirstCharacter),
            ("System", NameError::Reserved),
            ("peerbus", NameError::Reserved),
        ];
        for (bad, error) in cases {
            assert_eq!(PeerName::parse(bad), Err(error), "{bad:?}");
        }
    }

    #[test]
    fn names_are_the_same_peer_whatever_their_case() {
        let (upper, lower) = (
            PeerName::parse("Bob").unwrap(),
            PeerName::parse("bob").unwrap(),
        );
        assert_ne!(upper, lower);
        assert_eq!(upper.key(), lower.key());
    }
}
