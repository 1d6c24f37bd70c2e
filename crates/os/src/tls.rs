//! What TLS stands on: certificates and keys in PEM files, and one provider of cryptography.

use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{Error, RootCertStore, ServerConfig};
use sha2::{Digest as _, Sha256};

/// More than any bundle of certificates has.
const FILE_BYTES_MAX: u64 = 4 * 1_024 * 1_024;

/// The files that a server needs to speak TLS. They are read at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTls {
    /// Its certificate, and those between it and the authority, in PEM form.
    pub cert: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// The authorities of which every client must show a certificate; `None`: none needs one.
    pub client_ca: Option<PathBuf>,
}

/// The SHA-256 of a certificate, by which that one alone is known, whoever signed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// That of a certificate.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

/// How a server with these files speaks TLS.
///
/// # Errors
///
/// As for [`certificates`], of the file that cannot be used.
pub fn server(files: &ServerTls) -> Result<ServerConfig, String> {
    let ServerTls {
        cert,
        key,
        client_ca,
    } = files;
    let (chain, secret) = (certificates(cert)?, self::key(key)?);
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(authorities(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
            builder.with_client_cert_verifier(verifier.build().map_err(|error| error.to_string())?)
        }
    };
    builder
        .with_single_cert(chain, secret)
        .map_err(|error| unusable(&error, cert, key))
}

/// The cryptography of both ends.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The certificates in a PEM file, in its order.
///
/// # Errors
///
/// A sentence that names the file, what was found and the remedy.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(format!(
            "{} holds no certificate in PEM form (-----BEGIN CERTIFICATE-----): name a file that \
             does",
            path.display()
        )),
    }
}

/// The authorities whose certificates a PEM file holds.
///
/// # Errors
///
/// As for [`certificates`].
pub fn authorities(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|_| {
            format!(
                "{} holds a certificate that cannot be read: make it anew",
                path.display()
            )
        })?;
    }
    Ok(roots)
}

/// The private key in a PEM file.
///
/// # Errors
///
/// As for [`certificates`]. Says nothing of what stands in the file.
pub fn key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    const ENCRYPTED: &[u8] = b"ENCRYPTED";
    let pem = read(path)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|_| {
        let path = path.display();
        if pem.windows(ENCRYPTED.len()).any(|part| part == ENCRYPTED) {
            return format!(
                "the key in {path} is encrypted, and nobody is here to give its passphrase: write \
                 one without, with `openssl pkey -in {path} -out FILE`"
            );
        }
        format!(
            "{path} holds no private key in PEM form (-----BEGIN PRIVATE KEY-----): name a file \
             that does"
        )
    })
}

/// Why a certificate and a key that could be read cannot be used together.
#[must_use]
pub fn unusable(error: &Error, certificate: &Path, key: &Path) -> String {
    let (certificate, key) = (certificate.display(), key.display());
    match error {
        Error::InconsistentKeys(_) => format!(
            "the key in {key} is not that of the certificate in {certificate}: name the two that \
             were made together (the server's own certificate comes first in its file)"
        ),
        error => format!(
            "the certificate in {certificate} with the key in {key} cannot be used ({error}): make \
             them anew"
        ),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => format!("there is no file {shown}: correct the path"),
        ErrorKind::PermissionDenied => {
            format!("{shown} cannot be read by this user: change its owner or its mode")
        }
        ErrorKind::InvalidInput => format!("{shown} is not a file: correct the path"),
        _ => format!("{shown} cannot be read ({error}): correct the path"),
    };
    let mut pem = Vec::new();
    let file = crate::file::open_regular(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX)
        .read_to_end(&mut pem)
        .map_err(failed)?;
    Ok(pem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_lacks_is_said_and_nothing_of_what_it_holds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("some.pem");
        for (text, of_certificate, of_key) in [
            (None, "there is no file", "there is no file"),
            (
                Some("hush"),
                "holds no certificate in PEM form",
                "holds no private key in PEM form",
            ),
            (
                Some(
                    "-----BEGIN ENCRYPTED PRIVATE KEY-----\nhush\n-----END ENCRYPTED PRIVATE KEY-----\n",
                ),
                "holds no certificate",
                "is encrypted, and nobody is here",
            ),
            (
                Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
                "holds a certificate that cannot be read",
                "holds no private key",
            ),
        ] {
            if let Some(text) = text {
                std::fs::write(&path, text).unwrap();
            }
            let certificate = authorities(&path).unwrap_err();
            assert!(certificate.contains(of_certificate), "{certificate}");
            let key = key(&path).unwrap_err();
            assert!(key.contains(of_key), "{key}");
            for said in [certificate, key] {
                let names_file = said.contains("some.pem");
                assert!(names_file && !said.contains("hush"), "{said}");
            }
        }
        let directory = certificates(dir.path()).unwrap_err();
        assert!(directory.contains("is not a file"), "{directory}");
    }
}
