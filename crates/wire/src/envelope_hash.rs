//! A name for the exact text of an envelope.

use std::fmt;

use data_encoding::BASE64URL_NOPAD;

/// Bytes of the hash. 128 bits: to find another text for one that was accepted takes 2^128 tries.
/// Two texts with one hash can be found in 2^64, but only by who signs both, and may say either.
const BYTES: usize = 16;
/// A hash of a carried envelope: the first 16 bytes of its BLAKE3, as 22 letters (URL-safe base64
/// without padding). Made where a frame is read, so that the engine only copies it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EnvelopeHash([u8; EnvelopeHash::LETTERS]);

impl EnvelopeHash {
    /// How many letters it has. No envelope is as short.
    pub const LETTERS: usize = 22;

    /// Hashes the text of a carried envelope.
    #[must_use]
    pub fn of(envelope: &[u8]) -> Self {
        let hash = blake3::hash(envelope);
        let mut letters = [0; Self::LETTERS];
        BASE64URL_NOPAD.encode_mut(&hash.as_bytes()[..BYTES], &mut letters);
        Self(letters)
    }

    /// Reads what [`EnvelopeHash::as_str`] gave.
    #[must_use]
    pub fn parse(letters: &[u8]) -> Option<Self> {
        let parsed = letters.try_into().ok().map(Self)?;
        BASE64URL_NOPAD.decode(letters).is_ok().then_some(parsed)
    }

    /// Its letters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // They are ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for EnvelopeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EnvelopeHash({})", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_front_of_blake3_in_letters() {
        // BLAKE3 of nothing is af1349b9f5f9a1a6a0404dea36dcc949….
        assert_eq!(EnvelopeHash::of(b"").as_str(), "rxNJufX5oaagQE3qNtzJSQ");
        assert_ne!(EnvelopeHash::of(b"{}"), EnvelopeHash::of(b"{ }"));
        let hash = EnvelopeHash::of(b"{}");
        assert_eq!(EnvelopeHash::parse(hash.as_str().as_bytes()), Some(hash));
        assert_eq!(EnvelopeHash::parse(b"{\"id\":\"a\",\"n\":12345}"), None);
    }
}
