//! The engine: one thread that owns the core and the only write connection.
//!
//! It takes what is queued, has the core handle it inside one transaction, commits as the core
//! needs it, and releases the outputs. Every message that arrives during a commit shares the next
//! one: group commit without a timer.

use std::sync::Arc;
use std::time::Duration;

use peerbus_core::Now;
use peerbus_core::broker::{ACK_COMMIT_MS, Broker, Input, Need};
use peerbus_core::store::{Store, StoreError};
use peerbus_store::SqliteStore;
use peerbus_wire::CloseReason;
use tokio::sync::oneshot;

use crate::dispatch::Dispatch;
use crate::engine_input::{self as input, Content, EngineInput, EngineReceiver, Request};
use crate::link::{Answer, Link};
use crate::shared::{Phase, Shared};

/// Inputs that share a transaction at most.
const BATCH_INPUTS_MAX: u64 = 512;
/// Bytes of inputs after which a batch is complete.
const BATCH_BYTES_MAX: usize = 1_048_576;
/// Under constant load the store is maintained after so many commits all the same.
const COMMITS_PER_MAINTENANCE: u32 = 16;

/// A store that the engine looks after.
pub(crate) trait Durable {
    /// What reads and writes inside a transaction.
    type Txn: Store;

    /// The store itself.
    fn txn(&mut self) -> &mut Self::Txn;

    /// Makes the open transaction durable.
    fn commit(&mut self) -> Result<(), StoreError> {
        self.txn().commit()
    }

    /// Does a few milliseconds of housekeeping; `true` when there is more to do.
    fn maintain(&mut self) -> Result<bool, StoreError>;

    /// Lets go of the database.
    fn close(self) -> Result<(), StoreError>;
}

impl Durable for SqliteStore {
    type Txn = Self;

    fn txn(&mut self) -> &mut Self {
        self
    }

    fn maintain(&mut self) -> Result<bool, StoreError> {
        Self::maintain(self)
    }

    fn close(self) -> Result<(), StoreError> {
        Self::close(self)
    }
}

/// The engine's state.
pub(crate) struct Engine<S> {
    broker: Broker,
    store: S,
    inputs: EngineReceiver,
    dispatch: Dispatch,
    shared: Arc<Shared>,
    /// Questions handled whose answers have not been released, by connection.
    asked: Vec<(Arc<Link>, usize)>,
    /// Answers for the operator, told once what they say is committed.
    answers: Vec<(oneshot::Sender<input::Answer>, input::Answer)>,
    /// A transaction is open.
    begun: bool,
    /// When the oldest write that can wait was made.
    soon_since_ms: Option<u64>,
    commits: u32,
    /// The store has housekeeping left.
    untidy: bool,
}

impl<S: Durable> Engine<S> {
    pub(crate) fn new(
        broker: Broker,
        store: S,
        inputs: EngineReceiver,
        shared: Arc<Shared>,
    ) -> Self {
        let dispatch = Dispatch::new(Arc::clone(&shared));
        Self {
            broker,
            store,
            inputs,
            dispatch,
            shared,
            asked: Vec::new(),
            answers: Vec::new(),
            begun: false,
            soon_since_ms: None,
            commits: 0,
            untidy: true,
        }
    }

    /// Runs until it is told to stop or storage fails. In the end every connection is being
    /// closed and the database is closed.
    pub(crate) fn run(mut self) -> Result<(), StoreError> {
        let served = self.serve();
        let (phase, reason) = match &served {
            Ok(()) => (Phase::Stopping, CloseReason::GoingAway),
            Err(_) => (Phase::Failed, CloseReason::StorageFailed),
        };
        self.shared.health.set_phase(phase);
        if served.is_err() {
            self.store.txn().rollback();
        }
        // From here on nobody can enter; then whoever is there is closed.
        drop(self.inputs);
        self.shared.table.close_all(&reason, self.dispatch.drain);
        let closed = self.store.close();
        self.shared.health.idle();
        served.and(closed)
    }

    fn serve(&mut self) -> Result<(), StoreError> {
        loop {
            let input = self.next_input();
            let now = self.shared.clock.now();
            self.shared.health.busy(now.mono_ms);
            let stop = match input {
                Some(input) => self.batch(now, input)?,
                None => None,
            };
            if self
                .broker
                .poll_timeout()
                .is_some_and(|(due_ms, _)| due_ms <= now.mono_ms)
            {
                self.handle(now, Input::Tick)?;
            }
            if let Some(drain) = stop {
                self.dispatch.drain = drain;
                self.shared.health.set_phase(Phase::Stopping);
                self.handle(now, Input::Shutdown)?;
            }
            self.release(now)?;
            self.settle(now, stop.is_some())?;
            if !self.begun {
                for (asker, answer) in self.answers.drain(..) {
                    // Whoever asked may have gone.
                    let _unheard = asker.send(answer);
                }
            }
            // Answers wait for nothing but a commit that is made at once.
            for (link, frames) in self.asked.drain(..) {
                self.shared.table.done(&link, frames);
            }
            self.shared.health.set_peers(self.broker.registered());
            if stop.is_some() {
                return Ok(());
            }
            self.housekeep()?;
        }
    }

    /// Waits for an input until the core or a postponed commit is due.
    fn next_input(&self) -> Option<EngineInput> {
        if let Some(input) = self.inputs.take() {
            return Some(input);
        }
        let now_ms = self.shared.clock.mono_ms();
        let tick = self.broker.poll_timeout().map(|(due_ms, _)| due_ms);
        let commit = self.soon_since_ms.map(|since_ms| since_ms + ACK_COMMIT_MS);
        let due = tick.into_iter().chain(commit).min();
        let wait = due.map(|due_ms| Duration::from_millis(due_ms.saturating_sub(now_ms)));
        self.shared.health.idle();
        // Housekeeping fills the time, but not while a transaction is open.
        let idle = self.untidy && !self.begun;
        self.inputs
            .wait(if idle { Some(Duration::ZERO) } else { wait })
    }

    /// Handles the input and those that wait behind it. Gives the time to drain when one of them
    /// says to stop.
    fn batch(&mut self, now: Now, first: EngineInput) -> Result<Option<Duration>, StoreError> {
        let (mut handled, mut bytes) = (0_u64, 0);
        let mut next = Some(first);
        let mut stop = None;
        while let Some(taken) = next {
            handled += 1;
            bytes += taken.bytes();
            match taken.content {
                Content::Stop { drain } => {
                    stop = Some(drain);
                    break;
                }
                Content::Request(request, asker) => {
                    let answer = self.operate(now, request)?;
                    self.answers.push((asker, answer));
                }
                Content::Input(input) => {
                    let answer = match &input {
                        Input::Frame(_, frame) => Some(Answer::to(frame)),
                        _ => None,
                    };
                    self.handle(now, input)?;
                    if let (Some(link), Some(answer)) = (taken.link, answer)
                        && link.handled(answer)
                    {
                        self.asked(link);
                    }
                }
            }
            let full = handled >= BATCH_INPUTS_MAX || bytes >= BATCH_BYTES_MAX;
            next = if full { None } else { self.inputs.take() };
        }
        self.inputs.release(bytes);
        self.shared.metrics.inputs.inc_by(handled);
        Ok(stop)
    }

    /// Does what the operator wants. A command asks for a commit at once, and its answer waits for it.
    fn operate(&mut self, now: Now, request: Request) -> Result<input::Answer, StoreError> {
        self.begin()?;
        let txn = self.store.txn();
        Ok(match request {
            Request::Status(id) => input::Answer::Status(self.broker.histories_of(&id, txn)?),
            Request::Do(command) => input::Answer::Done(self.broker.operate(now, &command, txn)?),
        })
    }

    /// Remembers a frame whose permit comes back behind its answer.
    fn asked(&mut self, link: Arc<Link>) {
        match self.asked.last_mut() {
            Some((last, frames)) if last.conn() == link.conn() => *frames += 1,
            _ => self.asked.push((link, 1)),
        }
    }

    fn handle(&mut self, now: Now, input: Input) -> Result<(), StoreError> {
        self.begin()?;
        self.broker.handle(now, input, self.store.txn())
    }

    fn begin(&mut self) -> Result<(), StoreError> {
        if !self.begun {
            self.store.txn().begin()?;
            self.begun = true;
        }
        Ok(())
    }

    /// Lets out what need not wait for the commit.
    fn release(&mut self, now: Now) -> Result<(), StoreError> {
        if self.begun {
            self.broker.flush(now, self.store.txn())?;
        }
        while let Some(output) = self.broker.poll_output() {
            self.dispatch.output(output);
        }
        Ok(())
    }

    /// Commits if the core needs it now, or can wait no longer, or (`at_once`) nothing follows.
    fn settle(&mut self, now: Now, at_once: bool) -> Result<(), StoreError> {
        if !self.begun {
            return Ok(());
        }
        match self.broker.need() {
            Need::None => {
                // It only read.
                self.store.commit()?;
                self.begun = false;
                self.soon_since_ms = None;
                return Ok(());
            }
            Need::Soon => {
                let since_ms = *self.soon_since_ms.get_or_insert(now.mono_ms);
                if now.mono_ms < since_ms + ACK_COMMIT_MS && !at_once {
                    return Ok(());
                }
            }
            Need::Now => {}
        }
        let timer = std::time::Instant::now();
        self.broker.seal(now, self.store.txn())?;
        self.store.commit()?;
        self.shared
            .metrics
            .commits
            .observe(timer.elapsed().as_secs_f64());
        self.begun = false;
        self.soon_since_ms = None;
        self.commits = self.commits.wrapping_add(1);
        self.untidy = true;
        self.broker.committed();
        self.release(now)
    }

    /// Gives the store a slice of time when nobody waits, or when nobody has not waited for long.
    fn housekeep(&mut self) -> Result<(), StoreError> {
        if self.begun || !self.untidy {
            return Ok(());
        }
        if self.inputs.is_empty() || self.commits >= COMMITS_PER_MAINTENANCE {
            self.commits = 0;
            self.untidy = self.store.maintain()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::future::poll_immediate;
    use peerbus_core::TokenHash;
    use peerbus_core::broker::Config;
    use peerbus_wire::limits::FRAMES_UNANSWERED_MAX;
    use peerbus_wire::{ClientFrame, Token};
    use tokio::task::coop::unconstrained;
    use tokio::time::timeout;

    use super::*;
    use crate::clock::Clock;
    use crate::engine_input::{EngineSender, engine_channel};
    use crate::options::Times;
    use crate::table::Outgoing;

    /// A real database whose disk can be made to fail.
    struct Failing {
        store: SqliteStore,
        full: Arc<AtomicBool>,
    }

    impl Durable for Failing {
        type Txn = SqliteStore;

        fn txn(&mut self) -> &mut SqliteStore {
            &mut self.store
        }

        fn commit(&mut self) -> Result<(), StoreError> {
            if self.full.load(Ordering::SeqCst) {
                return Err(StoreError("disk full".into()));
            }
            Store::commit(&mut self.store)
        }

        fn maintain(&mut self) -> Result<bool, StoreError> {
            self.store.maintain()
        }

        fn close(self) -> Result<(), StoreError> {
            self.store.close()
        }
    }

    struct Bench {
        _dir: tempfile::TempDir,
        db: std::path::PathBuf,
        full: Arc<AtomicBool>,
        shared: Arc<Shared>,
        engine: EngineSender,
        thread: std::thread::JoinHandle<Result<(), StoreError>>,
    }

    fn bench() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("bus.db");
        let mut store = SqliteStore::open(&db).unwrap();
        let token = TokenHash::of(&Token::parse("t").unwrap());
        let config = Config::new(vec![token], store.audit_key().clone());
        let loaded = store.load().unwrap();
        let clock = Clock::new();
        let (engine, inputs) = engine_channel();
        let shared = Arc::new(Shared::new(engine.clone(), clock, Times::default(), 8));
        let broker = Broker::new(config, loaded, clock.now());
        let full = Arc::new(AtomicBool::new(false));
        let store = Failing {
            store,
            full: Arc::clone(&full),
        };
        let run = Engine::new(broker, store, inputs, Arc::clone(&shared));
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
        let (link, queue) = bench.shared.table.open(0);
        bench
            .engine
            .send_now(Content::Input(Input::Opened(link.conn())))
            .unwrap();
        let register =
            format!(r#"{{"protocol_version":"v1","type":"register","token":"t","name":"{name}"}}"#);
        let frame = ClientFrame::parse(register.as_bytes());
        link.may_read().await;
        // An engine whose disk is full may have ended at the first of the two.
        let _gone = bench
            .engine
            .send(Input::Frame(link.conn(), frame), &link, 0)
            .await;
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
        assert!(bench.engine.send_now(Content::Input(Input::Tick)).is_err());

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
                let input = Input::Frame(alice.conn(), ClientFrame::Peers);
                bench.engine.send(input, &alice, 0).await.unwrap();
            }
            let (mut answers, mut done) = (0, 0);
            while done < FRAMES_UNANSWERED_MAX {
                let next = timeout(Duration::from_secs(30), queue.recv()).await;
                let outgoing = next.expect("no permit behind the answers").unwrap();
                answers += usize::from(outgoing.text().is_some());
                done += outgoing.done();
                assert!(answers >= done, "a permit would come before its answer");
            }
            assert_eq!((answers, done), (FRAMES_UNANSWERED_MAX, answers));
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
}
