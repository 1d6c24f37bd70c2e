//! A certificate for the broker, and clients that trust it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::{Result, anyhow};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore, crypto};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// One certificate, made for this process.
struct Identity {
    certificate: String,
    key: String,
    connector: TlsConnector,
}

fn identity() -> Result<&'static Identity> {
    static MADE: OnceLock<Identity> = OnceLock::new();
    if let Some(made) = MADE.get() {
        return Ok(made);
    }
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone())?;
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MADE.get_or_init(|| Identity {
        certificate: made.cert.pem(),
        key: made.signing_key.serialize_pem(),
        connector: TlsConnector::from(Arc::new(config)),
    }))
}

/// Writes certificate and key into `dir`.
pub(crate) fn files(dir: &Path) -> Result<[PathBuf; 2]> {
    let identity = identity()?;
    let files = ["bench.crt", "bench.key"].map(|name| dir.join(name));
    std::fs::write(&files[0], &identity.certificate)?;
    std::fs::write(&files[1], &identity.key)?;
    Ok(files)
}

/// Does the handshake of a client.
pub(crate) async fn connect(tcp: TcpStream) -> Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from("localhost")?;
    let connected = identity()?.connector.connect(name, tcp).await;
    connected.map_err(|error| anyhow!("no TLS: {error}"))
}
