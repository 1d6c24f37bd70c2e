//! HMAC-SHA256 over the canonical form.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroizing;

use crate::domain::Domain;
use crate::envelope::Envelope;
use crate::hex;
use crate::limits::SECRET_BYTES_MIN;
use crate::name::PeerName;

/// The secret that senders sign and recipients verify with: the bytes of a string, at least
/// [`crate::limits::SECRET_BYTES_MIN`] of them. While secrets are rotated it accepts what was
/// signed with another one, too. With other domains it may share secrets of their own. `Debug` never
/// shows it; erased when the last clone is dropped.
#[derive(Clone)]
pub struct Secret(Arc<Keys>);

#[derive(Clone)]
struct Keys {
    key: Zeroizing<Vec<u8>>,
    also: Option<Zeroizing<Vec<u8>>>,
    domains: BTreeMap<Domain, Secret>,
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
        Ok(Self(Arc::new(Keys {
            key,
            also: None,
            domains: BTreeMap::new(),
        })))
    }

    /// This secret, accepting what was signed with `other`, too. It never signs with that one.
    #[must_use]
    pub fn accepting(mut self, other: &Self) -> Self {
        Arc::make_mut(&mut self.0).also = Some(other.0.key.clone());
        self
    }

    /// This secret, with another one for what goes to `domain` and what comes from there.
    #[must_use]
    pub fn sharing(mut self, domain: Domain, other: Self) -> Self {
        Arc::make_mut(&mut self.0).domains.insert(domain, other);
        self
    }

    /// This secret, sharing with other domains what `other` shares with them.
    #[must_use]
    pub fn sharing_as(mut self, other: &Self) -> Self {
        let domains = other.0.domains.clone();
        Arc::make_mut(&mut self.0).domains = domains;
        self
    }

    /// The secrets that are shared with other domains.
    pub fn domains(&self) -> impl Iterator<Item = (&Domain, &Self)> {
        self.0.domains.iter()
    }

    /// What signs a message from `from` to `to`: between two addresses the secret of the sender's
    /// domain, or else of the recipient's, where there is one; this secret otherwise. At both ends
    /// it is the same, though each knows only the other's domain by a secret.
    #[must_use]
    pub fn between(&self, from: &str, to: &str) -> &Self {
        if self.0.domains.is_empty() {
            return self;
        }
        let domain = |name: &str| Some(PeerName::parse(name).ok()?.address()?.1);
        let (Some(from), Some(to)) = (domain(from), domain(to)) else {
            return self;
        };
        let shared = |domain| self.0.domains.get(domain);
        shared(&from).or_else(|| shared(&to)).unwrap_or(self)
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

    /// The signature of `canonical`: 64 lower-case hex digits. See [`Secret::between`].
    #[must_use]
    pub fn sign(&self, canonical: &[u8]) -> String {
        hex::encode(&mac(&self.0.key, canonical))
    }

    /// Checks the envelope's `hmac` (hex in either case) in constant time, with the secret of the
    /// domains that it is between.
    ///
    /// # Errors
    ///
    /// Says what does not hold.
    pub fn verify(&self, envelope: &Envelope) -> Result<(), VerifyError> {
        let claimed = hex::decode(&envelope.hmac).ok_or(VerifyError::NotHex)?;
        let canonical = envelope.canonical().map_err(|_| VerifyError::Body)?;
        let secret = self.between(&envelope.from, &envelope.to);
        if secret.is_key(|key| mac(key, &canonical).ct_eq(&claimed)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> Secret {
        Secret::new(&[byte; 32]).unwrap()
    }

    fn domain(text: &str) -> Domain {
        Domain::parse(text).unwrap()
    }

    #[test]
    fn two_domains_that_share_a_secret_use_it_between_them_and_for_nothing_else() {
        let (home, away, shared) = (secret(1), secret(2), secret(3));
        let alpha = home.clone().sharing(domain("beta"), shared.clone());
        let beta = away.clone().sharing(domain("alpha"), shared.clone());
        let is = |ours: &Secret, from: &str, to: &str, other: &Secret| {
            let found = ours.between(from, to);
            assert!(found.accepts(other) && other.accepts(found), "{from} {to}");
        };
        for ours in [&alpha, &beta] {
            is(ours, "alice@alpha", "bob@beta", &shared);
            is(ours, "bob@beta", "Alice@ALPHA", &shared);
        }
        is(&alpha, "alice", "bob", &home);
        is(&alpha, "alice", "carol@alpha", &home);
        is(&alpha, "alice", "*", &home);
        is(&alpha, "bob@beta", "alice", &home);
        is(&alpha, "x@gamma", "alice@alpha", &home);
        is(&beta, "x@gamma", "bob@beta", &away);
        assert!(!format!("{alpha:?}").contains('3'));
        let rotated = shared.clone().accepting(&secret(4));
        let alpha = alpha.sharing(domain("beta"), rotated);
        assert!(!alpha.is_rotated() && !alpha.accepts(&secret(4)));
        assert!(alpha.between("a@beta", "b@alpha").accepts(&secret(4)));
    }
}
