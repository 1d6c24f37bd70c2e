//! What is remembered of deliveries besides their rows and their ends: in memory, bounded, and lost
//! with the process.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::num::NonZeroU64;

use peerbus_wire::{Seq, Stage};

use crate::store::PeerId;

/// Deliveries and steps that are remembered, of however many messages.
const RECENT_MAX: usize = 32_768;

/// Recipients of one message whose deliveries are remembered, or that are named in an answer.
pub(super) const RECIPIENTS_MAX: usize = 64;

/// Steps of one delivery that are remembered; the newest.
const STEPS_MAX: usize = 16;

/// What happened to one message on its way to one recipient, besides what is on disk. Small, because
/// every delivery in flight has one.
#[derive(Debug, Clone, Default)]
pub(super) struct DeliveryHistory {
    /// When it was first delivered, wall clock.
    delivered_ms: Option<NonZeroU64>,
    /// What its holder said of it, if it did.
    steps: Option<Box<Steps>>,
}

#[derive(Debug, Clone, Default)]
struct Steps(Vec<(Stage, u64)>);

impl DeliveryHistory {
    pub(super) fn delivered(at_ms: u64) -> Self {
        Self {
            delivered_ms: NonZeroU64::new(at_ms),
            steps: None,
        }
    }

    fn steps(&self) -> &[(Stage, u64)] {
        self.steps.as_ref().map_or(&[], |steps| &steps.0)
    }

    /// Adds a step; `false` when it was the last one already.
    pub(super) fn step(&mut self, step: &Stage, at_ms: u64) -> bool {
        let Steps(steps) = &mut **self.steps.get_or_insert_default();
        if steps.last().is_some_and(|(last, _)| last == step) {
            return false;
        }
        if steps.len() >= STEPS_MAX {
            steps.remove(0);
        }
        steps.push((step.clone(), at_ms));
        true
    }

    /// Adds what came later.
    pub(super) fn follow(&mut self, later: &Self) {
        self.delivered_ms = self.delivered_ms.or(later.delivered_ms);
        for (step, at_ms) in later.steps() {
            self.step(step, *at_ms);
        }
    }

    /// What it counts for among [`RECENT_MAX`].
    fn weight(&self) -> usize {
        1 + self.steps().len()
    }

    /// What happened, and when.
    pub(super) fn stages(&self) -> impl Iterator<Item = (Stage, u64)> {
        let delivered = self
            .delivered_ms
            .map(|at_ms| (Stage::Delivered, at_ms.get()));
        delivered.into_iter().chain(self.steps().iter().cloned())
    }
}

/// Deliveries of late that their recipients' connections do not hold (any more), by message and
/// recipient. Lost with the process.
#[derive(Debug, Default)]
pub(super) struct Recent {
    deliveries: BTreeMap<(Seq, PeerId), DeliveryHistory>,
    weight: usize,
}

impl Recent {
    /// Remembers what the recipient's connection knew of a delivery, and forgets the oldest messages
    /// when there are too many.
    pub(super) fn record(&mut self, delivery: (Seq, PeerId), history: DeliveryHistory) {
        match self.deliveries.entry(delivery) {
            Entry::Occupied(mut entry) => {
                let known = entry.get_mut();
                self.weight -= known.weight();
                known.follow(&history);
                self.weight += known.weight();
            }
            Entry::Vacant(entry) => {
                self.weight += history.weight();
                entry.insert(history);
            }
        }
        while self.weight > RECENT_MAX
            && let Some((_, oldest)) = self.deliveries.pop_first()
        {
            self.weight -= oldest.weight();
        }
    }

    /// What is remembered of one delivery.
    pub(super) fn get(&self, delivery: (Seq, PeerId)) -> Option<&DeliveryHistory> {
        self.deliveries.get(&delivery)
    }

    /// What is remembered of a message, by recipient; of [`RECIPIENTS_MAX`] at most.
    pub(super) fn of(&self, seq: Seq) -> impl Iterator<Item = (PeerId, &DeliveryHistory)> {
        self.deliveries
            .range((seq, PeerId(0))..)
            .take_while(move |((of, _), _)| *of == seq)
            .take(RECIPIENTS_MAX)
            .map(|((_, recipient), history)| (*recipient, history))
    }
}
