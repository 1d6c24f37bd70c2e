//! Authorities, certificates and clients for TLS, made for one test.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, crypto};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Who signs certificates. Its own stands in a file.
pub struct Authority {
    dir: PathBuf,
    name: String,
    issuer: Issuer<'static, KeyPair>,
}

/// The files of a certificate.
#[derive(Debug, Clone)]
pub struct Files {
    /// The certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// What a certificate is to be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Valid {
    /// Now.
    Now,
    /// Not any more.
    Expired,
}

impl Authority {
    /// A new authority, whose files go into `dir`.
    pub fn new(dir: &Path, name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        fs::write(dir.join(format!("{name}.pem")), certificate.pem()).unwrap();
        Self {
            dir: dir.to_owned(),
            name: name.to_owned(),
            issuer: Issuer::new(params, key),
        }
    }

    /// The file with its certificate.
    pub fn file(&self) -> PathBuf {
        self.dir.join(format!("{}.pem", self.name))
    }

    /// Signs a certificate for these names and addresses.
    pub fn sign(&self, what: &str, names: &[&str], valid: Valid) -> Files {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        if valid == Valid::Expired {
            params.not_before = date_time_ymd(2001, 1, 1);
            params.not_after = date_time_ymd(2002, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let files = Files {
            cert: self.dir.join(format!("{what}.crt")),
            key: self.dir.join(format!("{what}.key")),
        };
        fs::write(&files.cert, certificate.pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }

    /// Connects to `localhost` at this address and trusts this authority alone.
    ///
    /// # Errors
    ///
    /// What the handshake failed by.
    pub async fn connect(&self, address: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        let own = CertificateDer::from_pem_file(self.file()).unwrap();
        roots.add(own).unwrap();
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, tcp)
            .await
    }
}
