//! Worlds of two and three domains: the real broker and real bridges, on streams that lose, double,
//! reorder, forget and come back empty; brokers and bridges die at any moment, and brokers are brought
//! back from backups. At the end everything is healed, and what was promised must have come true.

mod acts;
mod home;
mod joint;
mod net;
mod oracle;
mod owed;
mod peer;
mod plan;
mod requests;
mod stream;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use peerbus_core::broker;
use peerbus_peer::bridge;

use crate::failure::{Failure, Verdict, ensure};
use crate::rng::Rng;
use crate::run::asserted;
use plan::Plan;
use world::World;

/// Virtual time that a healed world has to come to rest.
const HEAL_MS: u64 = 300_000;

/// What is to be run.
#[derive(Debug, Clone, Copy, Default)]
pub struct DomainOptions {
    /// A rule of every bridge to break.
    pub mutation: Option<bridge::BridgeMutation>,
    /// A rule of every broker to break.
    pub broker_mutation: Option<broker::BrokerMutation>,
    /// Keep the trace's text.
    pub trace: bool,
}

/// What came of a run.
#[derive(Debug)]
pub struct DomainReport {
    /// The seed.
    pub seed: u64,
    /// The hash over everything that happened.
    pub hash: String,
    /// Events.
    pub steps: u64,
    /// What the world got to see, in words.
    pub seen: Vec<&'static str>,
    /// The first broken promise.
    pub failure: Option<Failure>,
    /// The trace, if it was kept.
    pub lines: String,
}

impl DomainReport {
    /// What to say of it.
    #[must_use]
    pub fn sentence(&self) -> String {
        let seed = self.seed;
        match &self.failure {
            None => format!("seed {seed}: all promises hold, trace {}", self.hash),
            Some(failure) => format!(
                "seed {seed}: {failure}\nreproduce with: cargo xtask sim --domains --seed {seed}"
            ),
        }
    }
}

/// Runs the world of `seed`.
#[must_use]
pub fn run_domains(seed: u64, options: DomainOptions) -> DomainReport {
    let mut rng = Rng::new(seed);
    let plan = Plan::draw(&mut rng);
    let mutations = (options.mutation, options.broker_mutation);
    let mut world = World::new(rng, plan, mutations, options.trace);
    let ran = catch_unwind(AssertUnwindSafe(|| world.run()));
    let failure = match ran {
        Ok(verdict) => verdict.err(),
        Err(panic) => Some(asserted(panic.as_ref())),
    };
    DomainReport {
        seed,
        hash: world.trace.hash(),
        steps: world.steps,
        seen: world.oracle.seen.iter().copied().collect(),
        failure,
        lines: world.trace.take_lines(),
    }
}

impl World {
    fn run(&mut self) -> Verdict {
        self.live(self.plan.busy_ms)?;
        self.heal();
        let deadline = self.now_ms + HEAL_MS;
        let mut calm = 0;
        while calm < 3 {
            self.live(self.now_ms + 1_000)?;
            let unfinished = self.unfinished();
            calm = if unfinished.is_none() { calm + 1 } else { 0 };
            let late = unfinished.filter(|_| self.now_ms >= deadline);
            if let Some(what) = late {
                return Err(self.failed(format!("healed for {} s, and {what}", HEAL_MS / 1_000)));
            }
        }
        ensure(!self.oracle.letters.is_empty(), "rest", || {
            "nobody wrote anything".into()
        })?;
        self.oracle.finish(&self.homes)?;
        self.oracle.requests_ended()
    }
}
