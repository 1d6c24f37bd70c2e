//! Deliberate faults, switched on only by the tests that show that the oracle catches them.

/// A rule of the session that can be broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionMutation {
    /// I8: what was consumed is shown again when it comes again.
    ShowTwice,
    /// I8: a message is acked before the host has it.
    AckUnread,
    /// A statement that the broker keeps is acked before the host told it.
    AckUntold,
    /// Trust: a message whose signature is wrong is shown.
    SkipVerify,
}

#[cfg(feature = "mutations")]
impl super::PeerSession {
    /// Breaks one rule.
    pub fn mutate(&mut self, mutation: SessionMutation) {
        self.mutations.switch_on(mutation);
        self.inbox.forgetful = mutation == SessionMutation::ShowTwice;
    }
}
