//! The engine without sockets.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::poll_immediate;
use peerbus_core::TokenHash;
use peerbus_core::broker::{BrokerConfig, ConnId};
use peerbus_wire::limits::FRAMES_UNANSWERED_MAX;
use peerbus_wire::{ClientFrame, Token};
use tokio::task::coop::unconstrained;
use tokio::time::timeout;

use super::*;
use crate::clock::Clock;
use crate::engine_input::{EngineSender, engine_channel};
use crate::options::Times;
use crate::places::StrangersPlace;
use crate::table::Outgoing;

struct Bench {
    _dir: tempfile::TempDir,
    db: std::path::PathBuf,
    full: Arc<AtomicBool>,
    shared: Arc<Shared>,
    engine: EngineSender,
    thread: std::thread::JoinHandle<Result<(), StoreError>>,
}

/// An engine that does not run yet.
fn engine() -> (tempfile::TempDir, Engine, EngineSender) {
    let dir = tempfile::tempdir().unwrap();
    let mut store = SqliteStore::open(&dir.path().join("bus.db")).unwrap();
    let token = TokenHash::of(&Token::parse("t").unwrap());
    let config = BrokerConfig::new(vec![token], store.audit_key().clone());
    let loaded = store.load().unwrap();
    let clock = Clock::new();
    let (engine, inputs) = engine_channel();
    let shared = Arc::new(Shared::new(engine.clone(), clock, Times::default(), 8));
    let broker = Broker::new(config, loaded, clock.now());
    (dir, Engine::new(broker, store, inputs, shared), engine)
}

fn bench() -> Bench {
    let (dir, mut run, engine) = engine();
    let (db, shared) = (dir.path().join("bus.db"), Arc::clone(&run.shared));
    let full = Arc::new(AtomicBool::new(false));
    // The disk can be made to fail.
    let fails = Arc::clone(&full);
    run.commit = Box::new(move |store| match fails.load(Ordering::SeqCst) {
        true => Err(StoreError("disk full".into())),
        false => Store::commit(store),
    });
    let thread = std::thread::spawn(move || run.run());
    Bench {
        _dir: dir,
        db,
        full,
        shared,
        engine,
        thread,
    }
}

async fn open(bench: &Bench, name: &str) -> (Arc<Link>, tokio::sync::mpsc::Receiver<Outgoing>) {
    let (link, queue) = bench.shared.table.open(0, StrangersPlace::default());
    bench
        .engine
        .send_now(Content::Input(BrokerInput::Opened(link.conn())))
        .unwrap();
    let register =
        format!(r#"{{"protocol_version":"v1","type":"register","token":"t","name":"{name}"}}"#);
    let frame = ClientFrame::parse(register.as_bytes());
    link.may_read().await;
    // An engine whose disk is full may have ended at the first of the two.
    if let Ok(room) = bench.engine.room(0).await {
        let input = BrokerInput::Frame(link.conn(), frame);
        let _gone = bench.engine.send(input, &link, room);
    }
    (link, queue)
}

#[tokio::test]
async fn a_failed_commit_ends_the_broker_and_lets_nothing_out() {
    let bench = bench();
    let (_alice, mut welcomed) = open(&bench, "alice").await;
    assert!(welcomed.recv().await.is_some(), "the disk is well");
    bench.full.store(true, Ordering::SeqCst);
    let (bob, mut unwelcomed) = open(&bench, "bob").await;
    assert!(
        unwelcomed.recv().await.is_none(),
        "told of what is not on disk"
    );
    assert_eq!(bob.closing().unwrap().reason, CloseReason::StorageFailed);
    assert!(welcomed.recv().await.is_none());
    let error = bench.thread.join().unwrap().unwrap_err();
    assert_eq!(error, StoreError("disk full".into()));
    assert_eq!(bench.shared.health.phase(), Phase::Failed);
    assert!(
        bench
            .engine
            .send_now(Content::Input(BrokerInput::Tick))
            .is_err()
    );

    let mut store = SqliteStore::open(&bench.db).unwrap();
    let names: Vec<_> = store
        .load()
        .unwrap()
        .peers
        .into_iter()
        .map(|p| p.name)
        .collect();
    assert_eq!(names, ["alice"], "only what was committed is there");
}

#[tokio::test]
async fn questions_whose_answers_are_not_written_stop_the_reader() {
    let bench = bench();
    let (alice, mut queue) = open(&bench, "alice").await;
    assert!(matches!(queue.recv().await, Some(Outgoing::Frame(_))));
    for _round in 0..2 {
        for _ in 0..FRAMES_UNANSWERED_MAX {
            alice.may_read().await;
        }
        let input = BrokerInput::Frame(alice.conn(), ClientFrame::Peers);
        let room = bench.engine.room(0).await.unwrap();
        bench.engine.send(input, &alice, room).unwrap();
        let (mut answers, mut done) = (0, 0);
        while done < FRAMES_UNANSWERED_MAX {
            let next = timeout(Duration::from_secs(30), queue.recv()).await;
            let outgoing = next.expect("no permit behind the answers").unwrap();
            answers += usize::from(outgoing.text().is_some());
            done += outgoing.done();
            assert!(answers > 0, "a permit would come before its answer");
        }
        assert_eq!((answers, done), (1, FRAMES_UNANSWERED_MAX));
        let mut more = std::pin::pin!(unconstrained(alice.may_read()));
        assert!(poll_immediate(&mut more).await.is_none(), "one too many");
        alice.read_more(done);
        more.await;
        alice.read_more(1);
    }
}

#[tokio::test]
async fn a_stop_commits_what_came_before_it() {
    let bench = bench();
    let (alice, mut queue) = open(&bench, "alice").await;
    let drain = Duration::from_secs(7);
    bench.engine.send_now(Content::Stop { drain }).unwrap();
    assert!(queue.recv().await.is_some(), "the registration is answered");
    assert!(queue.recv().await.is_none());
    let closing = alice.closing().unwrap();
    assert_eq!(
        (&closing.reason, closing.drain),
        (&CloseReason::GoingAway, drain)
    );
    bench.thread.join().unwrap().unwrap();
    let mut store = SqliteStore::open(&bench.db).unwrap();
    let peers = store.load().unwrap().peers;
    assert!(peers.len() == 1 && peers[0].online, "{peers:?}");
}

#[test]
fn answers_leave_before_those_of_all_who_ask_are_made() {
    const PEERS: u64 = 300;
    let (_dir, mut engine, inputs) = engine();
    let now = engine.shared.clock.now();
    for n in 0..PEERS {
        let register = format!(
            r#"{{"protocol_version":"v1","type":"register","token":"t","name":"p{n}","ext":1}}"#
        );
        let frame = ClientFrame::parse(register.as_bytes());
        engine.handle(now, BrokerInput::Opened(ConnId(n))).unwrap();
        engine
            .handle(now, BrokerInput::Frame(ConnId(n), frame))
            .unwrap();
    }
    for n in 0..PEERS {
        let asks = BrokerInput::Frame(ConnId(n), ClientFrame::Peers);
        inputs.send_now(Content::Input(asks)).unwrap();
    }
    let first = engine.inputs.take().unwrap();
    engine.batch(now, first).unwrap();
    let next = engine.inputs.take();
    assert!(next.is_some(), "all were answered, and none was told");
}
