//! What is remembered of deliveries besides their rows and their ends: in memory, bounded, and lost
//! with the process.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use peerbus_wire::Seq;

use crate::store::{DeliveryHistory, PeerId};

/// Deliveries and steps that are remembered, of however many messages.
const RECENT_MAX: usize = 32_768;

/// Recipients of one message whose deliveries are remembered, or that are named in an answer.
pub(super) const RECIPIENTS_MAX: usize = 64;

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

    /// What is remembered of one delivery, which is forgotten, and what came later.
    pub(super) fn take_with(
        &mut self,
        delivery: (Seq, PeerId),
        later: DeliveryHistory,
    ) -> DeliveryHistory {
        let Some(mut known) = self.deliveries.remove(&delivery) else {
            return later;
        };
        self.weight -= known.weight();
        known.follow(&later);
        known
    }

    /// What is remembered of one delivery is of another recipient's from now on.
    pub(super) fn pass(&mut self, (seq, from): (Seq, PeerId), to: PeerId) {
        if let Some(known) = self.deliveries.remove(&(seq, from)) {
            self.weight -= known.weight();
            self.record((seq, to), known);
        }
    }

    /// What is remembered of one delivery.
    pub(super) fn get(&self, delivery: (Seq, PeerId)) -> Option<&DeliveryHistory> {
        self.deliveries.get(&delivery)
    }

    /// Whether it remembers what a recipient said of mail that is under way.
    pub(super) fn has_steps(&self) -> bool {
        // A delivery weighs one, and one more for each step.
        self.weight > self.deliveries.len()
    }
}
