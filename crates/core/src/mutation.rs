//! Deliberate faults, compiled only for the tests that show that the oracle catches them.

/// The fault of a state machine that is switched on, if any; `M` names its faults.
#[derive(Debug, Clone, Copy)]
pub struct Mutations<M> {
    #[cfg(feature = "mutations")]
    on: Option<M>,
    #[cfg(not(feature = "mutations"))]
    on: std::marker::PhantomData<M>,
}

impl<M> Default for Mutations<M> {
    fn default() -> Self {
        Self {
            on: Default::default(),
        }
    }
}

impl<M: Copy + PartialEq> Mutations<M> {
    /// Switches a fault on.
    #[cfg(feature = "mutations")]
    pub fn switch_on(&mut self, mutation: M) {
        self.on = Some(mutation);
    }

    /// Whether the rule is broken.
    #[cfg(feature = "mutations")]
    #[must_use]
    pub fn broken(self, mutation: M) -> bool {
        self.on == Some(mutation)
    }

    /// Whether the rule is broken: never, outside tests.
    #[cfg(not(feature = "mutations"))]
    #[must_use]
    pub fn broken(self, _: M) -> bool {
        let Self { on: _ } = self;
        false
    }
}
