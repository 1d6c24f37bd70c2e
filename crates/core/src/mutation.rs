//! Deliberate faults, switched on only by the tests that show that the oracle catches them.

/// The fault of a state machine that is switched on, if any; `M` names its faults.
#[derive(Debug, Clone, Copy)]
pub struct Mutations<M> {
    on: Option<M>,
}

impl<M> Default for Mutations<M> {
    fn default() -> Self {
        Self { on: None }
    }
}

impl<M: Copy + PartialEq> Mutations<M> {
    /// Switches a fault on.
    #[cfg(feature = "mutations")]
    pub fn switch_on(&mut self, mutation: M) {
        self.on = Some(mutation);
    }

    /// Whether the rule is broken: never, outside tests.
    #[must_use]
    pub fn broken(self, mutation: M) -> bool {
        cfg!(feature = "mutations") && self.on == Some(mutation)
    }
}
