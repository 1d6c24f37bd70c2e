//! Health, metrics, browsers, and the operator's requests.

use peerbus_core::store::{DeliveryHistory, Fate, MessageHead, PeerId, Store as _, Txn as _};
use peerbus_store::SqliteStore;
use peerbus_test_support::socket::{Socket, registration};
use peerbus_wire::{MessageId, Seq, Stage};
use serde_json::{Value, json};
use tokio::net::{TcpStream, UnixStream};

use crate::support::{Broker, OTHER_TOKEN, TOKEN, exchange, is_clean, message};

async fn over_tcp(broker: &Broker, request: &str) -> String {
    exchange(TcpStream::connect(broker.address()).await.unwrap(), request).await
}

async fn over_unix(broker: &Broker, request: &str) -> String {
    exchange(UnixStream::connect(broker.unix()).await.unwrap(), request).await
}

fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n")
}

const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

#[tokio::test]
async fn health_and_metrics_tell_what_goes_on() {
    let broker = Broker::start().await;
    let _alice = broker.join("alice").await;
    broker.until_metric("peerbus_registrations_total 1").await;
    broker.until_metric("peerbus_peers 1").await;
    let health = over_tcp(&broker, &get("/healthz", "")).await;
    assert!(health.starts_with("HTTP/1.1 200"), "{health}");
    let body: Value = serde_json::from_str(health.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!((&body["status"], &body["peers"]), (&json!("ok"), &json!(1)));
    let metrics = over_unix(&broker, &get("/metrics", "")).await;
    assert!(metrics.contains("peerbus_connections 1\n"), "{metrics}");
    let root = over_tcp(&broker, &get("/", "")).await;
    assert!(
        root.starts_with("HTTP/1.1 200") && root.contains("WebSocket"),
        "{root}"
    );
    let lost = over_tcp(&broker, &get("/favicon.ico", "")).await;
    assert!(
        lost.starts_with("HTTP/1.1 404") && lost.contains("/favicon.ico"),
        "{lost}"
    );
}

#[tokio::test]
async fn web_pages_get_no_connection() {
    let broker = Broker::start().await;
    let page = format!("{UPGRADE}Origin: http://evil.example\r\n");
    let refused = over_tcp(&broker, &get("/", &page)).await;
    assert!(
        refused.starts_with("HTTP/1.1 403") && refused.contains("Origin"),
        "{refused}"
    );
    let rebound = format!("GET / HTTP/1.1\r\nHost: evil.example:1\r\n{UPGRADE}\r\n");
    let refused = over_tcp(&broker, &rebound).await;
    let address = broker.address().to_string();
    assert!(
        refused.starts_with("HTTP/1.1 403") && refused.contains(&address),
        "{refused}"
    );
}

#[tokio::test]
async fn the_operator_frees_a_name_for_another_token() {
    let broker = Broker::start().await;
    broker.join("bob@home").await.leave().await;
    let mut thief = broker.connect().await;
    thief.send(registration("bob@home", OTHER_TOKEN)).await;
    assert_eq!(
        thief.closed().await,
        (1008, "name claimed under a different token".to_owned())
    );

    let release = "POST /names/release?name=bob%40home HTTP/1.1\r\nHost: x\r\n\r\n";
    let refused = over_tcp(&broker, &release.replace("Host: x", "Host: localhost")).await;
    assert!(refused.starts_with("HTTP/1.1 404"), "over TCP: {refused}");
    let done = over_unix(&broker, release).await;
    assert!(done.starts_with("HTTP/1.1 200"), "{done}");
    let nobody = over_unix(&broker, &release.replace("bob%40home", "nobody")).await;
    assert!(
        nobody.starts_with("HTTP/1.1 404") && nobody.contains("no peer named nobody"),
        "{nobody}"
    );

    let mut heir = Socket::connect_unix(&broker.unix()).await.unwrap();
    heir.send(registration("bob@home", OTHER_TOKEN)).await;
    assert_eq!(heir.next().await["names"], json!(["bob@home"]));
    let mut former = broker.connect().await;
    former.send(registration("bob@home", TOKEN)).await;
    assert_eq!(
        former.closed().await.1,
        "name claimed under a different token"
    );
}

#[tokio::test]
async fn the_operator_ends_a_name_and_its_mail_goes_to_the_successor() {
    let broker = Broker::start().await;
    broker.join("old").await.leave().await;
    let mut heir = broker.join("heir").await;
    let mut ada = broker.join("ada").await;
    ada.send(message("m1", "ada", "old", "hi")).await;
    ada.send(message("m2", "ada", "heir", "hi")).await;
    assert_eq!(heir.next().await["envelope"]["id"], "m2");
    let retire = |query: &str| format!("POST /names/retire{query} HTTP/1.1\r\nHost: x\r\n\r\n");
    for (query, code, said) in [
        ("", 400, "name=NAME"),
        ("?name=nobody", 404, "no peer named nobody"),
        ("?name=old&to=nobody", 404, "cannot be the successor"),
        ("?name=old&to=old", 409, "its own successor"),
    ] {
        let answer = over_unix(&broker, &retire(query)).await;
        let line = format!("HTTP/1.1 {code}");
        assert!(
            answer.starts_with(&line) && answer.contains(said),
            "{query}: {answer}"
        );
    }
    let done = over_unix(&broker, &retire("?name=old&to=heir")).await;
    assert!(done.starts_with("HTTP/1.1 200"), "{done}");
    assert_eq!(heir.next().await["envelope"]["id"], "m1");
    ada.send(message("m3", "ada", "old", "hi")).await;
    assert_eq!(heir.next().await["envelope"]["id"], "m3");
}

#[tokio::test]
async fn the_operator_asks_for_the_messages_that_go_by_an_id() {
    let broker = Broker::start().await;
    let mut bob = broker.join("bob").await;
    for name in ["ada", "eve"] {
        let mut sender = broker.join(name).await;
        sender.send(message("m1", name, "bob", "hi")).await;
        assert_eq!(bob.next().await["envelope"]["from"], name);
    }
    let ask = |id: &str| format!("GET /v1/messages/{id} HTTP/1.1\r\nHost: x\r\n\r\n");
    for (id, known) in [("m1", true), ("m2", false)] {
        let answer = over_unix(&broker, &ask(id)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        for name in ["ada", "eve"] {
            let from = format!(r#""from":"{name}""#);
            assert_eq!(answer.contains(&from), known, "{id}: {answer}");
        }
        let says = |text: &str| answer.contains(text);
        assert_eq!(says(r#""state":"delivered""#), known, "{answer}");
        assert_eq!(
            says("a plain connection"),
            known,
            "as the list of peers tells: {answer}"
        );
        assert_eq!(says(r#""body":"hi""#), known, "{answer}");
    }
    let odd = over_unix(&broker, &ask("a%20b")).await;
    assert!(odd.starts_with("HTTP/1.1 400"), "{odd}");
}

#[tokio::test]
async fn what_many_sent_under_one_id_comes_in_pages() {
    let broker = Broker::start().await;
    let mut bob = broker.join("bob").await;
    let text = "x".repeat(900_000);
    for n in 0..12 {
        let name = format!("eve{n:02}");
        let mut eve = broker.join(&name).await;
        let sent = message("m1", &name, "bob", text.as_str());
        eve.send(sent).await;
        let (key, _) = bob.delivery().await;
        bob.ack(&key).await;
    }
    let (mut before, mut senders) = (None, Vec::new());
    loop {
        let query = before.map(|seq: u64| format!("?before={seq}"));
        let path = format!("/v1/messages/m1{}", query.unwrap_or_default());
        let answer = over_unix(&broker, &get(&path, "")).await;
        // What the commands read of an answer.
        assert!(answer.len() < 8 * 1_048_576, "{} bytes", answer.len());
        let page = answer.split_once("\r\n\r\n").unwrap().1;
        let page: Value = serde_json::from_str(page).unwrap();
        let messages = page["messages"].as_array().unwrap();
        let from = |message: &Value| message["from"].as_str().unwrap().to_owned();
        senders.extend(messages.iter().map(from));
        before = page["before"].as_u64();
        if before.is_none() {
            break;
        }
    }
    let all: Vec<_> = (0..12).rev().map(|n| format!("eve{n:02}")).collect();
    assert_eq!(senders, all);
}

#[tokio::test]
async fn a_release_without_a_valid_name_says_what_is_wrong() {
    let broker = Broker::start().await;
    for (query, said) in [
        ("", "name=NAME"),
        ("?name=", "empty"),
        ("?name=a%20b", "U+0020"),
    ] {
        let request = format!("POST /names/release{query} HTTP/1.1\r\nHost: x\r\n\r\n");
        let answer = over_unix(&broker, &request).await;
        assert!(
            answer.starts_with("HTTP/1.1 400") && answer.contains(said),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn a_broker_whose_database_lost_something_serves_on_and_says_so() {
    let Broker { running, dir } = {
        let broker = Broker::start().await;
        let _alice = broker.join("alice").await;
        broker
    };
    let report = running.shutdown(std::time::Duration::from_secs(5)).await;
    assert!(is_clean(&report), "{report:?}");
    std::fs::remove_file(dir.path().join("bus.db")).unwrap();

    let broker = Broker::start_in(dir, |_| ()).await;
    let health = over_tcp(&broker, &get("/healthz", "")).await;
    assert!(health.starts_with("HTTP/1.1 503"), "{health}");
    assert!(
        health.contains("\"incomplete\"") && health.contains("are missing"),
        "{health}"
    );
    let _alice = broker.join("alice").await;

    let post = |db: &std::path::Path| {
        let db = db.display();
        format!(
            "POST /audit/acknowledge?db={db} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        )
    };
    let db = broker.dir.path().join("bus.db").canonicalize().unwrap();
    let other = over_unix(&broker, &post(&db.with_file_name("other.db"))).await;
    assert!(
        other.starts_with("HTTP/1.1 409") && other.contains("bus.db"),
        "{other}"
    );
    let stranger = over_tcp(&broker, &post(&db)).await;
    assert!(stranger.starts_with("HTTP/1.1 404"), "{stranger}");
    let done = over_unix(&broker, &post(&db)).await;
    assert!(
        done.starts_with("HTTP/1.1 200") && done.contains("are missing"),
        "{done}"
    );
    let health = over_tcp(&broker, &get("/healthz", "")).await;
    assert!(health.starts_with("HTTP/1.1 200"), "{health}");
}

#[tokio::test]
async fn what_was_said_of_messages_comes_in_answers_of_a_bounded_length() {
    const MESSAGES: u64 = 40;
    let dir = tempfile::tempdir().unwrap();
    let mut store = SqliteStore::open(&dir.path().join("bus.db")).unwrap();
    store.begin().unwrap();
    for seq in (1..=MESSAGES).map(Seq) {
        let id = MessageId::parse(&format!("m{}", seq.0)).unwrap();
        let text = message(id.as_str(), "eve", "#g", "hi").to_string();
        let head = MessageHead {
            seq,
            sender: PeerId(1),
            id,
            recipients: 64,
            accepted_ms: 1,
            bytes: text.len() as u64,
        };
        store.insert_message(&head, &text).unwrap();
        let fate = |recipient: u32| {
            let mut way = DeliveryHistory::delivered(1);
            for letter in ["<", ">"] {
                way.step(
                    &Stage::Held {
                        why: letter.repeat(512),
                    },
                    1,
                );
            }
            Fate {
                seq,
                recipient: PeerId(recipient),
                to: format!("m{recipient}").into(),
                stage: Stage::Acked(None).into(),
                at_ms: 1,
                goes_on: false,
                way,
            }
        };
        let fates: Vec<_> = (1..=64).map(fate).collect();
        store.insert_fates(&fates, 1, 1).unwrap();
    }
    store.commit().unwrap();
    store.close().unwrap();
    let broker = Broker::start_in(dir, |_| ()).await;
    for (meant, expected) in [("", MESSAGES), ("&text=HI", MESSAGES), ("&text=ho", 0)] {
        let (mut found, mut before) = (0, String::new());
        loop {
            let path = format!("/v1/messages?limit=500{meant}{before}");
            let answer = over_unix(&broker, &get(&path, "")).await;
            assert!(answer.len() < 8 << 20, "{} bytes at once", answer.len());
            let body = answer.split_once("\r\n\r\n").unwrap().1;
            let page: Value = serde_json::from_str(body).unwrap();
            found += page["messages"].as_array().unwrap().len() as u64;
            match page["before"].as_u64() {
                Some(next) => before = format!("&before={next}"),
                None => break,
            }
        }
        assert_eq!(found, expected, "{meant}");
    }
}
