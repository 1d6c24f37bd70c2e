//! TLS to a broker: whom to trust, what to show, and what a failure means.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use peerbus_os::tls::{self, Fingerprint};
use peerbus_wire::escape;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    AlertDescription as Alert, CertificateError, ClientConfig, DigitallySignedStruct, Error,
    InvalidMessage, RootCertStore, SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Longest part of a sentence that the broker has a say in, in characters.
const SAID_CHARS: usize = 200;

/// The files for `wss:` URLs. They are read at each attempt to connect, so new ones count at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Authorities to trust; `None`: the system's.
    pub ca: Option<PathBuf>,
    /// A certificate for brokers that ask for one.
    pub cert: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
}

/// Why a broker that is there cannot be used. `Display` is what was found and, behind `; `, the
/// remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found}; {remedy}")]
pub(crate) struct Unusable {
    found: String,
    remedy: String,
}

impl Unusable {
    pub(crate) fn new(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (found, remedy) = (found.into(), remedy.into());
        Self { found, remedy }
    }
}

impl TlsFiles {
    /// Makes a connection a TLS one, with a certificate for this host at the other end that an authority signed.
    ///
    /// # Errors
    ///
    /// A sentence: what was found there, and the remedy.
    pub async fn trusted(
        &self,
        host: &str,
        tcp: TcpStream,
    ) -> Result<TlsStream<TcpStream>, String> {
        let connected = async { self.connect(self.connector(None)?, host, tcp).await };
        connected.await.map_err(|why: Unusable| why.to_string())
    }

    /// Reads the files. `pin`: the one certificate that is taken at the other end.
    pub(crate) fn connector(&self, pin: Option<Fingerprint>) -> Result<TlsConnector, Unusable> {
        let config = self.config(pin)?;
        Ok(TlsConnector::from(Arc::new(config)))
    }

    /// Makes a connection a TLS one.
    pub(crate) async fn connect(
        &self,
        connector: TlsConnector,
        host: &str,
        tcp: TcpStream,
    ) -> Result<TlsStream<TcpStream>, Unusable> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            let found = format!("no certificate can be for the host name {host}");
            Unusable::new(found, "use another name, or the address")
        })?;
        let connected = connector.connect(name, tcp).await;
        connected.map_err(|error| {
            self.explain(&error).unwrap_or_else(|| {
                let what = escape(&error.to_string(), SAID_CHARS);
                Unusable::new(
                    format!("the TLS handshake came to no end ({what})"),
                    "if the broker speaks no TLS, use ws:// instead of wss://",
                )
            })
        })
    }

    fn config(&self, pin: Option<Fingerprint>) -> Result<ClientConfig, Unusable> {
        let of = |variable: &str, error: String| {
            let (found, remedy) = error.split_once(": ").unwrap_or((&error, "correct it"));
            Unusable::new(format!("{variable} is of no use: {found}"), remedy)
        };
        let provider = tls::provider();
        let algorithms = provider.signature_verification_algorithms;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Unusable::new(error.to_string(), "report this bug"))?;
        let builder = match (pin, &self.ca) {
            (Some(certificate), _) => {
                let pinned = Pinned {
                    certificate,
                    algorithms,
                };
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(pinned))
            }
            (None, Some(path)) => {
                let roots = tls::authorities(path);
                builder.with_root_certificates(roots.map_err(|why| of("--ca or PEERBUS_CA", why))?)
            }
            (None, None) => builder.with_root_certificates(system()?),
        };
        let mut config = match (&self.cert, &self.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(cert), Some(key)) => {
                let chain =
                    tls::certificates(cert).map_err(|why| of("PEERBUS_CLIENT_CERT", why))?;
                let secret = tls::key(key).map_err(|why| of("PEERBUS_CLIENT_KEY", why))?;
                builder
                    .with_client_auth_cert(chain, secret)
                    .map_err(|error| of("PEERBUS_CLIENT_CERT", tls::unusable(&error, cert, key)))?
            }
            _ => {
                return Err(Unusable::new(
                    "only one of PEERBUS_CLIENT_CERT and PEERBUS_CLIENT_KEY is set",
                    "set both, or neither",
                ));
            }
        };
        // The next connection may be days away.
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    /// What an error of TLS means; `None`: it is none.
    pub(crate) fn explain(&self, error: &io::Error) -> Option<Unusable> {
        let error = error.get_ref()?.downcast_ref::<Error>()?;
        Some(match error {
            Error::InvalidCertificate(why) => self.of_certificate(why),
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => Unusable::new(
                "it speaks no TLS",
                "use ws:// instead of wss://, or give the broker a certificate (`peerbus serve \
                 --tls-cert FILE --tls-key FILE`)",
            ),
            Error::AlertReceived(Alert::CertificateRequired) => Unusable::new(
                "it asks for a certificate of this client",
                "set PEERBUS_CLIENT_CERT and PEERBUS_CLIENT_KEY to the files of one that the \
                 authority of its --client-ca signed",
            ),
            Error::AlertReceived(alert) if self.cert.is_some() => Unusable::new(
                format!("it turns this client down ({alert:?})"),
                "check that the certificate of PEERBUS_CLIENT_CERT is signed by the authority of \
                 its --client-ca and has not expired (the broker's log says more)",
            ),
            error => Unusable::new(
                format!("TLS failed ({})", escape(&error.to_string(), SAID_CHARS)),
                "see the broker's log",
            ),
        })
    }

    fn of_certificate(&self, why: &CertificateError) -> Unusable {
        use CertificateError as Why;
        const RENEW: &str = "renew it and restart the broker, or set this machine's clock if that \
                             is wrong";
        match why {
            Why::UnknownIssuer => {
                let trusted = self.ca.as_ref().map_or_else(
                    || "that this system knows".to_owned(),
                    |path| format!("in {}", path.display()),
                );
                Unusable::new(
                    format!("its certificate is not signed by an authority {trusted}"),
                    "name the file with its authority's certificate: --ca FILE or PEERBUS_CA",
                )
            }
            Why::Expired | Why::ExpiredContext { .. } => {
                Unusable::new("its certificate has expired", RENEW)
            }
            Why::NotValidYet | Why::NotValidYetContext { .. } => {
                Unusable::new("its certificate is not valid yet", RENEW)
            }
            Why::NotValidForNameContext {
                expected,
                presented,
            } => {
                let names = escape(&presented.join(", "), SAID_CHARS);
                let host = expected.to_str();
                Unusable::new(
                    format!("its certificate is not for {host} but for {names}"),
                    format!(
                        "use a name that stands in it in PEERBUS_URL, or give the broker a \
                         certificate for {host}"
                    ),
                )
            }
            Why::ApplicationVerificationFailure => Unusable::new(
                "its certificate is not the one that the invitation or the URL names",
                "another program stands at that address, or that broker has a new certificate: \
                 find out which, and only then have it invite this machine anew",
            ),
            why => Unusable::new(
                format!(
                    "its certificate cannot be used ({})",
                    escape(&detail(why), SAID_CHARS)
                ),
                "give the broker a server's certificate that an authority signed (not that of an \
                 authority itself)",
            ),
        }
    }
}

/// Takes the one certificate that was named, whoever signed it and whatever it says of itself. That
/// the other end has its key, TLS shows.
#[derive(Debug)]
struct Pinned {
    certificate: Fingerprint,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match Fingerprint::of(end_entity) == self.certificate {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn detail(why: &CertificateError) -> String {
    match why {
        CertificateError::Other(why) => why.to_string(),
        why => why.to_string(),
    }
}

/// The authorities that the system trusts.
fn system() -> Result<RootCertStore, Unusable> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(Unusable::new(
            "this system trusts no authority for certificates",
            "name the file with the authority of the broker's certificate (--ca FILE or \
             PEERBUS_CA), or install the package ca-certificates",
        ));
    }
    Ok(roots)
}
