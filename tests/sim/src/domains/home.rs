//! A domain's broker: the real core on a store in memory, which dies, and is brought back from backups.

use std::collections::VecDeque;

use peerbus_core::audit::AuditKey;
use peerbus_core::broker::{
    Broker, BrokerConfig, BrokerInput, BrokerMutation, BrokerOutput, CommitNeed,
};
use peerbus_core::grant::{Right, Rights};
use peerbus_core::store::Store as _;
use peerbus_core::testing::{MemoryStore, Tables};
use peerbus_core::{Now, TokenHash};
use peerbus_wire::{Domain, Mark, Seq, Token};

use crate::failure::{Failure, Verdict};

/// The tokens of peers and of bridges.
pub(super) const TOKENS: [&str; 2] = ["a-token-for-the-peers", "a-token-for-the-bridges"];

/// The names of the domains.
pub(super) const NAMES: [&str; 3] = ["alpha", "beta", "gamma"];

/// Wall clock at the beginning of a world.
pub(super) const WALL_ZERO: u64 = 1_779_105_600_000;

/// Inputs of one commit.
const BATCH: usize = 6;

/// How a step of the broker ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Lives,
    /// It dies before the commit.
    Lost,
    /// It dies right after it.
    Kept,
}

/// A broker and its disk.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) domain: Domain,
    pub(super) store: MemoryStore,
    config: BrokerConfig,
    mutation: Option<BrokerMutation>,
    broker: Option<Broker>,
    inbox: VecDeque<BrokerInput>,
    mono_zero: u64,
    /// Restores so far.
    life: u32,
    /// The last backup, and when it was made.
    pub(super) backup: Option<(u64, Tables)>,
    /// The last message on disk that was looked at.
    pub(super) looked: Seq,
}

impl Home {
    pub(super) fn new(
        at: usize,
        expiry_ms: Option<u64>,
        mutation: Option<BrokerMutation>,
    ) -> Option<Self> {
        let domain = Domain::parse(NAMES[at])?;
        let hash = |text: &str| Some(TokenHash::of(&Token::parse(text)?));
        let tokens = TOKENS
            .iter()
            .map(|text| hash(text))
            .collect::<Option<_>>()?;
        let mut config = BrokerConfig::new(tokens, AuditKey([7; 32]));
        if let Some(bridges) = config.grants.last_mut() {
            bridges.rights = Rights::of([Right::Bridge]);
        }
        config.domain = Some(domain.clone());
        config.sweep_ms = 5_000;
        if let Some(expiry_ms) = expiry_ms {
            config.expiry_ms = expiry_ms;
        }
        Some(Self {
            domain,
            store: MemoryStore::default(),
            config,
            mutation,
            broker: None,
            inbox: VecDeque::new(),
            mono_zero: 0,
            life: 0,
            backup: None,
            looked: Seq(0),
        })
    }

    pub(super) fn is_up(&self) -> bool {
        self.broker.is_some()
    }

    pub(super) fn epoch(&self) -> String {
        format!("{}-{}", self.domain, self.life)
    }

    fn now(&self, now_ms: u64) -> Now {
        Now {
            mono_ms: self.mono_zero + now_ms,
            boot_ms: self.mono_zero / 2 + now_ms,
            wall_ms: WALL_ZERO + now_ms,
        }
    }

    pub(super) fn boot(&mut self, now_ms: u64, mono_zero: u64) -> Verdict {
        self.mono_zero = mono_zero;
        self.config.epoch = Mark::parse(&self.epoch());
        let loaded = self.store.load().map_err(storage)?;
        let mut broker = Broker::new(self.config.clone(), loaded, self.now(now_ms));
        if let Some(mutation) = self.mutation {
            broker.mutate(mutation);
        }
        self.broker = Some(broker);
        Ok(())
    }

    /// The process dies.
    pub(super) fn die(&mut self) {
        self.broker = None;
        self.inbox.clear();
        self.store.rollback();
    }

    /// The database is what it was when it was backed up, in a new epoch: when that was.
    pub(super) fn restore(&mut self) -> Option<u64> {
        let (at_ms, tables) = self.backup.clone()?;
        self.die();
        let last = tables.messages.keys().next_back().copied();
        self.looked = last.unwrap_or_default();
        self.store = MemoryStore::of(tables);
        self.life += 1;
        Some(at_ms)
    }

    pub(super) fn tell(&mut self, input: BrokerInput) {
        if self.is_up() {
            self.inbox.push_back(input);
        }
    }

    /// When the broker wants to run, in virtual time.
    pub(super) fn wake_ms(&self) -> Option<u64> {
        let broker = self.broker.as_ref()?;
        if !self.inbox.is_empty() {
            return Some(0);
        }
        let (due, _) = broker.poll_timeout()?;
        Some(due.saturating_sub(self.mono_zero))
    }

    /// One batch and its commit. What leaves the broker, in order.
    pub(super) fn step(&mut self, now_ms: u64, fate: Fate) -> Result<Vec<BrokerOutput>, Failure> {
        let now = self.now(now_ms);
        let Some(broker) = &mut self.broker else {
            return Ok(Vec::new());
        };
        let store = &mut self.store;
        store.begin().map_err(storage)?;
        let due = broker
            .poll_timeout()
            .is_some_and(|(at, _)| at <= now.mono_ms);
        let tick = due.then_some(BrokerInput::Tick);
        let inputs = self.inbox.len().min(BATCH);
        for input in tick.into_iter().chain(self.inbox.drain(..inputs)) {
            broker.handle(now, input, store).map_err(storage)?;
        }
        broker.flush(now, store).map_err(storage)?;
        let mut outputs: Vec<_> = std::iter::from_fn(|| broker.poll_output()).collect();
        if broker.need() == CommitNeed::None {
            store.rollback();
            broker.check();
            return Ok(outputs);
        }
        broker.seal(now, store).map_err(storage)?;
        if fate == Fate::Lost {
            self.die();
            return Ok(outputs);
        }
        store.commit().map_err(storage)?;
        if fate == Fate::Kept {
            self.die();
            return Ok(outputs);
        }
        broker.committed();
        outputs.extend(std::iter::from_fn(|| broker.poll_output()));
        broker.check();
        Ok(outputs)
    }
}

fn storage(error: peerbus_core::store::StoreError) -> Failure {
    Failure::new("store", error.to_string())
}
