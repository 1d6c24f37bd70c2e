//! A broker of an older version makes room.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;

use serde_json::json;
use tokio_tungstenite::tungstenite;
use tungstenite::handshake::server::{Request, Response};

use super::World;
use crate::support::{Broker, eventually};

/// A broker of long ago, as far as it matters: it says its version, and ends when it is asked to.
/// Gives the request by which it was asked.
fn long_ago(listener: &UnixListener) -> String {
    let (stream, _) = listener.accept().expect("a client");
    #[expect(clippy::result_large_err, reason = "tungstenite's own")]
    let say = |_: &Request, mut response: Response| {
        let version = "peerbus/0.0.1".parse().expect("a header");
        response.headers_mut().insert("server", version);
        Ok(response)
    };
    let _client = tungstenite::accept_hdr(stream, say).expect("a WebSocket");
    let (mut stream, _) = listener.accept().expect("a client");
    let mut request = [0; 1_024];
    let read = stream.read(&mut request).expect("a request");
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        .expect("it reads");
    String::from_utf8_lossy(&request[..read]).into_owned()
}

#[test]
fn an_idle_broker_of_an_older_version_is_replaced() {
    let world = World::new();
    world.run(&["peers"]).ok();
    world.stop();
    let socket = world.state("peerbus.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let asked = std::thread::spawn(move || long_ago(&listener));
    let said = world.run(&["peers"]);
    assert!(
        said.stderr.contains("on demand, by `peerbus peers`"),
        "{}",
        said.stderr
    );
    said.ok();
    let asked = asked.join().expect("no panic");
    let ours = concat!("POST /stop?newer=", env!("CARGO_PKG_VERSION"), " ");
    assert!(asked.starts_with(ours), "{asked}");
    world.broker();
    world.stop();
}

#[test]
fn a_broker_makes_room_for_a_newer_version_only_and_only_when_it_is_idle() {
    let world = World::new();
    let mut alice = world.adapter("alice");
    alice.call("bus.peers", json!({}));
    let refused = |newer: &str| {
        let (status, why) = world.ask(&format!("POST /stop?newer={newer}"));
        assert_eq!(status, 409, "{newer}: {why}");
    };
    refused("99.0.0");
    alice.close();
    eventually("alice has left", || {
        (world.ask("GET /broker").1["peers"] == 0).then_some(())
    });
    for newer in [env!("CARGO_PKG_VERSION"), "0.0.1", "newest"] {
        refused(newer);
    }
    let (status, _) = world.ask("POST /stop?newer=99.0.0");
    assert_eq!(status, 200);
    eventually("it ends", || world.brokers().is_empty().then_some(()));

    let broker = Broker::start(&world.home);
    for question in ["newer=99.0.0", "takeover=1"] {
        let (status, why) = world.ask(&format!("POST /stop?{question}"));
        assert_eq!(status, 409);
        assert!(why.to_string().contains("was started by hand"), "{why}");
    }
    broker.stop();
}
