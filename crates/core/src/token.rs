//! Bearer tokens as the broker keeps them: hashed.

use peerbus_wire::Token;
use subtle::ConstantTimeEq;

/// The hash of a bearer token. The broker keeps nothing else of a token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

impl std::fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenHash(…)")
    }
}
