//! What the parts of a running broker share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Semaphore;

use crate::clock::Clock;
use crate::engine_input::EngineSender;
use crate::metrics::Metrics;
use crate::options::Times;
use crate::table::Table;

/// Connections with a wrong token that are held back at once; more are closed without delay.
const AUTH_DELAYS_MAX: usize = 64;

/// Shared by the engine's thread, the listeners and every connection.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) table: Table,
    pub(crate) engine: EngineSender,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Clock,
    pub(crate) times: Times,
    /// Places for connections.
    pub(crate) places: Arc<Semaphore>,
    pub(crate) connections_max: usize,
    /// Places for connections whose refusal is delayed.
    pub(crate) auth_delays: Semaphore,
    pub(crate) health: Health,
    cut: AtomicUsize,
}

impl Shared {
    pub(crate) fn new(
        engine: EngineSender,
        clock: Clock,
        times: Times,
        connections_max: usize,
    ) -> Self {
        Self {
            table: Table::default(),
            engine,
            metrics: Metrics::new(),
            clock,
            times,
            places: Arc::new(Semaphore::new(connections_max)),
            connections_max,
            auth_delays: Semaphore::new(AUTH_DELAYS_MAX),
            health: Health::default(),
            cut: AtomicUsize::new(0),
        }
    }

    /// Counts a connection that could not take what was queued for it.
    pub(crate) fn count_cut(&self) {
        self.cut.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn cut(&self) -> usize {
        self.cut.load(Ordering::Relaxed)
    }

    /// Connections whose sockets are open.
    pub(crate) fn connections(&self) -> usize {
        self.connections_max - self.places.available_permits()
    }
}

/// How the engine is.
#[derive(Debug, Default)]
pub(crate) struct Health {
    phase: AtomicU8,
    /// When the engine began what it is doing; 0 while it waits for input.
    busy_since_ms: AtomicU64,
    /// Connected peers.
    peers: AtomicUsize,
}

/// The phase of a broker's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Running = 0,
    Stopping = 1,
    Failed = 2,
}

impl Health {
    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Running,
            1 => Phase::Stopping,
            _ => Phase::Failed,
        }
    }

    /// The engine begins to work.
    pub(crate) fn busy(&self, now_ms: u64) {
        self.busy_since_ms.store(now_ms.max(1), Ordering::Relaxed);
    }

    /// The engine waits.
    pub(crate) fn idle(&self) {
        self.busy_since_ms.store(0, Ordering::Relaxed);
    }

    /// For how long the engine has not looked up from its work.
    pub(crate) fn busy_ms(&self, now_ms: u64) -> u64 {
        match self.busy_since_ms.load(Ordering::Relaxed) {
            0 => 0,
            since => now_ms.saturating_sub(since),
        }
    }

    pub(crate) fn set_peers(&self, peers: usize) {
        self.peers.store(peers, Ordering::Relaxed);
    }

    pub(crate) fn peers(&self) -> usize {
        self.peers.load(Ordering::Relaxed)
    }
}
