//! Deliberate faults, switched on only by the tests that show that the oracle catches them.

/// A rule of the broker that can be broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokerMutation {
    /// I1: outputs leave before the commit.
    ReleaseEarly,
    /// I2: an acceptance is not written to the audit chain.
    SkipAudit,
    /// I3: a live message overtakes the backlog.
    Overtake,
    /// I4: a delivery is settled when its holder's connection ends.
    ForgetOnClose,
    /// I5: deliveries ignore the window.
    IgnoreWindow,
    /// I5: one sender may take the whole window.
    IgnoreShare,
    /// I5: the part of a window that urgent and first messages have is for all.
    KeepNothing,
    /// I7: a takeover starts behind the mail that the old connection held.
    TakeoverLoses,
    /// I8: an ack does not settle the delivery, so that the mail comes to a later process again.
    AckWithoutEffect,
    /// I10: `from` is not compared with the connection's name.
    TrustFrom,
    /// I20: what was read goes on counting against quotas.
    ForgetOwed,
    /// I20: one token may have all that may be owed to a peer.
    FillQueue,
    /// A peer's audit records are written however many come.
    AuditAll,
    /// That a peer had more of them is not written.
    HideExcess,
    /// I12: a token at its limit of names loses one that has mail.
    ForgetMail,
    /// I12: a token at its limit of names takes the place of another one's.
    ForgetOthers,
    /// I12: mail for an unknown name is accepted and dropped.
    AcceptUnknown,
    /// What a bridge says of how far it is, is not kept.
    ForgetMark,
    /// What a bridge has forwarded is owed to nobody.
    ForwardLoses,
    /// A member of a group is passed over.
    SkipMember,
    /// Of a message for one member of a group the next one is not told that it may have been shown.
    PassAsNew,
    /// Who gave such a message up is still owed it.
    TwoHolders,
    /// Such a message stays with a member that has left,
    KeepLease,
    /// or that does not come to it,
    KeepLate,
    /// or comes again to one that rejected it,
    GiveToRejected,
    /// or goes to one that works while another one is idle.
    BusyFirst,
    /// A request ends when it is read,
    EndRead,
    /// or waits for a result for ever,
    WaitForEver,
    /// or goes on when it was answered.
    IgnoreAnswer,
    /// What a bridge brings behind a message that was refused is taken.
    TakeBehind,
    /// A bridge is given its mail in any order.
    Disorder,
    /// What was forwarded to a broker that forgot it is not owed again.
    KeepForwarded,
}

#[cfg(feature = "mutations")]
impl super::Broker {
    /// Breaks one rule.
    pub fn mutate(&mut self, mutation: BrokerMutation) {
        self.mutations.switch_on(mutation);
        self.outbox.release_early = mutation == BrokerMutation::ReleaseEarly;
    }
}
