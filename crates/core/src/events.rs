//! What happened, numbered and bounded: the last events, of which each reader reads at its own pace.
//! Nobody is waited for: what is gone is told as a gap.
//!
//! What holds, for each reader and whatever the others do: events come in order and once each, with
//! none left out in silence; who comes back with the number of the last event that it has gets what
//! it would have got by staying.

mod mutation;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

pub use mutation::EventLogMutation;

/// Events that are kept.
pub const EVENTS_MAX: usize = 1_000;
/// Bytes that they take.
pub const BYTES_MAX: usize = 256 * 1024;

/// What a reader gets next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next<E> {
    /// Events up to this one are gone: so many, wanted or not.
    Gap {
        /// The last of them.
        seq: u64,
        /// How many.
        missed: u64,
    },
    /// This one.
    Event {
        /// Its number.
        seq: u64,
        /// The event.
        event: E,
    },
    /// Nothing: all up to this one was looked at.
    Nothing(u64),
}

/// The last events. They are numbered from 1.
#[derive(Debug)]
pub struct EventLog<E> {
    /// With the bytes that each takes.
    entries: VecDeque<(E, usize)>,
    last: u64,
    bytes: usize,
    mutations: crate::Mutations<EventLogMutation>,
}

impl<E> Default for EventLog<E> {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            last: 0,
            bytes: 0,
            mutations: Default::default(),
        }
    }
}

impl<E> EventLog<E> {
    /// Adds one that takes so many bytes. The oldest go where there is no room.
    pub fn push(&mut self, event: E, bytes: usize) {
        self.bytes += bytes;
        self.entries.push_back((event, bytes));
        self.last += 1;
        while self.entries.len() > EVENTS_MAX || self.is_large() {
            let Some((_, bytes)) = self.entries.pop_front() else {
                return;
            };
            self.bytes -= bytes;
        }
    }

    fn is_large(&self) -> bool {
        self.bytes > BYTES_MAX && !self.mutations.broken(mutation::EventLogMutation::KeepAll)
    }

    /// So many happened that nobody can be told of.
    pub fn skip(&mut self, events: u64) {
        if events > 0 {
            self.entries.clear();
            self.bytes = 0;
            if !self
                .mutations
                .broken(mutation::EventLogMutation::SkipSilent)
            {
                self.last += events;
            }
        }
    }

    /// The number of the last one; 0: there was none.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// How many are kept, and how many bytes they take.
    #[must_use]
    pub fn kept(&self) -> (usize, usize) {
        (self.entries.len(), self.bytes)
    }

    /// What comes after the event `seq`, of those that are wanted. `seq` is at most
    /// [`EventLog::last`].
    pub fn after(&self, seq: u64, wanted: impl Fn(&E) -> bool) -> Next<&E> {
        use mutation::EventLogMutation as M;
        let gone = self.last - self.entries.len() as u64;
        let mut seq = seq;
        if seq < gone && !self.mutations.broken(M::HideGap) {
            let missed = match self.mutations.broken(M::MiscountGap) {
                true => 1,
                false => gone - seq,
            };
            return Next::Gap { seq: gone, missed };
        }
        seq = seq.max(gone);
        if self.mutations.broken(M::Repeat) && seq > gone {
            seq -= 1;
        }
        let from = usize::try_from(seq - gone).unwrap_or(usize::MAX);
        let mut rest = (seq + 1..).zip(self.entries.iter().skip(from));
        let wanted = |event: &E| wanted(event) || self.mutations.broken(M::IgnoreChoice);
        let found = match self.mutations.broken(M::NewestFirst) {
            true => rest.filter(|(_, (event, _))| wanted(event)).last(),
            false => rest.find(|(_, (event, _))| wanted(event)),
        };
        match found {
            Some((seq, (event, _))) => Next::Event { seq, event },
            None => Next::Nothing(self.last),
        }
    }
}
