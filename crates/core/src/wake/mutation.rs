//! Deliberate faults, compiled only for the tests that show that the oracle catches them.

/// A rule of the ladder that can be broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "mutations"),
    expect(unreachable_pub, reason = "only tests name it")
)]
pub enum Mutation {
    /// A repeat does not say that it is one.
    HideRepeat,
    /// What stands in the conversation counts as seen.
    TrustPresence,
    /// What the user denied climbs to the next path.
    OverruleDenial,
    /// The newest goes first.
    NewestFirst,
    /// An entry goes over another path while the outcome of a showing is open.
    ShowInFlight,
    /// Each entry becomes a push of its own at once.
    SkipPause,
    /// A deadline that passes changes nothing.
    NeverClimb,
}

/// The fault that is switched on, if any.
pub(super) type Mutations = crate::mutation::Mutations<Mutation>;

#[cfg(feature = "mutations")]
impl super::Ladder {
    /// Breaks one rule.
    pub fn mutate(&mut self, mutation: Mutation) {
        self.mutations.switch_on(mutation);
    }
}
