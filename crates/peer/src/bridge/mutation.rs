//! Deliberate faults, switched on only by the tests that show that the oracle catches them.

/// A rule of the bridge that can be broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BridgeMutation {
    /// A message is taken although one before it is missing.
    IgnoreGap,
    /// What is not on disk yet is confirmed.
    ConfirmEarly,
    /// The stream is acked for what is not on disk yet.
    AckEarly,
    /// What was sent in another life of one of the brokers is taken.
    TakeStale,
    /// What is known is taken again.
    TakeKnown,
    /// The broker does not learn that the far one has another epoch.
    IgnoreEpoch,
    /// What is not confirmed is not sent again.
    NeverResend,
    /// A message of whatever sender is believed.
    TrustFrom,
    /// An end is noted before it is on disk.
    NoteEarly,
    /// Notices are acked before the other side has noted them.
    AckNotices,
    /// Stages are said once, and nobody asks for them.
    NeverAsk,
    /// What is refused is passed over.
    SkipRefused,
    /// What is under way behind a refused message is sent on as if nothing were.
    TakeBehind,
    /// What was not taken is passed over before its end is on disk at home.
    GiveUpEarly,
    /// A message that was delivered over there is said to be seen.
    Exaggerate,
    /// A request is brought as a message that wants no result.
    ForgetWants,
}

#[cfg(feature = "mutations")]
impl super::Bridge {
    /// Breaks one rule.
    pub fn mutate(&mut self, mutation: BridgeMutation) {
        self.mutations.switch_on(mutation);
    }
}
