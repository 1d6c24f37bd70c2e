//! Keeps conversations from running away: two agents that thank each other for ever, a thread that
//! goes round in circles, a peer that wakes another all day.
//!
//! Judged where a message arrives, before it is shown. What is over budget is held as quiet: it is
//! kept and can be read, and starts nothing.

use peerbus_wire::NameKey;

/// What a message looks like to the governor.
#[derive(Debug, Clone)]
pub struct Arrival<'a> {
    /// Who sent it.
    pub from: &'a NameKey,
    /// The conversation that it belongs to.
    pub thread: Option<&'a str>,
    /// How many replies led to it.
    pub hops: u32,
    /// What it says, as plain text, its beginning at least.
    pub text: &'a str,
}

/// What to do with a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Show it as its sender wishes.
    Pass,
    /// Hold it as quiet.
    Hold {
        /// Why: a sentence for both sides and the human.
        reason: String,
        /// This is the first of its kind for a while: the agent, the sender and the human are told.
        tell: bool,
    },
}

/// The budgets of one recipient.
#[derive(Debug)]
pub struct Governor {}

#[expect(clippy::unimplemented, unused_variables, reason = "signatures first")]
impl Governor {
    /// A governor that lets `exchanges` replies of one peer through in ten minutes; `None`: all.
    #[must_use]
    pub fn new(exchanges: Option<u32>) -> Self {
        Self {}
    }

    /// Judges what arrived.
    pub fn judge(&mut self, now_ms: u64, arrival: &Arrival<'_>) -> Verdict {
        unimplemented!()
    }

    /// This peer sent something to `to`: the next message from there is an answer.
    pub fn sent(&mut self, now_ms: u64, to: &NameKey, thread: Option<&str>) {
        unimplemented!()
    }
}
