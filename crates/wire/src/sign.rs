//! HMAC-SHA256 over the canonical form.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::envelope::Envelope;
use crate::hex;
use crate::limits::SECRET_BYTES_MIN;

/// The secret that senders sign and recipients verify with: the bytes of a string, at least
/// [`crate::limits::SECRET_BYTES_MIN`] of them. `Debug` never shows it; erased when dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes a secret.
    ///
    /// # Errors
    ///
    /// When it is too short.
    pub fn new(bytes: &[u8]) -> Result<Self, SecretError> {
        if bytes.len() < SECRET_BYTES_MIN {
            return Err(SecretError::TooShort { bytes: bytes.len() });
        }
        Ok(Self(Zeroizing::new(bytes.to_vec())))
    }

    /// The signature of `canonical`: 64 lower-case hex digits.
    #[must_use]
    pub fn sign(&self, canonical: &[u8]) -> String {
        hex::encode(&self.mac(canonical))
    }

    fn mac(&self, canonical: &[u8]) -> [u8; 32] {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of every length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes any key");
        mac.update(canonical);
        mac.finalize().into_bytes().into()
    }

    /// Checks the envelope's `hmac` (hex in either case) in constant time.
    ///
    /// # Errors
    ///
    /// Says what does not hold.
    pub fn verify(&self, envelope: &Envelope) -> Result<(), VerifyError> {
        let claimed = hex::decode(&envelope.hmac).ok_or(VerifyError::NotHex)?;
        let canonical = envelope.canonical().map_err(|_| VerifyError::Body)?;
        if self.mac(&canonical).ct_eq(&claimed).into() {
            Ok(())
        } else {
            Err(VerifyError::Mismatch)
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Why a text is no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Shorter than [`crate::limits::SECRET_BYTES_MIN`].
    #[error("must be at least 32 bytes, got {bytes}")]
    TooShort {
        /// Length that was found.
        bytes: usize,
    },
}

/// Why an envelope does not verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// `hmac` is not 64 hex digits.
    #[error("hmac is not 64 hex digits")]
    NotHex,
    /// The signature was made with another secret or over other bytes.
    #[error("signature mismatch: signed with another secret, or altered on the way")]
    Mismatch,
    /// The body has no canonical form.
    #[error("body is not valid JSON")]
    Body,
}
