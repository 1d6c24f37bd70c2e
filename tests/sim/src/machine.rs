//! The broker's process: the core, its disk, and the engine's loop around them.

use std::collections::VecDeque;

use peerbus_core::Now;
use peerbus_core::broker::{
    ACK_COMMIT_MS, Broker, BrokerConfig, BrokerInput, BrokerMutation, BrokerOutput, CommitNeed,
};
use peerbus_core::grant::{Right, Rights};
use peerbus_core::store::{Store as _, StoreError, Txn as _};
use peerbus_wire::{BrokerFrame, DeliverFrame, Received};

use crate::disk::{Disk, OutsideMutation};
use crate::failure::{Failure, Verdict, ensure};
use crate::oracle::Oracle;
use crate::rng::Rng;

/// A moment in the world.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// Virtual time.
    pub(crate) now_ms: u64,
    /// The wall clock.
    pub(crate) wall_ms: u64,
}

impl Moment {
    /// The moment on clocks that began at `zero`.
    fn on(self, zero: u64, disk: &Disk) -> Now {
        Now {
            mono_ms: zero + self.now_ms,
            boot_ms: match disk.breaks(OutsideMutation::AgeByWall) {
                true => self.wall_ms,
                false => zero / 2 + self.now_ms,
            },
            wall_ms: self.wall_ms,
        }
    }
}

/// What a step of the engine led to.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// What leaves the broker, in order.
    pub(crate) outputs: Vec<BrokerOutput>,
    /// Storage failed: the process is gone.
    pub(crate) died: bool,
}

/// The machine that the broker runs on.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The disk.
    pub(crate) disk: Disk,
    config: BrokerConfig,
    mutation: Option<BrokerMutation>,
    process: Option<Process>,
    batch_max: usize,
}

#[derive(Debug)]
struct Process {
    broker: Broker,
    inbox: VecDeque<BrokerInput>,
    /// The monotonic clock's zero is anything.
    mono_zero: u64,
    open: bool,
    /// When a transaction of acks is committed.
    soon_ms: Option<u64>,
    /// Until when a commit is under way.
    committing: Option<u64>,
    stopping: bool,
}

impl Machine {
    /// A machine whose broker is not running.
    #[must_use]
    pub(crate) fn new(
        disk: Disk,
        config: BrokerConfig,
        mutation: Option<BrokerMutation>,
        batch_max: usize,
    ) -> Self {
        Self {
            disk,
            config,
            mutation,
            process: None,
            batch_max,
        }
    }

    /// Starts the broker on what the disk holds.
    ///
    /// # Errors
    ///
    /// When the disk does not hold what it should.
    pub(crate) fn start(&mut self, at: Moment, oracle: &mut Oracle, rng: &mut Rng) -> Verdict {
        let failed = |error: StoreError| Failure::new("store", error.to_string());
        let loaded = self.disk.load().map_err(failed)?;
        self.verify(oracle)?;
        oracle.started(at);
        let mono_zero = rng.range(0, 1 << 40);
        let now = at.on(mono_zero, &self.disk);
        let mut config = self.config.clone();
        if self.disk.breaks(OutsideMutation::IgnoreRights) {
            for grant in &mut config.grants {
                grant.rights = Rights::of(Right::ALL);
            }
        }
        let mut broker = Broker::new(config, loaded, now);
        if let Some(mutation) = self.mutation {
            broker.mutate(mutation);
        }
        self.process = Some(Process {
            broker,
            inbox: VecDeque::new(),
            mono_zero,
            open: false,
            soon_ms: None,
            committing: None,
            stopping: false,
        });
        Ok(())
    }

    /// Whether the process runs.
    #[must_use]
    pub(crate) fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// The process is told something; not before it has finished what it is doing.
    pub(crate) fn tell(&mut self, input: BrokerInput) {
        if let Some(process) = &mut self.process {
            process.stopping |= matches!(input, BrokerInput::Shutdown);
            process.inbox.push_back(input);
        }
    }

    /// The process dies.
    ///
    /// # Errors
    ///
    /// When the disk cannot be used any more.
    pub(crate) fn kill(&mut self, at: Moment, oracle: &mut Oracle) -> Verdict {
        self.process = None;
        oracle.crashed(at.now_ms);
        self.disk
            .crash()
            .map_err(|error| Failure::new("store", error.to_string()))
    }

    /// Compares what is on disk with the model. No transaction is open.
    ///
    /// # Errors
    ///
    /// When they differ.
    pub(crate) fn verify(&mut self, oracle: &Oracle) -> Verdict {
        let failed = |error: StoreError| Failure::new("store", error.to_string());
        let audit = self.disk.audit().map_err(failed)?;
        oracle.verify(audit)?;
        let loaded = self.disk.load().map_err(failed)?;
        self.disk.begin().map_err(failed)?;
        for row in &loaded.peers {
            let queue = self.disk.read_queue(row.id, usize::MAX, usize::MAX);
            let queue = queue.map_err(failed)?.into_iter();
            let mut queue: Vec<_> = queue.map(|queued| queued.head.seq).collect();
            queue.sort_unstable();
            oracle.holds(row, queue)?;
        }
        oracle.remembers(|seq| {
            let fates = self.disk.fates_of(&[seq], usize::MAX);
            Ok(fates.map_err(failed)?.remove(&seq).unwrap_or_default())
        })?;
        oracle.keeps(|seq| self.disk.message(seq).map_err(failed))?;
        self.disk.rollback();
        oracle.owes(loaded.owed)?;
        oracle.holds_peers(loaded.peers.len())
    }

    /// When the engine wants to run again, in virtual time.
    #[must_use]
    pub(crate) fn wake_ms(&self) -> Option<u64> {
        let process = self.process.as_ref()?;
        if let Some(until) = process.committing {
            return Some(until);
        }
        if !process.inbox.is_empty() {
            return Some(0);
        }
        let (due, _) = process.broker.poll_timeout()?;
        let due = due.saturating_sub(process.mono_zero);
        Some(process.soon_ms.map_or(due, |soon| soon.min(due)))
    }

    /// Runs the engine once: one batch, or the end of a commit.
    ///
    /// # Errors
    ///
    /// When a promise is broken.
    pub(crate) fn step(
        &mut self,
        at: Moment,
        oracle: &mut Oracle,
        rng: &mut Rng,
    ) -> Result<Step, Failure> {
        let mut step = Step::default();
        let Some(process) = &mut self.process else {
            return Ok(step);
        };
        if let Some(until) = process.committing {
            if at.now_ms < until {
                return Ok(step);
            }
            process.committing = None;
            process.broker.committed();
            process.drain(&self.disk, oracle, &mut step)?;
            oracle.released()?;
            process.broker.check();
            step.died = process.stopping && process.inbox.is_empty();
            return Ok(step);
        }
        match process.run(at, &mut self.disk, self.batch_max, oracle, rng, &mut step) {
            Ok(()) => Ok(step),
            Err(Trouble::Broken(failure)) => Err(failure),
            Err(Trouble::Storage) => {
                step.died = true;
                Ok(step)
            }
        }
    }
}

enum Trouble {
    Broken(Failure),
    Storage,
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Broken(failure)
    }
}

impl From<StoreError> for Trouble {
    fn from(_: StoreError) -> Self {
        Self::Storage
    }
}

impl Process {
    fn run(
        &mut self,
        at: Moment,
        disk: &mut Disk,
        batch_max: usize,
        oracle: &mut Oracle,
        rng: &mut Rng,
        step: &mut Step,
    ) -> Result<(), Trouble> {
        let now = at.on(self.mono_zero, disk);
        if self
            .broker
            .poll_timeout()
            .is_some_and(|(due, _)| due <= now.mono_ms)
        {
            self.inbox.push_front(BrokerInput::Tick);
        }
        if !self.open {
            disk.begin()?;
            self.open = true;
        }
        for _ in 0..batch_max {
            let Some(input) = self.inbox.pop_front() else {
                break;
            };
            oracle.input(at.now_ms, &input);
            let told = match input {
                BrokerInput::Space { total, .. } if disk.breaks(OutsideMutation::IgnoreSpace) => {
                    BrokerInput::Space { free: total, total }
                }
                _ => input.clone(),
            };
            let handled = self.broker.handle(now, told, disk);
            handled?;
            oracle.writes(at.now_ms, Some(&input), disk.take_writes())?;
        }
        let flushed = self.broker.flush(now, disk);
        flushed?;
        oracle.writes(at.now_ms, None, disk.take_writes())?;
        self.drain(disk, oracle, step)?;
        self.broker.check();
        let need = self.broker.need();
        if need == CommitNeed::None {
            ensure(oracle.open.is_empty(), "store", || {
                format!("nothing asks to commit {:?}", oracle.open)
            })?;
            disk.rollback();
            self.open = false;
            step.died = self.stopping && self.inbox.is_empty();
            return Ok(());
        }
        let soon = *self.soon_ms.get_or_insert(at.now_ms + ACK_COMMIT_MS);
        if need == CommitNeed::Now || at.now_ms >= soon {
            self.broker.seal(now, disk)?;
            oracle.writes(at.now_ms, None, disk.take_writes())?;
            let kept = disk.fault == Some(crate::disk::DiskFault::CommitKept);
            let committed = disk.commit();
            if committed.is_ok() || kept {
                oracle.committed()?;
            }
            committed?;
            self.open = false;
            self.soon_ms = None;
            self.committing = Some(at.now_ms + rng.range(0, 3));
        }
        Ok(())
    }

    fn drain(&mut self, disk: &Disk, oracle: &mut Oracle, step: &mut Step) -> Verdict {
        while let Some(mut output) = self.broker.poll_output() {
            if let BrokerOutput::Send(_, BrokerFrame::Deliver(frame)) = &mut output
                && disk.breaks(OutsideMutation::AlterEnvelope)
            {
                *frame = altered(frame);
            }
            oracle.output(&output)?;
            step.outputs.push(output);
        }
        Ok(())
    }
}

/// The same delivery with another text.
fn altered(frame: &DeliverFrame) -> DeliverFrame {
    let text = frame.text().replace(r#""body":"#, r#""body":  "#);
    let Received::Deliver(delivery) = Received::parse(text.as_bytes()) else {
        return frame.clone();
    };
    let at = text
        .find(r#""envelope":"#)
        .map_or(0, |at| at + r#""envelope":"#.len());
    let envelope = text.get(at..text.len() - 1).unwrap_or_default();
    match delivery.key.seq() {
        Some(seq) => DeliverFrame::for_one(seq, envelope, &delivery.remarks),
        None => DeliverFrame::keyed(&delivery.key, envelope),
    }
}
