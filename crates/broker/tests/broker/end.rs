//! How a broker starts, or does not, and how it ends.

use std::net::SocketAddr;
use std::time::Duration;

use peerbus_broker::{BrokerStartError, start};
use peerbus_test_support::PATIENCE;
use peerbus_test_support::socket::Socket;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{Broker, TOKEN, is_clean, message, options};

#[tokio::test]
async fn a_shutdown_sends_what_is_queued_then_says_why_and_leaves_nothing() {
    let broker = Broker::start().await;
    let (address, socket) = (broker.address(), broker.unix());
    let mut alice = broker.join("alice").await;
    let mut bob = broker.join("bob").await;
    for n in 0..200 {
        alice
            .send(message(&format!("m{n}"), "alice", "bob", n))
            .await;
    }
    alice.peers().await;
    let ends = tokio::spawn(async move {
        for n in 0..200 {
            assert_eq!(bob.delivery().await.1, n);
        }
        (bob.closed().await, alice.closed().await)
    });
    let (report, dir) = broker.stop().await;
    assert!(is_clean(&report), "{report:?}");
    let (bob, alice) = ends.await.unwrap();
    assert_eq!(bob, (1001, "broker is shutting down".to_owned()));
    assert_eq!(alice, bob);
    assert!(!socket.exists(), "the Unix socket's file is left");
    assert!(
        TcpStream::connect(address).await.is_err(),
        "the port is still listened on"
    );
    // Nothing of it is left to be in the way of the next.
    Broker::start_in(dir, |options| options.listen = vec![address]).await;
}

#[tokio::test]
async fn a_shutdown_cuts_who_does_not_read_and_says_so() {
    let broker = Broker::start_with(|options| {
        options.times.close_max = Duration::from_millis(100);
    })
    .await;
    let mut alice = broker.join("alice").await;
    let mut slow = broker.join_narrow("slow").await;
    let body = "z".repeat(64 * 1_024);
    // A window's worth, more than the sockets hold.
    for n in 0..128 {
        alice
            .send(message(
                &format!("m{n}"),
                "alice",
                "slow",
                format!("{n} {body}"),
            ))
            .await;
    }
    alice.peers().await;
    let reading = tokio::spawn(async move { alice.closed().await });
    let report = broker.running.shutdown(Duration::from_millis(1_000)).await;
    assert_eq!((report.cut, report.open), (1, 0), "{report:?}");
    assert_eq!(report.engine, Some(Ok(())));
    assert_eq!(reading.await.unwrap().0, 1001);
    slow.delivery().await;
}

#[tokio::test]
async fn what_stands_in_the_way_of_a_start_is_named() {
    let broker = Broker::start().await;
    let taken = broker.address();

    let dir = tempfile::tempdir().unwrap();
    let refused = |change: fn(&mut peerbus_broker::BrokerOptions, SocketAddr)| {
        let mut options = options(&dir);
        change(&mut options, taken);
        async { start(options).await.expect_err("it started") }
    };
    let port = refused(|options, taken| options.listen = vec![taken]).await;
    assert!(matches!(port, BrokerStartError::PortInUse { .. }), "{port}");
    assert!(port.to_string().contains(&taken.to_string()), "{port}");
    let again = start(options(&dir)).await.expect("its database is free");
    again.shutdown(Duration::ZERO).await;

    let tokens = refused(|options, _| options.grants.clear()).await;
    assert!(tokens.to_string().contains("PEERBUS_TOKENS"), "{tokens}");
    let nowhere = refused(|options, _| {
        options.listen.clear();
        options.unix = None;
    });
    assert!(matches!(nowhere.await, BrokerStartError::NoAddress));

    std::fs::write(dir.path().join("bus.db"), "not a database at all").unwrap();
    let database = refused(|_, _| ()).await;
    assert!(
        matches!(database, BrokerStartError::Database { .. }),
        "{database}"
    );
    assert!(database.to_string().contains("bus.db"), "{database}");
    assert!(
        !dir.path().join("run/broker.sock").exists(),
        "the socket's file is left"
    );
}

#[tokio::test]
async fn two_brokers_do_not_share_a_database() {
    let (_, dir) = Broker::start().await.stop().await;
    let first = start(options(&dir)).await.unwrap();
    let mut second = options(&dir);
    second.unix = None;
    let error = start(second).await.unwrap_err().to_string();
    assert!(
        error.contains("bus.db") && error.contains("in use"),
        "{error}"
    );
    first.shutdown(Duration::from_secs(1)).await;
    start(options(&dir))
        .await
        .unwrap()
        .shutdown(Duration::from_secs(1))
        .await;
}

#[tokio::test]
async fn a_broker_that_is_dropped_lets_go_of_its_database() {
    let Broker { running, dir } = Broker::start().await;
    drop(running);
    let next = timeout(PATIENCE, async {
        loop {
            match start(options(&dir)).await {
                Ok(next) => break next,
                Err(BrokerStartError::InUse { .. }) => tokio::task::yield_now().await,
                Err(other) => panic!("{other}"),
            }
        }
    });
    let report = next.await.expect("still locked").shutdown(PATIENCE).await;
    assert!(is_clean(&report), "{report:?}");
}

#[tokio::test]
async fn of_two_brokers_started_at_once_the_one_with_the_database_has_the_socket() {
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = tokio::join!(start(options(&dir)), start(options(&dir)));
        let (won, lost) = match (one, two) {
            (Ok(won), Err(lost)) | (Err(lost), Ok(won)) => (won, lost),
            other => panic!("not one of two: {other:?}"),
        };
        assert!(matches!(lost, BrokerStartError::InUse { .. }), "{lost}");
        let path = won.unix_path().unwrap().to_owned();
        let mut alice = Socket::connect_unix(&path).await.unwrap();
        alice.register("alice", TOKEN).await;
    }
}

#[tokio::test]
async fn a_broker_without_its_socket_lets_go_of_its_database() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    std::fs::write(&path, "in the way").unwrap();
    let mut refused = options(&dir);
    refused.unix = Some(path.clone());
    let error = start(refused).await.unwrap_err();
    assert!(
        matches!(error, BrokerStartError::NotASocket { .. }),
        "{error}"
    );
    std::fs::remove_file(&path).unwrap();
    Broker::start_in(dir, |_| ()).await;
}
