//! TLS on the broker's side: what it shows its clients, and why a handshake failed.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use peerbus_os::file::replace_private;
use peerbus_os::tls;
pub use peerbus_os::tls::ServerTls;
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::server::NoServerSessionStorage;
use rustls::{AlertDescription as Alert, CertificateError, Error};
use tokio_rustls::TlsAcceptor;
use zeroize::Zeroizing;

/// Longest part of a sentence that others have a say in, in characters.
const SAID_CHARS: usize = 200;

/// Reads the files. The error names the one that cannot be used, and the remedy.
pub(crate) fn acceptor(files: &ServerTls) -> Result<TlsAcceptor, String> {
    let mut config = tls::server(files)?;
    let path = &files.key;
    let others = std::fs::metadata(path).map_or(0, |found| found.permissions().mode() & 0o007);
    if others != 0 {
        let path = path.display();
        tracing::warn!(%path, "everybody on this machine can open the private key: run `chmod o= FILE`");
    }
    // Connections live long: nothing is kept for their next handshake.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// As [`acceptor`], with a certificate of the broker's own, which is made if need be.
pub(crate) fn own_acceptor(files: &ServerTls) -> Result<TlsAcceptor, String> {
    make_certificate(files)?;
    acceptor(files)
}

/// Makes a certificate that nobody signs, and its key, if they are not there. Clients know it by its
/// fingerprint, and it does not end.
///
/// # Errors
///
/// A sentence that names what cannot be written.
fn make_certificate(files: &ServerTls) -> Result<(), String> {
    let ServerTls { cert, key, .. } = files;
    let alone = match (cert.exists(), key.exists()) {
        (true, true) => return Ok(()),
        (false, false) => None,
        (true, false) => Some((cert, key)),
        (false, true) => Some((key, cert)),
    };
    if let Some((found, missing)) = alone {
        // Machines that have joined know the certificate that belongs to it.
        return Err(format!(
            "{} is there without {}: put that back, or delete the first, and machines that have joined need a \
             new invitation",
            found.display(),
            missing.display()
        ));
    }
    let made = || {
        let pair = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, "peerbus broker");
        let secret = Zeroizing::new(pair.serialize_pem());
        Ok((params.self_signed(&pair)?, secret))
    };
    let made: Result<_, rcgen::Error> = made();
    let (signed, secret) = made.map_err(|error| format!("no certificate can be made: {error}"))?;
    // It comes last: where it is, its key is.
    let written = replace_private(key, secret.as_bytes());
    let written = written.and_then(|()| replace_private(cert, signed.pem().as_bytes()));
    written.map_err(|error| format!("cannot write {}: {error}", cert.display()))
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
