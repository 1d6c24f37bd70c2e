//! Deliberate faults, switched on only by the tests that show that the oracle catches them.

/// A rule of the mailbox that can be broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailboxMutation {
    /// A repeat does not say that it is one.
    HideRepeat,
    /// What stands in the conversation counts as seen.
    TrustPresence,
    /// What the user denied escalates to the next path.
    OverruleDenial,
    /// The newest goes first.
    NewestFirst,
    /// A message goes over another path while the outcome of an attempt is open.
    ShowInFlight,
    /// Each message becomes a push of its own at once.
    SkipPause,
    /// A deadline that passes changes nothing.
    NeverEscalate,
    /// A message has the hops that it says, whatever was sent to its sender.
    TrustHops,
    /// What the governor holds is pushed all the same.
    PushHeld,
    /// What is released goes behind everything that is here.
    ReleaseLast,
    /// What a tool gives back is forgotten.
    LoseReturned,
    /// What a tool gives back does not count as shown.
    ForgetDoubt,
    /// A push shows what it was made of, whatever became known since.
    ShowAsMade,
    /// An answer that somebody waits for is shown as well.
    ShowExpected,
    /// Whoever claims to answer a group's question does.
    TrustAnswers,
    /// What the client's user keeps is shown by another path.
    ShowKept,
    /// A result that left for the client counts as seen.
    TrustPipe,
    /// What is named counts as seen, though only a part of it was shown.
    AckInPart,
    /// A message that is named counts as seen, though the conversation shows no answer.
    TrustNames,
    /// The last part proves those before it.
    TrustParts,
    /// Parts that stood in the conversation before stand in the next one.
    JoinConversations,
    /// What waits for the user is shown all the same.
    ShowWithheld,
    /// The broker is told what becomes of a text that was put in here.
    AckLocal,
    /// Any number of texts that were put in wait unseen.
    CrowdLocal,
    /// A text that was put in counts as a peer's mail that starts turns.
    CountLocal,
    /// A text that was put in is held back like a peer's mail.
    HoldLocal,
    /// A message is shown after its lease was over.
    ShowLapsed,
    /// The agent is reminded of a request whenever it is idle.
    RemindAgain,
    /// It is reminded while its user has a dialog open.
    RemindWaiting,
    /// It is reminded of what it answered.
    RemindAnswered,
}

#[cfg(feature = "mutations")]
impl super::MailboxMachine {
    /// Breaks one rule.
    pub fn mutate(&mut self, mutation: MailboxMutation) {
        self.mutations.switch_on(mutation);
    }
}
