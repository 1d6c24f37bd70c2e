//! Starting brokers.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use peerbus_broker::{BrokerOptions, Running, ShutdownReport, start};
use peerbus_core::TokenHash;
use peerbus_core::broker::BrokerConfig;
use peerbus_test_support::socket::{Io, Socket};
use peerbus_test_support::{PATIENCE, soon};
use peerbus_wire::Token;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub(crate) const TOKEN: &str = "token-of-the-tests";
pub(crate) const OTHER_TOKEN: &str = "another-token";

/// A broker and its directory.
pub(crate) struct Broker {
    pub(crate) running: Running,
    pub(crate) dir: TempDir,
}

pub(crate) fn options(dir: &TempDir) -> BrokerOptions {
    let hash = |token| TokenHash::of(&Token::parse(token).unwrap());
    let tokens = vec![hash(TOKEN), hash(OTHER_TOKEN)];
    let mut options = BrokerOptions::new(dir.path().join("bus.db"), tokens);
    options.listen = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
    options.unix = Some(dir.path().join("run/broker.sock"));
    options
}

impl Broker {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut BrokerOptions)) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), change).await
    }

    /// A broker whose core is configured otherwise.
    pub(crate) async fn tuned(tune: impl FnOnce(&mut BrokerConfig) + Send + 'static) -> Self {
        Self::start_with(|options| options.tune = Some(Box::new(tune))).await
    }

    pub(crate) async fn start_in(dir: TempDir, change: impl FnOnce(&mut BrokerOptions)) -> Self {
        let mut options = options(&dir);
        change(&mut options);
        let running = start(options).await.unwrap();
        Self { running, dir }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.running.addresses()[0]
    }

    pub(crate) fn unix(&self) -> PathBuf {
        self.running.unix_path().unwrap().to_owned()
    }

    /// A client that has not registered.
    pub(crate) async fn connect(&self) -> Socket {
        Socket::connect(self.address()).await.unwrap()
    }

    /// A registered v1 client.
    pub(crate) async fn join(&self, name: &str) -> Socket {
        let mut client = self.connect().await;
        client.register(name, TOKEN).await;
        client
    }

    /// A registered v1 client whose socket holds little that it has not read.
    pub(crate) async fn join_narrow(&self, name: &str) -> Socket {
        let mut client = Socket::connect_narrow(self.address()).await;
        client.register(name, TOKEN).await;
        client
    }

    /// Waits until the metrics have this line.
    pub(crate) async fn until_metric(&self, line: &str) {
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let mut last = String::new();
        let seen = timeout(PATIENCE, async {
            while !last.lines().any(|found| found == line) {
                let stream = TcpStream::connect(self.address()).await.unwrap();
                last = exchange(stream, request).await;
            }
        })
        .await;
        assert!(seen.is_ok(), "{line} is never in\n{last}");
    }

    /// Stops the broker and gives its directory back.
    pub(crate) async fn stop(self) -> (ShutdownReport, TempDir) {
        (self.running.shutdown(PATIENCE).await, self.dir)
    }
}

/// Sends an HTTP request and gives the whole answer.
pub(crate) async fn exchange(mut stream: impl Io, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    answer
}

/// A message as a v1 client writes it. The broker cannot and does not check the signature.
pub(crate) fn message(id: &str, from: &str, to: &str, body: impl Into<Value>) -> Value {
    let kind = if to == "*" { "broadcast" } else { "msg" };
    json!({
        "protocol_version": "v1", "id": id, "from": from, "to": to,
        "ts": "2026-11-21T22:00:00.123456789Z", "source": "peer-bus", "kind": kind,
        "body": body.into(), "hmac": "0123456789abcdef".repeat(4),
    })
}

/// Whether every connection took what was queued for it and the database is closed.
pub(crate) fn is_clean(report: &ShutdownReport) -> bool {
    report.cut == 0 && report.open == 0 && report.engine == Some(Ok(()))
}
