//! HMAC-SHA256 over the canonical form.

use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroizing;

use crate::envelope::Envelope;
use crate::hex;
use crate::limits::SECRET_BYTES_MIN;

/// The secret that senders sign and recipients verify with: the bytes of a string, at least
/// [`crate::limits::SECRET_BYTES_MIN`] of them. While secrets are rotated it accepts what was
/// signed with another one, too. `Debug` never shows it; erased when the last clone is dropped.
#[derive(Clone)]
pub struct Secret(Arc<Keys>);

struct Keys {
    key: Zeroizing<Vec<u8>>,
    also: Option<Zeroizing<Vec<u8>>>,
}

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
        let key = Zeroizing::new(bytes.to_vec());
        Ok(Self(Arc::new(Keys { key, also: None })))
    }

    /// This secret, accepting what was signed with `other`, too. It never signs with that one.
    #[must_use]
    pub fn accepting(self, other: &Self) -> Self {
        Self(Arc::new(Keys {
            key: self.0.key.clone(),
            also: Some(other.0.key.clone()),
        }))
    }

    /// Whether what `other` signs verifies here.
    #[must_use]
    pub fn accepts(&self, other: &Self) -> bool {
        self.is_key(|key| key.ct_eq(&other.0.key))
    }

    /// Whether it accepts what another secret signed, too.
    #[must_use]
    pub fn is_rotated(&self) -> bool {
        self.0.also.is_some()
    }

    /// The signature of `canonical`: 64 lower-case hex digits.
    #[must_use]
    pub fn sign(&self, canonical: &[u8]) -> String {
        hex::encode(&mac(&self.0.key, canonical))
    }

    /// Checks the envelope's `hmac` (hex in either case) in constant time.
    ///
    /// # Errors
    ///
    /// Says what does not hold.
    pub fn verify(&self, envelope: &Envelope) -> Result<(), VerifyError> {
        let claimed = hex::decode(&envelope.hmac).ok_or(VerifyError::NotHex)?;
        let canonical = envelope.canonical().map_err(|_| VerifyError::Body)?;
        if self.is_key(|key| mac(key, &canonical).ct_eq(&claimed)) {
            Ok(())
        } else {
            Err(VerifyError::Mismatch)
        }
    }

    /// Whether one of the keys is right. Looks at both, so that the time does not say which.
    fn is_key(&self, right: impl Fn(&[u8]) -> Choice) -> bool {
        let also = self.0.also.as_ref();
        let also = also.map_or(Choice::from(0), |key| right(key));
        (right(&self.0.key) | also).into()
    }
}

fn mac(key: &[u8], canonical: &[u8]) -> [u8; 32] {
    #[expect(clippy::expect_used, reason = "HMAC takes keys of every length")]
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes any key");
    mac.update(canonical);
    mac.finalize().into_bytes().into()
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
