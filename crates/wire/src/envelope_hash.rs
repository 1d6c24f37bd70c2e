//! A name for the exact text of an envelope.

use std::fmt;

use data_encoding::BASE64URL_NOPAD;

/// Bytes of the hash. 128 bits: to find another text for one that was accepted takes 2^128 tries.
/// Two texts with one hash can be found in 2^64, but only by who signs both, and may say either.
const BYTES: usize = 16;
/// Its letters.
const LETTERS: usize = 22;

/// A hash of a carried envelope: the first 16 bytes of its BLAKE3, as 22 letters (URL-safe base64
/// without padding). Made where a frame is read, so that the engine only copies it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EnvelopeHash([u8; LETTERS]);

impl EnvelopeHash {
    /// Hashes the text of a carried envelope.
    #[must_use]
    pub fn of(envelope: &[u8]) -> Self {
        let hash = blake3::hash(envelope);
        let mut letters = [0; LETTERS];
        BASE64URL_NOPAD.encode_mut(&hash.as_bytes()[..BYTES], &mut letters);
        Self(letters)
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
    }
}
