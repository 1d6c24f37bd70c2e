//! The credentials file: one TOML file, mode 0600, written by `peerbus serve` and read by every
//! adapter and CLI verb of the same user.

use std::path::{Path, PathBuf};

use peerbus_wire::{Secret, Token};

use crate::url::Url;

/// What the file holds. `Debug` shows no secret.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// `token`: admits a connection.
    pub token: Token,
    /// `hmac_secret`: signs and verifies.
    pub secret: Secret,
    /// `url`, optional: where the broker is.
    pub url: Option<Url>,
}

/// Why there are no credentials to be had from a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// There is no such file.
    #[error("no credentials at {}; `peerbus serve` makes them, or set PEERBUS_TOKEN and PEERBUS_HMAC_SECRET", .0.display())]
    Missing(PathBuf),
    /// The file is there and cannot be used; the sentence says why and what to do.
    #[error("{0}")]
    Unusable(String),
}

/// Reads the file at `path`.
///
/// # Errors
///
/// When it is absent, readable by others, or not what it should be.
pub fn load(path: &Path) -> Result<Credentials, CredentialsError> {
    unimplemented!("{path:?}")
}

/// Makes a token and an HMAC secret and writes them to a new file at `path`, mode 0600, in a
/// directory of mode 0700 that is made if need be. A file that is already there is kept and
/// loaded, also when another process makes it at the same moment.
///
/// # Errors
///
/// When the file cannot be written, or one that is there cannot be used.
pub fn load_or_create(path: &Path) -> Result<(Credentials, bool), CredentialsError> {
    unimplemented!("{path:?}")
}
