//! TLS on the broker's side: what it shows its clients, and why a handshake failed.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use peerbus_os::tls;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{AlertDescription as Alert, CertificateError, Error, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// Longest part of a sentence that others have a say in, in characters.
const SAID_CHARS: usize = 200;

/// The files that a broker needs to speak TLS. They are read at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Its certificate, and those between it and the authority, in PEM form.
    pub cert: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// The authorities of which every client must show a certificate; `None`: none needs one.
    pub client_ca: Option<PathBuf>,
}

/// Reads the files. The error names the one that cannot be used, and the remedy.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, String> {
    Ok(TlsAcceptor::from(Arc::new(config(files)?)))
}

fn config(files: &TlsFiles) -> Result<ServerConfig, String> {
    let TlsFiles {
        cert,
        key,
        client_ca,
    } = files;
    let chain = tls::certificates(cert)?;
    let secret = tls::key(key)?;
    let others = std::fs::metadata(key).map_or(0, |found| found.permissions().mode() & 0o007);
    if others != 0 {
        let path = key.display();
        tracing::warn!(%path, "everybody on this machine can open the private key: run `chmod o= FILE`");
    }
    let builder = ServerConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(tls::authorities(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, tls::provider());
            builder.with_client_cert_verifier(verifier.build().map_err(|error| error.to_string())?)
        }
    };
    let mut config = builder
        .with_single_cert(chain, secret)
        .map_err(|error| tls::unusable(&error, cert, key))?;
    // Connections live long: nothing is kept for their next handshake.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// What a failed handshake means to the operator. `None`: the client only went away.
pub(crate) fn explain(error: &io::Error) -> Option<String> {
    let inner = error.get_ref()?.downcast_ref::<Error>()?;
    let sentence = match inner {
        Error::NoCertificatesPresented => {
            "it showed no certificate, and --client-ca asks for one: give it one (PEERBUS_CLIENT_CERT, \
             PEERBUS_CLIENT_KEY)"
        }
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "its certificate is not signed by an authority of --client-ca"
        }
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "its certificate has expired: renew it, or set this machine's clock if that is wrong",
        Error::AlertReceived(Alert::UnknownCA) => {
            "it does not know the authority that signed our certificate: name that to it (--ca or \
             PEERBUS_CA)"
        }
        Error::AlertReceived(Alert::CertificateExpired) => {
            "it finds our certificate expired, or not valid yet: renew it and restart the broker, or \
             set the client's clock"
        }
        Error::AlertReceived(Alert::BadCertificate) => {
            "it cannot use our certificate, probably because that is not for the host name in the \
             client's URL: use a name that stands in it, or make one for that name"
        }
        Error::AlertReceived(Alert::CertificateUnknown) => {
            "it cannot use our certificate: that must be a server's, which an authority signed, and \
             not that of an authority itself"
        }
        error => return Some(peerbus_wire::escape(&error.to_string(), SAID_CHARS)),
    };
    Some(sentence.to_owned())
}
