//! The engine: one thread that owns the core and the only write connection.
//!
//! It takes what is queued, has the core handle it inside one transaction, commits as the core
//! needs it, and releases the outputs. Every message that arrives during a commit shares the next
//! one: group commit without a timer.

use std::sync::Arc;
use std::time::Duration;

use peerbus_core::Now;
use peerbus_core::broker::{
    ACK_COMMIT_MS, Broker, BrokerInput, BrokerOutput, BusEvent, CommitNeed,
};
use peerbus_core::store::{Store, StoreError};
use peerbus_os::disk::Space;
use peerbus_store::SqliteStore;
use peerbus_wire::CloseReason;

use crate::engine_input::{Content, EngineInput, EngineReceiver, Tell};
use crate::link::{Answer, Link};
use crate::log_limit::Kind;
use crate::shared::{Phase, Shared};
use crate::table::Sent;

/// Inputs that share a transaction at most.
const BATCH_INPUTS_MAX: u64 = 512;
/// Bytes of inputs after which a batch is complete.
const BATCH_BYTES_MAX: usize = 1_048_576;
/// Bytes of answers after which a batch is complete: they leave before more are made.
const BATCH_ANSWERS_MAX: usize = 4 * 1_048_576;
/// Under constant load the store is maintained after so many commits all the same.
const COMMITS_PER_MAINTENANCE: u32 = 16;

/// Time between two looks at the store's files while nobody commits.
const CHECK_MS: u64 = 500;
/// Bytes of inputs after which the room on the disk is looked at before its time.
const SPACE_BYTES: usize = 262_144;

/// Makes the open transaction durable.
type Commit = Box<dyn FnMut(&mut SqliteStore) -> Result<(), StoreError> + Send>;

pub(crate) struct Engine {
    broker: Broker,
    store: SqliteStore,
    commit: Commit,
    inputs: EngineReceiver,
    /// Time that a connection has to drain when it is closed.
    drain: Duration,
    shared: Arc<Shared>,
    /// Questions handled whose answers have not been released, by connection.
    asked: Vec<(Arc<Link>, usize)>,
    /// Answers for the operator, told once what they say is committed.
    answers: Vec<Tell>,
    begun: bool,
    /// When the oldest write that can wait was made.
    soon_since_ms: Option<u64>,
    commits: u32,
    untidy: bool,
    /// When the store's files are looked at next.
    check_ms: u64,
    /// When the room on the disk is looked at next, or after how many more bytes of inputs.
    space_ms: u64,
    space_bytes: usize,
}

impl Engine {
    pub(crate) fn new(
        broker: Broker,
        store: SqliteStore,
        inputs: EngineReceiver,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            broker,
            store,
            commit: Box::new(Store::commit),
            inputs,
            drain: shared.times.drain_max,
            shared,
            asked: Vec::new(),
            answers: Vec::new(),
            begun: false,
            soon_since_ms: None,
            commits: 0,
            untidy: true,
            check_ms: 0,
            space_ms: 0,
            space_bytes: SPACE_BYTES,
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
            self.store.rollback();
        }
        // From here on nobody can enter; then whoever is there is closed.
        drop(self.inputs);
        self.shared.table.close_all(&reason, self.drain);
        self.shared.events.close();
        self.shared.log.sum_up(u64::MAX);
        let closed = self.store.close();
        self.shared.health.idle();
        served.and(closed)
    }

    fn serve(&mut self) -> Result<(), StoreError> {
        loop {
            let input = self.next_input();
            let now = self.shared.clock.now();
            self.shared.health.busy(now.mono_ms);
            self.shared.log.sum_up(now.mono_ms);
            if input.is_some() || self.space_ms == 0 || self.broker.is_full() {
                self.look_for_room(now)?;
            }
            let stop = match input {
                Some(input) => self.batch(now, input)?,
                None => None,
            };
            if self
                .broker
                .poll_timeout()
                .is_some_and(|(due_ms, _)| due_ms <= now.mono_ms)
            {
                self.handle(now, BrokerInput::Tick)?;
            }
            if let Some(drain) = stop {
                self.drain = drain;
                self.shared.health.set_phase(Phase::Stopping);
                self.handle(now, BrokerInput::Shutdown)?;
            }
            self.release(now)?;
            self.settle(now, stop.is_some())?;
            if !self.begun {
                self.answers.drain(..).for_each(|tell| tell());
            }
            // Answers wait for nothing but a commit that is made at once.
            for (link, frames) in self.asked.drain(..) {
                self.shared.table.done(&link, frames);
            }
            let (peers, remembers) = (self.broker.registered(), self.broker.remembers());
            self.shared.health.set_peers(peers, remembers);
            if stop.is_some() {
                return Ok(());
            }
            self.housekeep(now)?;
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
        let sum = self.shared.log.due_ms();
        let due = tick.into_iter().chain(commit).chain(sum);
        let due_ms = due.fold(self.check_ms, u64::min);
        let wait = Duration::from_millis(due_ms.saturating_sub(now_ms));
        self.shared.health.idle();
        // Housekeeping fills the time, but not while a transaction is open.
        let idle = self.untidy && !self.begun;
        self.inputs.wait(if idle { Duration::ZERO } else { wait })
    }

    /// Tells the core how much room there is, when it is time to.
    fn look_for_room(&mut self, now: Now) -> Result<(), StoreError> {
        if now.mono_ms < self.space_ms && self.space_bytes > 0 {
            return Ok(());
        }
        (self.space_ms, self.space_bytes) = (now.mono_ms + CHECK_MS, SPACE_BYTES);
        let Some(Space { free, total }) = self.store.space() else {
            return Ok(());
        };
        self.handle(now, BrokerInput::Space { free, total })?;
        let full = self.broker.is_full();
        self.shared.set_full(full);
        self.store.tend_reserve(!full);
        Ok(())
    }

    /// Handles the input and those that wait behind it. Gives the time to drain when one of them
    /// says to stop.
    fn batch(&mut self, now: Now, first: EngineInput) -> Result<Option<Duration>, StoreError> {
        let (mut handled, mut bytes) = (0_u64, 0);
        let mut next = Some(first);
        let mut stop = None;
        let answers_max = self.broker.answered() + BATCH_ANSWERS_MAX;
        while let Some(taken) = next {
            handled += 1;
            bytes += taken.bytes();
            match taken.content {
                Content::Stop { drain } => {
                    stop = Some(drain);
                    break;
                }
                // A command asks for a commit at once, and its answer waits for it.
                Content::Request(request) => {
                    self.begin()?;
                    let tell = request(&mut self.broker, now, &mut self.store)?;
                    self.answers.push(tell);
                }
                Content::Input(input) => {
                    let answer = match &input {
                        BrokerInput::Frame(_, frame) => Some(Answer::to(frame)),
                        _ => None,
                    };
                    self.handle(now, input)?;
                    if let (Some(link), Some(answer)) = (taken.link, answer)
                        && link.handled(answer)
                    {
                        self.asked(link, answer.frames());
                    }
                }
            }
            let full = handled >= BATCH_INPUTS_MAX
                || bytes >= BATCH_BYTES_MAX
                || self.broker.answered() >= answers_max;
            next = if full { None } else { self.inputs.take() };
        }
        self.inputs.release(bytes);
        self.space_bytes = self.space_bytes.saturating_sub(bytes);
        self.shared.metrics.inputs.inc_by(handled);
        Ok(stop)
    }

    /// Remembers a frame that counts as so many, whose permits come back behind its answer.
    fn asked(&mut self, link: Arc<Link>, count: usize) {
        match self.asked.last_mut() {
            Some((last, frames)) if last.conn() == link.conn() => *frames += count,
            _ => self.asked.push((link, count)),
        }
    }

    fn handle(&mut self, now: Now, input: BrokerInput) -> Result<(), StoreError> {
        self.begin()?;
        self.broker.handle(now, input, &mut self.store)
    }

    fn begin(&mut self) -> Result<(), StoreError> {
        if !self.begun {
            self.store.begin()?;
            self.begun = true;
        }
        Ok(())
    }

    /// Lets out what need not wait for the commit.
    fn release(&mut self, now: Now) -> Result<(), StoreError> {
        if self.begun {
            self.broker.flush(now, &mut self.store)?;
        }
        while let Some(output) = self.broker.poll_output() {
            self.shared.dispatch(output, self.drain);
        }
        Ok(())
    }

    /// Commits if the core needs it now, or can wait no longer, or (`at_once`) nothing follows.
    fn settle(&mut self, now: Now, at_once: bool) -> Result<(), StoreError> {
        if !self.begun {
            return Ok(());
        }
        match self.broker.need() {
            CommitNeed::None => {
                // It only read.
                (self.commit)(&mut self.store)?;
                self.begun = false;
                self.soon_since_ms = None;
                return Ok(());
            }
            CommitNeed::Soon => {
                let since_ms = *self.soon_since_ms.get_or_insert(now.mono_ms);
                if now.mono_ms < since_ms + ACK_COMMIT_MS && !at_once {
                    return Ok(());
                }
            }
            CommitNeed::Now => {}
        }
        let timer = std::time::Instant::now();
        self.broker.seal(now, &mut self.store)?;
        (self.commit)(&mut self.store)?;
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
    fn housekeep(&mut self, now: Now) -> Result<(), StoreError> {
        if self.begun {
            return Ok(());
        }
        if now.mono_ms >= self.check_ms {
            self.check_ms = now.mono_ms + CHECK_MS;
            self.store.check()?;
        }
        if !self.untidy {
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
mod tests;

/// Longest reason of a peer that is logged, in characters.
const REASON_CHARS: usize = 200;

impl Shared {
    /// `drain`: the time that a connection has to drain when it is closed.
    pub(crate) fn dispatch(&self, output: BrokerOutput, drain: Duration) {
        match output {
            BrokerOutput::Send(conn, frame) => match self.table.send(conn, frame, drain) {
                Sent::Queued | Sent::Gone => {}
                Sent::Spared => {
                    self.metrics.spared.inc();
                }
                Sent::Overflow => {
                    self.metrics.overflows.inc();
                    if self.may_log(Kind::Overflow) {
                        tracing::warn!(conn = conn.0, "connection closed: it does not read");
                    }
                }
            },
            BrokerOutput::Ping(conn) => self.table.ping(conn),
            BrokerOutput::Close(conn, reason) => self.table.close(conn, reason, drain),
            BrokerOutput::Event(event) => {
                self.metrics.count(&event);
                let now_ms = || self.clock.now().wall_ms;
                if let (BusEvent::Registered { token, .. }, Some(invited)) = (&event, &self.invited)
                {
                    invited.registered(token, now_ms());
                }
                self.events.note(&event, now_ms);
                self.log_event(&event);
            }
        }
    }

    /// Whether another line of this kind may be logged.
    fn may_log(&self, kind: Kind) -> bool {
        let now_ms = self.clock.mono_ms();
        self.log.admit(kind, now_ms)
    }

    fn log_event(&self, event: &BusEvent) {
        let may = |kind| self.may_log(kind);
        match event {
            BusEvent::DiskFull { full: true, free } => {
                tracing::warn!(
                    free,
                    "the disk is nearly full: new mail is refused until there is room"
                );
            }
            BusEvent::DiskFull { full: false, free } => {
                tracing::info!(free, "the disk has room again: new mail is taken");
            }
            BusEvent::Registered { name, takeover, .. } if may(Kind::Registered) => {
                tracing::info!(peer = name, takeover, "peer registered");
            }
            BusEvent::Renamed { from, to } if may(Kind::Renamed) => {
                tracing::info!(from, to, "peer renamed");
            }
            BusEvent::Retired { name, successor } if may(Kind::Retired) => {
                tracing::info!(peer = name, successor, "name ended for good");
            }
            BusEvent::Left { name } if may(Kind::Left) => tracing::info!(peer = name, "peer left"),
            BusEvent::Forgotten { name, token } if may(Kind::Forgotten) => tracing::warn!(
                peer = name,
                %token,
                "name forgotten: it had no mail, and its token is at its limit of names"
            ),
            BusEvent::Denied { reason } if may(Kind::Denied) => {
                tracing::info!(reason = reason.text(), "peer denied");
            }
            // The sender speaks v1, which has no way to tell it.
            BusEvent::Refused {
                from,
                reason,
                told: false,
            } if may(Kind::Refused) => {
                tracing::warn!(from, reason, "message refused, its sender not told");
            }
            BusEvent::Held {
                from,
                to,
                id,
                reason,
            } if may(Kind::Held) => {
                // What a peer wrote: it must not pass for a line of ours.
                let reason = peerbus_wire::escape(reason, REASON_CHARS);
                tracing::warn!(from, to, %id, reason, "message held back");
            }
            _ => {}
        }
    }
}
