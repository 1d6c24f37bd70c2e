//! Worlds for the mailbox: one agent session, its client, its user, its adapter and its broker,
//! which are killed. The mailbox is real; whatever it talks to is a model that loses, drops, keeps,
//! denies and delays. At the end everything is healed, and what was promised must have come true.

mod agent;
mod bus;
mod client;
mod echo;
mod oracle;
mod paths;
mod plan;
mod world;

pub use echo::run_echo;

use std::panic::{AssertUnwindSafe, catch_unwind};

use peerbus_peer::mailbox::MailboxMutation;

use crate::failure::Failure;
use crate::rng::Rng;
use plan::Plan;
use world::World;

/// What is to be run.
#[derive(Debug, Clone, Copy, Default)]
pub struct MailboxOptions {
    /// A rule of the mailbox to break.
    pub mutation: Option<MailboxMutation>,
    /// No trouble from the beginning: one burst for an idle session.
    pub calm: bool,
    /// Keep the trace's text.
    pub trace: bool,
}

/// What came of a run.
#[derive(Debug)]
pub struct MailboxReport {
    /// The seed.
    pub seed: u64,
    /// The hash over everything that happened.
    pub hash: String,
    /// Inputs to mailboxes.
    pub steps: u64,
    /// Pushes after everything was healed.
    pub pushes: usize,
    /// There was no trouble.
    pub calm: bool,
    /// What happened to messages, in words: that one was held, released, an answer, and how each was
    /// acked.
    pub ends: Vec<String>,
    /// The first broken promise.
    pub failure: Option<Failure>,
    /// The trace, if it was kept.
    pub lines: String,
}

impl MailboxReport {
    /// What to say of the run.
    #[must_use]
    pub fn sentence(&self) -> String {
        let (seed, hash) = (self.seed, &self.hash);
        let calm = if self.calm { " --calm" } else { "" };
        match &self.failure {
            None => format!("seed {seed}: all promises hold, trace {hash}"),
            Some(failure) => format!(
                "seed {seed}: {failure}\nreproduce with: cargo xtask sim --mailbox{calm} --seed \
                 {seed}"
            ),
        }
    }
}

/// Runs the world of `seed`.
#[must_use]
pub fn run_mailbox(seed: u64, options: MailboxOptions) -> MailboxReport {
    let mut rng = Rng::new(seed);
    let plan = Plan::draw(&mut rng, options.calm);
    let mut world = World::new(rng, plan, options.mutation, options.trace);
    let ran = catch_unwind(AssertUnwindSafe(|| world.run()));
    let failure = match ran {
        Ok(verdict) => verdict.err(),
        Err(panic) => Some(crate::run::asserted(panic.as_ref())),
    };
    MailboxReport {
        seed,
        hash: world.trace.hash(),
        steps: world.steps,
        calm: options.calm,
        pushes: world.oracle.pushes_healed(),
        ends: world.oracle.take_ends(),
        failure,
        lines: world.trace.take_lines(),
    }
}
