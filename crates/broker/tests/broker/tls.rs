//! TLS on the broker's sockets.

use std::time::Duration;

use peerbus_broker::{BrokerOptions, ServerTls};
use peerbus_test_support::socket::Socket;
use peerbus_test_support::soon;
use peerbus_test_support::tls::{Authority, Files, Valid};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Broker, TOKEN, exchange, is_clean, message};

/// The beginning of a handshake that announces 512 bytes (RFC 8446 §5.1).
const BEGUN: [u8; 6] = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01];

async fn start(dir: &TempDir, change: impl FnOnce(&mut BrokerOptions)) -> (Broker, Authority) {
    let ca = Authority::new(dir.path(), "authority");
    let Files { cert, key } = ca.sign("server", &["localhost"], Valid::Now);
    let broker = Broker::start_with(|options| {
        options.tls = Some(ServerTls {
            cert,
            key,
            client_ca: None,
        });
        change(options);
    })
    .await;
    (broker, ca)
}

async fn join(broker: &Broker, ca: &Authority, name: &str) -> Socket {
    let stream = soon(ca.connect(broker.address())).await.unwrap();
    let mut client = Socket::over(stream).await.unwrap();
    client.register(name, TOKEN).await;
    client
}

#[tokio::test]
async fn messages_of_every_size_pass_and_health_and_metrics_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, ca) = start(&dir, |_| ()).await;
    let mut ada = join(&broker, &ca, "ada").await;
    let mut bob = join(&broker, &ca, "bob").await;
    for (n, size) in [1, 5_000, 20_000, 900_000].into_iter().enumerate() {
        let body = "x".repeat(size);
        let sent = message(&format!("m{n}"), "ada", "bob", body.as_str());
        ada.send(sent).await;
        let (key, got) = bob.delivery().await;
        assert_eq!(got, json!(body));
        bob.ack(&key).await;
    }
    for path in ["healthz", "metrics"] {
        let request = format!("GET /{path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let stream = soon(ca.connect(broker.address())).await.unwrap();
        // Its end is one that TLS vouches for.
        let answer = exchange(stream, &request).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let tcp = TcpStream::connect(broker.address()).await.unwrap();
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let plain = exchange(tcp, request).await;
    assert!(plain.starts_with("HTTP/1.1 426"), "{plain}");
    assert!(plain.contains("use wss://"), "{plain}");
    let mut unix = Socket::connect_unix(&broker.unix()).await.unwrap();
    unix.register("eve", TOKEN).await;
    assert!(is_clean(&broker.stop().await.0));
}

#[tokio::test]
async fn a_handshake_that_does_not_end_hangs_nobody_and_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, ca) = start(&dir, |options| {
        options.times.http_max = Duration::from_secs(2);
    })
    .await;
    let mut slow = Vec::new();
    for bytes in [&[][..], &BEGUN[..1], &BEGUN] {
        let mut tcp = TcpStream::connect(broker.address()).await.unwrap();
        tcp.write_all(bytes).await.unwrap();
        slow.push(tcp);
    }
    // While they hang, others come and go.
    join(&broker, &ca, "ada").await.leave().await;
    for mut tcp in slow {
        let mut rest = Vec::new();
        // However it ends, it ends.
        let _ended = soon(tcp.read_to_end(&mut rest)).await;
    }
    join(&broker, &ca, "ada").await;
}

#[tokio::test]
async fn a_flood_of_failures_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, ca) = start(&dir, |_| ()).await;
    let other = Authority::new(dir.path(), "other");
    for _ in 0..20 {
        soon(other.connect(broker.address())).await.unwrap_err();
    }
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    soon(async {
        let mut text = String::new();
        while !text.contains("peerbus_tls_failures_total 20\n") {
            let stream = ca.connect(broker.address()).await.unwrap();
            text = exchange(stream, request).await;
        }
    })
    .await;
}
