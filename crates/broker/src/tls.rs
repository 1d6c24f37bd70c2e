//! TLS on the broker's side: what it shows its clients, and why a handshake failed.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use peerbus_os::tls;
pub use peerbus_os::tls::ServerTls;
use rustls::server::NoServerSessionStorage;
use rustls::{AlertDescription as Alert, CertificateError, Error};
use tokio_rustls::TlsAcceptor;

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
