//! Deliberate faults, switched on only by the tests that show that the oracle catches them.

/// A rule of the log that can be broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventLogMutation {
    /// What is gone is passed over without a word.
    HideGap,
    /// A gap says that one event is missing, however many are.
    MiscountGap,
    /// What nobody can be told of does not count.
    SkipSilent,
    /// A reader gets the event again that it has.
    Repeat,
    /// The newest event comes first.
    NewestFirst,
    /// A reader gets what it did not ask for.
    IgnoreChoice,
    /// Events are kept however many bytes they take.
    KeepAll,
}

#[cfg(feature = "mutations")]
impl<E> super::EventLog<E> {
    /// Breaks one rule.
    pub fn mutate(&mut self, mutation: EventLogMutation) {
        self.mutations.switch_on(mutation);
    }
}
