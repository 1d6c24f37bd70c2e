//! Bearer tokens as the broker keeps them: hashed.

use peerbus_wire::{Token, hex};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

/// The hash of a bearer token. The broker keeps nothing else of a token. In files it is 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenHash(pub [u8; 32]);

impl TokenHash {
    /// Hashes a token.
    #[must_use]
    pub fn of(token: &Token) -> Self {
        const CONTEXT: &str = "peerbus 2026 bearer token";
        Self(blake3::derive_key(CONTEXT, token.expose().as_bytes()))
    }

    /// Compares in constant time.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl TryFrom<String> for TokenHash {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = hex::decode(&text);
        bytes.map(Self).ok_or("a token's hash has 64 hex digits")
    }
}

impl From<TokenHash> for String {
    fn from(TokenHash(bytes): TokenHash) -> Self {
        hex::encode(&bytes)
    }
}

impl std::fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenHash(…)")
    }
}
