//! What happened to a delivery before it ended.

use std::num::NonZeroU64;

use peerbus_wire::Stage;

/// Steps of one delivery that are remembered, and bytes of the words in them; the newest.
const STEPS_MAX: usize = 16;
const WORDS_MAX: usize = 1_024;

/// What each step takes of the disk besides the words in it, in bytes, about.
pub const STEP_BYTES: u64 = 96;

/// What happened to one message on its way to one recipient, besides what is on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliveryHistory {
    /// When it was first delivered, wall clock.
    delivered_ms: Option<NonZeroU64>,
    /// What its holder said of it.
    steps: Vec<(Stage, u64)>,
}

impl DeliveryHistory {
    /// That of a delivery that was first made at this time.
    #[must_use]
    pub fn delivered(at_ms: u64) -> Self {
        Self {
            delivered_ms: NonZeroU64::new(at_ms),
            steps: Vec::new(),
        }
    }

    /// When it was first made, wall clock, if that is known.
    #[must_use]
    pub fn delivered_ms(&self) -> Option<u64> {
        self.delivered_ms.map(NonZeroU64::get)
    }

    /// What was said of it, and when.
    #[must_use]
    pub fn steps(&self) -> &[(Stage, u64)] {
        &self.steps
    }

    /// Adds a step; `false` when it was the last one already.
    pub fn step(&mut self, step: &Stage, at_ms: u64) -> bool {
        if self.ends_with(step) {
            return false;
        }
        self.precede(at_ms);
        self.steps.push((step.clone(), at_ms));
        while self.steps.len() > STEPS_MAX || self.words() > WORDS_MAX {
            self.steps.remove(0);
        }
        true
    }

    /// Everything until now was at this moment at the latest: a redelivery came after what its
    /// recipient says of the delivery before.
    pub(crate) fn precede(&mut self, at_ms: u64) {
        self.delivered_ms = self
            .delivered_ms
            .map(|it| it.min(NonZeroU64::new(at_ms).unwrap_or(it)));
        for (_, step_ms) in &mut self.steps {
            *step_ms = (*step_ms).min(at_ms);
        }
    }

    /// Whether this was the last step.
    #[must_use]
    pub fn ends_with(&self, step: &Stage) -> bool {
        self.steps.last().is_some_and(|(last, _)| last == step)
    }

    fn words(&self) -> usize {
        self.steps.iter().map(|(step, _)| step.bytes()).sum()
    }

    /// What its steps take, on disk or in an answer, about.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.steps.len() as u64 * STEP_BYTES + self.words() as u64
    }

    /// Adds what came later.
    pub fn follow(&mut self, later: &Self) {
        self.delivered_ms = self.delivered_ms.or(later.delivered_ms);
        for (step, at_ms) in later.steps() {
            self.step(step, *at_ms);
        }
    }

    /// How much memory it takes, in steps.
    pub(crate) fn weight(&self) -> usize {
        1 + self.steps().len()
    }

    /// What happened, and when.
    pub fn stages(&self) -> impl Iterator<Item = (Stage, u64)> {
        let delivered = self
            .delivered_ms
            .map(|at_ms| (Stage::Delivered, at_ms.get()));
        delivered.into_iter().chain(self.steps().iter().cloned())
    }
}
