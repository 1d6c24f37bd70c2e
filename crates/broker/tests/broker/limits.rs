//! What a client may not do, and what it is told.

use std::time::{Duration, Instant};

use peerbus_test_support::socket::{Socket, ack, registration};
use peerbus_test_support::{PATIENCE, soon};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::support::{Broker, TOKEN, message};

#[tokio::test]
async fn a_first_message_that_is_no_registration_is_named_in_the_close_frame() {
    let broker = Broker::start().await;
    let bad_utf8 = Frame::message(b"{\"a\":\"\xff\"}".to_vec(), OpCode::Data(Data::Text), true);
    let cases = [
        (
            Message::binary(b"{}".to_vec()),
            1003,
            "handshake must be text",
        ),
        (Message::text("garbage"), 1007, "malformed handshake"),
        (
            Message::Frame(bad_utf8),
            1007,
            "text message is not valid UTF-8",
        ),
        (
            Message::text("{\"type\":\"peers\"}"),
            1008,
            "first frame must be register",
        ),
        (
            Message::text(registration("a b", "t").to_string()),
            1008,
            "invalid bearer token",
        ),
    ];
    for (first, code, text) in cases {
        let mut client = broker.connect().await;
        let shown = format!("{first:?}");
        client.send_raw(first).await;
        assert_eq!(client.closed().await, (code, text.to_owned()), "{shown}");
    }
}

#[tokio::test]
async fn garbage_after_the_handshake_changes_nothing() {
    let broker = Broker::start().await;
    let mut alice = broker.join("alice").await;
    for garbage in [
        "garbage",
        "[1,2]",
        "{\"type\":\"register\"}",
        "{\"type\":\"deliver\"}",
    ] {
        alice.send_raw(Message::text(garbage)).await;
    }
    alice.send_raw(Message::binary(vec![0; 4_096])).await;
    alice.send(ack("999")).await;
    assert_eq!(alice.peers().await, ["alice"]);
}

#[tokio::test]
async fn a_frame_over_the_limit_closes_its_connection_and_no_other() {
    let broker = Broker::start().await;
    let mut bob = broker.join("bob").await;
    let mut alice = broker.join("alice").await;
    let body = "x".repeat(32 * 1_048_576);
    // The client may write it to its end: a reset half-way could lose the close frame.
    alice.send(message("m1", "alice", "bob", body)).await;
    assert_eq!(
        alice.closed().await,
        (1009, "frame larger than 1048576 bytes".to_owned())
    );
    assert_eq!(bob.peers().await, ["bob"]);
}

#[tokio::test]
async fn the_largest_message_goes_through() {
    let broker = Broker::start().await;
    let mut alice = broker.join("alice").await;
    let mut bob = broker.join("bob").await;
    let empty = message("m1", "alice", "bob", "").to_string().len();
    let body = "y".repeat(peerbus_wire::limits::ENVELOPE_BYTES_MAX - empty);
    alice
        .send(message("m1", "alice", "bob", body.clone()))
        .await;
    assert_eq!(bob.delivery().await.1, json!(body));
}

#[tokio::test]
async fn a_silent_connection_is_closed_at_the_handshake_deadline() {
    let broker = Broker::tuned(|config| config.handshake_ms = 200).await;
    let mut client = broker.connect().await;
    let told = "no register frame within the handshake deadline";
    assert_eq!(client.closed().await, (4001, told.to_owned()));
}

#[tokio::test]
async fn a_socket_that_never_asks_for_anything_is_closed() {
    let broker =
        Broker::start_with(|options| options.times.http_max = Duration::from_millis(200)).await;
    let mut socket = TcpStream::connect(broker.address()).await.unwrap();
    let mut bytes = Vec::new();
    // An end or a reset.
    let _ended = timeout(PATIENCE, socket.read_to_end(&mut bytes))
        .await
        .expect("still open");
    // A WebSocket outlives that deadline: its own apply.
    let mut alice = broker.join("alice").await;
    let mut slow = TcpStream::connect(broker.address()).await.unwrap();
    let _ended = timeout(PATIENCE, slow.read_to_end(&mut bytes))
        .await
        .expect("still open");
    assert_eq!(alice.peers().await, ["alice"]);
}

#[tokio::test]
async fn one_connection_too_many_is_refused_until_another_ends() {
    let broker = Broker::tuned(|config| config.connections_max = 2).await;
    let alice = broker.join("alice").await;
    let _bob = broker.join("bob").await;
    let Err(Error::Http(refused)) = Socket::connect(broker.address()).await else {
        panic!("a third connection was accepted");
    };
    assert_eq!(refused.status(), 503);
    alice.leave().await;
    let joined = timeout(PATIENCE, async {
        loop {
            match Socket::connect(broker.address()).await {
                Ok(client) => break client,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    });
    joined
        .await
        .expect("the place was not given back")
        .register("carol", TOKEN)
        .await;
}

#[tokio::test]
async fn a_first_frame_that_no_registration_has_is_refused() {
    let broker = Broker::start().await;
    let told = (1009, "first frame larger than 4096 bytes".to_owned());
    // Whole, and one that would never be.
    let mut client = broker.connect().await;
    client.send_raw(Message::text("x".repeat(4_097))).await;
    assert_eq!(client.closed().await, told);

    let mut stream = TcpStream::connect(broker.address()).await.unwrap();
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    // Its head says 1,048,575 bytes, one fewer than a frame may have; the last one never comes.
    let mut frame = vec![0x81, 0xff];
    frame.extend(1_048_575_u64.to_be_bytes());
    frame.resize(1_048_588, 0);
    soon(stream.write_all(&frame)).await.unwrap();
    let mut answer = Vec::new();
    soon(stream.read_to_end(&mut answer)).await.unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.ends_with(&told.1), "{answer}");

    let mut stream = TcpStream::connect(broker.address()).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(20_000));
    // It may be closed while this is written.
    let _cut = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    let _reset = timeout(PATIENCE, stream.read_to_end(&mut answer))
        .await
        .expect("still open");
}

#[tokio::test]
async fn a_client_that_is_known_may_send_large_frames_behind_its_registration() {
    let broker = Broker::start().await;
    let mut bob = broker.join("bob").await;
    let mut alice = broker.connect().await;
    alice.send(registration("alice", TOKEN)).await;
    let body = "y".repeat(500_000);
    alice
        .send(message("m1", "alice", "bob", body.clone()))
        .await;
    assert_eq!(bob.delivery().await.1, json!(body));
}

#[tokio::test]
async fn strangers_leave_places_to_clients_that_registered_and_to_the_unix_socket() {
    let broker = Broker::tuned(|config| config.connections_max = 16).await;
    let (mut known, mut strangers) = (Vec::new(), Vec::new());
    for n in 0..14 {
        known.push(broker.join(&format!("n{n}")).await);
        strangers.extend(Socket::connect(broker.address()).await);
    }
    assert!(Socket::connect(broker.address()).await.is_err());
    let mut own = Socket::connect_unix(&broker.unix()).await.unwrap();
    own.register("own", TOKEN).await;
    known[0].send(message("m1", "n0", "n13", "hello")).await;
    assert_eq!(known[13].delivery().await.1, json!("hello"));
}

#[tokio::test]
async fn of_those_that_say_nothing_the_one_that_came_first_makes_room_for_a_newcomer() {
    let broker = Broker::start_with(|options| {
        options.tune = Some(Box::new(|config| {
            config.connections_max = 16;
            config.handshake_ms = 3_600_000;
        }));
        options.times.http_max = Duration::from_secs(3_600);
    })
    .await;
    let mut alice = broker.join("alice").await;
    let mut strangers = Vec::new();
    for _ in 0..40 {
        strangers.push(broker.connect().await);
    }
    // More than there may be sockets: 16 connections, and 256 for requests.
    let mut dialled = Vec::new();
    for _ in 0..400 {
        dialled.push(soon(TcpStream::connect(broker.address())).await.unwrap());
    }
    let mut bob = broker.join("bob").await;
    let mut first = dialled.swap_remove(0);
    let mut answer = Vec::new();
    let _reset = soon(first.read_to_end(&mut answer)).await;
    assert!(answer.is_empty());
    alice.send(message("m1", "alice", "bob", "hello")).await;
    assert_eq!(bob.delivery().await.1, json!("hello"));
}

#[tokio::test]
async fn clients_that_were_turned_away_are_strangers_until_their_sockets_are_closed() {
    let broker = Broker::start_with(|options| {
        options.tune = Some(Box::new(|config| config.connections_max = 16));
        // None is answered, and so none closed, while this runs.
        options.times.denied_delay = Duration::from_secs(3_600);
    })
    .await;
    let mut denied = Vec::new();
    while let Ok(mut stranger) = Socket::connect(broker.address()).await {
        assert!(
            denied.len() < 8,
            "they have more places than strangers have"
        );
        stranger.send(registration("eve", "wrong")).await;
        denied.push(stranger);
        let line = format!("peerbus_denials_total{{code=\"1008\"}} {}", denied.len());
        broker.until_metric(&line).await;
    }
    assert_eq!(denied.len(), 8);
}

#[tokio::test]
async fn wrong_tokens_are_answered_late_however_many_come_at_once() {
    let delay = Duration::from_millis(300);
    let broker = Broker::start_with(|options| options.times.denied_delay = delay).await;
    let guesses = (0..100).map(async |_| {
        let mut client = broker.connect().await;
        let since = Instant::now();
        client.send(registration("eve", "wrong")).await;
        assert_eq!(client.closed().await.0, 1008);
        since.elapsed()
    });
    let waited = futures_util::future::join_all(guesses).await;
    assert!(waited.iter().all(|waited| *waited >= delay), "{waited:?}");
    let mut alice = broker.connect().await;
    let since = Instant::now();
    alice.register("alice", TOKEN).await;
    assert!(since.elapsed() < delay * 10, "{:?}", since.elapsed());
}

#[tokio::test]
async fn a_client_may_ask_as_often_as_it_likes() {
    let broker = Broker::start().await;
    let mut alice = broker.join("alice").await;
    for _ in 0..10_000 {
        assert_eq!(alice.peers().await, ["alice"]);
    }
}

#[tokio::test]
async fn questions_asked_at_once_are_all_answered_when_they_are_read() {
    let broker = Broker::start().await;
    for ext in [false, true] {
        let mut alice = Socket::connect_narrow(broker.address()).await;
        let name = if ext { "ext-alice" } else { "alice" };
        let mut register = registration(name, TOKEN);
        if ext {
            register["ext"] = json!(1);
        }
        alice.send(register).await;
        alice.next().await;
        let unknown: Vec<_> = (0..3).map(|n| format!("m{n}")).collect();
        for _ in 0..1_000 {
            alice
                .send(json!({"protocol_version": "v1", "type": "peers"}))
                .await;
            // The empty one has no answer, and a v1 client gets none at all.
            for ids in [json!([]), json!(unknown)] {
                let status = json!({"protocol_version": "v1", "type": "status", "ids": ids});
                alice.send(status).await;
            }
        }
        let (mut peers, mut states) = (0, 0);
        while peers < 1_000 || (ext && states < 3_000) {
            let frame = alice.next().await;
            match frame["type"].as_str() {
                Some("peers") => peers += 1,
                _ => states += frame["receipts"].as_array().unwrap().len(),
            }
        }
        // Every permit is back: as many again are read and answered.
        for _ in 0..1_000 {
            alice
                .send(json!({"protocol_version": "v1", "type": "peers"}))
                .await;
        }
        for _ in 0..1_000 {
            assert_eq!(alice.next().await["type"], "peers");
        }
    }
}
