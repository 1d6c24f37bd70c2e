//! What is remembered of deliveries besides their rows and their ends: in memory, bounded, and lost
//! with the process.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;

use peerbus_wire::{MessageId, Stage};

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

    /// What happened, and when.
    pub(super) fn stages(&self) -> impl Iterator<Item = (Stage, u64)> {
        let delivered = self
            .delivered_ms
            .map(|at_ms| (Stage::Delivered, at_ms.get()));
        delivered.into_iter().chain(self.steps().iter().cloned())
    }
}

/// A delivery that the recipient's connection does not hold (any more).
#[derive(Debug, Clone)]
pub(super) struct PastDelivery {
    pub(super) recipient: PeerId,
    pub(super) history: DeliveryHistory,
}

impl PastDelivery {
    fn weight(&self) -> usize {
        1 + self.history.steps().len()
    }
}

/// Deliveries of late. Lost with the process.
#[derive(Debug, Default)]
pub(super) struct Recent {
    messages: BTreeMap<(PeerId, MessageId), Vec<PastDelivery>>,
    order: VecDeque<(PeerId, MessageId)>,
    weight: usize,
}

impl Recent {
    /// Remembers what the recipient's connection knew of a delivery.
    pub(super) fn record(
        &mut self,
        (sender, id): (PeerId, &MessageId),
        recipient: PeerId,
        history: DeliveryHistory,
    ) {
        let pasts = match self.messages.entry((sender, id.clone())) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                self.order.push_back(entry.key().clone());
                entry.insert(Vec::new())
            }
        };
        let known = pasts.iter().position(|past| past.recipient == recipient);
        let room = pasts.len() < RECIPIENTS_MAX;
        match known.and_then(|at| pasts.get_mut(at)) {
            Some(past) => {
                self.weight -= past.weight();
                past.history.follow(&history);
                self.weight += past.weight();
            }
            None if room => {
                let past = PastDelivery { recipient, history };
                self.weight += past.weight();
                pasts.push(past);
            }
            None => {}
        }
        while self.weight > RECENT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            let gone = self.messages.remove(&oldest).unwrap_or_default();
            self.weight -= gone.iter().map(PastDelivery::weight).sum::<usize>();
        }
    }

    pub(super) fn of(&self, sender: PeerId, id: &MessageId) -> &[PastDelivery] {
        let pasts = self.messages.get(&(sender, id.clone()));
        pasts.map_or(&[], Vec::as_slice)
    }
}
