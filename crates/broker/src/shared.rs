//! What the parts of a running broker share.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use peerbus_store::WitnessFile;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::engine_input::EngineSender;
use crate::events::Events;
use crate::invitations::{Invited, Reached};
use crate::life::Life;
use crate::log_limit::LogLimit;
use crate::metrics::Metrics;
use crate::options::Times;
use crate::places::Places;
use crate::table::Table;
use crate::tokens::TokensWatch;

/// Shared by the engine's thread, the listeners and every connection.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) table: Table,
    pub(crate) engine: EngineSender,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Clock,
    pub(crate) times: Times,
    pub(crate) places: Places,
    pub(crate) health: Health,
    pub(crate) log: LogLimit,
    pub(crate) events: Events,
    /// The file that may change what tokens admit.
    pub(crate) tokens: Option<TokensWatch>,
    /// Lets machines in that were invited.
    pub(crate) invited: Option<Arc<Invited>>,
    /// Where such machines connect, or why they cannot; not set: nowhere.
    pub(crate) reached: OnceLock<Result<Reached, String>>,
    /// Tells what the database has lost.
    pub(crate) witness: Option<WitnessFile>,
    /// Tells how many log lines were lost.
    pub(crate) log_lost: Option<fn() -> u64>,
    pub(crate) life: Life,
    /// Other domains can be joined.
    pub(crate) has_domain: bool,
    /// The disk is nearly full: who speaks v1 is not read from.
    full: watch::Sender<bool>,
    /// Connections that could not take what was queued for them.
    pub(crate) cut: AtomicUsize,
}

impl Shared {
    /// Writes into the database's lock file where the Unix socket is.
    pub(crate) fn name_socket(&self, path: &Path) {
        let Some(witness) = &self.witness else {
            return;
        };
        // Clients that have the broker's environment find it all the same.
        if let Err(error) = peerbus_store::name_socket(witness.database(), path) {
            tracing::warn!(%error, "the socket's path is not in the lock file");
        }
    }

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
            places: Places::new(connections_max),
            health: Health::default(),
            log: LogLimit::default(),
            events: Events::new(clock.now().wall_ms),
            tokens: None,
            invited: None,
            reached: OnceLock::new(),
            witness: None,
            log_lost: None,
            life: Life::default(),
            has_domain: false,
            full: watch::Sender::new(false),
            cut: AtomicUsize::new(0),
        }
    }

    pub(crate) fn set_full(&self, full: bool) {
        self.full
            .send_if_modified(|known| std::mem::replace(known, full) != full);
    }

    pub(crate) async fn room(&self) {
        if *self.full.borrow() {
            let mut full = self.full.subscribe();
            // The sender lives as long as this does.
            let _ended = full.wait_for(|full| !full).await;
        }
    }

    /// Connections whose sockets are open.
    pub(crate) fn connections(&self) -> usize {
        self.places.max - self.places.all.available_permits()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Health {
    phase: AtomicU8,
    /// When the engine began what it is doing; 0 while it waits for input.
    busy_since_ms: AtomicU64,
    peers: AtomicUsize,
    /// Something is known that is not on the disk.
    remembers: AtomicBool,
}

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

    pub(crate) fn busy(&self, now_ms: u64) {
        self.busy_since_ms.store(now_ms.max(1), Ordering::Relaxed);
    }

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

    pub(crate) fn set_peers(&self, peers: usize, remembers: bool) {
        self.peers.store(peers, Ordering::Relaxed);
        self.remembers.store(remembers, Ordering::Relaxed);
    }

    /// Whether the process' end would take something away that is known.
    pub(crate) fn remembers(&self) -> bool {
        self.remembers.load(Ordering::Relaxed)
    }

    pub(crate) fn peers(&self) -> usize {
        self.peers.load(Ordering::Relaxed)
    }
}
